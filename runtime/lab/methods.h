// Methods for measurements and tests: no key names one, SelectConfig::lab_method lends it.
#pragma once

#include <string_view>

#include "runtime/method/method.h"

namespace tarn::lab {

std::span<const method::Method> methods();
const method::Method* method_named(std::string_view name);  // nullptr: there is none

method::Reader* make_every_second(std::byte* at, const method::ReaderArgs& args);

}  // namespace tarn::lab
