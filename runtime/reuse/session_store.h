// runtime/reuse/session_store.h
//
// Sessions in the store: names for sealed pages, so that equal prefixes have equal records, and the
// work of writing a session there and of finding it again (manifest.h has its bytes).
//
//   a save     begin_save() names a session and how much of its KV is meant; pump() writes the full
//              groups that have no record yet, then the slots behind them, then the manifest, which
//              replaces the one before. One save at a time; it goes on between the ops of a step
//   order      the manifest is put when all that it names is published, and its head is written
//              after a sync that began later: what a manifest names was there when it was written.
//              The store may evict it since: whoever takes the session up computes it anew
//   a tail     lies under the chain key of its tokens like a full group, zeros behind its slots. A
//              publication writes a copy that is made when it begins, so that its session may go
//              on meanwhile; where a save is waited for, nobody appends
//   unshared   pages whose KV does not follow from their tokens have keys that are drawn, and are
//              found by the manifest alone. A drawn tail is erased when another manifest stands:
//              the head of that one was synced by then
//   taking up  find() reads the manifest and checks it: name, identity, and that its keys are those
//              of its tokens. Full groups are adopted where they lie, and so is the tail, as if it
//              were full; a cut then makes it writable
//   copies     to a file, from one, away: SessionCopy does it, when no save is on its way
//   memory     the buffers are lent; nothing is allocated
//   thread     the engine's
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "platform/cpu/crc32c.h"
#include "runtime/config/select_config.h"
#include "runtime/kv/kv_cache.h"
#include "runtime/kv/sequence.h"
#include "runtime/reuse/manifest.h"
#include "runtime/reuse/session_copy.h"

namespace tarn::reuse {

struct SessionStoreArgs {
  store::Store* store = nullptr;
  kv::Mover* mover = nullptr;
  kv::Residency* residency = nullptr;
  kv::PageNames* names = nullptr;
  const Crc32c* crc = nullptr;
  u32 n_cache_layers = 0;
  u32 spills_max = 0;                     // groups asked for at one time
  std::span<std::byte> manifest{};        // manifest_bytes_max(), begins at a sector
  std::span<std::byte> other_manifest{};  // likewise, of a copy
  std::span<std::byte> groups{};          // of a copy, and of tails
  u64 nonce = 0;                          // of this opening of the store: drawn keys never repeat
  std::span<store::Key> keys{};           // of the pages of one session, and its tail
};

// Tails under drawn keys that may lie on the disk for a session's name, in the order in which they
// were drawn. Of those that nobody will name any more the last ones are remembered.
struct DrawnTails {
  std::array<store::Key, 4> keys{};
  u32 n = 0;
  u32 n_slots = 0;  // whose tail the last one is, as long as none of them is cut off; 0: none is
  void put(const store::Key& key, u32 of_slots);
};

// What is saved. Spans stay the session's; they are read until the save ends.
struct SaveArgs {
  const kv::Sequence* sequence = nullptr;
  u32 n_slots = 0;
  u32 lossy_from = 0;  // 0: all of it follows from its tokens
  std::string_view name{};
  u64 revision = 0;
  u64 saved_at_s = 0;
  SamplerState sampler{};
  std::array<ManifestBias, kManifestBiasesMax> biases{};
  u32 n_biases = 0;
  std::span<const u32> ids{};
  u32 turn_begin = 0;
  // What its choices depend on; without a policy it makes none.
  std::string_view policy{};
  ManifestIndex index{};
  ManifestCodebook codebook{};  // without slots: there is none
  std::array<ManifestAnswer, kKeptAnswersMax> answers{};
  u32 n_answers = 0;
  u32 n_fed = 0;
  DrawnTails* tails = nullptr;  // the session's
};

class SessionStore final : public kv::StoreGuest {
 public:
  void init(const SessionStoreArgs& args);
  bool is_on() const { return args_.store != nullptr; }
  void set_identity(const KvIdentity& identity);
  void close() { *this = SessionStore(); }

  // Pages [begin, end) of the sequence were sealed: they get their names from its tokens.
  void name_pages(const kv::Sequence& sequence, std::span<const u32> ids, u32 begin, u32 end);

