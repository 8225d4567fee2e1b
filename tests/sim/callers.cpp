#include "tests/sim/callers.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "tests/sim/event_counts.h"
#include "tests/support/seed.h"

namespace tarn::test {
namespace {

using step::Priority;
using step::RunKind;

// doctest's own takes longer than a step.
#define REQUIRE_FAST(condition)         \
  do {                                  \
    if (!(condition)) FAIL(#condition); \
  } while (false)

constexpr f64 kMs = 1e6, kSecond = 1e9;  // nanoseconds
constexpr f64 kDay = 86'400 * kSecond;

u64 seconds(f64 s) { return static_cast<u64>(s * kSecond); }
f64 unit(Random& random) { return static_cast<f64>(random.next() >> 11) * 0x1.0p-53; }

f64 prompt_row_ms(const Machine& m, f64 position) {
  return m.prompt_ms * (1 + 0.5 * position / 16'000);
}
f64 answer_row_ms(const Machine& m, f64 position) { return m.answer_ms * (1 + position / 8'000); }

}  // namespace

void ServerCounts::add(const ServerCounts& other) {
  steps += other.steps;
  tokens += other.tokens;
  prompt_rows += other.prompt_rows;
  reused += other.reused;
  refused += other.refused;
  cancelled += other.cancelled;
  evicted += other.evicted;
  deferred += other.deferred;
  overtaken += other.overtaken;
  kv_short += other.kv_short;
  most_overtaken = std::max(most_overtaken, other.most_overtaken);
}

// ---- The server -------------------------------------------------------------------------------

Server::Server(const Machine& machine)
    : machine_(machine), accounts_(u64{kTenants} * step::Shares::kAccounts) {
  shares_.init(accounts_);
  schedule_.slices = slices_;
}

u32 Server::submit(const Call& call) {
  const u32 idx = static_cast<u32>(calls_.size());
  calls_.push_back(call);
  families_.resize(std::max<u64>(families_.size(), call.family + 1));
  events_.push({std::max(call.arrival_ns, now_ns_), idx, false});
  if (call.cancel_ns > 0) events_.push({call.cancel_ns, idx, true});
  return idx;
}

u32 Server::n_shared(const Call& call) const {
  return std::min(call.n_shared, call.n_prompt - 1) / kPageTokens * kPageTokens;
}

void Server::take_events() {
  while (!events_.empty() && events_.top().ns <= now_ns_) {
    const Event event = events_.top();
    events_.pop();
    if (!event.is_cancel) {
      arrive(event.call);
      continue;
    }
    Call& call = calls_[event.call];
    if (call.end_ns > 0) continue;
    ++counts_.cancelled;
    const auto has_call = [&](const Session& s) {
      return s.state != State::free && s.call == event.call;
    };
    const auto session = std::ranges::find_if(sessions_, has_call);
    if (session == sessions_.end()) {
      call.end_ns = now_ns_;  // it does not come again
    } else {
      end(static_cast<u32>(session - sessions_.begin()));
    }
  }
}

void Server::arrive(u32 idx) {
  Call& call = calls_[idx];
  if (call.end_ns > 0) return;
  const auto free = std::ranges::find(sessions_, State::free, &Session::state);
  if (free == sessions_.end()) {
    ++counts_.refused;
    const u32 n = static_cast<u32>(waiting_.size()) + 1;
    const u64 wait_ns = run_slot_time_.wait_estimate_ns(n, kRunningMax);
    events_.push({now_ns_ + std::max(wait_ns, seconds(1)), idx, false});
    return;
  }
  *free = {.state = State::waits, .call = idx, .ids = {}};
  free->ids.resize(call.n_prompt, idx + 1'000'000);
  std::fill_n(free->ids.begin(), std::min(call.n_shared, call.n_prompt), call.family);
  waiting_.push_back({.session = static_cast<u32>(free - sessions_.begin()),
                      .tenant = call.tenant,
                      .priority = call.priority,
                      .order = order_++});
}

void Server::end(u32 idx) {
  Session& s = sessions_[idx];
  Call& call = calls_[s.call];
  call.end_ns = now_ns_;
  if (s.state == State::waits) {
    std::erase_if(waiting_, [&](const step::Waiting& each) { return each.session == idx; });
  } else {
    run_slot_time_.observe(now_ns_ - call.ready_ns);
    --n_running_[call.tenant];
    kv_used_ -= s.kv_tokens;
    Family& family = families_[call.family];
    --family.n_users;
    family.used_ns = now_ns_;
  }
  s.state = State::free;
  if (at_end_) at_end_(s.call);
}

// Reserves KV for the prompt, the answer, and the family where it has none. Unused families go,
// the least recently used first.
bool Server::reserve_kv(u32 idx) {
  Session& s = sessions_[idx];
  const Call& call = calls_[s.call];
  Family& family = families_[call.family];
  s.kv_tokens = call.n_prompt + call.n_answer - n_shared(call);
  const u32 n_family = std::max(n_shared(call), family.n_reserved);
  ++family.n_users;  // it stays
  while (kv_used_ + s.kv_tokens + n_family - family.n_reserved > machine_.kv_tokens) {
    Family* victim = nullptr;
    for (Family& each : families_) {
      const bool may_go = each.n_users == 0 && each.n_reserved > 0;
      if (may_go && (victim == nullptr || each.used_ns < victim->used_ns)) victim = &each;
    }
    if (victim == nullptr) {
      --family.n_users;
      return false;
    }
    kv_used_ -= victim->n_reserved;
    *victim = {};
    ++counts_.evicted;
  }
  kv_used_ += s.kv_tokens + n_family - family.n_reserved;
  family.n_reserved = n_family;
  return true;
}

void Server::refresh_waiting() {
  for (step::Waiting& each : waiting_) {
    const Session& s = sessions_[each.session];
    const Call& call = calls_[s.call];
    each.n_cached = std::min(families_[call.family].n_cached, n_shared(call));
    each.is_deferred = false;
    if (call.family == 0) continue;
    for (const Session& other : sessions_) {
      const Call& running = calls_[other.call];
      if (other.state != State::runs || running.family != call.family) continue;
      each.is_deferred =
          each.is_deferred ||
          step::is_deferred({s.ids, each.n_cached, call.priority},
                            {other.ids, other.n_done, running.priority}, kPageTokens);
    }
  }
}

void Server::admit() {
  const auto n_running = [&] { return std::accumulate(n_running_.begin(), n_running_.end(), 0u); };
  const auto has_none = [&](const step::Waiting& each) { return n_running_[each.tenant] == 0; };
  while (!waiting_.empty()) {
    if (n_running() >= kRunningMax && std::ranges::none_of(waiting_, has_none)) return;
    refresh_waiting();
    counts_.deferred += u64{std::ranges::any_of(waiting_, &step::Waiting::is_deferred)};
    const auto idx = step::next_admitted(waiting_, n_running_, kRunningMax, shares_);
    if (!idx) return;
    const step::Waiting next = waiting_[*idx];
    if (!reserve_kv(next.session)) {
      ++counts_.kv_short;
      return;
    }
    const auto n_overtaken = [&] {
      u64 n = 0;
      for (const step::Waiting& each : waiting_) n += each.n_overtaken;
      return n;
    };
    const u64 n_before = n_overtaken();
    step::give_run_slot(waiting_, *idx);
    counts_.overtaken += n_overtaken() - n_before;
    waiting_.erase(waiting_.begin() + *idx);
    for (const step::Waiting& each : waiting_)
      counts_.most_overtaken = std::max(counts_.most_overtaken, each.n_overtaken);
    REQUIRE_FAST(counts_.most_overtaken <= step::kOvertakenMax);
    Session& s = sessions_[next.session];
    Call& call = calls_[s.call];
    s.state = State::runs;
    s.n_done = next.n_cached;
    counts_.reused += next.n_cached;
    call.ready_ns = now_ns_;
    const i32 deficit = shares_.of(call.priority).accounts()[call.tenant].deficit;
    call.n_debt = static_cast<u32>(std::max(-deficit, 0));
    ++n_running_[call.tenant];
    if (at_run_slot_) at_run_slot_(s.call);
  }
}

std::vector<step::Ready> Server::ready_sessions() {
  std::vector<step::Ready> ready;
  for (u32 i = 0; i < sessions_.size(); ++i) {
    Session& s = sessions_[i];
    if (s.state != State::runs) continue;
    const Call& call = calls_[s.call];
    if (s.n_done < call.n_prompt)  // pages that a neighbour has computed
      s.n_done = std::max(s.n_done, std::min(families_[call.family].n_cached, n_shared(call)));
    const u32 n_rows = call.n_said > 0 ? 1 : call.n_prompt - s.n_done;
    RunKind kind = RunKind::prefill;
    if (n_rows == 1) kind = call.n_said > 0 ? RunKind::decode : RunKind::first;
    ready.push_back({.session = i,
                     .kind = kind,
                     .n_rows = n_rows,
                     .tenant = call.tenant,
                     .priority = call.priority});
  }
  return ready;
}

void Server::commit(const step::Slice& slice) {
  Session& s = sessions_[slice.session];
  Call& call = calls_[s.call];
  s.n_done += slice.n_rows;
  Family& family = families_[call.family];
  const u32 n_page = std::min(s.n_done / kPageTokens * kPageTokens, n_shared(call));
  family.n_cached = std::max(family.n_cached, n_page);
  if (s.n_done < call.n_prompt) return;
  if (call.n_said == 0) call.first_ns = now_ns_;
  ++call.n_said;
  ++counts_.tokens;
  if (call.n_said == call.n_answer) end(slice.session);
}

void Server::run(const std::vector<step::Ready>& ready) {
  u32 n_single = 0, n_wanted = 0;
  for (const step::Ready& each : ready)
    (each.kind == RunKind::prefill ? n_wanted : n_single) += each.n_rows;
  const u64 gap_ns = static_cast<u64>(machine_.gap_ms * kMs);
  const u32 n_prompt_max = pace_.prompt_rows(gap_ns, n_single, machine_.rows_max - n_single);
  schedule(ready, {.rows_max = machine_.rows_max, .prompt_rows_max = n_prompt_max}, shares_,
           &schedule_);

  PaceStep taken;
  f64 prompts_ms = 0;
  u64 n_running_answers = 0;
  std::array<u64, kTenants> rows{};  // of interactive prompts
  const auto slices = schedule_.slices.first(schedule_.n_slices);
  for (const step::Slice& slice : slices) {
    const Session& s = sessions_[slice.session];
    const Call& call = calls_[s.call];
    if (slice.kind == RunKind::prefill) {
      taken.n_prompt_rows += slice.n_rows;
      prompts_ms += slice.n_rows * prompt_row_ms(machine_, s.n_done + slice.n_rows / 2.0);
      if (call.priority == Priority::interactive) rows[call.tenant] += slice.n_rows;
      continue;
    }
    const f64 less_ms = taken.n_answers == 0 ? machine_.answer_ms : 0;
    taken.answers_ms += answer_row_ms(machine_, s.n_done) - less_ms;
    ++taken.n_answers;
    n_running_answers += u64{slice.kind == RunKind::decode};
  }
  taken.answers_ms += machine_.step_ms;
  if (taken.n_prompt_rows > 0) taken.row_ms = prompts_ms / taken.n_prompt_rows;
  counts_.prompt_rows += taken.n_prompt_rows;
  REQUIRE_FAST(taken.n_prompt_rows == std::min(n_prompt_max, n_wanted));  // none stays free
  const f64 ms = taken.step_ms();
  if (n_running_answers > 0) {
    REQUIRE_FAST(ms <= bound_.ms(machine_.gap_ms, taken));
    gaps_.n += n_running_answers;
    gaps_.n_beyond += n_running_answers * u64{ms > machine_.gap_ms};
    gaps_.longest_ms = std::max(gaps_.longest_ms, ms);
    const u64 bucket = static_cast<u64>(ms / machine_.gap_ms * 1'000);
    gaps_.counts[std::min(bucket, gaps_.counts.size() - 1)] += n_running_answers;
  }
  bound_.observe(taken);
  const u64 step_ns = static_cast<u64>(ms * kMs);
  pace_.observe(taken.n_answers, taken.n_prompt_rows, step_ns);
  now_ns_ += step_ns;
  const u64 n_interactive = std::accumulate(rows.begin(), rows.end(), u64{0});
  for (const step::Slice& slice : slices) commit(slice);
  for (const Session& s : sessions_) {  // those whose prompts go on
    Call& call = calls_[s.call];
    if (s.state == State::runs && call.n_said == 0)
      call.n_passed += n_interactive - rows[call.tenant];
  }
}

bool Server::step() {
  for (;;) {
    take_events();
    admit();
    const std::vector<step::Ready> ready = ready_sessions();
    if (!ready.empty()) {
      ++counts_.steps;
      run(ready);
      return true;
    }
    REQUIRE_FAST(waiting_.empty());  // no caller waits for nothing
    if (events_.empty()) return false;
    now_ns_ = events_.top().ns;
  }
}

void Server::print_gaps() const {
  const auto quantile_ms = [&](f64 part) {
    u64 n_below = 0, i = 0;
    while (i < gaps_.counts.size() && static_cast<f64>(n_below) < part * static_cast<f64>(gaps_.n))
      n_below += gaps_.counts[i++];
    return static_cast<f64>(i) * machine_.gap_ms / 1'000;
  };
  std::printf(
      "  gap between tokens: p50 %.1f, p99 %.1f, max %.1f ms; of %llu %llu beyond %.0f ms\n",
      quantile_ms(0.5), quantile_ms(0.99), gaps_.longest_ms,
      static_cast<unsigned long long>(gaps_.n), static_cast<unsigned long long>(gaps_.n_beyond),
      machine_.gap_ms);
}

// ---- What callers do --------------------------------------------------------------------------

namespace {

// Most values are small: the square of a uniform exponent between the two.
u32 skewed(Random& random, f64 least, f64 most) {
  const f64 u = unit(random);
  return static_cast<u32>(least * std::exp(u * u * std::log(most / least)));
}

f64 quantile_s(std::vector<u64> times_ns, f64 part) {
  if (times_ns.empty()) return 0;
  std::ranges::sort(times_ns);
  const f64 at = part * static_cast<f64>(times_ns.size() - 1);
  return static_cast<f64>(times_ns[static_cast<u64>(at)]) / kSecond;
}

}  // namespace

void run_day(const Machine& machine, u64 seed, f64 part, ServerCounts& counts) {
  Random random(seed);
  CAPTURE(seed);
  const u64 n_calls = static_cast<u64>(static_cast<f64>(machine.n_calls_a_day) * part);
  Server server(machine);
  constexpr u32 kFamilies = 4 * kTenants;
  std::vector<u32> prefixes;  // tokens of each family, whose tenant is its rest by kTenants
  for (u32 i = 0; i < kFamilies; ++i) prefixes.push_back(skewed(random, 200, 6'000));
  for (u64 i = 0; i < n_calls;) {
    // The sum of two uniform numbers: most at noon. Some come several at a time, with one prefix.
    const f64 at = (unit(random) + unit(random)) / 2 * part;
    const u64 n_together = random.below(8) == 0 ? 5 : 1;
    const u32 tenant = static_cast<u32>(random.below(random.below(3) == 0 ? kTenants : 2));
    const u32 prefix = static_cast<u32>(random.below(4)) * kTenants + tenant;
    for (u64 k = 0; k < n_together && i < n_calls; ++k, ++i) {
      Call call{.arrival_ns = static_cast<u64>(at * kDay), .tenant = tenant};
      if (random.below(7) == 0) call.priority = Priority::background;
      call.n_prompt = skewed(random, 20, 16'000);
      call.n_answer = skewed(random, 1, 501);
      if (n_together > 1 || random.below(3) == 0) {
        call.family = prefix + 1;  // 0 is none
        call.n_shared = prefixes[prefix];
        call.n_prompt = std::min(call.n_prompt + call.n_shared, 16'000u);
      }
      if (random.below(20) == 0) call.cancel_ns = call.arrival_ns + seconds(200 * unit(random));
      server.submit(call);
    }
  }
  while (server.step()) REQUIRE(static_cast<f64>(server.now_ns()) < 3 * part * kDay);

  std::vector<u64> first_ns, background_ns;
  u64 n_whole = 0;
  for (const Call& call : server.calls()) {
    CHECK(call.end_ns > 0);
    if (call.cancel_ns == 0) CHECK(call.n_said == call.n_answer);
    n_whole += u64{call.n_said == call.n_answer};
    if (call.first_ns == 0) continue;
    const bool is_background = call.priority == Priority::background;
    (is_background ? background_ns : first_ns).push_back(call.first_ns - call.arrival_ns);
  }
  counts.add(server.counts());
  std::printf("%s, seed %llu: %llu calls in %.1f h, %llu of them whole\n", machine.name,
              static_cast<unsigned long long>(seed), static_cast<unsigned long long>(n_calls),
              static_cast<f64>(server.now_ns()) / kSecond / 3'600,
              static_cast<unsigned long long>(n_whole));
  server.print_gaps();
  std::printf("  first token: p50 %.1f, p99 %.1f s; background p50 %.1f, p99 %.1f s\n",
              quantile_s(first_ns, 0.5), quantile_s(first_ns, 0.99), quantile_s(background_ns, 0.5),
              quantile_s(background_ns, 0.99));
}

void check_counts(const ServerCounts& counts, u64 n_min) {
  const std::array<EventCount, 10> events = {{{"steps", counts.steps},
                                              {"tokens", counts.tokens},
                                              {"rows of prompts", counts.prompt_rows},
                                              {"rows reused", counts.reused},
                                              {"refused", counts.refused},
                                              {"cancelled", counts.cancelled},
                                              {"prefixes evicted", counts.evicted},
                                              {"deferred", counts.deferred},
                                              {"overtaken", counts.overtaken},
                                              {"KV short", counts.kv_short}}};
  check_events(events, n_min);
  std::printf("one session overtaken  %9u at most\n", counts.most_overtaken);
}

// ---- A flood ----------------------------------------------------------------------------------

namespace {

constexpr u32 kFlood = 0, kOther = 1;

struct Asked {
  std::vector<u64> first_ns, first_ns_max;  // what the headers' formulas allow
  u64 n_rows = 0, n_passed = 0, n_passed_max = 0;
};

// The same calls of the other tenant, beside the flood or alone.
Asked ask(Machine machine, u64 seed, u64 n_calls, bool is_flooded) {
  machine.sessions_max = 100 + kRunningMax + 1;
  machine.kv_tokens = 1'000'000;  // no caller waits for it
  Random flood_random(seed), random(seed + 1);
  Server server(machine);
  const auto flood = [&] {
    server.submit({.arrival_ns = server.now_ns(),
                   .tenant = kFlood,
                   .n_prompt = skewed(flood_random, 20, 8'000),
                   .n_answer = skewed(flood_random, 1, 501)});
  };
  const auto next = [&] {
    return Call{.arrival_ns = server.now_ns() + seconds(machine.step_ms / 20 * unit(random)),
                .tenant = kOther,
                .n_prompt = skewed(random, 20, 2'000),
                .n_answer = skewed(random, 1, 101)};
  };
  u64 n_ended = 0;
  server.at_run_slot([&](u32 call) {
    if (server.calls()[call].tenant == kFlood) flood();  // so 100 of them wait again
  });
  server.at_end([&](u32 call) {
    if (server.calls()[call].tenant != kOther) return;
    if (++n_ended < n_calls) server.submit(next());
  });
  for (u32 i = 0; is_flooded && i < 100; ++i) flood();
  server.submit(next());
  while (n_ended < n_calls) REQUIRE(server.step());

  constexpr u64 kQ = step::ShareRing::kQuantum;
  constexpr u32 kMin = step::Pace::kRowsMin;
  // At most: a step has kRunningMax answers and kRowsMin rows of prompts or more, which gives the
  // time of a row; or it has no answer and is full.
  const f64 answers_ms = machine.step_ms + kRunningMax * answer_row_ms(machine, 8'501);
  const f64 most_row_ms = prompt_row_ms(machine, 8'000);
  const f64 row_ms = answers_ms / kMin + most_row_ms;
  const f64 gap_ms = machine.gap_ms * most_row_ms / machine.prompt_ms;
  const f64 step_ms = std::max({answers_ms + gap_ms, answers_ms + kMin * most_row_ms,
                                machine.step_ms + machine.rows_max * most_row_ms});
  Asked asked;
  u64 n_waiting = 0;
  for (const Call& call : server.calls()) {
    n_waiting += u64{call.tenant == kFlood && call.end_ns == 0 && call.ready_ns == 0};
    if (call.tenant != kOther) continue;
    CHECK(call.end_ns > 0);
    const u64 n_passed_max = (call.n_prompt + call.n_debt + kQ - 1) / kQ * kQ;
    CHECK(call.n_passed <= (is_flooded ? n_passed_max : 0));
    asked.first_ns.push_back(call.first_ns - call.arrival_ns);
    // The step that runs, the prompt and the rows that pass it, others in the step of its last
    // slice, its last row in one more.
    const f64 most_ms = 3 * step_ms + static_cast<f64>(call.n_prompt + n_passed_max) * row_ms;
    asked.first_ns_max.push_back(static_cast<u64>(most_ms * kMs));
    CHECK(asked.first_ns.back() <= asked.first_ns_max.back());
    asked.n_rows += call.n_prompt;
    asked.n_passed += call.n_passed;
    asked.n_passed_max += n_passed_max;
  }
  CHECK(n_waiting == (is_flooded ? 100 : 0));
  server.print_gaps();
  return asked;
}

}  // namespace

void run_flood(const Machine& machine, u64 seed, u64 n_calls) {
  CAPTURE(seed);
  std::printf("%s, seed %llu: %llu calls beside a flood, and alone\n", machine.name,
              static_cast<unsigned long long>(seed), static_cast<unsigned long long>(n_calls));
  const Asked flooded = ask(machine, seed, n_calls, true);
  const Asked alone = ask(machine, seed, n_calls, false);
  const f64 n_rows = static_cast<f64>(flooded.n_rows);
  const f64 share = n_rows / (n_rows + static_cast<f64>(flooded.n_passed));
  const f64 share_min = n_rows / (n_rows + static_cast<f64>(flooded.n_passed_max));
  std::printf(
      "  first token: p50 %.2f, p99 %.2f s beside the flood, p99 %.2f s at most; "
      "%.2f, %.2f s alone\n",
      quantile_s(flooded.first_ns, 0.5), quantile_s(flooded.first_ns, 0.99),
      quantile_s(flooded.first_ns_max, 0.99), quantile_s(alone.first_ns, 0.5),
      quantile_s(alone.first_ns, 0.99));
  std::printf("  share of the rows of prompts while one of its own waits: %.3f, at least %.3f\n",
              share, share_min);
  CHECK(share >= share_min);
  CHECK(alone.n_passed == 0);
}

}  // namespace tarn::test
