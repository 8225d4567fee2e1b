// Goal    a codebook's record holds what it was written from, and bytes that are no such record are
//         refused, with the index as it was.
// Method  an index over clustered keys in both formats, written and read into another one of the
//         same and of the other; each field of the head, a code and a place changed; shorter and
//         longer bytes; flipped bits at random, which must never give a code or a place outside.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "runtime/method/pq/codebook_record.h"
#include "tests/runtime/method/synthetic_keys.h"

namespace tarn::method::codebook_record_test {
namespace {

constexpr u32 kDims = 32, kRows = 700, kFirstSlot = 20, kSide = 32;

PqShape shape_of(kernels::PqCodeFormat format) {
  return {.head_dim = kDims,
          .adjacent_dims = kDims,
          .n_subspaces = 2,
          .code_bits = 5,
          .format = format,
          .capacity_tokens = 2 * kRows};
}

struct Written {
  test::Index index;
  std::vector<u32> firsts;  // [2, n_pairs]
  CodebookHead head;
  std::vector<std::byte> bytes;

  explicit Written(kernels::PqCodeFormat format) : index(shape_of(format)) {
    test::Random random(tarn::test::seed_from_environment());
    const test::Clusters clusters(random, kRows + kFirstSlot, kDims, 40, 8, 0.6f);
    const test::Keys keys(clusters.rows, kDims);
    index.pq.start(kFirstSlot);
    index.train(*kernels::cpu_table_select("auto").value(), keys, kRows, 3);
    const u32 n_pairs = index.shape.n_padded() * index.shape.n_padded();
    REQUIRE(index.shape.n_padded() == kSide);
    head = {.n_rows = kRows,
            .n_pairs = n_pairs,
            .n_orders = 2,
            .slot_begin = kFirstSlot + 12,
            .slot_end = kFirstSlot + kRows - 8,
            .record_tokens = 100,
            .slot_bytes = 128,
            .extent_version = 77};
    std::vector<u32> counts(n_pairs);
    for (u32 row = 12; row < kRows - 8; ++row) ++counts[pair_of(index.pq, row)];
    for (const bool is_reverse : {false, true}) {
      std::vector<u32> places(n_pairs);
      for (u32 i = 0, place = 0; i < n_pairs; ++i) {
        const u32 pair = is_reverse ? n_pairs - 1 - i : i;
        places[pair] = place;
        place += counts[pair];
      }
      firsts.insert(firsts.end(), places.begin(), places.end());
    }
    bytes.resize(codebook_record_bytes(index.shape, kRows, 2));
    write_codebook_record(head, index.pq, firsts, bytes);
  }
};

// Into an index that has just been started; what it was is there again where it is refused.
std::optional<CodebookHead> read(std::span<const std::byte> bytes, test::Index& into,
                                 u32 n_rows = kRows) {
  into.pq.start(kFirstSlot);
  const auto head = read_codebook_record(bytes, n_rows, into.pq);
  if (!head) CHECK(into.pq.n_tokens() == 0);
  if (!head) CHECK(into.pq.n_clustered() == 0);
  return head;
}

bool places_hold(std::span<const std::byte> bytes, const CodebookHead& head,
                 const test::Index& index) {
  std::vector<u64> ranges(head.n_pairs);
  std::vector<u32> firsts(head.n_pairs);
  for (u32 order = 0; order < head.n_orders; ++order) {
    if (!read_places(bytes, order, index.pq, ranges, firsts)) return false;
  }
  return true;
}

TEST_CASE("a codebook's record gives the index and the places that were written") {
  using kernels::PqCodeFormat;
  const Written bytes(PqCodeFormat::bytes), packed(PqCodeFormat::packed6);
  CHECK(bytes.bytes == packed.bytes);
  for (const Written* from : {&bytes, &packed}) {
    const Written& written = *from;
    test::Index index(packed.index.shape);
    const auto head = read(written.bytes, index);
    REQUIRE(head.has_value());
    CHECK(*head == written.head);
    CHECK(index.pq.n_tokens() == kRows);
    CHECK(index.pq.n_clustered() == kRows);
    CHECK(index.region.intact());
    const u64 n_bytes = pq_layout(index.shape).bytes;
    CHECK(std::memcmp(index.pq.region(), packed.index.pq.region(), n_bytes) == 0);
    std::vector<u64> ranges(head->n_pairs);
    std::vector<u32> firsts(head->n_pairs);
    for (u32 order = 0; order < 2; ++order) {
      REQUIRE(read_places(written.bytes, order, index.pq, ranges, firsts));
      CHECK(std::equal(firsts.begin(), firsts.end(),
                       written.firsts.begin() + i64{order} * head->n_pairs));
    }
  }
}

TEST_CASE("bytes that are no codebook of that many rows are refused") {
  const Written written(kernels::PqCodeFormat::bytes);
  test::Index index(written.index.shape);
  const auto with = [&](u64 offset, auto value) {
    std::vector<std::byte> bytes = written.bytes;
    std::memcpy(bytes.data() + offset, &value, sizeof value);
    return bytes;
  };
  struct Case {
    const char* what;
    u64 offset;
    u32 value;
  };
  const Case cases[] = {
      {"the version before", offsetof(CodebookHead, version), 1},
      {"a later version", offsetof(CodebookHead, version), 3},
      {"rows", offsetof(CodebookHead, n_rows), kRows - 1},
      {"pairs", offsetof(CodebookHead, n_pairs), 255},
      {"orders", offsetof(CodebookHead, n_orders), 3},
      {"many orders", offsetof(CodebookHead, n_orders), ~u32{0}},
      {"begin before the index", offsetof(CodebookHead, slot_begin), kFirstSlot - 1},
      {"end behind the rows", offsetof(CodebookHead, slot_end), kFirstSlot + kRows + 1},
      {"end before begin", offsetof(CodebookHead, slot_end), kFirstSlot + 3},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    CHECK_FALSE(read(with(c.offset, c.value), index).has_value());
  }
  CHECK_FALSE(read(written.bytes, index, kRows - 1).has_value());
  CHECK_FALSE(read({}, index).has_value());
  for (u64 n = 0; n < written.bytes.size(); n += 7) {
    CHECK_FALSE(read(std::span(written.bytes).first(n), index).has_value());
  }
  std::vector<std::byte> longer = written.bytes;
  longer.push_back(std::byte{0});
  CHECK_FALSE(read(longer, index).has_value());
  // The last row's code: its high bits, of which one centroid has the lower one.
  const u64 codes_end = sizeof(CodebookHead) + PqIndex::codebook_bytes(index.shape, kRows);
  const u32 token = (kRows - 1) % kernels::kPqBlockTokens, shift = token / 16 * 2;
  const u64 high = codes_end - 16 + token % 16;
  const u32 others = std::to_integer<u32>(written.bytes[high]) & ~(3u << shift);
  CHECK_FALSE(read(with(high, static_cast<u8>(others | 2u << shift)), index).has_value());
  CHECK(read(with(high, static_cast<u8>(others | 1u << shift)), index).has_value());
  const u64 places = codebook_record_bytes(index.shape, kRows, 1);
  const u32 pair = pair_of(written.index.pq, 100);
  const u32 first = written.firsts[written.head.n_pairs + pair];
  for (const u32 place : {first + 1, first - 1, kRows - 20, kRows, ~u32{0}}) {
    CAPTURE(place);  // over another pair's, or outside
    const auto wrong = with(places + pair * sizeof(u32), place);
    const auto head = read(wrong, index);
    REQUIRE(head.has_value());
    CHECK_FALSE(places_hold(wrong, *head, index));
  }
  // Without an extent nobody asks for its slots.
  CodebookHead none = written.head;
  none.n_orders = none.slot_begin = none.slot_end = 0;
  std::vector<std::byte> bytes(codebook_record_bytes(index.shape, kRows, 0));
  write_codebook_record(none, written.index.pq, {}, bytes);
  CHECK(read(bytes, index) == none);
}

TEST_CASE("codes take no more than their bits on the disk") {
  constexpr u32 kBlocks = (kRows + 63) / 64;
  PqShape shape = shape_of(kernels::PqCodeFormat::bytes);
  const u64 of_none = PqIndex::codebook_bytes(shape, 0);
  CHECK(PqIndex::codebook_bytes(shape, kRows) - of_none == u64{2} * kBlocks * 48);
  shape.code_bits = 4;
  const u64 of_none_small = PqIndex::codebook_bytes(shape, 0);
  CHECK(PqIndex::codebook_bytes(shape, kRows) - of_none_small == u64{2} * kBlocks * 32);
}

TEST_CASE("no flipped bit of a codebook gives codes or places outside") {
  test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  const Written written(kernels::PqCodeFormat::bytes);
  test::Index index(written.index.shape);
  u32 n_read = 0, n_held = 0, n_refused = 0;
  for (u32 i = 0; i < 2000; ++i) {
    std::vector<std::byte> bytes = written.bytes;
    for (u64 n = 1 + random.below(3); n > 0; --n) {
      const u64 at = i % 2 == 0 ? random.below(sizeof(CodebookHead)) : random.below(bytes.size());
      bytes[at] ^= std::byte{1} << static_cast<int>(random.below(8));
    }
    const auto head = read(bytes, index);
    ++(head ? n_read : n_refused);
    if (!head || !places_hold(bytes, *head, index)) continue;
    ++n_held;
    for (u32 row = 0; row < kRows; ++row) REQUIRE(index.pq.code(0, row) < kSide);
    for (u32 row = 0; row < kRows; ++row) REQUIRE(index.pq.code(1, row) < kSide);
  }
  CHECK(n_held > 100);
  CHECK(n_read > n_held);
  CHECK(n_refused > 100);
}

}  // namespace
}  // namespace tarn::method::codebook_record_test
