#include "tools/tarnd/ingester.h"

#include "platform/clock/clock.h"
#include "tools/tarnd/engine_port.h"

namespace tarn::daemon {

void Ingester::join() {
  cancel();
  thread_.join();
}

void Ingester::start(tarn_engine* engine, IngestJob job,
                     std::function<void(const IngestEnd&)> done) {
  job_ = std::move(job);
  end_ = {};
  done_ = std::move(done);
  is_cancelled_ = false;
  thread_.start([this, engine] { run(engine); });
}

void Ingester::run(tarn_engine* engine) {
  const u64 begin_ns = SystemClock().now_ns();
  tarn_ingest_options options = TARN_INIT(tarn_ingest_options);
  if (!job_.tenant.empty()) options.tenant = job_.tenant.c_str();
  options.progress = [](void* self, const tarn_session_info*) {
    return static_cast<Ingester*>(self)->is_cancelled_ ? 1 : 0;
  };
  options.progress_context = this;
  options.replaces = job_.replaces ? 1 : 0;
  if (job_.ids.empty()) {
    job_.ids.resize(ids_max(job_.text.size()));
    u64 n = 0;
    end_.status = tarn_tokenize(engine, job_.text.data(), job_.text.size(), TARN_ADD_BOS,
                                job_.ids.data(), job_.ids.size(), &n);
    job_.ids.resize(end_.status == TARN_OK ? n : 0);
  }
  tarn_ingested ingested = TARN_INIT(tarn_ingested);
  if (end_.status == TARN_OK) {
    end_.status = tarn_ingest(engine, &options, job_.name.c_str(), job_.ids.data(), job_.ids.size(),
                              &ingested);
  }
  if (end_.status != TARN_OK) end_.error = latest_error();
  end_.n_tokens = job_.ids.size();
  end_.n_reused = ingested.n_reused;
  end_.bytes_written = ingested.bytes_written;
  end_.took_ns = SystemClock().now_ns() - begin_ns;
}

void Ingester::on_end() {
  job_ = {};
  const auto done = std::move(done_);
  done_ = nullptr;
  if (done) done(end_);
}

}  // namespace tarn::daemon
