// What can be done with saved sessions without an engine that computes: look at them, export one to
// a file, import one, delete one. Over an open store, whoever its owner is.
//
//   waits      each call comes back when it has ended; pump() lets the store go on meanwhile, and
//              its owner hands over the events with tags of ours (take())
//   export     the session as it was last saved: its manifest, and its pages as far as they are
//              there. The file bears its name when it is whole (platform/io/stream_file.h)
//   import     the file is read twice: first every byte is checked, then it is written to the
//              store. Groups are held until the manifest is published, which is the last thing. If
//              anything fails, what was written is erased again
//   delete     groups that no other session names, and what was written of the index, then the
//              manifest. So a crash between the two leaves a session that can be deleted again
//   memory     lent; nothing is allocated
//   thread     the store's owner's
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "platform/io/stream_file.h"
#include "runtime/reuse/blocking_store.h"
#include "runtime/reuse/manifest.h"
#include "runtime/reuse/session_file.h"
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

// Whether it can be a session's name.
Result<void> check_name(std::string_view name);
// A session that is longer than an engine's buffers.
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
  BlockingStore& ops() { return ops_; }
  void take(const store::Event& event) { ops_.take(event); }  // with a tag of ours
  // The record of the manifest of this name, which has room in a buffer.
  Result<store::RecordRef> find_record(std::string_view name);

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
  // A manifest that is pinned, for else it could give way between two looks at the disk.
  struct Found {
    store::RecordRef record{};
    u64 manifest_bytes = 0;
    Manifest manifest{};
  };

  Result<Found> find(std::string_view name);
  Result<ExportDone> write(const Found& found, const char* path);
  std::optional<Manifest> read_manifest(store::RecordRef ref, std::span<std::byte> buffer);
  u32 n_pages_shared(const Manifest& manifest, store::RecordRef own);
  // Calls fn(ref, entry) for every record that is found.
  template <class Fn>
  void each_record(Fn&& fn) const;

  Result<void> write_groups(FileWriter& file, const Manifest& manifest,
                            const SessionFileHead& head);
  Result<void> begin_read(const Manifest& manifest, u64 group, BlockingStore::Slot& slot);

  Result<SessionFileHead> open(FileReader& file, const char* path);
  Result<Manifest> read_file_manifest(FileReader& file, const SessionFileHead& head);
  Result<void> read_group(FileReader& file, const SessionFileHead& head, const Manifest& manifest,
                          u64 group, std::span<std::byte> payload);
  Result<void> check_import(const ImportArgs& args, const SessionFileHead& head,
                            const Manifest& manifest, std::string_view name) const;
  // `manifest` has the file's keys, `own` the store's.
  Result<void> put_groups(FileReader& file, const SessionFileHead& head, const Manifest& manifest,
                          const Manifest& own);
  Result<void> put_group(const Manifest& own, u64 group, BlockingStore::Slot& slot);
  Result<void> put_manifest(const Manifest& own, std::string_view name);
  void let_go(const Manifest& own, bool keeps);
  void erase_codebooks(const Manifest& manifest, DeleteDone& done);

  SessionCopyArgs args_{};
  BlockingStore ops_{};
  u64 first_generation_ = 0;  // of what it puts
  u64 n_begun_ = 0;           // groups of it that were put, or there
};

}  // namespace tarn::reuse
