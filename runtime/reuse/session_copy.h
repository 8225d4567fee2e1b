// The operations on saved sessions that need no engine that computes: list them, pack them into a
// file, unpack them from one, delete them, and verify the store. Over an open store of any owner.
//
//   waits      each call returns when it has ended. pump() lets the store continue meanwhile, and
//              its owner passes on the events with tags of ours (take())
//   pack       sessions as they were last saved: manifest, and pages as far as they are there, in
//              one file. It gets its name when it is whole (platform/io/stream_file.h).
//              Pages that a session shares with the one before it are in the file once
//   read       makes each session its tenant's, by name, or one tenant's that the caller names. It
//              reads the file twice: first it checks every byte, then it writes to the store.
//              Groups are held until the session's manifest is published, which is the last step.
//              A session of the same content that is there already is skipped, but for missing
//              pages. If anything fails, what came before it stays, and a repeat goes on
//   delete     erases groups that no other session names, and records of the index, then the
//              manifest. So a crash in between leaves a session that can be deleted again
//   check      reads every byte of every record. Manifests must decode, and the keys and the
//              tokens of the pages that they name must be right
//   memory     lent; nothing is allocated
//   thread     the store's owner's
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/reuse/blocking_store.h"
#include "runtime/reuse/pack_reader.h"
#include "runtime/reuse/record_check.h"
#include "runtime/store/store.h"

namespace tarn::reuse {

struct SessionCopyArgs {
  store::Store* store = nullptr;
  const Crc32c* crc = nullptr;
  // Two manifests, and groups, cut into as many buffers as there is room for, kCopyBuffersMax at
  // most; all begin at a sector and are multiples of it. A session for which they are too small is
  // refused, and not listed.
  std::span<std::byte> manifest{}, other_manifest{}, groups{};
  std::span<store::Key> keys{};  // of the pages of one session, and its tail
  u64 first_tag = 0;             // operations have this tag or one above
  void (*pump)(void* context) = nullptr;
  void* context = nullptr;
};

// A session as it lies in the store. Spans until the next call.
struct KeptSession {
  Manifest manifest{};
  u32 n_pages = 0;        // the tail among them
  u32 n_pages_there = 0;  // from the first one on, with all their layers
  u64 record_bytes = 0;   // of what is there, the manifest included; shared groups count for each
  u64 generation = 0;     // of its manifest: the larger, the later it was saved
};

struct PackArgs {
  const char* path = nullptr;
  // Name sessions that share a beginning one after another. Empty: all.
  std::span<const char* const> names{};
  // One for all names, or one for each. Without names: the tenant; empty: every tenant.
  std::span<const store::Key> tenants{};
  store::Key tenant_of(u64 name_idx) const {
    return tenants.empty() ? store::Key{} : tenants[tenants.size() == 1 ? 0 : name_idx];
  }
};

struct ExportDone {
  u32 n_sessions = 0;
  u64 n_tokens = 0;
  u64 n_slots = 0;  // whose KV is in the file
  u64 file_bytes = 0;
};

// A session of an import, when it is in the store.
struct ImportedSession {
  std::string_view name{}, tenant{};
  u64 n_tokens = 0;
  u64 n_slots = 0;  // whose KV is in the store
  u64 n_groups_new = 0;
  bool was_there = false;
};

struct ImportArgs {
  const char* path = nullptr;
  std::string_view name{};                   // of the only session; empty: the one in the file
  std::optional<std::string_view> tenant{};  // whose all of them are then; none: as in the file
  const KvIdentity* identity = nullptr;      // that it must have, but for the tenant; nullptr: any
  std::string_view model_name{};             // of that identity
  u64 group_bytes = 0;                       // that its groups must have; 0: any
  // Both may be nullptr. Whether a session may be written under this name.
  Result<void> (*check_name)(void* context, const store::Key& tenant,
                             std::string_view name) = nullptr;
  void (*on_session)(void* context, const ImportedSession& session) = nullptr;
  void* context = nullptr;
};
struct ImportDone {
  u32 n_sessions = 0;
  u32 n_there = 0;  // of them, that the store had already
  u64 n_tokens = 0;
  u64 n_slots = 0;  // whose KV is in the store now
  u64 n_groups_new = 0;
};

struct DeleteDone {
  u64 n_erased = 0;  // records
  u64 n_shared = 0;  // that others name, or open sessions hold
};

// Calls fn(ref, entry) for every record that is found.
template <class Fn>
void each_record(const store::Store& store, Fn&& fn) {
  const store::RecordIndex& index = store.index();
  for (u32 frame = 0; frame < index.n_frames(); ++frame) {
    const store::IndexEntry& entry = index.frame(frame);
    if (entry.life == store::Life::published) fn(store::RecordRef{frame, entry.generation}, entry);
  }
}

// Whether it can be a session's name.
Result<void> check_name(std::string_view name);
// The tokens of a page.
std::span<const u32> page_ids(const Manifest& manifest, u32 page);

// Groups of a session are counted page by page, in each the cache layers.
std::optional<store::RecordRef> group_record(const store::Store& store, const Manifest& manifest,
                                             u64 group);
// From the first one on, with all their layers. Adds up the bytes of their records.
// Whether all layers of a page of it are there.
bool has_records(const store::Store& store, const Manifest& manifest, u32 page);
u32 n_pages_there(const store::Store& store, const Manifest& manifest, u64* record_bytes = nullptr);

class SessionCopy {
 public:
  void init(const SessionCopyArgs& args) {
    args_ = args;
    ops_.init(args.store, args.groups, args.first_tag, args.pump, args.context);
  }
  BlockingStore& ops() { return ops_; }
  void take(const store::Event& event) { ops_.take(event); }  // with a tag of ours
  // Returns the key of a tenant's manifests; the default one's is zero.
  store::Key tenant_key(std::string_view tenant) const {
    return store::tenant_key(args_.store->secret(), tenant);
  }
  // The record of the manifest of this name, which has room in a buffer.
  Result<store::RecordRef> find_record(std::string_view name, const store::Key& tenant = {});

