// The entry of the C API: every function that takes a handle first makes one of these objects, and
// asks it whether the call is allowed. tarn_close waits while such an object exists.
#pragma once

#include <optional>

#include "runtime/api/tarn.h"
#include "runtime/engine/instance.h"

namespace tarn::api {

inline constexpr const char* kForked =
    "the engine belongs to the process that opened it, and this one is a child of fork(2): open "
    "an engine here with tarn_open";

class Call {
 public:
  explicit operator bool() const { return why_not_ == nullptr; }
  const char* why_not() const { return why_not_; }
  // Returns the handle of a new session, initialised for its first call.
  tarn_session* begin_session(engine::SessionIdx idx) const {
    engine::Instance::SessionHandle& handle = instance_->sessions[idx];
    handle.reading.store(false);
    return reinterpret_cast<tarn_session*>(&handle);
  }

 protected:
  Call(engine::Instance* instance, const char* no_handle)
      : instance_(instance), why_not_(no_handle) {
    if (instance_ == nullptr) return;
    visit_.emplace(instance_->thread);
    why_not_ = visit_->is_admitted() ? nullptr : kForked;
  }

  engine::Instance* instance_;

 private:
  const char* why_not_;
  std::optional<engine::EngineThread::Visit> visit_{};
};

class EngineCall : public Call {
 public:
  explicit EngineCall(tarn_engine* engine)
      : Call(reinterpret_cast<engine::Instance*>(engine),
             "engine is NULL: open one with tarn_open") {}
  engine::Engine& engine() const { return instance_->engine; }
  // Runs fn() on the engine's thread.
  template <class Fn>
  Result<void> run(Fn&& fn) const {
    return instance_->thread.call(fn);
  }
};

// A destroyed session is an error until a new session takes its place.
class SessionCall : public Call {
  using Handle = engine::Instance::SessionHandle;

 public:
  explicit SessionCall(tarn_session* session) : SessionCall(reinterpret_cast<Handle*>(session)) {}
  engine::SessionIdx idx() const { return handle_->idx; }
  engine::EngineThread& thread() const { return instance_->thread; }
  // Whether a generation was begun and its DONE is not read yet.
  std::atomic<bool>& reading() const { return handle_->reading; }
  // Runs fn(engine, idx) on the engine's thread.
  template <class Fn>
  Result<void> run(Fn&& fn) const {
    return thread().call([&]() -> Result<void> {
      engine::Engine& engine = instance_->engine;
      if (engine.session_state(idx()).state == engine::SessionState::free) return destroyed();
      return fn(engine, idx());
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

}  // namespace tarn::api
