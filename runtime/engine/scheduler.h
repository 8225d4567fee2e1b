// Which rows make the next step. A pure function of the sessions that are ready.
//
//   order      first single rows, one of each session, by session; then prompts in turn, so that
//              the prompt behind the one served last comes first
//   invariant  the rows of a schedule are rows_max at most; a session has one slice at most
#pragma once

#include <span>

#include "platform/base/types.h"
#include "runtime/step/batch.h"

namespace tarn::engine {

using step::Ready;
using step::RunKind;

inline constexpr u32 kSessionsMax = 1024;  // the configuration allows no more

struct Slice {
  u32 session = 0;
  RunKind kind = RunKind::prefill;
  u32 n_rows = 0;
  bool is_generated = false;
};

struct Schedule {
  std::span<Slice> slices{};  // one for each ready session at least; the first n_slices are used
  u32 n_slices = 0;
  u32 next_prompt = 0;  // prompts are served in turn, from this session's on
};

// `ready` is in the order of sessions. Takes next_prompt from `out`, and writes all of it.
void schedule(std::span<const Ready> ready, u32 rows_max, Schedule* out);

}  // namespace tarn::engine
