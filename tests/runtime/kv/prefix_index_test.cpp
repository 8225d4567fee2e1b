// Goal    the tree of pages finds what was said, lets the right page leave, and leaks nothing.
// Method  METHODS 14.11's cases for RadixAttention, restated in pages; random lives beside a plain
//         model of the tree.
#include "runtime/kv/prefix_index.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/carved.h"
#include "tests/support/seed.h"

namespace tarn::kv::prefix_index_test {
namespace {

constexpr u32 kLayers = 2, kPageTokens = 1;
constexpr GroupShape kShape{.n_kv_heads = 1, .page_tokens = kPageTokens, .vector_bytes = 64};

// A pool with a tree over it; a letter is a page of one token.
struct Forest {
  explicit Forest(u32 n_pages, u32 n_sequences = 1, bool keeps_idle = true)
      : region(u64{n_pages} * kLayers * kShape.group_bytes()),
        entries(n_sequences, std::vector<GroupRef>(kLayers * 16)),
        sequences(n_sequences) {
    const std::array<u8, 32> entropy{};
    secret = store::make_secret(entropy);
    tables = test::carved([&](Carver& carver) {
      pool.init(carver, kShape, n_pages * kLayers);
      pages.init(carver, {.n_pages = n_pages,
                          .n_cache_layers = kLayers,
                          .page_tokens = kPageTokens,
                          .keeps_idle = keeps_idle,
                          .pool = &pool,
                          .secret = &secret});
    });
    pool.lie_in(region);
    pool.belong_to(&pages);
    for (u32 i = 0; i < n_sequences; ++i) sequences[i].init(&pool, kLayers, 16, entries[i]);
  }

  // The sequence becomes this text: what is there is taken, the rest is written. How much was
  // there; nothing where the pool has no room.
  std::optional<u32> say(u32 i, const std::string& text) {
    Sequence& sequence = sequences[i];
    u32 before = kNoPage, n_found = 0;
    for (u32 at = 0; at < text.size(); ++at) {
      const std::array<u32, 1> ids = {static_cast<u32>(text[at])};
      const store::Key chain = pages.chain_of(root, before, ids);
      const u32 page = n_found == at ? pages.find(chain, ids) : kNoPage;
      if (page != kNoPage) {
        pages.note_hit(page, before);
        sequence.adopt(pages.groups(page));
        ++n_found;
      } else {
        if (!sequence.reserve(1)) return std::nullopt;
        for (u32 layer = 0; layer < kLayers; ++layer) {
          *sequence.slot_for_write(layer, 0, at) = static_cast<u8>(text[at]);
        }
        sequence.commit(1);
        pages.add({.chain = chain, .before = before, .token_ids = ids}, sequence, at);
      }
      before = pages.page_of(sequence, at);
    }
    return n_found;
  }
  // How many pages of the text are found, from the first one on.
  u32 match(const std::string& text) const {
    u32 before = kNoPage, n = 0;
    for (const char letter : text) {
      const std::array<u32, 1> ids = {static_cast<u32>(letter)};
      before = pages.find(pages.chain_of(root, before, ids), ids);
      if (before == kNoPage) break;
      ++n;
    }
    return n;
  }
  void check() const {
    pages.check_invariants();
    pool.check_invariants();
  }

