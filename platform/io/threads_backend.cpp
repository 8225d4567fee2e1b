#include "platform/io/threads_backend.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "platform/base/assert.h"
#include "platform/io/io_files.h"
#include "platform/io/io_transfer.h"
#include "platform/io/ring_queue.h"

namespace tarn {
namespace {

constexpr u64 kStackBytes = 256 * kKiB;
// glibc since 2.27 can lose a condition's signal (its bug 25847; Debian 12 and Ubuntu 22.04 have
// it). Then a request waits while every thread sleeps. So a thread that waits for completions
// checks at this interval and signals once more.
constexpr u64 kLookNs = 100'000'000;

i64 call_once(const IoTransfer& transfer) {
  const auto offset = static_cast<off_t>(transfer.next_offset());
  i64 result = 0;
  switch (transfer.request.op) {
    case IoOp::read:
      result = pread(transfer.fd, transfer.next_data(), transfer.next_bytes(), offset);
      break;
    case IoOp::write:
      result = pwrite(transfer.fd, transfer.next_data(), transfer.next_bytes(), offset);
      break;
    case IoOp::sync_data:
      result = fdatasync(transfer.fd);
      break;
  }
  return result < 0 ? -i64{errno} : result;
}

class ThreadsBackend final : public IoBackend {
 public:
  explicit ThreadsBackend(u32 in_flight_max) : in_flight_max_(in_flight_max) {
    pthread_mutex_init(&mutex_, nullptr);
    pthread_cond_init(&requested_, nullptr);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&completed_, &monotonic);
    pthread_condattr_destroy(&monotonic);
  }

  ~ThreadsBackend() override {
    pthread_mutex_lock(&mutex_);
    stopping_ = true;
    pthread_cond_broadcast(&requested_);
    pthread_mutex_unlock(&mutex_);
    for (u32 i = 0; i < n_threads_; ++i) pthread_join(threads_[i], nullptr);
    pthread_cond_destroy(&completed_);
    pthread_cond_destroy(&requested_);
    pthread_mutex_destroy(&mutex_);
  }

  // Returns the errno of the first thread that cannot be started. The threads before it keep the
  // backend working, so only having none is a failure.
  int start(u32 n_threads) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    sigset_t all, before;
    sigfillset(&all);  // the host's threads handle signals
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    while (error == 0 && n_threads_ < n_threads) {
      error = pthread_create(&threads_[n_threads_], &attributes, &thread_main, this);
      if (error == 0) ++n_threads_;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
    return n_threads_ > 0 ? 0 : error;
  }

  const char* name() const override { return "threads"; }
  u32 in_flight_max() const override { return in_flight_max_; }
  Result<IoFile> open(const IoOpenArgs& args) override { return files_.open(args); }
  bool is_direct(IoFile file) const override { return files_.is_direct(file); }
  Result<u64> size_bytes(IoFile file) override { return files_.size_bytes(file); }
  Result<void> allocate(IoFile file, u64 bytes) override { return files_.allocate(file, bytes); }
  void close(IoFile file) override { files_.close(file); }
  bool register_buffers(std::span<const std::span<std::byte>>) override { return false; }

  bool submit(const IoRequest& request) override {
    if (n_in_flight_ == in_flight_max_) return false;
    ++n_in_flight_;
    const IoTransfer transfer{.request = request,
                              .fd = files_.descriptor(request.file),
                              .direct = files_.is_direct(request.file)};
    const auto immediate = transfer.without_a_call();
    pthread_mutex_lock(&mutex_);
    if (immediate) {
      done_.push({.tag = request.tag, .result = *immediate});
    } else {
      waiting_.push(transfer);
      pthread_cond_signal(&requested_);
    }
    pthread_mutex_unlock(&mutex_);
    return true;
  }

  u32 reap(std::span<IoCompletion> completions, u32 n_min, u64 timeout_ns) override {
    const u64 room = std::min<u64>(completions.size(), n_in_flight_);
    const u32 n_wanted = static_cast<u32>(std::min<u64>(n_min, room));
    const timespec deadline = deadline_in(timeout_ns);
    u32 n = 0;
    bool is_over = timeout_ns == 0;
    pthread_mutex_lock(&mutex_);
    for (;;) {
      while (n < room && !done_.empty()) completions[n++] = done_.pop();
      if (n >= n_wanted || is_over) break;
      const timespec look = deadline_in(kLookNs);
      const bool is_last = !is_before(look, deadline);
      const int error = pthread_cond_timedwait(&completed_, &mutex_, is_last ? &deadline : &look);
      is_over = is_last && error == ETIMEDOUT;
      if (error == ETIMEDOUT && !waiting_.empty()) pthread_cond_broadcast(&requested_);
    }
    pthread_mutex_unlock(&mutex_);
    n_in_flight_ -= n;
    return n;
  }

 private:
  static bool is_before(const timespec& a, const timespec& b) {
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
  }

  static timespec deadline_in(u64 timeout_ns) {
    constexpr u64 kYearNs = u64{365} * 24 * 3600 * 1'000'000'000;  // practically for ever
    const u64 bounded_ns = std::min(timeout_ns, kYearNs);
    timespec at{};
    clock_gettime(CLOCK_MONOTONIC, &at);
    const u64 ns = static_cast<u64>(at.tv_nsec) + bounded_ns % 1'000'000'000;
    at.tv_sec += static_cast<time_t>(bounded_ns / 1'000'000'000 + ns / 1'000'000'000);
    at.tv_nsec = static_cast<long>(ns % 1'000'000'000);
    return at;
  }

  static void* thread_main(void* self) {
    static_cast<ThreadsBackend*>(self)->serve();
    return nullptr;
  }

  void serve() {
    pthread_mutex_lock(&mutex_);
    for (;;) {
      while (waiting_.empty() && !stopping_) pthread_cond_wait(&requested_, &mutex_);
      if (waiting_.empty()) break;  // stopping, and every request is done
      IoTransfer transfer = waiting_.pop();
      pthread_mutex_unlock(&mutex_);
      std::optional<i64> result;
      while (!result) result = transfer.take(call_once(transfer));
      pthread_mutex_lock(&mutex_);
      done_.push({.tag = transfer.request.tag, .result = *result});
      pthread_cond_signal(&completed_);
    }
    pthread_mutex_unlock(&mutex_);
  }

  const u32 in_flight_max_;
  u32 n_in_flight_ = 0;  // submitted and not reaped; the owner's thread only
  IoFileTable files_{};

  pthread_mutex_t mutex_{};
  pthread_cond_t requested_{}, completed_{};
  RingQueue<IoTransfer, kIoInFlightMax> waiting_{};  // under mutex_
  RingQueue<IoCompletion, kIoInFlightMax> done_{};   // under mutex_
  bool stopping_ = false;                            // under mutex_

  std::array<pthread_t, kIoThreadsMax> threads_{};
  u32 n_threads_ = 0;
};

}  // namespace

u64 threads_backend_bytes() { return sizeof(ThreadsBackend); }

Result<IoBackend*> threads_backend_create(const IoConfig& config, std::span<std::byte> memory) {
  TARN_ASSERT(memory.size() >= sizeof(ThreadsBackend));
  auto* backend = new (memory.data()) ThreadsBackend(config.in_flight_max);
  const int error = backend->start(config.n_threads);
  if (error == 0) return static_cast<IoBackend*>(backend);
  backend->~ThreadsBackend();
  return fail({.status = Status::io_failed,
               .hint = "no thread could be started for I/O: raise RLIMIT_NPROC or the pids limit",
               .figures = {{{"errno", static_cast<u64>(error)}}}});
}

}  // namespace tarn
