// Goal    victims come in the order of Belady over the cycle that a plan names, idle groups first;
//         dirty groups come oldest first.
// Method  a table of what happens to six groups, and the order in which they are had afterwards.
#include "runtime/kv/eviction_queue.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/carved.h"

namespace tarn::test::eviction_queue_test {
namespace {

using kv::EvictionQueue;

constexpr u32 kGroups = 6;

// A word a step. C: the group is pushed clean. L: likewise, as one that was loaded and is used
// soonest. D: it is pushed dirty. R: it is removed. B begins a cycle. E: it is expected at the
// cycle's next lower tick. A: it is expected later than all of those, and than what was named so
// before. U: it was used, and is used next a cycle later.
struct Case {
  const char* name;
  const char* steps;
  const char* victims;  // first to last
  const char* dirty;
};
constexpr Case kCases[] = {
    {"empty", "", "", ""},
    {"never expected, the longest untouched first", "C0 C1 C2", "0 1 2", ""},
    {"dirty ones, the oldest first", "D2 D0 D1", "", "2 0 1"},
    {"removed ones are in neither list", "C0 C1 D2 D3 R0 R2 R4", "1", "3"},
    {"the last use of the cycle goes first", "C0 C1 C2 B E2 E1 E0", "2 1 0", ""},
    {"idle ones go before expected ones", "C0 C1 C2 C3 B E1 E0", "2 3 1 0", ""},
    {"a new cycle makes all idle", "C0 C1 C2 B E2 E1 E0 B", "2 1 0", ""},
    {"what was used comes behind what is expected", "C0 C1 C2 B E2 E1 E0 R0 U0 C0", "0 2 1", ""},
    {"what was loaded is used soonest", "C0 C1 B E3 E1 E0 L3", "1 0 3", ""},
    {"what later steps use goes before this step's, the last turn first", "C0 C1 C2 C3 B E0 A2 A3",
     "1 3 2 0", ""},
    {"and where this step uses it too, not", "C0 C1 C2 B E1 E0 A0 A2", "2 1 0", ""},
    {"what was read for later comes behind what is expected", "C0 C1 B E1 E0 A2 C2", "2 1 0", ""},
    {"a dirty group is expected where it is clean", "D0 C1 B E1 E0 R0 C0", "0 1", ""},
};

struct Life {
  void act(char what, u32 group) {
    if (what == 'C') queue.push_clean(group, false);
    if (what == 'L') queue.push_clean(group, true);
    if (what == 'D') queue.push_dirty(group);
    if (what == 'R') queue.remove(group);
    if (what == 'E') queue.expect(group, --tick);
    if (what == 'A') queue.expect_later(group, ++later_tick);
    if (what == 'U') queue.set_next_use(group, first_tick + 2 * kGroups);
    if (what != 'B') return;
    first_tick += 100;
    tick = first_tick + kGroups;
    later_tick = first_tick + 3 * kGroups;
    queue.begin_cycle(first_tick);
  }

  EvictionQueue queue;
  std::vector<std::byte> tables = carved([&](Carver& c) { queue.init(c, kGroups); });
  u64 first_tick = 1, tick = 1, later_tick = 1;
};

TEST_CASE("victims and dirty groups come in their order") {
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.name));
    Life life;
    for (const char* at = c.steps; *at != '\0';) {
      const char what = *at++;
      const bool has_group = *at != '\0' && *at != ' ';
      life.act(what, has_group ? static_cast<u32>(*at++ - '0') : 0);
      life.queue.check_invariants();
      if (*at == ' ') ++at;
    }
    const auto list = [&](auto&& next) {
      std::string names;
      for (u32 group = next(); group != EvictionQueue::kNone; group = next()) {
        names += (names.empty() ? "" : " ") + std::to_string(group);
        life.queue.remove(group);
        life.queue.check_invariants();
      }
      return names;
    };
    CHECK(list([&] { return life.queue.victim(); }) == c.victims);
    CHECK(list([&] { return life.queue.first_dirty(); }) == c.dirty);
    CHECK(life.queue.n_clean() + life.queue.n_dirty() == 0);
  }
}

}  // namespace
}  // namespace tarn::test::eviction_queue_test
