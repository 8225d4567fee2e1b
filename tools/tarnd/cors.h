// A browser asks before a page of an allowed origin (daemon.origins) may send a request. Fields of
// the reply let the page read it (the Fetch standard, "CORS protocol").
#pragma once

#include <string>
#include <string_view>

#include "tools/tarnd/http_head.h"

namespace tarn::daemon {

// Returns whether the request is a preflight: OPTIONS with an Origin and the method to come.
bool is_preflight(const Head& head);
// Fields of the reply to one, each with its line's end. Of the header names that are asked for,
// those pass that the daemon reads or the clients' libraries send.
std::string preflight_fields(std::string_view asked_names);
// Fields of every reply to a page of this origin.
std::string cors_fields(std::string_view origin);

}  // namespace tarn::daemon
