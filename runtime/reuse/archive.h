// Sessions that outlive the engine, in its store, each under a name.
//
//   save       all of a session is on disk when it returns, and the session goes on
//   autosave   from then on a checkpoint follows the session's work, at least every checkpoint_ms
//              and a step, and one more at the end of an answer. One is under way at a time, and
//              goes on between the ops of steps. A kill costs what came after the last one
//   restore    a session goes on where that one was, bit-equal. KV that the store has lost is
//              recomputed from its tokens; so is approximate KV without the index it was chosen by,
//              and all KV of another type, arithmetic or shape than this engine's, with a warning
//   files      pack, unpack, erase and check wait; nothing else goes on meanwhile
//              (session_copy.h)
//   names      no two open sessions of a tenant have one
//   thread     the engine's; stop_checkpoints(): any
#pragma once

#include <atomic>

#include "runtime/reuse/archive_args.h"
#include "runtime/reuse/session_copy.h"
#include "runtime/reuse/session_writer.h"

namespace tarn::reuse {

class Archive final : public kv::StoreGuest {
 public:
  void init(const ArchiveArgs& args);
  void close() { args_ = {}; }
  // Off where the engine's plan has no room for sessions: nothing can be saved then.
  bool is_on() const { return args_.kv != nullptr; }

  // Rows were appended behind n_before slots: pages that they filled, and whose KV a selection has
  // computed, get keys. Under the key of their tokens they would be taken for exact.
  void name_private(const kv::Sequence& sequence, std::span<const u32> ids, u32 n_before,
                    u32 first_approx_slot);

  Result<void> save(const SessionView& session, std::string_view name);
  Result<void> autosave(SavedAs& saved, std::string_view name, StoppedAt stopped_at);

  // Whether a checkpoint may begin. Notes how the one before has ended.
  bool may_checkpoint();
  // Whether one of this session is due; at once, without waiting for checkpoint_ms.
  bool is_due(const SavedAs& saved, u32 n_slots, bool is_idle) const;
  bool is_due_now(const SavedAs& saved, u32 n_slots, bool is_idle) const;
  void checkpoint(const SessionView& session);
  // Saves a session that ends: its answer, or its last input, is to be found under its name.
  void checkpoint_last(const SessionView& session);
  void finish_checkpoint();  // waits for it
  // None begins from now on: what sessions do next is not to be found. Any thread.
  void stop_checkpoints() { is_stopped_.store(true, std::memory_order_relaxed); }

  // The session's KV is about to be cut: a checkpoint under way does not count.
  void drop(SavedAs& saved);
  // The session ends, and its name is free.
  void forget(SavedAs& saved);

  // The manifest stays in a buffer until the next call.
  struct Found {
    Manifest manifest{};
    u32 n_pages_there = 0;
    bool is_foreign = false;  // its KV is none of this engine's: all is computed anew
    bool is_whole() const { return n_pages_there == pages_of(manifest); }
  };
  Result<Found> find(std::string_view tenant, std::string_view name);
  // Gives what was found to the sequence of a new session, and the name to the session.
  // `index_owner`: of the index that it was chosen by, and goes on by; none where there is no such
  // index: approximate KV is of no use then. Returns whether the index still is.
  Result<bool> restore(SavedAs& saved, kv::Sequence& sequence, const Found& found,
                       const store::Key& root, const std::optional<store::Key>& index_owner);

  // For all that session_copy.h has, but for import and erase: those ask which names are open.
  Result<SessionCopy*> files();
  // Whether a session's KV could be this engine's.
  bool is_own(const Manifest& manifest) const;
  // Takes sessions of this model and settings. No name or tenant: the file's.
  Result<ImportDone> import_from(const char* path, std::optional<std::string_view> tenant,
                                 std::string_view name);
  Result<DeleteDone> erase(std::string_view tenant, std::string_view name);

  // kv::StoreGuest.
  void take(const store::Event& event) override;
  void go_on() override { writer_.pump(); }
  bool is_busy() const override { return writer_.is_busy(); }

 private:
  // Whether it is a name that no open session but `own` has, and the store is there.
  Result<void> check_name(const store::Key& tenant, std::string_view name,
                          const SavedAs* own = nullptr) const;
  Result<void> set_name(SavedAs& saved, std::string_view name);
  Result<void> settle();
  bool makes_checkpoints() const;
  void take_checkpoint();
  void log_evictions();

  ArchiveArgs args_{};
  PageKeys keys_{};
  SessionWriter writer_{};
  SessionCopy copy_{};
  std::array<SavedAs*, kv::KvCache::kSessionsMax> named_{};  // of open sessions
  u32 n_named_ = 0;
  SavedAs* saving_ = nullptr;  // the checkpoint under way, or none that counts
  u64 n_evictions_logged_ = 0;
  std::atomic<bool> is_stopped_{false};
};

}  // namespace tarn::reuse
