// Reads a request's JSON body by the table of fields. No more than the fields' values is kept, so
// the memory that a body takes is bounded by its length.
#pragma once

#include <optional>
#include <string>

#include "tools/tarnd/exchange.h"
#include "tools/tarnd/fields.h"

namespace tarn::daemon {

// The text is changed. The error names the field, and no text of the user beside its name.
std::optional<HttpError> read_body(Endpoint endpoint, std::string& text, Body& body);

}  // namespace tarn::daemon
