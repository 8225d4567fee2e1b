// Goal    a session's manifest comes back as it was saved; its format stays what it is to the byte;
//         bytes that are not exactly it are refused with the part at fault.
// Method  samples from nothing to everything: round trip and golden checksums; every bit flipped,
//         every length cut, bytes behind; each field wrong by itself with the checksum made good;
//         each field of the identity changed alone.
#include "runtime/reuse/manifest.h"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "runtime/store/record.h"
#include "tests/support/asserts.h"
#include "tests/support/manifest_bytes.h"

namespace tarn::reuse::manifest_test {
namespace {

// In the sample with everything.
constexpr u64 kIndexAt = 320 + 96 + 408 + 16 + 24, kAnswersAt = kIndexAt + 48;

const Crc32c& crc() { return crc32c_ways()[0]; }

struct Sample {
  Sample(u32 n_tokens, u32 n_slots, bool selects = true) {
    for (u32 i = 0; i < n_tokens; ++i) tokens.push_back(i * 7 + 1);
    for (u32 i = 0; i < n_slots / 16; ++i) groups.push_back({i + 1, i + 1000});
    manifest = {.identity = {.model = {1, 2},
                             .tenant = {3, 4},
                             .n_cache_layers = 5,
                             .n_kv_heads = 6,
                             .head_dim = 7,
                             .page_tokens = 16,
                             .kv_type = 8,
                             .layout = 9,
                             .rope_type = 10,
                             .rope_dims = 11,
                             .rope_scaling = 12,
                             .numerics_id = 13,
                             .prefill_policy = 14},
                .revision = 99,
                .n_slots = n_slots,
                .tail = n_slots % 16 != 0 ? store::Key{8, 9} : store::Key{},
                .is_cut_off = true,
                .n_drawn = 33,
                .groups = groups,
                .token_ids = tokens,
                .turn_begin = n_tokens / 2,
                .name = "a session",
                .policy = selects ? "select.method = 'pq'" : "",
                .index = std::span(&index, selects ? 1 : 0),
                .n_fed = n_tokens,
                .tenant = "uid:0"};
    encode();
  }
  void encode() {
    n_bytes = manifest_bytes(manifest);
    words.assign((n_bytes + 64) / 8, 0);
    encode_manifest(crc(), manifest, bytes());
  }
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(words)).first(n_bytes); }
  void put_u32(u64 at, u32 value) { std::memcpy(bytes().data() + at, &value, sizeof value); }
  void mend() { test::mend_manifest(crc(), bytes()); }
  std::string fault() {
    const auto decoded = decode_manifest(crc(), bytes());
    return decoded ? "" : decoded.error().detail.c_str();
  }

  std::vector<u32> tokens;
  std::vector<store::Key> groups;
  ManifestIndex index{.key = {6, 5}, .life = {90, 40, 60, 70, 95, 1}, .n_rows = 40, .turn_end = 98};
  Manifest manifest;
  u64 n_bytes = 0;
  std::vector<u64> words;
};

template <class T>
bool same_bytes(std::span<const T> one, std::span<const T> other) {
  return one.size() == other.size() &&
         (one.empty() || std::memcmp(one.data(), other.data(), one.size_bytes()) == 0);
}