  // Calls on_session for every session whose manifest is whole, in no order.
  void list(void (*on_session)(void* context, const KeptSession& session), void* context);
  Result<ExportDone> pack(const PackArgs& args);
  Result<ImportDone> read(const ImportArgs& args);
  // The facts of a session in a file that say how much room it needs: its checked head and
  // manifest.
  struct FileFacts {
    const SessionFileHead& head;
    const Manifest& manifest;
  };
  Result<void> look_at(const char* path, void (*on_session)(void* context, const FileFacts& facts),
                       void* context);
  Result<DeleteDone> erase(std::string_view name, const store::Key& tenant = {});
  // Fails only if the store does.
  Result<CheckDone> check(const CheckArgs& args);

 private:
  // A manifest that is pinned, for else it could give way between two looks at the disk.
  struct Found {
    store::RecordRef record{};
    u64 manifest_bytes = 0;
    Manifest manifest{};
  };

  Result<Found> find(std::string_view name, const store::Key& tenant = {});
  Result<Found> find_at(store::RecordRef ref);
  Result<Manifest> read_manifest(store::RecordRef ref, std::span<std::byte> buffer);
  u32 n_pages_shared(const Manifest& manifest, store::RecordRef own);

  // session_pack.cpp
  template <class Fn>
  Result<void> each_packed(const PackArgs& args, Fn&& fn);
  Result<void> write_session(FileWriter& file, const Found& found, const SessionFileHead& head);
  Result<void> write_groups(FileWriter& file, const Manifest& manifest,
                            const SessionFileHead& head);
  Result<void> begin_read(const Manifest& manifest, u64 group, BlockingStore::Slot& slot);

  // session_unpack.cpp. `own` has the store's keys.
  Manifest of_own_tenant(const ImportArgs& args, const Manifest& manifest) const;
  Result<bool> is_here(const Manifest& manifest, std::string_view name);
  Result<void> check_session(const ImportArgs& args, const PackReader& file);
  Result<void> check_file(const ImportArgs& args, PackReader& file);
  Result<void> put_session(const ImportArgs& args, PackReader& file, u64 nonce, ImportDone& done);
  Result<void> put_groups(PackReader& file, const Manifest& own, u32 n_pages);
  Result<void> put_group(const Manifest& own, u64 group, BlockingStore::Slot& slot);
  Result<void> put_manifest(const Manifest& own, std::string_view name);
  void let_go(const Manifest& own);

  SessionCopyArgs args_{};
  BlockingStore ops_{};
  u64 n_begun_ = 0;  // groups of a session that were put, or there
};

}  // namespace tarn::reuse
