// Goal    format version 1 stays what it is to the byte, and bytes that are not exactly it, in this
//         frame and for this store, are no record: cut, with something behind, of another version,
//         elsewhere, or with any bit changed.
// Method  checksums of the encoded bytes of fixed records (golden: changing one is changing the
//         format); round trips over shapes around the limits of a sector; each fault by itself,
//         with the checksums made good again where they would hide what is tested.
#include "runtime/store/record.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "tests/support/seed.h"

namespace tarn::store::record_test {
namespace {

const Crc32c& crc() { return crc32c_ways()[0]; }

constexpr FrameRef kFrame{
    .store_id = 0x1122334455667788, .frame_bytes = 65536, .n_frames = 4096, .frame_idx = 9};

struct Sample {
  explicit Sample(const RecordShape& of) : shape(of), payload(of.payload_sectors() * kSectorBytes) {
    for (u64 i = 0; i < of.payload_bytes; ++i)
      payload[i] = static_cast<std::byte>(i * 7 + i / 4096);
    for (u32 i = 0; i < of.n_tokens; ++i) tokens.push_back(i * 3 + 1);
    words.resize(of.head_bytes() / sizeof(u64));
    encode_head(crc(), kFrame,
                {.kind = Kind::extent,
                 .key = {5, 6},
                 .token_ids = tokens,
                 .payload = payload,
                 .payload_bytes = of.payload_bytes,
                 .generation = 77,
                 .budget_left_bytes = 88,
                 .written_bytes = 99},
                head());
  }
  std::span<std::byte> head() { return std::as_writable_bytes(std::span(words)); }
  RecordHead& fixed() { return *reinterpret_cast<RecordHead*>(words.data()); }
  void mend() {  // the head sector's checksum
    fixed().head_crc = 0;
    fixed().head_crc = crc().bytes(head().data(), kSectorBytes);
  }
  bool parses(const FrameRef& frame = kFrame) {
    auto view = parse_head(crc(), frame, head());
    return view && parse_meta(crc(), head(), *view);
  }

