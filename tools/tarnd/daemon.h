// The daemon's life: it listens, loads the model, serves, and ends.
//
//   loading     listens already; /health says 503, READY follows when the model is in
//   serving     SIGHUP reads the configuration's reloadable keys again
//   draining    SIGTERM: daemon.drain_s for running answers; a second one: none. New requests get
//               503 with Retry-After; on a socket that was passed they wait for the next process
//   over        what is kept is saved, connections are written out
//
// When the engine has ended it goes on to listen for a second, so that clients are told why.
#pragma once

#include <event2/event.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/tarnd/engine_port.h"
#include "tools/tarnd/event_loop.h"
#include "tools/tarnd/listeners.h"
#include "tools/tarnd/notify.h"
#include "tools/tarnd/server.h"
#include "tools/tarnd/service.h"
#include "tools/tarnd/settings.h"

namespace tarn::daemon {

struct DaemonSource {
  Settings settings;
  EngineSource engine;
  Model model;
  std::function<Settings()> read_again;  // at SIGHUP; throws Failure
};

class Daemon {
 public:
  // Throws Failure if a socket, a key file or a user's name is refused.
  explicit Daemon(DaemonSource source);
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;
  ~Daemon();
  // Returns the exit code. After a lost GPU it does not return.
  int run();

 private:
  static void on_term(evutil_socket_t, short, void* self);
  static void on_hup(evutil_socket_t, short, void* self);
  static void on_tick(evutil_socket_t, short, void* self);

  void add_signal(int signal, event_callback_fn call);
  void on_engine_state();
  void stop(int code, u32 seconds);
  void leave();
  void tick();
  void reload();

  // Destroyed in the reverse order: the engine last, whose sessions the service has.
  EventLoop loop_;
  DaemonSource source_;
  Notify notify_;
  EnginePort port_;
  Service service_;
  Server server_;
  std::vector<Listener> listeners_;
  std::vector<event*> events_;
  event* tick_;
  enum class Phase : u8 { running, draining, ending, over };
  Phase phase_ = Phase::running;
  u64 tick_us_ = 1'000'000, phase_us_ = 0;  // ticks' length, and time in this phase
  u64 drain_us_ = 0;
  int code_ = 0;
};

Limits limits_of(const Settings& settings);
// How long the end takes at most: daemon.drain_s, and what follows it. The unit's TimeoutStopSec is
// longer.
u64 stop_seconds(const Settings& settings);

}  // namespace tarn::daemon