TEST_CASE("a manifest says when it was saved") {
  Sample sample(101, 100);
  sample.manifest.saved_at_s = 1'763'755'445;
  sample.encode();
  const auto decoded = decode_manifest(crc(), sample.bytes());
  REQUIRE(decoded.has_value());
  CHECK(decoded->saved_at_s == 1'763'755'445);
}

TEST_CASE("a manifest names its tenant and its model") {
  Sample sample(101, 100);
  sample.manifest.model = "m.gguf";
  sample.encode();
  const auto decoded = decode_manifest(crc(), sample.bytes());
  REQUIRE(decoded.has_value());
  CHECK(decoded->tenant == "uid:0");
  CHECK(decoded->model == "m.gguf");
  sample.manifest.identity.tenant = {};  // the default one has no name
  CHECK(std::string(manifest_fault(sample.manifest)) == "tenant");
  sample.manifest.tenant = "";
  CHECK(manifest_fault(sample.manifest) == nullptr);
  sample.manifest.identity.tenant = {3, 4};  // a key without a name
  CHECK(std::string(manifest_fault(sample.manifest)) == "tenant");
}

TEST_CASE("how a session differs from what this engine would save is said with both values") {
  const KvIdentity base{.model = {0xab, 1}, .page_tokens = 64, .numerics_id = kCpuNumericsId};
  struct Case {
    void (*change)(KvIdentity& saved);
    const char* says;
  };
  const Case cases[] = {
      {[](KvIdentity& i) { i.kv_type = 1; }, "was saved with kv.type = q8_0; this engine has f16"},
      {[](KvIdentity& i) { i.page_tokens = 16; },
       "was saved with kv.page_tokens = 16; this engine has 64"},
      {[](KvIdentity& i) { i.numerics_id = kGpuNumericsId; },
       "was saved with device.kind = cuda; this engine has cpu"},
      {[](KvIdentity& i) { i.numerics_id = kCpuNumericsId - 1; },
       "was saved with arithmetic = 3; this engine has 4"},
      {[](KvIdentity& i) { i.model.low = 0xcd; },
       "was saved with model = a.gguf (00000000000000cd); this engine has b.gguf "
       "(00000000000000ab)"},
  };
  for (const Case& c : cases) {
    KvIdentity saved = base;
    c.change(saved);
    CHECK(std::string(difference_text(saved, "a.gguf", base, "b.gguf").c_str()) == c.says);
  }
}

TEST_CASE("keys are those of a store's secret and the tokens") {
  Sample sample(101, 100);
  const std::array<u8, 32> entropy{1, 2, 3};
  const store::Secret secret = store::make_secret(entropy),
                      other = store::make_secret(std::array<u8, 32>{4});
  CHECK(pages_of(sample.manifest) == 7);
  std::vector<store::Key> keys(7);
  make_keys(secret, sample.manifest, 1, keys);
  sample.manifest.groups = std::span(keys).first(6);
  sample.manifest.tail = keys[6];
  CHECK(page_key(sample.manifest, 5) == keys[5]);
  CHECK(page_key(sample.manifest, 6) == keys[6]);
  CHECK(keys_fault(secret, sample.manifest) == nullptr);
  CHECK(std::string(keys_fault(other, sample.manifest)) == "groups");
  sample.tokens[98] += 1;  // of the tail
  CHECK(std::string(keys_fault(secret, sample.manifest)) == "tail");
  sample.tokens[98] -= 1;
  sample.tokens[40] += 1;
  CHECK(std::string(keys_fault(secret, sample.manifest)) == "groups");
  sample.tokens[40] -= 1;
  sample.manifest.identity.kv_type ^= 1;
  CHECK(std::string(keys_fault(secret, sample.manifest)) == "groups");
}

TEST_CASE("a manifest comes back as it was, and its bytes never change") {
  struct Case {
    const char* name;
    u32 n_tokens, n_slots;
    bool selects;
    u64 n_bytes;
    u32 golden;  // CRC32C of the whole: changing one is changing the format
  };
  // clang-format off
  const Case cases[] = {
      // name                         tokens slots selects bytes golden
      {"nothing said yet",              0,     0,   false, 344, 0xC2DC47BB},
      {"a token that is not in the KV", 1,     0,   false, 352, 0xDD828459},
      {"a tail alone",                  9,     8,   false, 384, 0x3B530EB4},
      {"full groups, no tail",          64,    64,  true,  736, 0xD7D4BE2B},
      {"all of it",                     101,   100, true,  920, 0x18FA38CB},
  };
  // clang-format on
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Sample sample(c.n_tokens, c.n_slots, c.selects);
    CHECK(sample.n_bytes == c.n_bytes);
    CHECK(crc().bytes(sample.bytes().data(), sample.n_bytes) == c.golden);
    const auto decoded = decode_manifest(crc(), sample.bytes());
    REQUIRE(decoded.has_value());
    const Manifest& was = sample.manifest;
    CHECK(decoded->identity == was.identity);
    CHECK(decoded->revision == was.revision);
    CHECK(decoded->n_slots == was.n_slots);
    CHECK(decoded->tail == was.tail);
    CHECK(decoded->is_cut_off == was.is_cut_off);
    CHECK(decoded->n_drawn == was.n_drawn);
    CHECK(same_bytes(decoded->groups, was.groups));
    CHECK(same_bytes(decoded->token_ids, was.token_ids));
    CHECK(decoded->turn_begin == was.turn_begin);
    CHECK(same_bytes(decoded->index, was.index));
    CHECK(decoded->name == was.name);
    CHECK(decoded->policy == was.policy);
  }
}

