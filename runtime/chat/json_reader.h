// JSON as a template's values, read in the machine's heap. Private to this folder.
#pragma once

#include <string_view>

#include "runtime/chat/machine.h"

namespace tarn::chat {

// `what` is the JSON's name in errors. Texts get the origin; with `by_item` each item of the outer
// array has its own, as messages do.
MaybeValue read_json(Machine& m, std::string_view json, const char* what, u8 origin, bool by_item);

}  // namespace tarn::chat