  std::vector<std::byte> region, tables;
  std::vector<std::vector<GroupRef>> entries;
  std::vector<Sequence> sequences;
  store::Secret secret{};
  store::Key root{.low = 1, .high = 2};
  GroupPool pool;
  PrefixIndex pages;
};

}  // namespace

TEST_CASE("equal beginnings are one path of the tree") {
  Forest forest(8, 2);
  CHECK(forest.say(0, "abcd") == 0);
  CHECK(forest.say(1, "abef") == 2);
  CHECK(forest.pages.n_pages() == 6);
  CHECK(forest.pool.groups_free() == 2 * kLayers);
  CHECK(forest.match("abe") == 3);
  CHECK(forest.match("abx") == 2);
  CHECK(forest.match("bcd") == 0);  // the same letters behind others
  const std::array<u32, 1> first = {'a'}, other = {'x'};
  const store::Key chain = forest.pages.chain_of(forest.root, kNoPage, first);
  CHECK(forest.pages.find(chain, first) != kNoPage);
  CHECK(forest.pages.find(chain, other) == kNoPage);  // two texts with one key
  for (u32 layer = 0; layer < kLayers; ++layer) {
    const GroupRef a = forest.sequences[0].group(layer, 0), b = forest.sequences[1].group(layer, 0);
    CHECK(a.idx == b.idx);
    CHECK(forest.pool.references(a) == 2);
  }
  forest.check();
}

TEST_CASE("what a sequence holds never leaves, children leave before their parents") {
  Forest forest(8, 2);
  forest.say(0, "abcd");
  forest.say(1, "abef");
  CHECK_FALSE(forest.pages.free_one());
  forest.sequences[0].clear();
  CHECK(forest.pool.groups_idle() == 2 * kLayers);
  CHECK(forest.pages.free_one());  // d
  CHECK(forest.match("abcd") == 3);
  CHECK(forest.pages.free_one());  // c
  CHECK_FALSE(forest.pages.free_one());
  CHECK(forest.match("abef") == 4);
  forest.sequences[1].clear();
  for (u32 left = 4; left > 0; --left) {
    CHECK(forest.match("abef") == left);
    CHECK(forest.pages.free_one());
    forest.check();
  }
  CHECK(forest.pages.n_pages() == 0);
}

TEST_CASE("of pages without children the least recently used leaves first") {
  Forest forest(8, 2);
  for (const char* text : {"a", "b", "c"}) {
    forest.say(0, text);
    forest.sequences[0].clear();
  }
  forest.say(0, "a");  // used again
  forest.sequences[0].clear();
  CHECK(forest.pages.free_one());
  CHECK(forest.match("b") == 0);
  CHECK(forest.pages.free_one());
  CHECK(forest.match("c") == 0);
  CHECK(forest.match("a") == 1);
}

TEST_CASE("a full pool gives idle pages away by itself, and no other") {
  Forest forest(4, 2);
  CHECK(forest.say(0, "abcd") == 0);
  forest.sequences[0].clear();
  CHECK(forest.pool.groups_free() == 4 * kLayers);
  CHECK(forest.say(1, "abx") == 2);
  CHECK(forest.match("abcd") == 3);  // d gave way
  CHECK(forest.say(0, "yz").has_value() == false);
  CHECK(forest.match("abx") == 3);
  forest.check();
}

TEST_CASE(
    "a page that is written again is no page, and what followed it is found behind its equal") {
  Forest forest(8, 2);
  forest.say(0, "ab");
  forest.say(1, "abc");
  forest.sequences[1].clear();
  Sequence& own = forest.sequences[0];
  const u32 b = forest.pages.page_of(own, 1);
  forest.pages.on_reopen(b);
  CHECK(forest.match("abc") == 1);
  forest.check();
  own.clear();
  CHECK(forest.say(0, "abc") == 1);
  CHECK(forest.match("abc") == 3);
  forest.check();
}

TEST_CASE("without idle pages a page goes with its last sequence") {
  Forest forest(8, 2, /*keeps_idle=*/false);
  forest.say(0, "abc");
  CHECK(forest.say(1, "ab") == 2);
  forest.sequences[0].clear();
  CHECK(forest.match("abc") == 2);
  forest.sequences[1].clear();
  CHECK(forest.pages.n_pages() == 0);
  forest.check();
}

TEST_CASE("private pages are found by nobody, and do not stay") {
  Forest forest(8, 1);
  Sequence& sequence = forest.sequences[0];
  REQUIRE(sequence.reserve(1));
  sequence.commit(1);
  const std::array<u32, 1> ids = {'a'};
  forest.pages.add({.chain = {3, 4}, .is_listed = false, .token_ids = ids}, sequence, 0);
  CHECK(forest.pages.find({3, 4}, ids) == kNoPage);
  CHECK(forest.pages.node(forest.pages.page_of(sequence, 0)).chain == store::Key{3, 4});
  sequence.clear();
  CHECK(forest.pages.n_pages() == 0);
  forest.check();
}

// The model: which texts are there, by their last page, and when each was used last.
TEST_CASE("random lives give the answers of a plain tree, and leak nothing") {
  test::Random seeds(test::seed_from_environment());
  CAPTURE(seeds.seed());
  constexpr u32 kSequences = 4, kPages = 12, kOperations = 1000, kLives = 50;
  u64 n_found = 0, n_refused = 0, n_gone = 0;
  for (u32 life = 0; life < kLives; ++life) {
    test::Random random(seeds.next());
    Forest forest(kPages, kSequences);
    std::array<std::string, kSequences> said;
    std::map<std::string, u64> used;  // pages of the model
    u64 now = 0;
    const auto is_held = [&](const std::string& text) {
      return std::ranges::any_of(said, [&](const std::string& s) { return s.starts_with(text); });
    };
    const auto has_child = [&](const std::string& text) {
      const auto next = used.upper_bound(text);
      return next != used.end() && next->first.starts_with(text);
    };
    const auto oldest = [&] {
      auto victim = used.end();
      for (auto it = used.begin(); it != used.end(); ++it) {
        if (is_held(it->first) || has_child(it->first)) continue;
        if (victim == used.end() || it->second < victim->second) victim = it;
      }
      return victim;
    };
    const auto clear = [&](u32 i) {
      forest.sequences[i].clear();
      const std::string text = std::exchange(said[i], "");
      for (u64 n = text.size(); n > 0; --n) {
        if (!is_held(text.substr(0, n))) used[text.substr(0, n)] = ++now;
      }
    };
    for (u32 operation = 0; operation < kOperations; ++operation) {
      const u32 i = static_cast<u32>(random.below(kSequences));
      clear(i);
      if (random.below(4) == 0) continue;
      std::string text;
      for (u64 n = 1 + random.below(6); n > 0; --n)
        text += static_cast<char>('a' + random.below(2));
      u32 n_there = 0;
      while (n_there < text.size() && used.contains(text.substr(0, n_there + 1))) {
        used[text.substr(0, ++n_there)] = ++now;
        said[i] = text.substr(0, n_there);
      }
      bool fits = true;
      for (u64 n = n_there + 1; fits && n <= text.size(); ++n) {
        if (used.size() == kPages) {
          const auto victim = oldest();
          fits = victim != used.end();
          if (fits) used.erase(victim), ++n_gone;
        }
        if (fits) used[said[i] = text.substr(0, n)] = ++now;
      }
      const std::optional<u32> found = forest.say(i, text);
      REQUIRE(found.has_value() == fits);
      if (found) REQUIRE(*found == n_there);
      n_found += n_there;
      n_refused += !fits;
      for (const auto& [page, when] : used) REQUIRE(forest.match(page) == page.size());
      REQUIRE(forest.pages.n_pages() == used.size());
      forest.check();
      for (u32 s = 0; s < kSequences; ++s) {
        for (u32 at = 0; at < said[s].size(); ++at) {
          const std::array<const u8*, 1> page = {
              forest.pool.page(forest.sequences[s].group(1, at), 0)};
          REQUIRE(*page[0] == static_cast<u8>(said[s][at]));
        }
      }
    }
    for (u32 i = 0; i < kSequences; ++i) clear(i);
    while (forest.pages.free_one()) {
    }
    REQUIRE(forest.pages.n_pages() == 0);
    REQUIRE(forest.pool.groups_free() == kPages * kLayers);
  }
  MESSAGE(kLives, " lives: ", n_found, " pages found, ", n_gone, " left, ", n_refused, " refused");
  CHECK(n_found > 1000);
  CHECK(n_gone > 1000);
  CHECK(n_refused > 100);
}
}  // namespace tarn::kv::prefix_index_test
