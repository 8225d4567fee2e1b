// The border of every function of the C API: converts structs of any version in and out, and
// Results to a status and a sentence. A function that takes a handle first makes a Call, and asks
// it whether the call is allowed; tarn_close waits while such an object exists.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/api/instance.h"
#include "runtime/api/tarn.h"

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

// The tenant of the options, which may be NULL; or why not.
inline const char* tenant_of(const tarn_session_options* options, std::string_view* tenant) {
  tarn_session_options own{};
  const char* why_not = options == nullptr ? nullptr : copy_in(options, &own);
  *tenant = own.tenant == nullptr ? std::string_view() : std::string_view(own.tenant);
  return why_not;
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

// The reason why a text and its flags are refused, or nullptr.
inline const char* bad_text(const char* text, uint64_t text_bytes, uint32_t flags) {
  if (text == nullptr && text_bytes > 0) return "text is NULL";
  return (flags & ~kTextFlags) != 0 ? kBadFlags : nullptr;
}

inline text::EncodeOptions encode_options(uint32_t flags) {
  return {.add_special = (flags & TARN_ADD_SPECIAL) != 0,
          .parse_special = (flags & TARN_PARSE_SPECIAL) != 0};
}

inline constexpr const char* kForked =
    "the engine belongs to the process that opened it, and this one is a child of fork(2): open "
    "an engine here with tarn_open";

class Call {
 public:
  explicit operator bool() const { return why_not_ == nullptr; }
  const char* why_not() const { return why_not_; }
  engine::Engine& engine() const { return instance_->engine; }
  // Returns the handle of a new session, initialised for its first call.
  tarn_session* begin_session(engine::SessionIdx idx) const {
    Instance::SessionHandle& handle = instance_->sessions[idx];
    handle.reading.store(false);
    return reinterpret_cast<tarn_session*>(&handle);
  }
  // Runs fn(encoder) on the caller's thread, when no other caller works on a text.
  template <class Fn>
  Result<void> run_text(Fn&& fn) const {
    engine::EngineThread::TextTurn turn(instance_->thread);
    TARN_CHECK(turn.begun());
    return turn.run([&]() -> Result<void> { return fn(instance_->engine.text()); });
  }

 protected:
  Call(Instance* instance, const char* no_handle) : instance_(instance), why_not_(no_handle) {
    if (instance_ == nullptr) return;
    visit_.emplace(instance_->thread);
    why_not_ = visit_->is_admitted() ? nullptr : kForked;
  }

  Instance* instance_;

 private:
  const char* why_not_;
  std::optional<engine::EngineThread::Visit> visit_{};
};

class EngineCall : public Call {
 public:
  explicit EngineCall(tarn_engine* engine)
      : Call(reinterpret_cast<Instance*>(engine), "engine is NULL: open one with tarn_open") {}
  // Runs fn(engine) on the engine's thread; a value of its Result is dropped.
  template <class Fn>
  Result<void> run(Fn&& fn) const {
    return instance_->thread.call([&]() -> Result<void> {
      TARN_CHECK(fn(instance_->engine));
      return {};
    });
  }
};

// A destroyed session is an error until a new session takes its place.
class SessionCall : public Call {
  using Handle = Instance::SessionHandle;

 public:
  explicit SessionCall(tarn_session* session) : SessionCall(reinterpret_cast<Handle*>(session)) {}
  engine::SessionIdx idx() const { return handle_->idx; }
  engine::EngineThread& thread() const { return instance_->thread; }
  // Whether a generation was begun and its DONE is not read yet.
  std::atomic<bool>& reading() const { return handle_->reading; }
  // Runs fn(engine, idx) on the engine's thread; a value of its Result is dropped.
  template <class Fn>
  Result<void> run(Fn&& fn) const {
    return thread().call([&]() -> Result<void> {
      engine::Engine& engine = instance_->engine;
      if (engine.session_state(idx()).state == engine::SessionState::free) return destroyed();
      TARN_CHECK(fn(engine, idx()));
      return {};
    });
  }
  // The state after the last step or call.
  Result<engine::EngineThread::Progress> progress() const {
    const auto progress = thread().progress(idx());
    if (progress && progress->state == engine::SessionState::free) return destroyed();
    return progress;
  }

 private:
  explicit SessionCall(Handle* handle)
      : Call(handle != nullptr ? handle->instance : nullptr,
             "session is NULL: create one with tarn_session_create"),
        handle_(handle) {}
  static Unexpected destroyed() {
    return fail({.status = Status::invalid_request,
                 .hint = "the session was destroyed: create another one"});
  }

  Handle* handle_;
};

// Run fn on the engine's thread, unless the call is not allowed or its arguments are not: `why_not`
// is then the reason, else nullptr.
template <class Fn>
int32_t on_engine(tarn_engine* engine, const char* why_not, Fn&& fn) {
  const EngineCall call(engine);
  if (!call) return refuse(call.why_not());
  return why_not != nullptr ? refuse(why_not) : report(call.run(fn));
}
template <class Fn>
int32_t on_session(tarn_session* session, const char* why_not, Fn&& fn) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  return why_not != nullptr ? refuse(why_not) : report(call.run(fn));
}

}  // namespace tarn::api
