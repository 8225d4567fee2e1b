// A Reserve that fails its n-th call, once or from then on, and otherwise calls the system. It
// counts reservations, so that a test can show that a failed start released everything.
#pragma once

#include "platform/mem/reserve.h"

namespace tarn::test {

class FailingReserve final : public Reserve {
 public:
  enum class Mode : u8 { once, from_then_on };
  static constexpr u64 kNever = ~u64{0};

  // `fail_call_idx` counts from 0; kNever only counts.
  explicit FailingReserve(u64 fail_call_idx = kNever, Mode mode = Mode::once)
      : fail_call_idx_(fail_call_idx), mode_(mode) {}

  Result<ReserveOutcome> reserve(const ReserveArgs& args) override {
    const u64 call_idx = n_calls_++;
    const bool fails =
        mode_ == Mode::once ? call_idx == fail_call_idx_ : call_idx >= fail_call_idx_;
    if (fails) {
      ++n_failed_;
      return fail({.status = Status::over_budget,
                   .hint = "scripted failure",
                   .detail = Detail(args.name),
                   .figures = {{{"bytes", args.bytes}, {"call", call_idx}}}});
    }
    auto outcome = system_.reserve(args);
    if (outcome) {
      ++n_held_;
      held_bytes_ += outcome->bytes.size();
    }
    return outcome;
  }

  void release(std::span<std::byte> bytes) override {
    --n_held_;
    held_bytes_ -= bytes.size();
    system_.release(bytes);
  }

  u64 n_calls() const { return n_calls_; }
  u64 n_failed() const { return n_failed_; }
  u64 n_held() const { return n_held_; }  // reserved and not released
  u64 held_bytes() const { return held_bytes_; }

 private:
  SystemReserve system_{};
  u64 fail_call_idx_;
  Mode mode_;
  u64 n_calls_ = 0, n_failed_ = 0, n_held_ = 0, held_bytes_ = 0;
};

}  // namespace tarn::test
