// Goal    what is done with a kept session holds its manifest: whatever else is written to a full
//         store meanwhile, it does not give way.
// Method  a simulated disk and a store whose frames are all taken, most of them held; between any
//         two looks at the disk somebody else puts a record of his own.
#include "runtime/reuse/session_copy.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>

#include "runtime/reuse/save_memory.h"
#include "tests/runtime/store/store_box.h"

namespace tarn::reuse::session_copy_test {
namespace {

using test::record_of;

constexpr u32 kPages = 2;
constexpr u32 kPageTokens = 16;
constexpr u64 kOthersTag = u64{1} << 40;
constexpr const char* kName = "talk";

const Crc32c& crc() { return crc32c_ways()[0]; }

// Groups of [16 slots][K, V][64 x f16]: 4 KiB.
constexpr KvIdentity kIdentity{.n_cache_layers = 1,
                               .n_kv_heads = 1,
                               .head_dim = 64,
                               .page_tokens = kPageTokens,
                               .layout = kPageLayout};

class FullStore {
 public:
  FullStore() : bench_(box_.boot(test::box_limits(kPages + 1))) {
    copy_.init({.store = &bench_->store,
                .crc = &crc(),
                .manifest = buffers_.span().first(kManifestBytes),
                .other_manifest = buffers_.span().subspan(kManifestBytes, kManifestBytes),
                .groups = buffers_.span().subspan(2 * kManifestBytes),
                .keys = keys_,
                .pump = [](void* context) { static_cast<FullStore*>(context)->pump(); },
                .context = this});
    put_session();
  }
  ~FullStore() {
    for (const store::RecordRef ref : groups_) bench_->store.unpin(ref);
    bench_->close();
  }
  SessionCopy& copy() { return copy_; }
  store::Store& store() { return bench_->store; }
  u32 n_refused() const { return n_refused_; }

 private:
  static constexpr u64 kManifestBytes = 4 * store::kSectorBytes;

  void put_session() {
    std::array<u32, kPages * kPageTokens> ids{};
    for (u32 i = 0; i < ids.size(); ++i) ids[i] = 7 * i;
    std::array<store::Key, kPages> keys{};
    Manifest manifest{.identity = kIdentity,
                      .n_slots = ids.size(),
                      .groups = keys,
                      .token_ids = ids,
                      .name = kName,
                      .n_fed = ids.size()};
    make_keys(store().secret(), manifest, 0, keys);
    for (u32 page = 0; page < kPages; ++page) {
      test::TestRecord record = record_of(page + 1, {.payload_bytes = store::kSectorBytes});
      record.key = store::layer_key(store().secret(), keys[page], 0);
      record.token_ids.assign(ids.begin() + page * kPageTokens,
                              ids.begin() + (page + 1) * kPageTokens);
      REQUIRE(bench_->put(record));
      groups_[page] = *store().find(record.key);
      store().pin(groups_[page]);  // by an open session of the same prefix
    }
    test::TestRecord record{.key = store::named_key(store().secret(), store::Key{}, kName),
                            .kind = store::Kind::manifest,
                            .payload_bytes = manifest_bytes(manifest)};
    std::vector<u64> words(record.payload_bytes / sizeof(u64) + 1);
    const auto bytes = std::as_writable_bytes(std::span(words)).first(record.payload_bytes);
    encode_manifest(crc(), manifest, bytes);
    record.payload.assign(bytes.begin(), bytes.end());
    record.payload.resize(align_up(record.payload_bytes, store::kSectorBytes));
    REQUIRE(bench_->put(record));
    REQUIRE(store().index().n_free() == 0);
  }

  void pump() {
    std::array<store::Event, 8> events;
    const u32 n = store().poll(events, 1'000'000);
    for (u32 i = 0; i < n; ++i) {
      if (events[i].tag < kOthersTag) copy_.take(events[i]);
    }
    const test::TestRecord record = record_of(next_, {.payload_bytes = store::kSectorBytes});
    const store::Begun begun = bench_->begin_put(record, kOthersTag + 2 * next_);
    n_refused_ += begun == store::Begun::no_room;
    ++next_;
  }

  test::StoreBox box_;
  std::unique_ptr<test::StoreHarness> bench_;
  test::SectorBuffer buffers_{2 * kManifestBytes + 4 * store::kSectorBytes};
  std::array<store::Key, kPages + 1> keys_{};
  SessionCopy copy_;
  std::array<store::RecordRef, kPages> groups_{};
  u64 next_ = 1000;
  u32 n_refused_ = 0;
};

TEST_CASE("a manifest has room that was saved with pages of any size") {
  alignas(store::kSectorBytes) static std::array<std::byte, 4 * kMiB> region;
  for (const u32 n_tokens : {u32{1024}, u32{131'072}}) {
    for (const u32 page_tokens : {16u, 64u, 256u}) {
      Carver carver(region);
      const auto memory = SaveMemory::carve(carver, {.context_tokens = n_tokens,
                                                     .page_tokens = page_tokens,
                                                     .group_bytes = 4096,
                                                     .n_cache_layers = 2});
      CHECK(memory.manifest.size() >= manifest_bytes_max(n_tokens, 16));
      CHECK(memory.other_manifest.size() == memory.manifest.size());
    }
  }
}

TEST_CASE("a session that is deleted while others fill the store goes, and nothing else does") {
  FullStore full;
  const auto done = full.copy().erase(kName);
  REQUIRE(done.has_value());
  CHECK(done->n_erased == 1);
  CHECK(done->n_shared == kPages);
  CHECK(full.n_refused() > 0);
  CHECK_FALSE(full.copy().erase(kName).has_value());
}

TEST_CASE("a session that is exported while others fill the store is whole, and stays") {
  FullStore full;
  const std::string path =
      (std::filesystem::temp_directory_path() / ("tarn_session_copy_" + std::to_string(getpid())))
          .string();
  const auto done = full.copy().pack({.path = path.c_str(), .names = std::array{kName}});
  std::filesystem::remove(path);
  REQUIRE(done.has_value());
  CHECK(done->n_slots == kPages * kPageTokens);
  CHECK(full.n_refused() > 0);
  const auto manifest =
      full.store().find(store::named_key(full.store().secret(), store::Key{}, kName));
  REQUIRE(manifest.has_value());
  CHECK(full.store().index().entry(*manifest).holds == 0);  // nobody holds it from now on
}

}  // namespace
}  // namespace tarn::reuse::session_copy_test
