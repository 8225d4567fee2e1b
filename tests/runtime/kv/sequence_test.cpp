// Goal    a sequence's slots hold what was written until they are cut off, whatever other sequences
//         of the pool do; a shortage changes nothing; every group comes back; who takes what
//         changed knows where all groups lie.
// Method  random reserve/write/commit/abandon/truncate/fork/clear over several sequences that share
//         one small pool, against a list of tokens per sequence; what the pool can give is computed
//         from the references by an oracle of its own. Contents and invariants are checked after
//         each operation.
#include "runtime/kv/sequence.h"

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <map>
#include <vector>

#include "tests/support/asserts.h"
#include "tests/support/carved.h"
#include "tests/support/kv_invariants.h"
#include "tests/support/seed.h"

namespace tarn::kv::sequence_test {
namespace {

constexpr u32 kHeads = 2;
constexpr u32 kVectorBytes = 12;
constexpr u32 kSlotBytes = 2 * kVectorBytes;

// What slot `slot` of (layer, head) holds for a token: a function of all of them, so that a mix-up
// of any two shows.
std::array<u8, kSlotBytes> slot_content(u64 token, u32 layer, u32 head, u32 slot) {
  test::Random mix(token ^ (u64{layer} << 40) ^ (u64{head} << 48) ^ (u64{slot} << 50));
  std::array<u8, kSlotBytes> out{};
  for (u8& byte : out) byte = static_cast<u8>(mix.next());
  return out;
}

struct World {
  World(u32 n_layers_in, u32 page_tokens_in, u32 slots_max_in, u32 groups_max, u32 n_sequences)
      : n_layers(n_layers_in), page_tokens(page_tokens_in), slots_max(slots_max_in) {
    const GroupShape shape{
        .n_kv_heads = kHeads, .page_tokens = page_tokens, .vector_bytes = kVectorBytes};
    region.resize(groups_max * shape.group_bytes());
    pool_memory = test::carved([&](Carver& c) { pool.init(c, shape, groups_max); });
    pool.lie_in(region);
    sequences.resize(n_sequences);
    tokens.resize(n_sequences);
    tables.resize(n_sequences);
    for (u32 s = 0; s < n_sequences; ++s) {
      tables[s].resize(Sequence::n_entries(n_layers, slots_max, page_tokens));
      sequences[s].init(&pool, n_layers, slots_max, tables[s]);
    }
  }

  void write(u32 s, u32 n, test::Random& random) {  // n slots were reserved beyond n_slots
    for (u32 i = 0; i < n; ++i) {
      const u64 token = random.next();
      const u32 slot = static_cast<u32>(tokens[s].size());
      for (u32 layer = 0; layer < n_layers; ++layer) {
        for (u32 head = 0; head < kHeads; ++head) {
          const auto content = slot_content(token, layer, head, slot);
          std::memcpy(sequences[s].slot_for_write(layer, head, slot), content.data(), kSlotBytes);
        }
      }
      tokens[s].push_back(token);
    }
  }

  // Contents of every committed slot, invariants of all, and references of every group by counting.
  void check() const {
    pool.check_invariants();
    std::map<u32, u32> references;
    for (u32 s = 0; s < sequences.size(); ++s) {
      const Sequence& sequence = sequences[s];
      test::check_invariants(sequence, pool, n_layers);
      REQUIRE(sequence.n_slots() == tokens[s].size());
      std::vector<const u8*> pages(sequence.n_groups());
      for (u32 layer = 0; layer < n_layers; ++layer) {
        for (u32 g = 0; g < sequence.n_groups(); ++g) ++references[sequence.group(layer, g).idx];
        for (u32 head = 0; head < kHeads; ++head) {
          sequence.pages(layer, head, 0, sequence.n_groups(), pages);
          for (u32 slot = 0; slot < sequence.n_slots(); ++slot) {
            const u8* got = pages[slot / page_tokens] + u64{slot % page_tokens} * kSlotBytes;
            const auto want = slot_content(tokens[s][slot], layer, head, slot);
            REQUIRE(std::memcmp(got, want.data(), kSlotBytes) == 0);
          }
        }
      }
    }
    REQUIRE(pool.groups_free() == pool.groups_max() - references.size());
    for (u32 s = 0; s < sequences.size(); ++s) {
      for (u32 layer = 0; layer < n_layers; ++layer) {
        for (u32 g = 0; g < sequences[s].n_groups(); ++g) {
          const GroupRef ref = sequences[s].group(layer, g);
          REQUIRE(pool.references(ref) == references[ref.idx]);
        }
      }
    }
  }

  // What somebody knows who asks what changed and keeps it.
  void follow(u32 s) {
    Sequence& sequence = sequences[s];
    std::vector<u64>& addresses = known[s];
    const u32 begin = sequence.take_changed_groups();
    REQUIRE(begin <= sequence.n_groups());
    addresses.resize(u64{sequence.n_groups()} * n_layers);
    for (u32 layer = 0; layer < n_layers; ++layer) {
      for (u32 g = 0; g < sequence.n_groups(); ++g) {
        u64& address = addresses[u64{g} * n_layers + layer];
        if (g >= begin) address = sequence.group_address(layer, g);
        REQUIRE(address == sequence.group_address(layer, g));
      }
    }
    REQUIRE(sequence.take_changed_groups() == sequence.n_groups());
  }