  RecordShape shape;
  std::vector<std::byte> payload;
  std::vector<u32> tokens;
  std::vector<u64> words;  // aligned to 8
};

struct Case {
  const char* name;
  RecordShape shape;
  u32 n_meta_sectors;
  u32 n_frames;
  u32 golden;  // CRC32C of the whole head
};

// clang-format off
constexpr Case kCases[] = {
    // name                                   bytes       tokens  meta frames golden
    {"nothing at all",                       {0,          0},       0,   1,     0x7ECB3184},
    {"one byte",                             {1,          1},       0,   1,     0x1CABAAF5},
    {"a group of 256 KiB",                   {262144,     64},       0,   5,     0x7DBE53AF},
    {"as much as a head sector holds",       {262144,     928},       0,   5,     0x5A2CF386},
    {"one token more",                       {262144,     929},       1,   5,     0xACA4B1A5},
    {"as much as a meta sector holds",       {262144,     960},       1,   5,     0x34DCAEF1},
    {"a second meta sector",                 {262144,     961},       2,   5,     0x6587792D},
    {"an extent: 64 groups, 4,096 tokens",   {16842752,   4096},      9,   258,   0x138F9AB0},
    {"the limits",                           {67108864,   65536},     80,  1030,  0x961F3D4F},
};
// clang-format on

TEST_CASE("a head says what was put into it, and its bytes never change") {
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    Sample sample(c.shape);
    CHECK(c.shape.meta_sectors() == c.n_meta_sectors);
    CHECK(c.shape.frames(kFrame.frame_bytes) == c.n_frames);
    CHECK(crc().bytes(sample.head().data(), sample.head().size()) == c.golden);
    auto view = parse_head(crc(), kFrame, sample.head());
    REQUIRE(view.has_value());
    CHECK((c.n_meta_sectors == 0 || view->payload_crcs().empty()));
    REQUIRE(parse_meta(crc(), sample.head(), *view));
    CHECK(view->kind() == Kind::extent);
    CHECK(view->head().key == Key{5, 6});
    CHECK(view->head().generation == 77);
    CHECK(view->head().payload_bytes == c.shape.payload_bytes);
    CHECK(view->head().budget_left_bytes == 88);
    CHECK(view->head().written_bytes == 99);
    CHECK(std::equal(view->token_ids().begin(), view->token_ids().end(), sample.tokens.begin(),
                     sample.tokens.end()));
    REQUIRE(view->payload_crcs().size() == c.shape.payload_sectors());
    for (u64 i = 0; i < c.shape.payload_sectors(); ++i) {
      const u32 want = crc().bytes(sample.payload.data() + i * kSectorBytes, kSectorBytes);
      if (view->payload_crcs()[i] != want) FAIL("sector ", i);
    }
    const auto again = view_again(sample.head());
    REQUIRE(again.has_value());
    CHECK(again->token_ids().data() == view->token_ids().data());
    CHECK(again->token_ids().size() == view->token_ids().size());
    CHECK(again->payload_crcs().data() == view->payload_crcs().data());
    CHECK(again->payload_crcs().size() == view->payload_crcs().size());
    const auto first = sample.head().first(kSectorBytes);
    CHECK(view_again(first).has_value() == (c.n_meta_sectors == 0));
  }
}

TEST_CASE("the places of the fields are the format's") {
  Sample sample({.payload_bytes = 5000, .n_tokens = 2});
  const auto u32_at = [&](u64 offset) {
    u32 value = 0;
    std::memcpy(&value, sample.head().data() + offset, sizeof value);
    return value;
  };
  CHECK(std::memcmp(sample.head().data(), "TARNREC1", 8) == 0);
  struct Field {
    const char* name;
    u64 offset;
    u32 value;
  };
  const Field fields[] = {
      {"version", 8, 1},
      {"kind", 12, 2},
      {"generation", 16, 77},
      {"payload_bytes", 24, 5000},
      {"key low", 32, 5},
      {"key high", 40, 6},
      {"store_id", 48, 0x55667788},
      {"frame_idx", 56, 9},
      {"n_frames", 60, 1},
      {"n_tokens", 64, 2},
      {"reserved", 68, 0},
      {"n_meta_sectors", 72, 0},
      {"budget", 80, 88},
      {"written", 88, 99},
      {"token 0", 128, 1},
      {"token 1", 132, 4},
      {"nothing", 144, 0},
  };
  for (const Field& field : fields) {
    CAPTURE(field.name);
    CHECK(u32_at(field.offset) == field.value);
  }
  CHECK(u32_at(136) == crc().bytes(sample.payload.data(), kSectorBytes));
}

TEST_CASE("any changed bit of a head is found") {
  for (const Case& c : kCases) {
    if (c.n_meta_sectors > 9) continue;
    CAPTURE(c.name);
    Sample sample(c.shape);
    const u64 n_bits = sample.head().size() * 8;
    // Every bit of the head that most records have, a sample of the others.
    const u64 stride = c.shape.n_tokens == 64 ? 1 : 61;
    for (u64 bit = 0; bit < n_bits; bit += stride) {
      const auto mask = static_cast<std::byte>(1u << (bit % 8));
      sample.head()[bit / 8] ^= mask;
      if (sample.parses()) FAIL("bit ", bit);
      sample.head()[bit / 8] ^= mask;
    }
    CHECK(sample.parses());
  }
}

TEST_CASE("what is whole but wrong is no record, though its checksum holds") {
  struct Wrong {
    const char* name;
    void (*change)(Sample& sample);
  };
  const Wrong wrongs[] = {
      {"another magic", [](Sample& s) { s.fixed().magic[7] = '2'; }},
      {"version 0", [](Sample& s) { s.fixed().version = 0; }},
      {"a later version", [](Sample& s) { s.fixed().version = 2; }},
      {"no kind", [](Sample& s) { s.fixed().kind = 0; }},
      {"a grave with something in it", [](Sample& s) { s.fixed().kind = 5; }},
      {"an unknown kind", [](Sample& s) { s.fixed().kind = 6; }},
      {"another store", [](Sample& s) { s.fixed().store_id ^= 1; }},
      {"another frame", [](Sample& s) { s.fixed().frame_idx ^= 1; }},
      {"too few frames", [](Sample& s) { s.fixed().n_frames -= 1; }},
      {"too many frames", [](Sample& s) { s.fixed().n_frames += 1; }},
      {"a token less: a word is left over", [](Sample& s) { s.fixed().n_tokens -= 1; }},
      {"a sector less: a checksum is left over",
       [](Sample& s) { s.fixed().payload_bytes -= 4096; }},
      {"too many tokens", [](Sample& s) { s.fixed().n_tokens = kTokensMax + 1; }},
      {"all tokens there can be", [](Sample& s) { s.fixed().n_tokens = ~u32{0}; }},
      {"too long", [](Sample& s) { s.fixed().payload_bytes = kPayloadBytesMax + 1; }},
      {"a length that wraps", [](Sample& s) { s.fixed().payload_bytes = ~u64{0}; }},
      {"meta sectors that are none", [](Sample& s) { s.fixed().n_meta_sectors += 1; }},
      {"something in a reserved field", [](Sample& s) { s.fixed().reserved_0 = 1; }},
      {"something in the second reserved field", [](Sample& s) { s.fixed().reserved_1 = 1; }},
      {"something in the last reserved field", [](Sample& s) { s.fixed().reserved[6] = 1; }},
      {"something behind the words", [](Sample& s) { s.head()[kSectorBytes - 1] = std::byte{1}; }},
  };
  const RecordShape shape{.payload_bytes = 150000, .n_tokens = 20};
  for (const Wrong& wrong : wrongs) {
    CAPTURE(wrong.name);
    Sample sample(shape);
    sample.mend();
    CHECK(sample.parses());
    wrong.change(sample);
    sample.mend();
    CHECK_FALSE(sample.parses());
  }
  Sample sample(shape);
  const auto with = [](auto change) {
    FrameRef frame = kFrame;
    change(frame);
    return frame;
  };
  CHECK_FALSE(sample.parses(with([](FrameRef& p) { p.frame_idx = 8; })));
  CHECK_FALSE(sample.parses(with([](FrameRef& p) { p.store_id = 8; })));
  CHECK_FALSE(sample.parses(with([](FrameRef& p) { p.frame_bytes = 4096; })));
  CHECK_FALSE(sample.parses(with([](FrameRef& p) { p.n_frames = 9; })));
  CHECK_FALSE(sample.parses(with([](FrameRef& p) { p.n_frames = 11; })));  // reaches over the end
  CHECK(sample.parses(with([](FrameRef& p) { p.n_frames = 12; })));
  // Behind the words of the meta sectors too.
  Sample extent({.payload_bytes = 16842752, .n_tokens = 4096});
  extent.head()[10 * kSectorBytes - 1] = std::byte{1};
  crc().sectors(extent.head().data() + kSectorBytes, 9,
                reinterpret_cast<u32*>(extent.head().data() + sizeof(RecordHead)));
  extent.mend();
  CHECK(parse_head(crc(), kFrame, extent.head()).has_value());
  CHECK_FALSE(extent.parses());
}

TEST_CASE("a label round trips, and only its own version is read") {
  Label label{.n_frames = 7, .frame_bytes = 8192, .store_id = 9};
  for (u64 i = 0; i < kSecretBytes; ++i) label.secret[i] = static_cast<u8>(i);
  std::vector<std::byte> sector(kSectorBytes), good;
  encode_label(crc(), label, sector);
  CHECK(crc().bytes(sector.data(), sector.size()) == 0x9370C3D9u);
  good = sector;
  Label found;
  CHECK(parse_label(crc(), sector, found) == LabelState::good);
  CHECK(found.n_frames == 7);
  CHECK(found.frame_bytes == 8192);
  CHECK(found.store_id == 9);
  CHECK(found.secret == label.secret);
  for (u64 bit = 0; bit < kSectorBytes * 8; ++bit) {
    sector[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    if (parse_label(crc(), sector, found) != LabelState::absent) FAIL("bit ", bit);
    sector[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
  const auto changed = [&](u64 at, u8 value) {
    sector = good;
    sector[at] = static_cast<std::byte>(value);
    std::memset(sector.data() + kSectorBytes - 4, 0, 4);
    const u32 sum = crc().bytes(sector.data(), kSectorBytes);
    std::memcpy(sector.data() + kSectorBytes - 4, &sum, sizeof sum);
    return parse_label(crc(), sector, found);
  };
  CHECK(changed(8, 0) == LabelState::absent);
  CHECK(changed(8, 1) == LabelState::good);
  CHECK(changed(8, 2) == LabelState::newer);
  CHECK(changed(0, 'X') == LabelState::absent);
  CHECK(changed(kSectorBytes - 5, 1) == LabelState::absent);  // something behind it
}

}  // namespace
}  // namespace tarn::store::record_test
