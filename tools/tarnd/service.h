// The routes work with it: the engine, its facts, the answers and the settings. It is the Api of
// the server: who may ask for what, and which function answers.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/api/tarn.h"
#include "tools/tarnd/answers.h"
#include "tools/tarnd/body_reader.h"
#include "tools/tarnd/engine_port.h"
#include "tools/tarnd/ingester.h"
#include "tools/tarnd/metrics.h"
#include "tools/tarnd/server.h"
#include "tools/tarnd/settings.h"

namespace tarn::daemon {

struct Model {
  std::string name, path;
  bool is_built_in = false;
  tarn_engine_status status = TARN_INIT(tarn_engine_status);  // as of the last look
  u64 created_s = 0, plan_bytes = 0;
};

class Service : public Api {
 public:
  // The settings were checked; what they name is read here. Throws Failure.
  Service(event_base* base, EnginePort& port, const Settings& settings, Model model);

  bool allows(const Peer& peer) const override { return rules_.allows(peer); }
  std::optional<HttpError> on_head(const Head& head, Request& request) override;
  // Lets a page of an allowed origin read why.
  void on_bad_head(const Head& head, Request& request) override;
  void on_request(const std::shared_ptr<Exchange>& exchange) override;
  void on_replied(const Exchange& exchange) override;

  // By the daemon.
  void on_engine_state();
  void reload(const Settings& settings);  // throws Failure, and changes nothing then
  void begin_draining() { drains_ = true; }
  void end_answers();
  // Requests that wait for the engine.
  u64 n_running() const { return answers.n_running() + u64{ingester.is_busy()}; }

  EnginePort& port;
  Answers answers;
  Ingester ingester;
  Model model;
  std::function<u64()> n_connections;

  const Settings& settings() const { return settings_; }
  const Counts& counts() const { return counts_; }
  // Why no request can be served now, if so.
  std::optional<HttpError> why_not() const;
  // Something could not be read or written, and the engine's status as of then is on its way.
  bool suspects() const { return suspects_; }
  // Looks at the engine's status anew, then calls.
  void with_status(const std::shared_ptr<Exchange>& exchange, std::function<void()> then);

 private:
  void look(EnginePort::Done then);                              // at the engine's status
  std::optional<HttpError> check_names(const Head& head) const;  // Host and Origin
  std::optional<HttpError> check_tcp(const Head& head, Request& request, bool is_public) const;

  Settings settings_;
  PeerRules rules_;
  Counts counts_;
  bool drains_ = false, suspects_ = false;
};

}  // namespace tarn::daemon
