// The engine, as the event loop sees it: it is opened on a thread of its own, its descriptor is an
// event of the loop, and calls are submitted and answered by functions.
//
// libtarn takes 256 unanswered calls. Further ones wait here, in order; how many there can be is
// bounded by the requests. Functions run on the loop's thread, never within call().
//
// The engine has ended for good when it says so, and when an assertion failed on any of its
// threads: after one in a text it would go on, and refuse every text.
#pragma once

#include <event2/event.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include "platform/base/types.h"
#include "platform/cpu/ready_fd.h"
#include "runtime/api/tarn.h"
#include "tools/tarnd/engine_error.h"
#include "tools/tarnd/loop_thread.h"

namespace tarn::daemon {

// The arguments of tarn_open, kept for the engine's life.
struct EngineSource {
  std::string model_path, config_toml, chat_template;
  int32_t (*open)(const tarn_options*, tarn_engine**) = tarn_open;  // or a test's, with a fake GPU
};

class EnginePort {
 public:
  enum class State : u8 { loading, ready, failed, ended };
  using Submit = std::function<int32_t(tarn_engine* engine, void* request)>;
  using Done = std::function<void(const tarn_event& reply)>;

  explicit EnginePort(event_base* base);
  EnginePort(const EnginePort&) = delete;
  EnginePort& operator=(const EnginePort&) = delete;
  ~EnginePort();

  // Begins to open. on_state is called when it is ready, or failed, and if it ends later.
  void open(EngineSource source);
  std::function<void()> on_state;
  std::function<void(const tarn_event& event)> on_event;  // TOKEN, TEXT and DONE
  std::function<void()> on_io_failed;                     // something could not be read or written

  State state() const { return state_; }
  const EngineError& error() const { return error_; }  // of State::failed and ended
  tarn_engine* get() const { return engine_; }

  // Submits a call, now or when there is room. `done` gets its reply, or what the submission
  // returned in the form of one, or the engine's end.
  void call(Submit submit, Done done);
  // The engine has ended, for this reason. Calls that it has are still answered.
  void give_up(const EngineError& error);

 private:
  struct Call {
    Submit submit;
    Done done;
  };
  static void on_ready(evutil_socket_t, short, void* self);
  static void on_failed(evutil_socket_t, short, void* self);
  static void on_fatal(void* self, const char* condition, const char* file, uint32_t line);
  static void on_assertion(evutil_socket_t, short, void* self);

  void read_model();
  void on_read();
  void take_events();
  // Whether it is submitted or failed; false: there was no room, and it waits first in line.
  bool submit(std::unique_ptr<Call> call);
  void fail_later(std::unique_ptr<Call> call, const EngineError& error);
  void end(const EngineError& error);

  event_base* base_;
  State state_ = State::loading;
  EngineSource source_;
  event* ready_ = nullptr;
  event* failed_event_ = nullptr;
  tarn_engine* engine_ = nullptr;
  EngineError error_;
  std::atomic<bool> stops_loading_{false};
  ReadyFd asserted_;  // set on the thread whose assertion failed
  event* asserted_event_ = nullptr;
  std::unordered_set<Call*> submitted_;
  std::deque<std::unique_ptr<Call>> waiting_;
  struct Failed {
    std::unique_ptr<Call> call;
    EngineError error;
  };
  std::deque<Failed> failed_;
  LoopThread opener_;
};

// The bytes of a token; none if the vocabulary does not have it.
std::optional<std::string> piece_of(tarn_engine* engine, u32 token);
// How many ids a text can have: a token has a byte at least, beside BOS and EOS.
inline u64 ids_max(u64 text_bytes) { return text_bytes + 8; }

}  // namespace tarn::daemon
