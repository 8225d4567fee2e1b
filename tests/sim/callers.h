// A server by virtual clock: many callers, whose sessions wait for a run slot, run and end by
// exactly the functions of runtime/step (schedule, shares, pace, admission). A step takes what a
// simple model of a machine says; KV is a number of tokens, and prompts of a family share a prefix.
// The fast slice and the long run are the same code.
#pragma once

#include <array>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "runtime/step/admission.h"
#include "runtime/step/pace.h"
#include "runtime/step/schedule.h"
#include "tests/support/pace_bound.h"

namespace tarn::test {

// The times of a step: step_ms, answer_ms for each row of an answer but the first, prompt_ms for
// each row of a prompt; attention adds half of that at position 16K, and doubles a row of an answer
// at 8K.
struct Machine {
  const char* name;
  f64 step_ms, answer_ms, prompt_ms;
  f64 gap_ms;    // that the gap between two tokens of an answer shall keep
  u32 rows_max;  // of a step
  u32 sessions_max, kv_tokens;
  u64 n_calls_a_day;
};
inline constexpr std::array kMachines = {
    Machine{"8B on two cores", 180, 5, 26, 600, 64, 24, 32'000, 1'000},
    Machine{"8B on a fast GPU", 20, 0.2, 0.1, 50, 512, 24, 64'000, 100'000},
};

inline constexpr u32 kTenants = 8, kRunningMax = 16, kPageTokens = 64;

// A client's request, and its end. Times are virtual nanoseconds.
struct Call {
  u64 arrival_ns = 0;
  u32 tenant = 0;
  step::Priority priority = step::Priority::interactive;
  u32 n_prompt = 1, n_answer = 1;
  u32 family = 0, n_shared = 0;  // its prompt begins with n_shared tokens of the family; 0: none
  u64 cancel_ns = 0;             // 0: never

  u64 ready_ns = 0, first_ns = 0, end_ns = 0;  // has a run slot, its first token, its end
  u32 n_said = 0;
  u32 n_debt = 0;    // of its tenant, when its prompt was ready
  u64 n_passed = 0;  // rows of other tenants' interactive prompts before the last one of its own
};

struct ServerCounts {
  u64 steps = 0, tokens = 0, prompt_rows = 0, reused = 0;
  u64 refused = 0;    // calls that were told to come again
  u64 cancelled = 0;  // while they waited or ran
  u64 evicted = 0;    // prefixes
  u64 deferred = 0;   // times that a run slot was given, or not, beside a session that was deferred
  u64 overtaken = 0;  // sessions, each time
  u64 kv_short = 0;   // steps in which a session had a run slot and no KV
  u32 most_overtaken = 0;
  void add(const ServerCounts& other);
};

// Gaps between two tokens of a running answer.
struct Gaps {
  u64 n = 0, n_beyond = 0;  // gap_ms, within the bound
  f64 longest_ms = 0;
  std::vector<u64> counts = std::vector<u64>(4'000);  // by thousandths of gap_ms
};

class Server {
 public:
  explicit Server(const Machine& machine);

  // The client comes at its arrival_ns; where no session is free it is told when to come again.
  u32 submit(const Call& call);
  void at_run_slot(std::function<void(u32 call)> fn) { at_run_slot_ = std::move(fn); }
  void at_end(std::function<void(u32 call)> fn) { at_end_ = std::move(fn); }

  // To the next step's end; false if nothing is left to do. Checks what holds for each step.
  bool step();

  u64 now_ns() const { return now_ns_; }
  const std::vector<Call>& calls() const { return calls_; }
  const ServerCounts& counts() const { return counts_; }
  void print_gaps() const;

 private:
  enum class State : u8 { free, waits, runs };
  struct Session {
    State state = State::free;
    u32 call = 0;
    u32 n_done = 0;     // tokens that have KV
    u32 kv_tokens = 0;  // reserved, without those of its family
    std::vector<u32> ids;
  };
  struct Family {
    u32 n_cached = 0, n_reserved = 0, n_users = 0;
    u64 used_ns = 0;
  };
  struct Event {
    u64 ns;
    u32 call;
    bool is_cancel;
    bool operator>(const Event& other) const { return ns > other.ns; }
  };

  void take_events();
  void arrive(u32 call);
  void end(u32 session);
  void admit();
  void refresh_waiting();
  bool reserve_kv(u32 session);
  u32 n_shared(const Call& call) const;
  std::vector<step::Ready> ready_sessions();
  void run(const std::vector<step::Ready>& ready);
  void commit(const step::Slice& slice);

  const Machine machine_;
  u64 now_ns_ = 1, order_ = 0;  // 0: never
  std::vector<Call> calls_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Session> sessions_{machine_.sessions_max};
  std::vector<Family> families_;
  std::vector<step::Waiting> waiting_;
  std::vector<u32> n_running_ = std::vector<u32>(kTenants);
  u32 kv_used_ = 0;

  std::vector<step::ShareRing::Account> accounts_;
  step::Shares shares_;
  std::vector<step::Slice> slices_{machine_.sessions_max};
  step::Schedule schedule_;
  step::Pace pace_;
  step::RunSlotTime run_slot_time_;
  PaceBound bound_;

  std::function<void(u32)> at_run_slot_, at_end_;
  ServerCounts counts_;
  Gaps gaps_;
};

// A part of a day, from midnight on: clients of several tenants, most of them at noon. Adds to
// `counts`. Checks with doctest's macros, and prints what it saw.
void run_day(const Machine& machine, u64 seed, f64 part, ServerCounts& counts);

// Prints the counts, and checks that each event was met at least n_min times.
void check_counts(const ServerCounts& counts, u64 n_min);

// One tenant floods: 100 of its requests wait at all times. Another one asks n_calls times, one
// after the other; beside the flood, and alone.
void run_flood(const Machine& machine, u64 seed, u64 n_calls);

}  // namespace tarn::test