TEST_CASE("the places of the fields are the format's") {
  Sample sample(101, 100);
  CHECK(std::memcmp(sample.bytes().data(), "TARNSESS", 8) == 0);
  struct Field {
    const char* name;
    u64 offset;
    u32 value;
  };
  const Field fields[] = {
      {"version", 8, 3},
      {"n_bytes", 16, 920},
      {"revision", 24, 99},
      {"model", 32, 1},
      {"tenant", 48, 3},
      {"n_cache_layers", 64, 5},
      {"page_tokens", 76, 16},
      {"rope_scaling", 96, 12},
      {"prefill_policy", 108, 14},
      {"tail", 112, 8},
      {"n_drawn", 128, 33},
      {"n_slots", 144, 100},
      {"n_groups", 148, 6},
      {"n_tokens", 152, 101},
      {"turn_begin", 156, 50},
      {"n_indexes", 164, 1},
      {"n_fed", 172, 101},
      {"is_cut_off", 176, 1},
      {"name_bytes", 180, 9},
      {"policy_bytes", 184, 20},
      {"tenant_bytes", 188, 5},
      {"group 1", 320 + 16, 2},
      {"token 1", 416 + 4, 8},
      {"index's key", kIndexAt, 6},
      {"middle_end", kIndexAt + 16, 90},
      {"n_rows", kIndexAt + 40, 40},
  };
  for (const Field& field : fields) {
    CAPTURE(field.name);
    u32 value = 0;
    std::memcpy(&value, sample.bytes().data() + field.offset, sizeof value);
    CHECK(value == field.value);
  }
}

