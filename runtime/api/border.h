// The border of every function of the C API: converts structs of any version in and out, and
// Results to a status and a sentence.
#pragma once

#include <algorithm>
#include <cstring>

#include "platform/base/result.h"
#include "runtime/api/tarn.h"
#include "runtime/engine/engine.h"

namespace tarn::api {

// The calling thread's text, of its last failed call.
const char* error_text();
int32_t report(const Error& error);
int32_t report(const Result<void>& result);
int32_t refuse(const char* hint);

inline constexpr const char* kBadStruct =
    "an options struct is NULL or has no struct_size: initialise it with TARN_INIT(type)";
inline constexpr const char* kLaterStruct =
    "an options struct sets a field that this libtarn does not know: leave the field zero, or link "
    "a newer libtarn";
inline constexpr uint32_t kStructBytesMax = 4096;  // of any version

// Copies the fields of the caller's version of a struct; newer fields stay zero. Returns the reason
// if it cannot, or nullptr.
template <class T>
const char* copy_in(const T* from, T* to) {
  static_assert(sizeof(T) <= kStructBytesMax);
  if (from == nullptr || from->struct_size < sizeof(from->struct_size) ||
      from->struct_size > kStructBytesMax) {
    return kBadStruct;
  }
  const auto* bytes = reinterpret_cast<const char*>(from);
  const auto is_set = [](char byte) { return byte != 0; };
  if (from->struct_size > sizeof(T) &&
      std::any_of(bytes + sizeof(T), bytes + from->struct_size, is_set)) {
    return kLaterStruct;
  }
  *to = T{};
  std::memcpy(to, from, std::min<size_t>(from->struct_size, sizeof(T)));
  return nullptr;
}

template <class T>
bool copy_out(const T& from, T* to) {
  if (to == nullptr || to->struct_size < sizeof(to->struct_size)) return false;
  const uint32_t struct_size = to->struct_size;
  std::memcpy(to, &from, std::min<size_t>(struct_size, sizeof(T)));
  to->struct_size = struct_size;
  return true;
}

template <size_t n>
void copy_text(char (&to)[n], const char* from) {
  const size_t length = std::min(std::strlen(from), n - 1);
  std::memcpy(to, from, length);
  std::memset(to + length, 0, n - length);
}

inline constexpr uint32_t kTextFlags = TARN_ADD_SPECIAL | TARN_PARSE_SPECIAL;
inline constexpr const char* kBadFlags =
    "flags has a bit that this libtarn does not know: pass TARN_ADD_SPECIAL, TARN_PARSE_SPECIAL, "
    "both or 0";

inline text::EncodeOptions encode_options(uint32_t flags) {
  return {.add_special = (flags & TARN_ADD_SPECIAL) != 0,
          .parse_special = (flags & TARN_PARSE_SPECIAL) != 0};
}

}  // namespace tarn::api
