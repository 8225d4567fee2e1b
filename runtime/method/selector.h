// The engine's view of selection: which rows select, and by what index. The rows of generated
// tokens select, one of a session at a time; those of a prefill attend to everything, as in
// PQCache.
//
//   session    a life (IndexLife), and an index of every (cache layer, KV head). What is chosen
//              follows from tokens, the turns' borders, configuration and seed; no timing is in it
//   proposal   what a row makes of its session's life: begin_row() works on a copy, commit()
//              applies it. A row that does not count leaves nothing behind
//   restore    a session that was kept names the records of its codes. They are read, or trained
//              again over the same rows, before its next row
//   device     where KV lies in a GPU's memory, an index goes to it at its activation
//
//   memory   IndexMemory's
//   thread   the engine's
//   errors   of the disk alone, where KV lies there: the session's KV is lost then
#pragma once

#include "runtime/method/index_jobs.h"
#include "runtime/method/step_parts.h"
#include "runtime/step/batch.h"

namespace tarn::method {

// A session's index in few words: read back, or made again from its KV, it chooses as it did.
struct KeptIndex {
  KeptLife life{};
  u32 turn_end = 0;  // a turn that the index was not told of yet; 0: none
  store::Key key{};  // owns what was written of the index in use; zeros: nothing was
  friend bool operator==(const KeptIndex& one, const KeptIndex& other) {  // wherever it lies
    return one.life == other.life && one.turn_end == other.turn_end;
  }
};

class Selector {
 public:
  explicit Selector(kv::KvCache* kv) : parts_(kv, &memory_) {}

  // Without it nothing selects.
  void init(const SelectorArgs& args);
  void close() { memory_.args = {}; }
  bool is_on() const { return memory_.args.config != nullptr; }
  StepParts& parts() { return parts_; }
  std::span<std::byte> extents_memory() const { return memory_.extents_memory(); }

  // Forgets the index of a session that begins anew, is cut, or becomes the copy of another one.
  // Its records go with it, unless a manifest names them.
  void forget(u32 session);
  void truncate(u32 session, u32 n_tokens);
  void copy(u32 from, u32 to, const kv::Sequence& sequence);
  // Returns the owner of the records of the session's index; zeros: there is none. From
  // note_named() on the manifest names that owner: records of the one before go, unless they are in
  // use.
  store::Key codebooks_key(u32 session) const;
  void note_named(u32 session, const store::Key& key);
  // Makes the records the last that an eviction takes.
  void touch_codebooks(u32 session) { saved_.touch(codebooks_key(session)); }

  // Returns what a session's choices depend on beside its KV.
  KeptIndex kept(u32 session) const;
  // Returns whether there is an index, or one that is being made.
  bool has_index(u32 session) const;
  // Gives it to a session of n_tokens, of which n_slots are in the KV. Its index is read back or
  // made again in idle steps, or when its next row asks for it. False, and the index is forgotten,
  // where `kept` is no life under this configuration.
  bool restore(u32 session, const kv::Sequence& sequence, const KeptIndex& kept, u32 n_slots,
               u32 n_tokens);

  // Ends a turn: the session's n_tokens are all in the KV, and its first token is about to be
  // sampled. Triggers what is due, and clusters nothing yet.
  void end_turn(u32 session, const kv::Sequence& sequence, u32 n_tokens);
  // Begins a step, for which these sessions are ready; none has begun its row. A session that is
  // not ready for two steps has stopped.
  void begin_step(std::span<const step::Ready> ready);
  // Before a row of a generated token, its session's n_tokens-th. Does a unit of the work that the
  // row needs, little or none where `beside_prompt`. True: there is more, and the row waits for
  // another step; until begin_row() the session may end, be cut or go on otherwise. With a device
  // it is false.
  Result<bool> make_index(u32 session, u32 n_tokens, bool beside_prompt);
  // Begins that row. True: it selects. With a device, which drops no rows, work that is due is done
  // here, and counts at once; the rest is left to work_beside().
  Result<bool> begin_row(u32 session, const kv::Sequence& sequence, u32 n_tokens,
                         bool beside_prompt);
  // Makes the row of this step count, if there is one.
  void commit(u32 session);
  // Returns whether a session has a unit to work on. Work fails where a device is lost; an error of
  // the disk is the next row's.
  bool has_work() const { return is_on() && next_to_work() != nullptr; }
  Result<void> work();
  // With a device, while it computes a step: the work that the step's rows left; without any, a
  // unit of any session's.
  bool has_units_due() const;
  Result<void> work_beside();

  StepParts::Spent take_spent();
  // For tests.
  const Reader& reader(u32 session, u32 head) const {
    return *memory_.session(session).heads[head];
  }

 private:
  IndexSession* next_to_work() const;
  void propose(IndexSession& s, u32 n_tokens);
  void truncate_heads(IndexSession& s);
  Result<void> send_index(IndexSession& s);

  IndexMemory memory_{};
  const SelectorArgs& args_ = memory_.args;
  SavedIndexes saved_{&memory_};
  IndexJobs jobs_{&memory_, &saved_};
  StepParts parts_;
};

}  // namespace tarn::method