TEST_CASE("a flipped bit, a cut, bytes behind: refused, and never read past") {
  Sample sample(101, 100);
  CHECK(sample.fault().empty());
  for (u64 bit = 0; bit < sample.n_bytes * 8; ++bit) {
    sample.bytes()[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    if (sample.fault().empty()) FAIL("bit ", bit);
    sample.bytes()[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
  for (u64 n = 0; n < sample.n_bytes; ++n) {
    if (decode_manifest(crc(), sample.bytes().first(n))) FAIL("cut at ", n);
  }
  const auto longer = std::as_bytes(std::span(sample.words)).first(sample.n_bytes + 8);
  CHECK_FALSE(decode_manifest(crc(), longer).has_value());
}

// One whose KV does not follow from its tokens, with answers.
struct Lossy {
  Lossy() : sample(101, 100) {
    sample.manifest.first_approx_slot = 50;
    sample.manifest.answers = answers;
    sample.manifest.n_fed = 80;
    sample.encode();
  }
  std::array<ManifestAnswer, 2> answers{{{30, 42}, {60, 75}}};
  Sample sample;
};

TEST_CASE("what a session chooses by comes back, and what is wrong with it is named") {
  Lossy lossy;
  CHECK(lossy.sample.n_bytes == 920 + 16);
  const auto decoded = decode_manifest(crc(), lossy.sample.bytes());
  REQUIRE(decoded.has_value());
  CHECK(decoded->first_approx_slot == 50);
  CHECK(decoded->n_fed == 80);
  REQUIRE(decoded->index.size() == 1);
  CHECK(decoded->index[0] == lossy.sample.index);
  CHECK(same_bytes(decoded->answers, lossy.sample.manifest.answers));
  struct Wrong {
    const char* fault;
    u64 at;
    u32 value;
  };
  const Wrong wrongs[] = {
      {"index", kIndexAt + 40, 101},    // behind the slots
      {"index", kIndexAt + 40, 0},      // a key, and no rows
      {"n_fed", 172, 102},              // behind the tokens
      {"n_fed", 172, 0},                // tokens, and nothing was fed
      {"answers", 172, 75},             // no input behind the last one
      {"answers", kAnswersAt, 0},       // nothing was fed before it
      {"answers", kAnswersAt + 4, 30},  // empty
      {"answers", kAnswersAt + 8, 42},  // no input between two
      {"answers", kAnswersAt + 12, 60},
  };
  for (const Wrong& wrong : wrongs) {
    CAPTURE(wrong.at);
    Lossy other;
    other.sample.put_u32(wrong.at, wrong.value);
    other.sample.mend();
    CHECK(other.sample.fault() == wrong.fault);
  }
  lossy.sample.manifest.index = {};
  lossy.sample.encode();
  const auto exact = decode_manifest(crc(), lossy.sample.bytes());
  REQUIRE(exact.has_value());
  CHECK(exact->n_fed == 80);
  CHECK(same_bytes(exact->answers, lossy.sample.manifest.answers));
  lossy.sample.manifest.n_fed = 0;
  CHECK(test::asserts([&] { lossy.sample.encode(); }));  // answers, and nothing was fed
}

TEST_CASE("pages behind the first lossy slot have keys of their own, and others in another store") {
  Lossy lossy;
  const store::Secret secret = store::make_secret(std::array<u8, 32>{1, 2, 3});
  Manifest& manifest = lossy.sample.manifest;
  CHECK(first_private_page(manifest) == 3);
  std::vector<store::Key> keys(7), again(7), others(7);
  make_keys(secret, manifest, 1, keys);
  make_keys(secret, manifest, 1, again);
  make_keys(secret, manifest, 2, others);
  for (u32 page = 0; page < 7; ++page) {
    CAPTURE(page);
    CHECK(keys[page] == again[page]);
    CHECK((keys[page] == others[page]) == (page < 3));
    for (u32 other = 0; other < page; ++other) CHECK_FALSE(keys[page] == keys[other]);
  }
  manifest.groups = std::span(keys).first(6);
  manifest.tail = keys[6];
  CHECK(keys_fault(secret, manifest) == nullptr);
  lossy.sample.tokens[70] += 1;  // what it says of them does not matter
  CHECK(keys_fault(secret, manifest) == nullptr);
  lossy.sample.tokens[40] += 1;
  CHECK(std::string(keys_fault(secret, manifest)) == "groups");
  lossy.sample.tokens[40] -= 1;
  manifest.first_approx_slot = 0;  // then its keys would have to follow from its tokens
  CHECK(std::string(keys_fault(secret, manifest)) == "groups");
}

TEST_CASE("what is whole but wrong is refused with the part at fault") {
  struct Wrong {
    const char* fault;
    u64 at;
    u32 value;
  };
  const Wrong wrongs[] = {
      {"magic", 0, 1},
      {"length", 16, 1},
      {"kv.page_tokens", 76, 0},
      {"kv.page_tokens", 76, store::kTokensMax + 1},
      {"n_groups", 76, 17},
      {"n_slots", 144, 102},
      {"n_groups", 144, 90},
      {"tail", 144, 96},
      {"n_groups", 148, kManifestGroupsMax + 1},
      {"length", 148, 7},
      {"n_tokens", 152, ~u32{0}},
      {"length", 152, 103},
      {"turn_begin", 156, 102},
      {"first_approx_slot", 160, 101},
      {"n_indexes", 164, 2},
      {"length", 164, 0},
      {"n_answers", 168, kManifestAnswersMax + 1},
      {"length", 168, 2},
      {"n_fed", 172, 102},
      {"is_cut_off", 176, 2},
      {"name", 180, kManifestNameBytesMax + 1},
      {"name", 180, 0},
      {"policy", 184, kManifestPolicyBytesMax + 1},
      {"tenant", 188, kManifestNameBytesMax + 1},
      {"length", 188, 9},
      {"model", 192, kManifestModelBytesMax + 1},
      {"length", 192, 1},
      {"reserved", 196, 1},
      {"reserved", 316, 1},
      {"padding", 416 + 404, 1},  // behind the last token
  };
  for (const Wrong& wrong : wrongs) {
    CAPTURE(wrong.fault);
    CAPTURE(wrong.at);
    Sample sample(101, 100);
    sample.put_u32(wrong.at, wrong.value);
    sample.mend();
    if (wrong.at == 180 && wrong.value == 0) {  // what is left over is then what is wrong
      CHECK(sample.fault() == "length");
      continue;
    }
    CHECK(sample.fault() == wrong.fault);
  }
  for (const u32 version : {0u, kManifestVersion - 1, kManifestVersion + 1}) {
    CAPTURE(version);
    Sample other(101, 100);
    other.put_u32(8, version);
    other.mend();
    const auto decoded = decode_manifest(crc(), other.bytes());
    REQUIRE_FALSE(decoded.has_value());
    CHECK(decoded.error().status == Status::unsupported);
    CHECK(std::string(decoded.error().hint).find("another version") != std::string::npos);
  }
}

TEST_CASE("what does not hold together is not written: our bug, not the file's") {
  const auto refused = [](const std::function<void(Sample&)>& change) {
    Sample sample(101, 100);
    change(sample);
    return test::asserts([&] { sample.encode(); });
  };
  CHECK_FALSE(refused([](Sample&) {}));
  CHECK(refused([](Sample& s) { s.manifest.groups = s.manifest.groups.first(5); }));
  CHECK(refused([](Sample& s) { s.manifest.tail = {}; }));
  CHECK(refused([](Sample& s) { s.manifest.n_slots = 96; }));
  CHECK(refused([](Sample& s) { s.manifest.name = ""; }));
  CHECK(refused([](Sample& s) { s.manifest.name = std::string_view("a\0b", 3); }));
  CHECK(refused([](Sample& s) { s.manifest.turn_begin = 102; }));
  CHECK(refused([](Sample& s) { s.manifest.tenant = ""; }));
}

TEST_CASE("each field of the identity makes another root, and is named where it differs") {
  store::Secret secret = store::make_secret(std::array<u8, 32>{1});
  const KvIdentity base{.page_tokens = 64};
  const std::pair<const char*, std::function<void(KvIdentity&)>> changes[] = {
      {"model", [](KvIdentity& i) { i.model.high = 1; }},
      {"tenant", [](KvIdentity& i) { i.tenant.low = 1; }},
      {"n_cache_layers", [](KvIdentity& i) { i.n_cache_layers = 1; }},
      {"n_kv_heads", [](KvIdentity& i) { i.n_kv_heads = 1; }},
      {"head_dim", [](KvIdentity& i) { i.head_dim = 1; }},
      {"kv.page_tokens", [](KvIdentity& i) { i.page_tokens = 1; }},
      {"kv.type", [](KvIdentity& i) { i.kv_type = 1; }},
      {"layout", [](KvIdentity& i) { i.layout = 1; }},
      {"rope_type", [](KvIdentity& i) { i.rope_type = 1; }},
      {"rope_dims", [](KvIdentity& i) { i.rope_dims = 1; }},
      {"rope_scaling", [](KvIdentity& i) { i.rope_scaling = 1; }},
      {"numerics_id", [](KvIdentity& i) { i.numerics_id = 1; }},
      {"prefill_policy", [](KvIdentity& i) { i.prefill_policy = 1; }},
  };
  std::set<u64> roots = {identity_key(secret, base).low};
  CHECK(first_difference(base, base) == nullptr);
  for (const auto& [name, change] : changes) {
    KvIdentity other = base;
    change(other);
    CHECK_FALSE(other == base);
    CHECK(std::string(first_difference(base, other)) == name);
    roots.insert(identity_key(secret, other).low);
  }
  CHECK(roots.size() == std::size(changes) + 1);
  std::set<u64> sessions;
  for (const store::Key tenant : {store::Key{0, 0}, store::Key{1, 0}, store::Key{0, 1}}) {
    for (const char* name : {"", "a", "b", "ab"}) {
      sessions.insert(store::named_key(secret, tenant, name).low);
    }
  }
  CHECK(sessions.size() == 12);
}

}  // namespace
}  // namespace tarn::reuse::manifest_test