  u32 n_layers, page_tokens, slots_max;
  std::vector<std::byte> region, pool_memory;
  GroupPool pool;
  std::vector<std::vector<GroupRef>> tables;
  std::vector<Sequence> sequences;
  std::vector<std::vector<u64>> tokens;
  std::map<u32, std::vector<u64>> known;  // [n_groups, n_layers] addresses of each sequence
};

TEST_CASE("slots are reserved, written, committed and found again across page borders") {
  test::Random random(test::seed_from_environment());
  World world(2, 4, 20, 12, 1);
  Sequence& sequence = world.sequences[0];
  for (const u32 n : {1u, 3u, 4u, 5u, 0u, 6u}) {
    const u64 needed = 2 * (ceil_div(sequence.n_slots() + n, 4) - sequence.n_groups());
    const u32 free_before = world.pool.groups_free();
    REQUIRE(sequence.reserve(n));
    CHECK(free_before - world.pool.groups_free() == needed);
    world.write(0, n, random);
    sequence.commit(n);
    world.check();
  }
  CHECK(sequence.n_slots() == 19);
  CHECK_FALSE(sequence.reserve(2));  // 21 > slots_max
  CHECK(sequence.reserve(1));
  sequence.clear();
  CHECK(world.pool.groups_free() == 12);
}

TEST_CASE("what is reserved in several goes and abandoned leaves no trace") {
  test::Random random(test::seed_from_environment());
  World world(3, 4, 64, 30, 1);
  Sequence& sequence = world.sequences[0];
  REQUIRE(sequence.reserve(6));
  world.write(0, 6, random);
  sequence.commit(5);  // one written slot is not committed: a rejected draft
  world.tokens[0].pop_back();
  REQUIRE(sequence.reserve(9));
  CHECK(world.pool.groups_free() == 30 - 3 * 4);
  sequence.abandon();
  CHECK(world.pool.groups_free() == 30 - 3 * 2);
  world.check();
}

TEST_CASE("a shortage changes nothing") {
  test::Random random(test::seed_from_environment());
  World world(2, 4, 64, 7, 2);
  Sequence& first = world.sequences[0];
  REQUIRE(first.reserve(10));  // three groups a layer: one of seven is left
  world.write(0, 10, random);
  first.commit(10);
  CHECK(first.reserve(2));  // no new group needed
  CHECK_FALSE(first.reserve(1));
  first.abandon();
  CHECK_FALSE(world.sequences[1].fork_from(first));  // the tail of two layers, one group free
  CHECK(world.sequences[1].n_slots() == 0);
  world.check();

  REQUIRE(first.truncate(8));
  world.tokens[0].resize(8);
  REQUIRE(world.sequences[1].fork_from(first));  // nothing to copy
  world.tokens[1] = world.tokens[0];
  CHECK(world.pool.groups_free() == 3);
  REQUIRE(first.reserve(4));                    // leaves one
  CHECK_FALSE(world.sequences[1].truncate(5));  // would have to copy the shared tail of two layers
  world.check();
  // Its own last groups count as free for the copy, once nobody shares them.
  first.abandon();
  REQUIRE(first.truncate(4));
  world.tokens[0].resize(4);
  REQUIRE(first.reserve(4));
  CHECK(world.pool.groups_free() == 1);
  REQUIRE(world.sequences[1].truncate(2));
  world.tokens[1].resize(2);
  CHECK(world.pool.groups_free() == 1);
  world.check();
}

TEST_CASE("truncate inside a sealed group reopens an own one and copies a shared one") {
  test::Random random(test::seed_from_environment());
  World world(2, 4, 64, 20, 2);
  REQUIRE(world.sequences[0].reserve(12));
  world.write(0, 12, random);
  world.sequences[0].commit(12);
  const GroupRef before = world.sequences[0].group(0, 1);
  REQUIRE(world.sequences[0].truncate(6));
  world.tokens[0].resize(6);
  CHECK(world.sequences[0].group(0, 1).idx == before.idx);
  CHECK(world.sequences[0].group(0, 1).generation != before.generation);
  world.check();
  REQUIRE(world.sequences[0].reserve(2));
  world.write(0, 2, random);
  world.sequences[0].commit(2);
  REQUIRE(world.sequences[1].fork_from(world.sequences[0]));
  world.tokens[1] = world.tokens[0];
  REQUIRE(world.sequences[1].truncate(7));
  world.tokens[1].resize(7);
  CHECK(world.sequences[1].group(0, 1).idx != world.sequences[0].group(0, 1).idx);
  REQUIRE(world.sequences[1].reserve(1));
  world.write(1, 1, random);  // must not show in the first
  world.sequences[1].commit(1);
  world.check();
}

TEST_CASE("writing or cutting where there is nothing asserts") {
  World world(2, 4, 64, 20, 2);
  Sequence& sequence = world.sequences[0];
  REQUIRE(sequence.reserve(6));
  sequence.commit(5);
  CHECK_FALSE(test::asserts([&] { sequence.slot_for_write(1, 1, 5); }));
  CHECK(test::asserts([&] { sequence.slot_for_write(1, 1, 4); }));  // committed
  CHECK(test::asserts([&] { sequence.slot_for_write(1, 1, 6); }));  // not reserved
  CHECK(test::asserts([&] { sequence.slot_for_write(2, 1, 5); }));
  CHECK(test::asserts([&] { sequence.slot_for_write(1, kHeads, 5); }));
  CHECK(test::asserts([&] { sequence.commit(2); }));
  CHECK(test::asserts([&] { static_cast<void>(sequence.truncate(6)); }));
  CHECK(test::asserts([&] { static_cast<void>(sequence.fork_from(world.sequences[1])); }));
}

// One random operation on sequence s; whether it had to succeed comes from the references
// themselves.
void random_operation(World& world, u32 s, test::Random& random) {
  Sequence& sequence = world.sequences[s];
  std::vector<u64>& tokens = world.tokens[s];
  const u32 n_slots = sequence.n_slots();
  const u32 n_free = world.pool.groups_free();
  switch (random.below(7)) {
    case 0:
    case 1:
    case 2: {  // append, committing in up to two goes, perhaps not all of it
      const u32 n = static_cast<u32>(random.below(11));
      const u64 groups = (n_slots + n + world.page_tokens - 1) / world.page_tokens -
                         (n_slots + world.page_tokens - 1) / world.page_tokens;
      const bool want = n_slots + n <= world.slots_max && groups * world.n_layers <= n_free;
      REQUIRE(sequence.reserve(n) == want);
      if (!want) break;
      const u32 n_committed = static_cast<u32>(random.below(n + 1));
      const u32 n_first = static_cast<u32>(random.below(n_committed + 1));
      world.write(s, n_committed, random);
      sequence.commit(n_first);
      sequence.commit(n_committed - n_first);
      if (random.below(4) != 0 || n_committed < n) sequence.abandon();
      break;
    }
    case 3:
    case 4: {
      const u32 n = static_cast<u32>(random.below(n_slots + 1));
      const u32 n_kept = (n + world.page_tokens - 1) / world.page_tokens;
      u64 n_copies = 0, n_freed = 0;
      for (u32 layer = 0; layer < world.n_layers; ++layer) {
        if (n % world.page_tokens != 0) {
          const GroupRef tail = sequence.group(layer, n_kept - 1);
          if (world.pool.references(tail) > 1) ++n_copies;
        }
        for (u32 g = n_kept; g < sequence.n_groups(); ++g) {
          if (world.pool.references(sequence.group(layer, g)) == 1) ++n_freed;
        }
      }
      const u32 n_more = static_cast<u32>(random.below(world.slots_max - n + 1));
      const bool has_room = sequence.has_room(n, n + n_more);
      const bool is_cut = sequence.truncate(n);
      REQUIRE(is_cut == (n_copies <= n_free + n_freed));
      REQUIRE((is_cut && sequence.reserve(n_more)) == has_room);
      if (is_cut) sequence.abandon();
      if (sequence.n_slots() == n) tokens.resize(n);
      break;
    }
    case 5: {
      const u32 from = static_cast<u32>(random.below(world.sequences.size()));
      if (from == s) break;
      sequence.clear();
      tokens.clear();
      const u32 n_free_now = world.pool.groups_free();
      const u32 n = world.sequences[from].n_slots();
      const bool want = n % world.page_tokens == 0 || world.n_layers <= n_free_now;
      REQUIRE(sequence.fork_from(world.sequences[from]) == want);
      if (want) tokens = world.tokens[from];
      break;
    }
    default:
      if (random.below(3) == 0) {
        sequence.clear();
        tokens.clear();
      }
  }
}

TEST_CASE("random operations over several sequences agree with lists of tokens") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  struct Case {
    const char* name;
    u32 n_layers, page_tokens, slots_max, groups_max, n_sequences;
  };
  // clang-format off
  constexpr Case kCases[] = {
      // name                     layers page  max groups sequences
      {"one layer, page of one",       1,   1,  30,   40,  3},
      {"tight pool",                   3,   4,  40,   20,  4},
      {"ample pool",                   2,   4,  40,  200,  5},
      {"max is no multiple of a page", 2,   8,  37,   24,  3},
  };
  // clang-format on
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    World world(c.n_layers, c.page_tokens, c.slots_max, c.groups_max, c.n_sequences);
    for (u32 op = 0; op < 3000; ++op) {
      CAPTURE(op);
      random_operation(world, static_cast<u32>(random.below(c.n_sequences)), random);
      world.check();
      if (random.below(2) == 0) world.follow(static_cast<u32>(random.below(c.n_sequences)));
    }
    for (u32 s = 0; s < c.n_sequences; ++s) world.sequences[s].clear();
    CHECK(world.pool.groups_free() == c.groups_max);
  }
}

}  // namespace
}  // namespace tarn::kv::sequence_test
