// Chooses the waiting session that gets the next run slot, and estimates how long the others wait.
// A run slot is the right to run: rows in steps, and KV for a prompt and its answer. The caller
// checks whether there is KV. If there is none, all wait behind the chosen session, since shorter
// prompts that passed it again and again would starve it.
//
//   slots     running_max; a tenant of which nothing runs may have one beyond them
//   order     interactive sessions before background ones; tenants with fewer running sessions
//             first, then by the turn of their shares; within a tenant the longest cached prefix
//             first (RadixAttention, arXiv:2312.07104: it needs the fewest rows, while its KV is
//             there), then by arrival
//   bound     a session is passed by kOvertakenMax later ones of its tenant and priority at most
//   deferral  a session whose prefix a running prompt is about to compute waits for it; one that
//             was passed kOvertakenMax times is not deferred any more, so no chain starves it
//   memory    lent
//   thread    the engine's
#pragma once

#include <optional>
#include <span>

#include "platform/base/types.h"
#include "runtime/step/batch.h"
#include "runtime/step/shares.h"

namespace tarn::step {

inline constexpr u32 kOvertakenMax = 8;

struct Waiting {
  u32 session = 0;
  u32 tenant = 0;
  Priority priority = Priority::interactive;
  u64 order = 0;        // of arrival, ascending
  u32 n_cached = 0;     // tokens of its prompt whose KV is there
  u32 n_overtaken = 0;  // later ones of its tenant and priority that got a run slot before it
  bool is_deferred = false;
};

// Returns an index into `waiting`, or nothing if none may run. The caller calls give_run_slot()
// with the index once the session has KV.
std::optional<u32> next_admitted(std::span<const Waiting> waiting,
                                 std::span<const u32> n_running,  // [n_tenants]
                                 u32 running_max, const Shares& shares);
// Counts the sessions that waiting[idx] overtakes. The caller removes it from `waiting`.
void give_run_slot(std::span<Waiting> waiting, u32 idx);

// A prompt, and how many of its first tokens have KV.
struct PromptState {
  std::span<const u32> ids{};
  u32 n_computed = 0;
  Priority priority = Priority::interactive;
};

// Returns whether `running` is about to compute whole pages that `waiting` can take over (METHODS
// 11.3). Both are of one tenant. A background prompt may stand still, so no interactive one waits
// for it.
bool is_deferred(const PromptState& waiting, const PromptState& running, u32 page_tokens);

// Learns how long run slots are held, from the ends of sessions that had one.
class RunSlotTime {
 public:
  void observe(u64 held_ns);
  // Estimates the wait of the n-th waiting session, from 1 on, while all run slots are taken. 0:
  // nothing is known yet.
  u64 wait_estimate_ns(u32 n, u32 running_max) const { return mean_ns_ * n / running_max; }

 private:
  static constexpr u64 kMemory = 16;  // sessions that the mean is about

  u64 mean_ns_ = 0;
};

}  // namespace tarn::step
