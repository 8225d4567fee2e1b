#include "tools/tarnd/engine_port.h"

#include <algorithm>

#include "tools/support/exit_code.h"
#include "tools/support/model_file.h"
#include "tools/tarnd/log.h"

namespace tarn::daemon {
namespace {

// Events that are taken before the loop looks after its other descriptors.
constexpr u32 kEventsAtOnce = 256;

void log_engine(void*, int32_t level, const char* text) {
  const auto shown = static_cast<LogLevel>(std::clamp(level, 0, 3));
  log_event(Event::engine, shown, {{"text", text}});
}

}  // namespace

EnginePort::EnginePort(event_base* base) : base_(base), opener_(base, [this] { on_read(); }) {
  failed_event_ = event_new(base, -1, 0, on_failed, this);
  tools::value_of(asserted_.open());
  asserted_event_ = event_new(base, asserted_.fd(), EV_READ, on_assertion, this);
  if (failed_event_ == nullptr || asserted_event_ == nullptr ||
      event_add(asserted_event_, nullptr) != 0) {
    throw tools::Failure{tools::kExitIo, "libevent gives no event"};
  }
}

EnginePort::~EnginePort() {
  stops_loading_ = true;
  opener_.join();
  if (ready_ != nullptr) event_free(ready_);  // before the descriptor is closed
  event_free(failed_event_);
  event_free(asserted_event_);
  tarn_close(engine_);
  for (Call* const call : submitted_) delete call;
}

void EnginePort::open(EngineSource source) {
  source_ = std::move(source);
  opener_.start([this] { read_model(); });
}

void EnginePort::read_model() {
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = source_.model_path.c_str();
  options.config_toml = source_.config_toml.c_str();
  if (!source_.chat_template.empty()) options.chat_template = source_.chat_template.c_str();
  options.log = log_engine;
  options.log_level = 0;
  options.fatal = on_fatal;
  options.fatal_context = this;
  options.progress = [](void* self, uint64_t, uint64_t) -> int32_t {
    return static_cast<EnginePort*>(self)->stops_loading_ ? 1 : 0;
  };
  options.progress_context = this;
  if (source_.open(&options, &engine_) == TARN_OK) return;
  error_ = latest_error();
  error_.text +=
      tools::where_all_reasons_are(static_cast<Status>(error_.status), source_.model_path);
}

void EnginePort::on_read() {
  const int fd = engine_ != nullptr ? tarn_engine_fd(engine_) : -1;
  if (engine_ != nullptr && fd < 0) error_ = latest_error();
  if (fd >= 0) {
    ready_ = event_new(base_, fd, EV_READ | EV_PERSIST, on_ready, this);
    if (ready_ == nullptr || event_add(ready_, nullptr) != 0) {
      error_ = {.status = TARN_INTERNAL,
                .text = "no memory for the engine's event (daemon.memory_bytes)"};
    }
  }
  state_ = error_.status == TARN_OK ? State::ready : State::failed;
  if (on_state) on_state();
}

void EnginePort::on_fatal(void* self, const char* condition, const char* file, uint32_t line) {
  log_event(Event::engine_ended,
            {{"assertion", condition}, {"at", std::string(file) + ":" + std::to_string(line)}});
  static_cast<EnginePort*>(self)->asserted_.set();
}

// Ends an engine whose thread lives. Calls that it has are still answered, as it may write to what
// they name.
void EnginePort::on_assertion(evutil_socket_t, short, void* self) {
  EnginePort& port = *static_cast<EnginePort*>(self);
  if (port.state_ == State::ready) port.take_events();  // a dead one says so
  port.give_up({.status = TARN_INTERNAL,
                .text = "an assertion of the engine failed (the log has it): the process "
                        "ends, and has to be started again"});
}

void EnginePort::on_ready(evutil_socket_t, short, void* self) {
  static_cast<EnginePort*>(self)->take_events();
}

void EnginePort::take_events() {
  for (u32 i = 0; i < kEventsAtOnce; ++i) {
    tarn_event event = TARN_INIT(tarn_event);
    const int32_t status = tarn_engine_take(engine_, &event);
    if (status == TARN_WOULD_BLOCK) return;
    if (status != TARN_OK) return end(latest_error());
    if (event.status == TARN_IO_FAILED && on_io_failed) on_io_failed();
    if (event.type != TARN_EVENT_REPLY) {
      if (on_event) on_event(event);
      continue;
    }
    const std::unique_ptr<Call> call(static_cast<Call*>(event.request));
    submitted_.erase(call.get());
    call->done(event);
    while (state_ == State::ready && !waiting_.empty()) {
      std::unique_ptr<Call> next = std::move(waiting_.front());
      waiting_.pop_front();
      if (!submit(std::move(next))) break;
    }
  }
}

void EnginePort::call(Submit submit_call, Done done) {
  auto call = std::make_unique<Call>(Call{std::move(submit_call), std::move(done)});
  if (state_ == State::loading) {  // what the opener says is its own until then
    return fail_later(std::move(call),
                      {.status = TARN_WOULD_BLOCK, .text = "the model is being loaded"});
  }
  if (state_ != State::ready) return fail_later(std::move(call), error_);
  if (!waiting_.empty()) return waiting_.push_back(std::move(call));
  submit(std::move(call));
}

bool EnginePort::submit(std::unique_ptr<Call> call) {
  const int32_t status = call->submit(engine_, call.get());
  if (status == TARN_WOULD_BLOCK) {
    waiting_.push_front(std::move(call));
    return false;
  }
  if (status == TARN_OK) {
    submitted_.insert(call.release());
  } else {
    fail_later(std::move(call), latest_error());
  }
  return true;
}

void EnginePort::fail_later(std::unique_ptr<Call> call, const EngineError& error) {
  failed_.push_back({std::move(call), error});
  event_active(failed_event_, 0, 0);
}

void EnginePort::on_failed(evutil_socket_t, short, void* self) {
  EnginePort& port = *static_cast<EnginePort*>(self);
  while (!port.failed_.empty()) {
    const Failed failed = std::move(port.failed_.front());
    port.failed_.pop_front();
    failed.call->done(reply_of(failed.error));
  }
}

void EnginePort::give_up(const EngineError& error) {
  if (state_ != State::ready) return;
  state_ = State::ended;
  error_ = error;
  log_event(Event::engine_ended,
            {{"status", tarn_status_name(error_.status)}, {"text", error_.text}});
  for (auto& call : waiting_) fail_later(std::move(call), error_);
  waiting_.clear();
  if (on_state) on_state();
}

void EnginePort::end(const EngineError& error) {
  event_del(ready_);
  give_up(error);
  for (Call* const call : submitted_) fail_later(std::unique_ptr<Call>(call), error_);
  submitted_.clear();
}

std::optional<std::string> piece_of(tarn_engine* engine, u32 token) {
  char bytes[512];
  u64 n = 0;
  if (tarn_piece(engine, token, bytes, sizeof bytes, &n) != TARN_OK) return std::nullopt;
  return std::string(bytes, n);
}

}  // namespace tarn::daemon
