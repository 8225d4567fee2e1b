// Goal    a gather asks for each group with wanted slots once, and for each sector that they touch
//         once, ascending; every wanted slot comes to its rank.
// Method  a table of wanted slots of two heads over groups of two pages that share a sector.
#include "runtime/kv/slot_gather.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace tarn::test::slot_gather_test {
namespace {

// A slot has 768 bytes and a page eight of them, so the second head begins in the middle of a
// sector, and some slots lie in two.
constexpr kv::GroupShape kShape{.n_kv_heads = 2, .page_tokens = 8, .vector_bytes = 384};
constexpr u32 kSlotBytes = 768;

struct Case {
  const char* name;
  std::vector<u32> wanted[2];  // of each head
  std::vector<u32> groups;
  std::vector<std::vector<u32>> sectors;  // of each of these
};

TEST_CASE("groups, sectors and copies of a gather") {
  const Case cases[] = {
      {"nothing", {{}, {}}, {}, {}},
      {"one slot", {{0}, {}}, {0}, {{0}}},
      {"a slot in two sectors", {{5}, {}}, {0}, {{0, 1}}},
      {"two heads in one sector", {{7}, {0}}, {0}, {{1}}},
      {"all of a group", {{0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}}, {0}, {{0, 1, 2}}},
      {"groups of either head", {{8, 31}, {17}}, {1, 2, 3}, {{0}, {1}, {1}}},
  };
  for (const Case& c : cases) {
    CAPTURE(std::string(c.name));
    std::vector<u32> room(kShape.group_bytes() / 4096);
    std::vector<kv::WantedSlot> wanted[2];
    std::vector<u8> out[2];
    for (u32 head = 0; head < 2; ++head) {
      const u32 n = static_cast<u32>(c.wanted[head].size());
      for (u32 i = 0; i < n; ++i) wanted[head].push_back({c.wanted[head][i], n - 1 - i});
      out[head].resize(n * kSlotBytes);
    }
    const std::span<const kv::WantedSlot> wanted_spans[] = {wanted[0], wanted[1]};
    u8* const outs[] = {out[0].data(), out[1].data()};
    const kv::GatherArgs args{.wanted = wanted_spans, .out = outs};
    std::vector<u32> groups;
    for (auto group = next_wanted_group(args, kShape, 0); group;
         group = next_wanted_group(args, kShape, *group + 1)) {
      groups.push_back(*group);
      const auto sectors = wanted_sectors(args, kShape, *group, room);
      REQUIRE(groups.size() <= c.sectors.size());
      CHECK(std::vector<u32>(sectors.begin(), sectors.end()) == c.sectors[groups.size() - 1]);
      std::vector<u8> bytes(kShape.group_bytes());
      for (u32 i = 0; i < kShape.payload_bytes(); ++i) {
        bytes[i] = static_cast<u8>(1 + *group * 16 + i / kSlotBytes);
      }
      copy_wanted(args, kShape, *group, bytes.data());
    }
    CHECK(groups == c.groups);
    for (u32 head = 0; head < 2; ++head) {
      for (u64 i = 0; i < c.wanted[head].size(); ++i) {
        const u32 slot = c.wanted[head][c.wanted[head].size() - 1 - i];
        const u32 value = 1 + slot / 8 * 16 + head * 8 + slot % 8;
        CHECK(out[head][i * kSlotBytes] == static_cast<u8>(value));
        CHECK(out[head][(i + 1) * kSlotBytes - 1] == static_cast<u8>(value));
      }
    }
  }
}

}  // namespace
}  // namespace tarn::test::slot_gather_test
