// How the core reports a failure, without exceptions and without allocating. An Error has a status
// and a reason for programs, and a fixed text for the operator. Up to four named numbers go with
// it, and one short name that came from outside (a tensor, a key, a path). Assertions are for our
// bugs, Result is for failures of the world.
#pragma once

#include <array>
#include <initializer_list>
#include <string_view>
#include <tl/expected.hpp>  // libexpected-dev; std::expected once C++23 is the floor
#include <utility>

#include "platform/base/types.h"

namespace tarn {

// Values are part of the C ABI (tarn_status): append only, never renumber.
enum class Status : i32 {
  ok = 0,
  invalid_config = 1,   // a key or an option is unknown, missing or out of range
  invalid_model = 2,    // the model file contradicts itself or the format
  over_budget = 3,      // the plan does not fit; the figures name the largest regions
  device_lost = 4,      // the GPU reported a sticky error; only a new process can use it again
  io_failed = 5,        // figures: errno, byte offset
  internal = 6,         // one of our assertions failed; this engine is dead
  invalid_request = 7,  // this model cannot serve what was asked (prompt too long, bad token, ...)
  would_block = 8,      // a bounded queue or pool is full; try again after the engine has advanced
  cancelled = 9,        // the request was cancelled by its owner
  unsupported = 10,     // valid, but nothing that this build knows; the hint says what
  not_finite = 11,      // the model produced a logit that is not a finite number
  not_found = 12,       // no session is kept under this name
};

// Why, as a program decides by it: no code looks into a sentence. Values are part of the C ABI
// (tarn_reason, which says what each one means): append only, never renumber.
enum class Reason : i32 {
  none = 0,
  context_too_long = 1,
  busy_sessions = 2,
  busy_waiting = 3,
  busy_kv = 4,
  busy_calls = 5,
  not_yet = 6,
  no_memory = 7,
  bad_field = 8,
  bad_setting = 9,
  wrong_state = 10,
  name_not_found = 11,
  name_in_use = 12,
  no_store = 13,
  store_held = 14,
  store_unreadable = 15,
  store_full = 16,
  saved_otherwise = 17,
  no_template = 18,
  template_failed = 19,
};

// Returns the status' name in lower case with underscores, as text and JSON print it.
const char* status_name(Status status);

struct Figure {
  const char* name = nullptr;  // static storage: a region, a key, "errno"
  u64 value = 0;
};

// A copy of at most 127 bytes of text from outside, as append_shown() writes it (shown_text.h): an
// error line is UTF-8, and cannot carry terminal escapes out of a hostile file.
class Detail {
 public:
  Detail() = default;
  Detail(std::string_view text);  // NOLINT: implicit by intent, errors are written in one line
  Detail(std::initializer_list<std::string_view> parts);  // in a row
  const char* c_str() const { return text_.data(); }
  bool empty() const { return text_[0] == '\0'; }

 private:
  std::array<char, 128> text_{};
};

struct Error {
  Status status = Status::internal;
  Reason reason = Reason::none;  // none: the status is all that a program acts on
  const char* key = "";          // static storage: the field, or the key of the configuration
  // Static storage: one sentence that says what is wrong and what to do about it. "{2}" stands for
  // the value of figures[2].
  const char* hint = "";
  Detail detail{};  // the tensor, key or path it is about; may be empty
  std::array<Figure, 4> figures{};
};

// Writes "hint: detail (name value, name value)" into `out`, with the figures' values in the hint.
// The text is always terminated, and cut where it does not fit. Returns its length without the
// terminator.
u64 format_error(const Error& error, char* out, u64 out_bytes);

template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};

using Unexpected = tl::unexpected<Error>;
inline Unexpected fail(const Error& error) { return Unexpected(error); }

}  // namespace tarn

#define TARN_CONCAT_(a, b) a##b
#define TARN_CONCAT(a, b) TARN_CONCAT_(a, b)

// TARN_TRY(auto plan, plan_memory(config)): bind the value, or hand the error to our caller.
#define TARN_TRY(target, expression) \
  TARN_TRY_(TARN_CONCAT(result_at_, __LINE__), target, expression)
#define TARN_TRY_(result, target, expression)             \
  auto result = (expression);                             \
  if (!result) return ::tarn::Unexpected(result.error()); \
  target = std::move(*result)

// TARN_CHECK(expression of type Result<void>): hand the error to our caller, or go on.
#define TARN_CHECK(expression) TARN_CHECK_(TARN_CONCAT(result_at_, __LINE__), expression)
#define TARN_CHECK_(result, expression)                     \
  do {                                                      \
    auto result = (expression);                             \
    if (!result) return ::tarn::Unexpected(result.error()); \
  } while (false)
