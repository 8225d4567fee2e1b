// Writes a session to the store: the full groups that have no record yet, then the slots behind
// them (the tail), then the manifest, which replaces the one before. One save at a time; a
// checkpoint goes on between the ops of a step (pump()), a save() waits.
//
//   order    the manifest is put when all that it names is published, and its head is written
//            after a sync that began later. The store may evict what it names since: a restore
//            recomputes it
//   tail     lies under its key like a full group, zeros behind its slots. What is written is a
//            copy that is made when the save begins, so that its session may go on meanwhile. A
//            private tail is erased when another manifest stands, whose head was synced by then
//   memory   ArchiveArgs; nothing is allocated
//   thread   the engine's
#pragma once

#include "runtime/reuse/archive_args.h"
#include "runtime/reuse/page_keys.h"
#include "runtime/reuse/saved_as.h"

namespace tarn::reuse {

class SessionWriter {
 public:
  void init(const ArchiveArgs* args, PageKeys* keys);

  // The first n_slots of the session's KV, and all its tokens.
  void begin(const SessionView& session, u32 n_slots) {
    begin(session, n_slots, /*flushes=*/false);
  }
  // To its end; what it wrote outlives a power cut then.
  Result<void> save(const SessionView& session, u32 n_slots);
  // Goes on without waiting.
  void pump();
  void finish();  // waits for the save, if one is under way
  // Waits until nothing of ours is on its way. Fails where the disk has a buffer for ever.
  Result<void> settle();
  // The session changes or goes: its save ends here, but for a manifest that is on its way.
  void drop(const SavedAs& saved);

  bool is_saving() const { return stage_ != Stage::none; }
  // Whether one can begin without waiting for what one that was dropped had asked for.
  bool may_begin() const { return !is_busy() && n_lent_ == 0; }
  bool is_busy() const { return is_saving() || n_asked_ > 0; }
  // Returns the session of the last save, and how it ended.
  const SessionView& session() const { return session_; }
  u32 n_slots() const { return n_slots_; }
  const Result<void>& last() const { return last_; }

  void take(const store::Event& event);

 private:
  enum class Stage : u8 { groups, tail, manifest, old_tails, flush, none };  // in this order

  void begin(const SessionView& session, u32 n_slots, bool flushes);
  bool advance();
  bool begin_stage();
  bool begin_groups();
  bool begin_tail();
  bool begin_manifest();
  bool begin_erasures();
  bool has_begun(store::Begun begun);
  void end(const Result<void>& how);
  u32 page_tokens() const { return args_->identity.page_tokens; }
  u32 n_pages() const { return n_slots_ / page_tokens(); }
  bool has_tail() const { return n_slots_ % page_tokens() != 0; }
  bool is_approx() const { return session_.first_approx_slot < n_slots_; }
  bool has_private_tail() const { return has_tail() && is_approx(); }
  void copy_tail();
  Manifest manifest() const;

  const ArchiveArgs* args_ = nullptr;
  PageKeys* keys_ = nullptr;

  Stage stage_ = Stage::none;
  SessionView session_{};
  bool is_cut_off_ = false;  // as in Manifest; so is n_drawn_
  u64 n_drawn_ = 0;
  u32 n_slots_ = 0;
  Result<void> last_{};
  u32 next_ = 0;        // of the stage's operations; groups are counted page by page
  bool begun_ = false;  // all of them
  bool flushes_ = false;
  u32 n_asked_ = 0, n_lent_ = 0;  // operations of ours without an event, and buffers after it
  bool failed_ = false;           // one of them
  store::Key tail_{};
};

}  // namespace tarn::reuse
