// The books of a host with one event loop: each call that it submitted, with the memory that the
// call points to, and each session as far as the host knows it.
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "runtime/api/tarn_store.h"
#include "tests/runtime/api/caller_texts.h"
#include "tests/runtime/api/told_tokens.h"

namespace tarn::test {

enum class What : u8 {
  create,
  restore,
  fork,
  feed,
  generate,
  truncate,
  chat,
  wait,
  tokens,
  save,
  destroy,
  tokenize,
  status
};

struct Talk;

// A submitted call, and what it points to.
struct Call {
  What what = What::status;
  Talk* talk = nullptr;  // whose it is
  Talk* made = nullptr;  // by create, restore and fork
  bool is_in_flight = false;
  bool is_cancelled = false;  // the host cancelled its session after it
  bool is_behind_destroy = false;
  bool is_behind_failed =
      false;                  // an earlier one of its session failed, which the host did not know
  bool may_generate = false;  // an answer was under way, or asked for before
  bool resolves = false;      // a wait, then tokens, to learn what cancels have left
  u64 epoch = 0;              // of the talk, then
  u64 n_sessions_most = 0;    // that there may have been, since
  u64 n = 0;                  // tokens of a cut
  i32 timeout_ms = 0;
  std::vector<u32> ids;  // fed, or read
  u64 n_out = 0;
  const Text* text = nullptr;
  tarn_session* session = nullptr;
  tarn_restored restored = TARN_INIT(tarn_restored);
  tarn_engine_status status = TARN_INIT(tarn_engine_status);
  HeardRef answer;
};

// A session, as the host sees it.
struct Talk {
  Talk(u32 slot_idx, u32 context_tokens) : slot(slot_idx), told(context_tokens) {}
  u32 slot;
  u32 tenant = 0;
  bool is_background = false;
  bool has_user = true;  // a fork has none
  tarn_session* handle = nullptr;
  ToldTokens told;
  std::string history;      // of calls, replies and ends: for a failure
  bool is_unknown = false;  // its tokens are to be asked for first
  bool is_destroying = false;
  u64 epoch = 0;            // counts what may change its tokens
  u64 n_waits = 0;          // in flight
  std::deque<Call*> calls;  // in flight, but for waits
  HeardRef answer;          // that is being read
  u64 moved_at = 0;         // when something of it was told last, in events
  u64 n_tokens = 0, n_computed = 0, listed_epoch = 0;  // when it was listed last
  bool is_quiet() const { return calls.empty() && answer == nullptr; }
  bool is_resting() const { return is_quiet() && n_waits == 0; }
  bool may_generate() const {
    return answer != nullptr ||
           std::ranges::any_of(calls, [](const Call* c) { return c->what == What::generate; });
  }
};

// What a name keeps; nothing: it is not known what.
struct Kept {
  bool is_exact = false;
  std::vector<u32> ids;
};

}  // namespace tarn::test
