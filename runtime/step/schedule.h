// Which rows make the next step. A function of the sessions that are ready, of two limits and of
// the shares, without a clock.
//
//   order      single rows, one of each session, interactive ones before background ones; then
//              prompts: interactive ones by the shares of their tenants, and background ones with
//              the rows that these leave, by shares too
//   in turn    a tenant's prompts, so that a short one does not wait for the whole of a long one;
//              single rows where not all fit
//   invariant  the rows of a schedule are rows_max at most, its rows of prompts prompt_rows_max; a
//              session has one slice at most; no row stays free that a prompt within the limits
//              could have
//   memory     lent; no heap
//   thread     the engine's
#pragma once

#include <span>

#include "runtime/step/batch.h"
#include "runtime/step/shares.h"

namespace tarn::step {

struct Slice {
  u32 session = 0;
  RunKind kind = RunKind::prefill;
  u32 n_rows = 0;
  bool is_generated = false;
};

struct Schedule {
  std::span<Slice> slices{};  // one for each ready session at least; the first n_slices are used
  u32 n_slices = 0;
};

struct StepLimits {
  u32 rows_max = 0;
  u32 prompt_rows_max = 0;  // of them; beside answers see pace.h
};

// `ready` is in the order of sessions.
void schedule(std::span<const Ready> ready, const StepLimits& limits, Shares& shares,
              Schedule* out);

}  // namespace tarn::step
