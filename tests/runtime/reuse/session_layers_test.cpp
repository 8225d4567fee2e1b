// Goal    what a manifest in the store says of its size costs nothing: one with more cache layers
//         than any model has is no session's, and is neither listed nor walked.
// Method  manifests encoded here, under good keys and checksums, on the simulated disk.
#include "runtime/reuse/session_copy.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/reuse/session_file.h"
#include "tests/runtime/store/store_box.h"

namespace tarn::reuse::session_layers_test {
namespace {

constexpr u32 kPage = 16;
constexpr u64 kManifestBytes = 4 * store::kSectorBytes;
constexpr u64 kGroupsBytes = 16 * store::kSectorBytes;

// A store with one session of so many layers, of which no KV is there, and what lists and erases.
struct Kept {
  explicit Kept(u32 n_layers)
      : bench(box.boot(test::box_limits(8))), memory(2 * kManifestBytes + kGroupsBytes) {
    const auto buffers = memory.span();
    copy.init({.store = &bench->store,
               .crc = &crc32c_ways()[0],
               .manifest = buffers.first(kManifestBytes),
               .other_manifest = buffers.subspan(kManifestBytes, kManifestBytes),
               .groups = buffers.subspan(2 * kManifestBytes),
               .keys = keys,
               .pump = [](void* self) { static_cast<Kept*>(self)->pump(); },
               .context = this});
    const std::vector<u32> tokens(kPage, 5);
    const std::array<store::Key, 1> unknown{};
    Manifest manifest{.identity = {.n_cache_layers = n_layers,
                                   .n_kv_heads = 1,
                                   .head_dim = 64,
                                   .page_tokens = kPage,
                                   .layout = kPageLayout},
                      .n_slots = kPage,
                      .groups = unknown,
                      .token_ids = tokens,
                      .name = "talk",
                      .n_fed = kPage};
    std::array<store::Key, 1> groups{};
    make_keys(bench->store.secret(), manifest, 1, groups);
    manifest.groups = groups;
    test::TestRecord record{.key = store::named_key(bench->store.secret(), {}, "talk"),
                            .kind = store::Kind::manifest,
                            .payload_bytes = manifest_bytes(manifest)};
    record.payload.resize(align_up(record.payload_bytes, store::kSectorBytes));
    encode_manifest(crc32c_ways()[0], manifest,
                    std::span(record.payload).first(record.payload_bytes));
    REQUIRE(bench->put(record));
  }
  ~Kept() { bench->close(); }
  void pump() {
    std::array<store::Event, 8> events;
    const u32 n = bench->store.poll(events, 1'000'000'000);
    for (u32 i = 0; i < n; ++i) copy.take(events[i]);
  }
  u32 n_listed() {
    u32 n = 0;
    copy.list([](void* count, const KeptSession&) { ++*static_cast<u32*>(count); }, &n);
    return n;
  }

  test::StoreBox box;
  std::unique_ptr<test::StoreHarness> bench;
  test::SectorBuffer memory;
  std::array<store::Key, 64> keys{};
  SessionCopy copy;
};

TEST_CASE("a session of more cache layers than a model has is none, and nobody counts them") {
  for (const u32 n_layers : {1u, 32u, kSessionLayersMax}) {
    CAPTURE(n_layers);
    Kept kept(n_layers);
    CHECK(kept.n_listed() == 1);
    const auto done = kept.copy.erase("talk");
    REQUIRE(done.has_value());
    CHECK(done->n_erased == 1);
    CHECK(kept.n_listed() == 0);
  }
  for (const u32 n_layers : {kSessionLayersMax + 1, u32{1} << 16, ~u32{0}}) {
    CAPTURE(n_layers);
    Kept kept(n_layers);
    REQUIRE(kept.n_listed() == 0);
    const auto done = kept.copy.erase("talk");
    REQUIRE_FALSE(done.has_value());
    CHECK(done.error().status == Status::io_failed);
    CHECK(std::string(done.error().hint).find("damaged") != std::string::npos);
  }
}

}  // namespace
}  // namespace tarn::reuse::session_layers_test
