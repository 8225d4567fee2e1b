// The state of a rendering: memory, the output, variables, and the bounds. Private to this
// folder.
//
//   memory   heap: grows to the render's end. output: a stack of texts under construction; what is
//            printed lies at its bottom, what a macro or a filter makes above, until take()
#pragma once

#include <ctime>
#include <optional>
#include <span>
#include <string_view>

#include "platform/base/bump.h"
#include "platform/base/result.h"
#include "runtime/chat/limits.h"
#include "runtime/chat/scopes.h"
#include "runtime/chat/value.h"

namespace tarn::chat {

// The result of a failed call; the machine has the error.
struct Failed {
  template <class T>
  operator std::optional<T>() const {  // NOLINT: implicit by intent
    return std::nullopt;
  }
  bool no() const { return false; }  // where a call returns whether it succeeded
};

using MaybeValue = std::optional<Value>;

class Machine {
 public:
  Machine(const Program& program, std::span<std::byte> memory, const std::tm& now);

  const Program& program;
  const std::tm& now;

  // ---- errors
  Failed refuse(const char* hint, std::string_view detail, Status status = Status::invalid_request);
  Failed unknown(std::string_view what);                  // what the interpreter does not know
  Failed wrong(std::string_view what);                    // Jinja2 would raise an error, too
  Failed bad_field(const char* field, const char* hint);  // in the caller's JSON
  Failed no_memory();
  Failed refuse_json(const char* what, u64 at);
  bool has_failed() const { return error_.status != Status::ok; }
  const Error& error() const { return error_; }

  // ---- bounds
  // Counts a step; false if no work is left.
  bool step() { return (work_left_ -= kStepWork) >= 0 || out_of_work(); }
  void at_line(u32 line) { line_ = line; }
  // Counts work on bytes; the next step() refuses.
  void work(u64 n_bytes) { work_left_ -= static_cast<i64>(n_bytes); }
  bool go_deeper() { return ++depth_ <= kDepthMax || too_deep(); }
  void come_back() { --depth_; }

  // ---- memory
  // Room for n > 0; empty, with no_memory(), if there is none.
  template <class T>
  std::span<T> alloc(u64 n) {
    const auto got = heap_.alloc<T>(n);
    if (!got) no_memory();
    return got.value_or(std::span<T>());
  }
  // A mark of the heap. What was made since is given back, unless something that outlives it may
  // refer to it.
  struct Mark {
    u64 n_bytes = 0;
    u64 n_kept = 0;
  };
  Mark mark() const { return {heap_.used_bytes(), n_kept_}; }
  void release(Mark mark) {
    if (n_kept_ == mark.n_kept) heap_.rewind(mark.n_bytes);
  }
  // A value was written where others find it: in a namespace.
  void note_kept() { ++n_kept_; }
  // The output's unused room, for what does not outlive the next text.
  std::span<std::byte> spare();

  // ---- output
  u64 begin() const { return n_out_; }
  bool put(std::string_view text, u8 origin = 0);
  bool put(const Value& text);
  // Ends a text: moves it to the heap.
  MaybeValue take(u64 begin);
  std::span<const u8> origins() const { return origins_.first(n_out_); }
  std::string_view output() const { return {out_.data(), n_out_}; }

  bool bind(u32 name, const Value& value);  // in the innermost scope

  Scopes variables{};

 private:
  bool out_of_work();
  bool too_deep();

  Bump heap_{};
  u64 n_kept_ = 0;
  std::span<char> out_{};
  std::span<u8> origins_{};
  u64 n_out_ = 0;
  u32 line_ = 0;
  u32 depth_ = 0;
  i64 work_left_ = kWorkMax;
  Error error_{.status = Status::ok};
};

// One level of recursion: of evaluation, or through a value.
class Level {
 public:
  explicit Level(Machine& m) : m_(m), is_allowed_(m.go_deeper()) {}
  ~Level() { m_.come_back(); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  explicit operator bool() const { return is_allowed_; }

 private:
  Machine& m_;
  bool is_allowed_;
};

}  // namespace tarn::chat

// Binds the value of a MaybeValue, or any optional, or fails as the callee did.
#define TARN_GET(target, expression) TARN_GET_(TARN_CONCAT(maybe_at_, __LINE__), target, expression)
#define TARN_GET_(maybe, target, expression) \
  auto maybe = (expression);                 \
  if (!maybe) return ::tarn::chat::Failed{}; \
  target = *maybe