  // Likewise, under keys of their own: those of a manifest, from its page `begin` on, or new ones.
  void name_unshared(const kv::Sequence& sequence, std::span<const u32> ids, u32 begin, u32 end,
                     std::span<const store::Key> keys = {});

  // The sequence's pages in a row, from the first on, that have names.
  u32 n_named_pages(const kv::Sequence& sequence) const;

  void begin_save(const SaveArgs& args) { begin(args, /*flushes=*/false); }
  void finish_save();  // waits for it, if one is under way
  bool is_saving() const { return stage_ != Stage::none; }
  // Waits until nothing of ours is on its way. Fails where the disk has a buffer for ever.
  Result<void> settle();
  // Whether one can begin without waiting for what one that was dropped had asked for.
  bool may_begin() const { return !is_saving() && buffer_is_free(); }
  bool is_busy() const override { return is_saving() || n_asked_ > 0; }
  bool is_saving(const kv::Sequence& sequence) const {
    return is_saving() && save_.sequence == &sequence;
  }
  // The sequence changes or goes: its save ends here, but for a manifest that is on its way.
  void drop(const kv::Sequence& sequence);
  // Goes on without waiting. True when the save has ended: with last().
  bool pump();
  const Result<void>& last() const { return last_; }
  // A save to its end; what it wrote outlives a power cut then.
  Result<void> save(const SaveArgs& args);

  // The manifest of this name, in the buffer until the next call. Waits for the disk.
  Result<Manifest> find(std::string_view name);
  // How many of its pages, the tail among them, have all their records.
  u32 n_pages_there(const Manifest& manifest) const;
  // Of a sequence with reserved slots: its first n_pages are what the manifest names. They are to
  // be committed then, and the full ones named.
  void adopt(const kv::Sequence& sequence, const Manifest& manifest, u32 n_pages);

  // Nothing else goes on before they come back.
  Result<ExportDone> export_to(std::string_view name, const char* path);
  // The name that an import of this file would have; it is in a buffer until the next call.
  Result<std::string_view> name_in(const char* path);
  Result<ImportDone> import_from(const char* path, std::string_view name);
  Result<DeleteDone> erase(std::string_view name);

  void go_on() override { (void)pump(); }
  void take(const store::Event& event) override;

 private:
  enum class Stage : u8 { none, groups, tail, manifest, old_tails, flush };

  void begin(const SaveArgs& args, bool flushes);
  bool advance();
  bool save_groups();
  bool save_tail();
  bool save_manifest();
  bool erase_old_tails();
  bool flush();
  void end(Result<void> how);
  void wait();  // for what was asked for
  bool buffer_is_free() const { return n_asked_ + n_lent_ == 0; }
  Result<void> check(const Manifest& manifest, std::string_view name) const;
  std::optional<store::RecordRef> record(const Manifest& manifest, u32 cache_layer, u32 page) const;
  u32 page_tokens() const { return args_.residency->shape().page_tokens; }
  u32 name_of(const kv::Sequence& sequence, u32 page) const;
  void set_name(const kv::Sequence& sequence, u32 page, u32 name);
  store::Key draw_key();
  void name_tail();
  void copy_tail();
  std::span<std::byte> tail_bytes(u32 cache_layer) const;
  bool has_tail() const { return save_.n_slots % page_tokens() != 0; }
  bool draws_tail() const { return has_tail() && save_.lossy_from != 0; }
  std::span<std::byte> group_bytes(const kv::Sequence& sequence, u32 cache_layer, u32 page) const;
  void zero_behind(std::span<std::byte> group, u32 n_slots) const;
  Unexpected refused(store::Begun begun) const;

  SessionStoreArgs args_{};
  SessionCopy copy_{};
  KvIdentity identity_{};
  store::Key root_{};

  Stage stage_ = Stage::none;
  SaveArgs save_{};
  Result<void> last_{};
  u32 next_ = 0;        // group of the save, counted page by page; in the tail: layer
  bool begun_ = false;  // the tail, the manifest, or the flush
  bool flushes_ = false;
  u32 n_asked_ = 0, n_lent_ = 0;  // operations of ours without an event, and buffers after it
  bool failed_ = false;           // one of them
  store::Key tail_{};
  u64 n_drawn_ = 0;
};

}  // namespace tarn::reuse
