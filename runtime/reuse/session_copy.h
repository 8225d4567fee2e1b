// What can be done with kept sessions without an engine that computes: looked at, exported to a
// file, imported from one, deleted. Over an open store, whoever its owner is.
//
//   waits      each call comes back when it has ended; pump() lets the store go on meanwhile, and
//              its owner hands over the events with tags of ours (take())
//   export     the session as it was last saved: its manifest, and its pages as far as they are
//              there. The file bears its name when it is whole (platform/io/stream_file.h)
//   import     the file is read twice: once to check every byte of it, then to write it to the
//              store. Groups are held until the manifest is published, and that is the last thing:
//              where anything fails, what was written is erased again, and what was there before is
//              as it was, but for what gave way to it. Groups that the store has already stay
//   delete     groups that no other session names, and what was written of the index that the
//              manifest names, of whatever time, then the manifest, so that a crash between the
//              two leaves a session of which a part is computed anew, and can be deleted again
//   memory     lent; nothing is allocated
//   thread     the store's owner's
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "platform/io/stream_file.h"
#include "runtime/reuse/manifest.h"
#include "runtime/reuse/session_file.h"
#include "runtime/reuse/store_ops.h"
#include "runtime/store/store.h"

namespace tarn::reuse {

struct SessionCopyArgs {
  store::Store* store = nullptr;
  const Crc32c* crc = nullptr;
  store::Key tenant{};
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

struct ExportDone {
  u64 n_tokens = 0;
  u64 n_slots = 0;  // whose KV is in the file
  u64 file_bytes = 0;
};

struct ImportArgs {
  const char* path = nullptr;
  std::string_view name{};               // empty: the one in the file
  const KvIdentity* identity = nullptr;  // what it must be of; nullptr: whatever it is of
  u64 group_bytes = 0;                   // that its groups must have; 0: any
};
struct ImportDone {
  u64 n_tokens = 0;
  u64 n_slots = 0;  // whose KV is in the store now
  u64 n_groups_new = 0;
};

struct DeleteDone {
  u64 n_erased = 0;  // records
  u64 n_shared = 0;  // that others name, or open sessions hold
};

// A session that no manifest of the store names, or that is longer than an engine's buffers.
Unexpected no_session(std::string_view name);
Unexpected too_long(std::string_view name);

// Groups of a session are counted page by page, in each the cache layers.
std::optional<store::RecordRef> group_record(const store::Store& store, const Manifest& manifest,
                                             u64 group);
// From the first one on, with all their layers. Adds up the bytes of their records.
u32 n_pages_there(const store::Store& store, const Manifest& manifest, u64* record_bytes = nullptr);

class SessionCopy {
 public:
  void init(const SessionCopyArgs& args) {
    args_ = args;
    ops_.init(args.store, args.groups, args.first_tag, args.pump, args.context);
  }
  bool is_idle() const { return ops_.is_idle(); }
  StoreOps& ops() { return ops_; }
  void take(const store::Event& event) { ops_.take(event); }  // with a tag of ours

  // Calls on_session for every session whose manifest is whole, in no order.
  void list(void (*on_session)(void* context, const KeptSession& session), void* context);
  Result<ExportDone> write(std::string_view name, const char* path);
  Result<ImportDone> read(const ImportArgs& args);
  // What of a file says how much room it needs, and whose it is: its checked head and manifest.
  struct FileFacts {
    SessionFileHead head{};
    Manifest manifest{};  // until the next call
  };
  Result<FileFacts> look_at(const char* path);
  Result<DeleteDone> erase(std::string_view name);

 private:
  // A manifest that is held: between two looks at the disk others write, and it could give way.
  class Held {
   public:
    Held(store::Store& store, store::RecordRef ref) : store_(&store), ref_(ref) { store.pin(ref); }
    Held(Held&& other) noexcept : store_(std::exchange(other.store_, nullptr)), ref_(other.ref_) {}
    Held& operator=(Held&&) = delete;
    ~Held() { let_go(); }
    store::RecordRef ref() const { return ref_; }
    void let_go() {
      if (store::Store* store = std::exchange(store_, nullptr)) store->unpin(ref_);
    }

   private:
    store::Store* store_;
    store::RecordRef ref_;
  };
  struct Found {
    Held record;
    u64 manifest_bytes = 0;
    Manifest manifest{};
  };

  Result<Found> find(std::string_view name);
  std::optional<Manifest> read_manifest(store::RecordRef ref, std::span<std::byte> buffer);
  u32 n_pages_shared(const Manifest& manifest, store::RecordRef own);
  std::span<const u32> page_ids(const Manifest& manifest, u32 page) const;

  Result<void> write_groups(FileWriter& file, const Manifest& manifest,
                            const SessionFileHead& head);
  Result<void> begin_read(const Manifest& manifest, u64 group, StoreOps::Slot& slot);

  Result<SessionFileHead> open(FileReader& file, const char* path);
  Result<Manifest> read_file_manifest(FileReader& file, const SessionFileHead& head);
  Result<void> read_group(FileReader& file, const SessionFileHead& head, const Manifest& manifest,
                          u64 group, std::span<std::byte> payload);
  Result<void> check_import(const ImportArgs& args, const SessionFileHead& head,
                            const Manifest& manifest, std::string_view name) const;
  // `manifest` has the file's keys, `own` the store's.
  Result<void> put_groups(FileReader& file, const SessionFileHead& head, const Manifest& manifest,
                          const Manifest& own);
  Result<void> put_group(const Manifest& own, u64 group, StoreOps::Slot& slot);
  Result<void> put_manifest(const Manifest& own, std::string_view name);
  void let_go(const Manifest& own, bool keeps);
  void erase_codebooks(const Manifest& manifest, DeleteDone& done);

  SessionCopyArgs args_{};
  StoreOps ops_{};
  u64 first_generation_ = 0;  // of what it puts
  u64 n_begun_ = 0;           // groups of it that were put, or there
};

}  // namespace tarn::reuse
