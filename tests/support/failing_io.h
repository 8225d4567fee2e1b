// A real backend, ring or threads, whose calls fail by a script, like the simulated disk's
// (sim_disk.h), but over the code that calls the kernel. A failing request reaches no disk and ends
// with its error, or with fewer bytes.
#pragma once

#include <cerrno>
#include <deque>

#include "platform/io/io_backend.h"

namespace tarn::test {

class FailingIo final : public IoBackend {
 public:
  explicit FailingIo(IoBackend& real) : real_(real) {}

  // The call-th call, from 0, and with `for_ever` all later ones. `error`: an errno; 0: a short
  // result, half of the bytes; -1: no bytes.
  struct Script {
    u64 call = ~u64{0};
    int error = EIO;
    bool for_ever = false;
  };
  void set(const Script& script) { script_ = script; }
  u64 n_calls() const { return n_calls_; }
  u64 n_failed() const { return n_failed_; }

  const char* name() const override { return real_.name(); }
  u32 in_flight_max() const override { return real_.in_flight_max(); }
  Result<IoFile> open(const IoOpenArgs& args) override {
    if (fails()) return error();
    return real_.open(args);
  }
  bool is_direct(IoFile file) const override { return real_.is_direct(file); }
  Result<u64> size_bytes(IoFile file) override {
    if (fails()) return error();
    return real_.size_bytes(file);
  }
  Result<void> allocate(IoFile file, u64 bytes) override {
    if (fails()) return error();
    return real_.allocate(file, bytes);
  }
  void close(IoFile file) override { real_.close(file); }
  bool register_buffers(std::span<const std::span<std::byte>> buffers) override {
    return real_.register_buffers(buffers);
  }
  bool submit(const IoRequest& request) override {
    if (n_in_flight_ + ended_.size() >= real_.in_flight_max()) return false;
    if (!fails()) {
      const bool is_taken = real_.submit(request);
      n_in_flight_ += is_taken;
      return is_taken;
    }
    const i64 half = static_cast<i64>(request.buffer.size() / 2 / kSectorBytes * kSectorBytes);
    const bool is_sync = request.buffer.empty();
    const i64 result = script_.error > 0 || is_sync ? -i64{script_.error > 0 ? script_.error : EIO}
                       : script_.error == 0         ? half
                                                    : 0;
    ended_.push_back({.tag = request.tag, .result = result});
    return true;
  }
  u32 reap(std::span<IoCompletion> completions, u32 n_min, u64 timeout_ns) override {
    u32 n = 0;
    for (; n < completions.size() && !ended_.empty(); ++n) {
      completions[n] = ended_.front();
      ended_.pop_front();
    }
    const u32 n_more =
        real_.reap(completions.subspan(n), n_min - std::min(n_min, n), n > 0 ? 0 : timeout_ns);
    n_in_flight_ -= n_more;
    return n + n_more;
  }

 private:
  bool fails() {
    const u64 call = n_calls_++;
    const bool now = call == script_.call || (script_.for_ever && call > script_.call);
    n_failed_ += now;
    return now;
  }
  Unexpected error() const {
    const int number = script_.error > 0 ? script_.error : EIO;
    return fail({.status = Status::io_failed,
                 .hint = "a test's script fails this call",
                 .figures = {{{"errno", static_cast<u64>(number)}}}});
  }

  IoBackend& real_;
  Script script_{};
  std::deque<IoCompletion> ended_;
  u64 n_calls_ = 0, n_failed_ = 0;
  u32 n_in_flight_ = 0;
};

}  // namespace tarn::test
