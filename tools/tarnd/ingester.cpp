#include "tools/tarnd/ingester.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>

#include "tools/support/exit_code.h"

namespace tarn::daemon {
namespace {

u64 now_ns() {
  return static_cast<u64>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace

Ingester::Ingester(event_base* base)
    : ended_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      ended_(event_new(base, ended_fd_, EV_READ | EV_PERSIST, on_end, this)) {
  if (ended_fd_ < 0 || ended_ == nullptr || event_add(ended_, nullptr) != 0) {
    throw tools::Failure{tools::kExitIo, "the system gives no eventfd"};
  }
}

Ingester::~Ingester() {
  join();
  event_free(ended_);
  ::close(ended_fd_);
}

void Ingester::join() {
  cancel();
  if (thread_.joinable()) thread_.join();
}

void Ingester::start(tarn_engine* engine, IngestJob job,
                     std::function<void(const IngestEnd&)> done) {
  job_ = std::move(job);
  end_ = {};
  done_ = std::move(done);
  is_cancelled_ = false;
  thread_ = std::thread([this, engine] { run(engine); });
}

void Ingester::run(tarn_engine* engine) {
  const u64 begin_ns = now_ns();
  tarn_ingest_options options = TARN_INIT(tarn_ingest_options);
  if (!job_.tenant.empty()) options.tenant = job_.tenant.c_str();
  options.progress = [](void* self, const tarn_session_info*) {
    return static_cast<Ingester*>(self)->is_cancelled_ ? 1 : 0;
  };
  options.progress_context = this;
  if (job_.ids.empty()) {
    // A token has a byte at least, beside BOS and EOS.
    job_.ids.resize(job_.text.size() + 8);
    u64 n = 0;
    end_.status = tarn_tokenize(engine, job_.text.data(), job_.text.size(), TARN_ADD_SPECIAL,
                                job_.ids.data(), job_.ids.size(), &n);
    job_.ids.resize(end_.status == TARN_OK ? n : 0);
  }
  tarn_ingested ingested = TARN_INIT(tarn_ingested);
  if (end_.status == TARN_OK) {
    end_.status = tarn_ingest(engine, &options, job_.name.c_str(), job_.ids.data(), job_.ids.size(),
                              &ingested);
  }
  if (end_.status != TARN_OK) end_.sentence = tarn_error_text();
  end_.n_tokens = job_.ids.size();
  end_.n_reused = ingested.n_reused;
  end_.bytes_written = ingested.bytes_written;
  end_.took_ns = now_ns() - begin_ns;
  const u64 one = 1;
  [[maybe_unused]] const ssize_t n = ::write(ended_fd_, &one, sizeof one);
}

void Ingester::on_end(evutil_socket_t fd, short, void* self) {
  Ingester& ingester = *static_cast<Ingester*>(self);
  u64 n = 0;
  [[maybe_unused]] const ssize_t read_bytes = ::read(fd, &n, sizeof n);
  if (!ingester.thread_.joinable()) return;
  ingester.thread_.join();
  ingester.job_ = {};
  const auto done = std::move(ingester.done_);
  ingester.done_ = nullptr;
  if (done) done(ingester.end_);
}

}  // namespace tarn::daemon
