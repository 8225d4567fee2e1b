// Reads documents ahead of questions, one at a time, by tarn_ingest on a thread of its own: that
// call waits, and has the rules for names and for what is there already. The loop gets its end.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "platform/base/types.h"
#include "runtime/api/tarn_store.h"
#include "tools/tarnd/engine_error.h"
#include "tools/tarnd/loop_thread.h"

namespace tarn::daemon {

struct IngestJob {
  std::string tenant, name;
  std::string text;      // or
  std::vector<u32> ids;  // the ids themselves
  bool replaces = false;
};

struct IngestEnd {
  int32_t status = TARN_OK;
  EngineError error;  // of a failure
  u64 n_tokens = 0, n_reused = 0, bytes_written = 0, took_ns = 0;
};

class Ingester {
 public:
  explicit Ingester(event_base* base) : thread_(base, [this] { on_end(); }) {}
  Ingester(const Ingester&) = delete;
  Ingester& operator=(const Ingester&) = delete;
  ~Ingester() { join(); }

  bool is_busy() const { return thread_.is_busy(); }
  // Only if it is not busy. `done` is called on the loop's thread.
  void start(tarn_engine* engine, IngestJob job, std::function<void(const IngestEnd&)> done);
  // Ends the reading. Tokens that were read stay. `done` is called all the same.
  void cancel() { is_cancelled_ = true; }
  void join();  // before the engine is closed

 private:
  void run(tarn_engine* engine);
  void on_end();

  std::atomic<bool> is_cancelled_{false};
  IngestJob job_;
  IngestEnd end_;
  std::function<void(const IngestEnd&)> done_;
  LoopThread thread_;
};

}  // namespace tarn::daemon
