#include "tools/tarnd/daemon.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "tools/support/exit_code.h"
#include "tools/support/model_file.h"
#include "tools/tarnd/log.h"
#include "tools/tarnd/network_memory.h"

namespace tarn::daemon {
namespace {

constexpr u64 kSecond_us = 1'000'000, kShortTick_us = 20'000;
constexpr u64 kSave_us = 10 * kSecond_us;    // for saving what is kept
constexpr u64 kFlush_us = 2 * kSecond_us;    // for writing the last replies out
constexpr u64 kExtend_us = 30 * kSecond_us;  // what systemd is asked for, every second

LogLevel level_of(const std::string& name) {
  const auto found = std::ranges::find(kLogLevelNames, name);
  return static_cast<LogLevel>(found - std::begin(kLogLevelNames));
}

ListenRules rules_of(const Settings& settings) {
  ListenRules rules{.socket_group = settings.socket_group,
                    .backlog = std::max(settings.connections_max, 64u),
                    .beyond_loopback = settings.beyond_loopback,
                    .has_keys = !settings.keys_file.empty()};
  octal_mode(settings.socket_mode, &rules.socket_mode);
  return rules;
}

std::vector<Listener> listeners_of(const Settings& settings) {
  const ListenRules rules = rules_of(settings);
  std::vector<Listener> listeners = passed_listeners(rules);
  for (const Listener& passed : listeners) {
    if (passed.is_tcp && settings.keys_file.empty() && !settings.insecure_no_key) {
      throw tools::Failure{tools::kExitRefused,
                           "a TCP socket needs keys (daemon.keys_file); on 127.0.0.1 "
                           "--insecure-no-key serves every user and program of this machine"};
    }
  }
  for (const std::string& address : settings.listen) {
    listeners.push_back(open_listener(address, rules));
  }
  if (listeners.empty()) {
    throw tools::Failure{tools::kExitRefused,
                         "nowhere to listen: give --listen unix:///run/tarn/tarn.sock, or "
                         "daemon.listen"};
  }
  return listeners;
}

}  // namespace

Limits limits_of(const Settings& s) {
  return {.body_bytes_max = s.body_bytes_max,
          .unread_bytes_max = s.unread_bytes_max,
          .header_s = s.header_s,
          .body_s = s.body_s,
          .idle_s = s.idle_s,
          .stalled_s = s.stalled_s,
          .ping_s = s.ping_s};
}

u64 stop_seconds(const Settings& settings) {
  return settings.drain_s + (kSave_us + kFlush_us) / kSecond_us;
}

Daemon::Daemon(DaemonSource source)
    : source_(std::move(source)),
      port_(loop_.base),
      service_(loop_.base, port_, source_.settings, source_.model),
      server_(loop_.base, service_, limits_of(source_.settings), source_.settings.connections_max),
      listeners_(listeners_of(source_.settings)),
      tick_(event_new(loop_.base, -1, EV_PERSIST, on_tick, this)) {
  set_log_level(level_of(source_.settings.log_level));
  std::signal(SIGPIPE, SIG_IGN);
  add_signal(SIGTERM, on_term);
  add_signal(SIGINT, on_term);
  add_signal(SIGHUP, on_hup);
  service_.n_connections = [this] { return server_.n_connections(); };
  port_.on_state = [this] { on_engine_state(); };
}

Daemon::~Daemon() {
  for (event* const each : events_) event_free(each);
  event_free(tick_);
}

void Daemon::add_signal(int signal, event_callback_fn call) {
  event* const each = evsignal_new(loop_.base, signal, call, this);
  if (each == nullptr || event_add(each, nullptr) != 0) {
    throw tools::Failure{tools::kExitIo, "libevent gives no signal event"};
  }
  events_.push_back(each);
}

int Daemon::run() {
  log_event(Event::starting, {{"version", TARN_VERSION},
                              {"model", source_.model.name},
                              {"network_bytes", std::to_string(NetworkMemory::limit_bytes())}});
  for (const Listener& listener : listeners_) {
    server_.listen(listener);
    log_event(Event::listening, {{"at", listener.name}});
    if (listener.is_tcp && source_.settings.insecure_no_key) {
      log_event(Event::no_keys, {{"at", listener.name},
                                 {"text", "every user and program of this machine may ask"}});
    }
  }
  const u64 watchdog_us = notify_.watchdog_us();
  if (watchdog_us > 0) tick_us_ = std::min(tick_us_, watchdog_us);
  const timeval every{static_cast<time_t>(tick_us_ / kSecond_us),
                      static_cast<suseconds_t>(tick_us_ % kSecond_us)};
  event_add(tick_, &every);
  port_.open(source_.engine);
  event_base_dispatch(loop_.base);
  // libevent cannot wait for events any more, and has logged why.
  if (phase_ != Phase::over) code_ = std::max<int>(code_, tools::kExitInternal);
  server_.stop_listening();
  listeners_.clear();
  log_event(Event::stopped, {{"code", std::to_string(code_)}});
  if (code_ == tools::kExitGpuLost) _exit(code_);  // the driver may hang in what follows
  return code_;
}

void Daemon::on_engine_state() {
  service_.on_engine_state();
  if (port_.state() == EnginePort::State::ready) {
    log_event(Event::ready, {{"device", service_.model.status.device},
                             {"context", std::to_string(service_.model.status.context_tokens)},
                             {"sessions", std::to_string(service_.model.status.sessions_max)}});
    notify_.send("READY=1\nSTATUS=serving " + source_.model.name);
    return;
  }
  const auto status = static_cast<Status>(port_.error().status);
  if (port_.state() == EnginePort::State::failed) {
    const std::string more = tools::where_all_reasons_are(status, source_.engine.model_path);
    log_event(Event::load_failed, {{"text", port_.error().text + more}});
  }
  stop(tools::exit_code(status), 1);
}

void Daemon::stop(int code, u32 seconds) {
  if (phase_ == Phase::over) return;
  code_ = std::max(code_, code);
  if (phase_ == Phase::running) {
    log_event(Event::stopping, {{"answers", std::to_string(service_.n_running())}});
    notify_.send("STOPPING=1");
    service_.begin_draining();
    if (code == tools::kExitOk) server_.begin_draining();
    phase_ = Phase::draining;
    phase_us_ = 0;
    tick_us_ = kShortTick_us;
    const timeval every{0, static_cast<suseconds_t>(kShortTick_us)};
    event_add(tick_, &every);
  }
  drain_us_ = seconds * kSecond_us;
}

// Lets no new client find the sockets. Those that have connected are told.
void Daemon::leave() {
  for (Listener& listener : listeners_) listener.remove_file();
  server_.close_idle();
}

void Daemon::on_term(evutil_socket_t, short, void* self) {
  Daemon& daemon = *static_cast<Daemon*>(self);
  const bool is_first = daemon.phase_ == Phase::running;
  daemon.stop(tools::kExitOk, is_first ? daemon.service_.settings().drain_s : 0);
}

void Daemon::on_tick(evutil_socket_t, short, void* self) { static_cast<Daemon*>(self)->tick(); }

void Daemon::tick() {
  notify_.send(port_.state() == EnginePort::State::loading && phase_ == Phase::running
                   ? "WATCHDOG=1\nEXTEND_TIMEOUT_USEC=" + std::to_string(kExtend_us)
                   : "WATCHDOG=1");
  if (phase_ == Phase::running) return;
  phase_us_ += tick_us_;
  const bool is_idle = service_.n_running() == 0;
  const bool is_drained = is_idle && code_ == tools::kExitOk;
  if (phase_ == Phase::draining && (is_drained || phase_us_ >= drain_us_)) {
    leave();
    service_.end_answers();
    phase_ = Phase::ending;
    phase_us_ = 0;
  }
  if (phase_ != Phase::ending) return;
  const bool is_saved = is_idle || phase_us_ >= kSave_us;
  const bool is_written = server_.n_connections() == 0 || phase_us_ >= kFlush_us;
  if (!is_saved || !is_written) return;
  phase_ = Phase::over;
  event_base_loopbreak(loop_.base);
}

void Daemon::on_hup(evutil_socket_t, short, void* self) { static_cast<Daemon*>(self)->reload(); }

void Daemon::reload() {
  try {
    const Settings settings = source_.read_again();
    service_.reload(settings);
    server_.set_limits(limits_of(service_.settings()));
    set_log_level(level_of(service_.settings().log_level));
    log_event(Event::reloaded, {});
  } catch (const tools::Failure& failure) {
    log_event(Event::reload_failed, {{"text", failure.text}});
  }
}

}  // namespace tarn::daemon
