// A store with sessions that are made here, without an engine, and what lists, packs and imports
// them. Two layers; groups of [16 slots][K, V][64 x f16], 4 KiB. A session's KV follows from its
// tokens.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "runtime/reuse/session_copy.h"
#include "tests/support/store_harness.h"

namespace tarn::test {

class CopyBench {
 public:
  static constexpr u32 kPage = 16;
  static constexpr u32 kLayers = 2;
  static constexpr u64 kFrameBytes = 2 * kSectorBytes;

  CopyBench(IoBackend& io, Clock& clock, const char* path, u32 n_frames, u64 entropy = 1)
      : bench_(io, clock, path,
               {.file_bytes = store::kFramesBegin + n_frames * kFrameBytes,
                .frame_bytes = kFrameBytes,
                .head_bytes_max = 4 * kSectorBytes,
                .ops_max = 8,
                .lock_wait_ns = 5'000'000'000},
               entropy) {
    const auto buffers = buffers_.span();
    copy_.init({.store = &bench_.store,
                .crc = &crc32c_ways()[0],
                .manifest = buffers.first(kManifestBytes),
                .other_manifest = buffers.subspan(kManifestBytes, kManifestBytes),
                .groups = buffers.subspan(2 * kManifestBytes),
                .keys = keys_,
                .first_tag = kFirstTag,
                .pump = [](void* self) { static_cast<CopyBench*>(self)->pump(); },
                .context = this});
    REQUIRE(bench_.open() == store::Mode::on);
  }
  ~CopyBench() {
    if (!bench_.was_killed) bench_.close();
  }

  static reuse::KvIdentity identity() {
    return {.model = {7, 7},
            .n_cache_layers = kLayers,
            .n_kv_heads = 1,
            .head_dim = 64,
            .page_tokens = kPage,
            .layout = reuse::kPageLayout,
            .numerics_id = reuse::kCpuNumericsId};
  }

  // Tokens count up from `first`; those from `fork_at` on from `fork_at + 1000`. Of n_slots of them
  // there is KV; the first page is private from `approx` on, if that is not 0.
  struct Text {
    const char* name = "";
    u32 n_tokens = 0, first = 0, fork_at = ~u32{0}, approx = 0;
    const char* tenant = "";
  };
  static std::vector<u32> tokens_of(const Text& text) {
    std::vector<u32> tokens(text.n_tokens);
    for (u32 i = 0; i < text.n_tokens; ++i) tokens[i] = text.first + i + (i >= text.fork_at) * 1000;
    return tokens;
  }
  void save(const Text& text) {
    const std::vector<u32> tokens = tokens_of(text);
    const u32 n_slots = text.n_tokens - 1, n_pages = (n_slots + kPage - 1) / kPage;
    const std::vector<store::Key> none(n_pages, store::Key{text.first + 1, 5});
    const store::Key tenant = copy_.tenant_key(text.tenant);
    reuse::Manifest manifest{.identity = reuse::of_tenant(identity(), tenant),
                             .n_slots = n_slots,
                             .tail = n_slots % kPage != 0 ? none[0] : store::Key{},
                             .first_approx_slot = text.approx,
                             .groups = std::span(none).first(n_slots / kPage),
                             .token_ids = tokens,
                             .name = text.name,
                             .n_fed = text.n_tokens,
                             .tenant = text.tenant};
    std::vector<store::Key> keys(n_pages);
    make_keys(store().secret(), manifest, 3, keys);
    manifest.groups = std::span(keys).first(n_slots / kPage);
    if (n_slots % kPage != 0) manifest.tail = keys.back();
    for (u32 page = 0; page < n_pages; ++page) {
      const auto ids = reuse::page_ids(manifest, page);
      for (u32 layer = 0; layer < kLayers; ++layer) {
        TestRecord record{.key = store::layer_key(store().secret(), keys[page], layer),
                          .token_ids = {ids.begin(), ids.end()},
                          .payload_bytes = kSectorBytes,
                          .payload = group_of(ids, layer)};
        if (!store().find(record.key)) REQUIRE(bench_.put(record));
      }
    }
    TestRecord record{.key = store::named_key(store().secret(), tenant, text.name),
                      .kind = store::Kind::manifest,
                      .payload_bytes = reuse::manifest_bytes(manifest)};
    record.payload.resize(align_up(record.payload_bytes, kSectorBytes));
    reuse::encode_manifest(crc32c_ways()[0], manifest,
                           std::span(record.payload).first(record.payload_bytes));
    REQUIRE(bench_.put(record));
  }
  static std::vector<std::byte> group_of(std::span<const u32> ids, u32 layer) {
    std::vector<std::byte> bytes(kSectorBytes);
    for (u64 i = 0; i < bytes.size(); ++i)
      bytes[i] = std::byte((ids[i % ids.size()] + layer) & 255);
    return bytes;
  }

  // Every session by its name, with its tokens and how many of them have their KV, byte by byte.
  struct Session {
    std::vector<u32> tokens{};
    u32 n_pages = 0, n_pages_there = 0;
    friend bool operator==(const Session&, const Session&) = default;
  };
  std::map<std::string, Session> sessions() {
    std::map<std::string, Session> all;
    copy_.list(
        [](void* context, const reuse::KeptSession& kept) {
          const auto ids = kept.manifest.token_ids;
          (*static_cast<std::map<std::string, Session>*>(
              context))[std::string(kept.manifest.name)] = {
              {ids.begin(), ids.end()}, kept.n_pages, kept.n_pages_there};
        },
        &all);
    return all;
  }
  u32 n_records() const { return bench_.store.index().n_records(); }
  // Returns whether no record is held.
  bool holds_nothing() const {
    u32 n = 0;
    reuse::each_record(bench_.store,
                       [&](store::RecordRef, const store::IndexEntry& entry) { n += entry.holds; });
    return n == 0;
  }
  // Erases a group of the first layer.
  void erase_group(const char* name, u32 page) {
    struct Search {
      CopyBench& self;
      const char* name;
      u32 page;
      std::optional<store::RecordRef> found{};
    } search{*this, name, page};
    copy_.list(
        [](void* context, const reuse::KeptSession& kept) {
          auto& wanted = *static_cast<Search*>(context);
          if (kept.manifest.name != wanted.name) return;
          wanted.found =
              reuse::group_record(wanted.self.store(), kept.manifest, u64{wanted.page} * kLayers);
        },
        &search);
    REQUIRE(search.found.has_value());
    REQUIRE(bench_.store.erase(*search.found, 1) == store::Begun::begun);
    CHECK(bench_.wait_for(1).outcome == store::Outcome::ok);
  }
  Result<reuse::ImportDone> unpack(const std::string& path, reuse::ImportArgs args = {}) {
    args.path = path.c_str();
    return copy_.read(args);
  }

  reuse::SessionCopy& copy() { return copy_; }
  store::Store& store() { return bench_.store; }
  StoreHarness& bench() { return bench_; }

 private:
  static constexpr u64 kManifestBytes = 16 * kSectorBytes;
  static constexpr u64 kFirstTag = u64{1} << 40;

  void pump() {
    std::array<store::Event, 8> events;
    const u32 n = bench_.store.poll(events, 100'000'000);
    for (u32 i = 0; i < n; ++i) {
      if (events[i].tag >= kFirstTag) copy_.take(events[i]);
    }
  }

  StoreHarness bench_;
  SectorBuffer buffers_{2 * kManifestBytes + 8 * kSectorBytes};
  std::vector<store::Key> keys_ = std::vector<store::Key>(256);
  reuse::SessionCopy copy_;
};

}  // namespace tarn::test
