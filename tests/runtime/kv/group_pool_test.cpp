// Goal    a pool hands out each group once, counts it exactly, keeps sealed groups immutable, and
//         catches every use of a name that is no longer valid.
// Method  random operations against a map from group to {content, references, sealed}, invariants
//         after each; assertions are provoked in a child process.
#include "runtime/kv/group_pool.h"

#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <vector>

#include "tests/support/asserts.h"
#include "tests/support/carved.h"
#include "tests/support/seed.h"

namespace tarn::kv::group_pool_test {
namespace {

struct TestPool {
  explicit TestPool(const GroupShape& shape, u32 groups_max)
      : region(groups_max * shape.group_bytes()),
        tables(test::carved([&](Carver& c) { pool.init(c, shape, groups_max); })) {
    pool.lie_in(region);
  }
  GroupPool pool;
  std::vector<std::byte> region, tables;
};

constexpr GroupShape kShape{.n_kv_heads = 2, .page_tokens = 16, .vector_bytes = 20};

TEST_CASE("sizes: a group is padded to 4 KiB and pages do not overlap") {
  CHECK(kShape.page_bytes() == 640);
  CHECK(kShape.payload_bytes() == 1280);
  CHECK(kShape.group_bytes() == 4096);
  // Llama 3.1 8B: 8 KV heads of 128 in f16, 64 slots.
  constexpr GroupShape kReal{.n_kv_heads = 8, .page_tokens = 64, .vector_bytes = 256};
  CHECK(kReal.page_bytes() == 32 * kKiB);
  CHECK(kReal.group_bytes() == 256 * kKiB);
  // The same in q8_0: 17,408 B a page.
  constexpr GroupShape kQuantised{.n_kv_heads = 8, .page_tokens = 64, .vector_bytes = 136};
  CHECK(kQuantised.page_bytes() == 17408);

  TestPool test(kShape, 3);
  for (u32 i = 0; i < 3; ++i) {
    const auto group = test.pool.acquire();
    REQUIRE(group.has_value());
    for (u32 head = 0; head < 2; ++head) {
      std::memset(test.pool.page_for_write(*group, head), static_cast<int>(1 + i * 2 + head), 640);
    }
  }
  std::vector<u32> counts(8);
  for (const std::byte b : test.region) ++counts[std::to_integer<u32>(b)];
  for (u32 value = 1; value <= 6; ++value) CHECK(counts[value] == 640);
}

TEST_CASE("an empty pool and a full one give nothing") {
  TestPool none(kShape, 0);
  CHECK_FALSE(none.pool.acquire().has_value());
  none.pool.check_invariants();
  TestPool one(kShape, 1);
  const auto group = one.pool.acquire();
  REQUIRE(group.has_value());
  CHECK_FALSE(one.pool.acquire().has_value());
  one.pool.release(*group);
  CHECK(one.pool.acquire().has_value());
}

TEST_CASE("every misuse asserts") {
  TestPool test(kShape, 4);
  GroupPool& pool = test.pool;
  const GroupRef writable = *pool.acquire();
  const GroupRef sealed = *pool.acquire();
  pool.seal(sealed);
  const GroupRef shared = *pool.acquire();
  pool.seal(shared);
  pool.add_reference(shared);
  const GroupRef freed = *pool.acquire();
  pool.release(freed);
  const GroupRef reused = *pool.acquire();  // the same frame under a new generation
  REQUIRE(reused.idx == freed.idx);

  CHECK_FALSE(test::asserts([&] { pool.page_for_write(writable, 1); }));
  CHECK(test::asserts([&] { pool.page_for_write(sealed, 0); }));
  CHECK(test::asserts([&] { pool.page_for_write(writable, 2); }));
  CHECK(test::asserts([&] { static_cast<void>(pool.page(writable, 2)); }));
  CHECK(test::asserts([&] { static_cast<void>(pool.page(freed, 0)); }));
  CHECK(test::asserts([&] { pool.release(freed); }));
  CHECK(test::asserts([&] { pool.seal(freed); }));
  CHECK(test::asserts([&] { static_cast<void>(pool.is_sealed(freed)); }));
  CHECK(test::asserts([&] { static_cast<void>(pool.references(GroupRef{})); }));
  CHECK(test::asserts([&] { pool.seal(sealed); }));
  CHECK(test::asserts([&] { pool.add_reference(writable); }));
  CHECK(test::asserts([&] { pool.reopen(writable); }));
  CHECK(test::asserts([&] { pool.reopen(shared); }));
  CHECK(test::asserts([&] {
    const GroupRef opened = pool.reopen(sealed);
    pool.page_for_write(opened, 0);
    static_cast<void>(pool.page(sealed, 0));  // its old name
  }));
  CHECK(test::asserts([&] {
    pool.release(shared);
    pool.release(shared);
    pool.release(shared);
  }));
}

struct Modelled {
  u8 content = 0;
  u32 references = 1;
  bool sealed = false;
};

TEST_CASE("random operations agree with a map") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  constexpr u32 kGroups = 9;
  TestPool test(kShape, kGroups);
  GroupPool& pool = test.pool;
  std::map<u32, std::pair<GroupRef, Modelled>> model;  // by frame
  for (u32 op = 0; op < 20000; ++op) {
    auto it = model.begin();
    if (!model.empty()) std::advance(it, static_cast<i64>(random.below(model.size())));
    const u64 what = random.below(6);
    if (model.empty() || what == 0) {
      const auto group = pool.acquire();
      REQUIRE(group.has_value() == (model.size() < kGroups));
      if (group) {
        const u8 content = static_cast<u8>(random.next());
        for (u32 head = 0; head < 2; ++head) {
          std::memset(pool.page_for_write(*group, head), content ^ static_cast<u8>(head), 640);
        }
        REQUIRE(model.emplace(group->idx, std::pair(*group, Modelled{.content = content})).second);
      }
    } else if (what <= 2) {
      pool.release(it->second.first);
      if (--it->second.second.references == 0) model.erase(it);
    } else if (what == 3) {
      if (!it->second.second.sealed) pool.seal(it->second.first);
      it->second.second.sealed = true;
    } else if (what == 4) {
      if (it->second.second.sealed) {
        pool.add_reference(it->second.first);
        ++it->second.second.references;
      }
    } else if (it->second.second.sealed && it->second.second.references == 1) {
      it->second.first = pool.reopen(it->second.first);
      it->second.second.sealed = false;
    }
    pool.check_invariants();
    REQUIRE(pool.groups_free() == kGroups - model.size());
    for (const auto& [frame, entry] : model) {
      const auto& [ref, want] = entry;
      REQUIRE(pool.references(ref) == want.references);
      REQUIRE(pool.is_sealed(ref) == want.sealed);
      for (u32 head = 0; head < 2; ++head) {
        const u8* page = pool.page(ref, head);
        REQUIRE(page[0] == (want.content ^ head));
        REQUIRE(page[639] == (want.content ^ head));
      }
    }
  }
}

}  // namespace
}  // namespace tarn::kv::group_pool_test
