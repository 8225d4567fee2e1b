// The daemon's counts, and /metrics: Prometheus' text format, version 0.0.4. llama-server's
// names where a count means the same, ours for the rest.
#pragma once

#include <map>
#include <string>

#include "runtime/api/tarn.h"
#include "tools/tarnd/answers.h"

namespace tarn::daemon {

struct Counts {
  std::map<int, u64> replies;    // by HTTP status
  u64 n_gone = 0;                // clients that left before the end of their reply
  Histogram first_token, reply;  // since the head of a request that the engine computed
};

struct MetricsFacts {
  const Counts& counts;
  const Answers::Totals& totals;
  const tarn_engine_status& status;
  u64 n_requests = 0, n_connections = 0;
};
std::string metrics_text(const MetricsFacts& facts);

}  // namespace tarn::daemon
