// Reading by selection (DESIGN section 8): which rows do, and by what index. The rows of generated
// tokens select, one of a session at a time; those of a prefill, the last one included, attend to
// everything, as in PQCache (METHODS 3.1).
//
//   session    a life (IndexLife), and an index of every (cache layer, KV head). What is chosen
//              follows from tokens, the turns' borders, configuration and seed; no timing is in it
//   job        what a trigger asks for (IndexJobs). A step of its session does as many units as
//              bring the job to its end in time; beside another's prompt, whose first token waits,
//              none before that is the only way. A step without rows does one
//   proposal   what a row makes of its session's life: begin_row() works on a copy, commit()
//              applies it. A row that does not count leaves nothing behind
//   restore    a session that was kept brings a name for its codebooks. They are read, or trained
//              again over the same rows, before its next row
//   device     where KV lies in a GPU's memory, an index goes to it at its activation. The host's
//              copy ends with the rows that were clustered. A step's part of a job is done while
//              the GPU computes the step: work_beside()
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
  explicit Selector(kv::KvCache* kv) : parts_(kv, &memory_, &order_) {}

  // Without it nothing selects.
  void init(const SelectorArgs& args);
  void close() { memory_.args = {}; }
  bool is_on() const { return memory_.args.config != nullptr; }
  StepParts& parts() { return parts_; }
  std::span<std::byte> extents_memory() const { return memory_.extents_memory(); }

  // A session begins anew, is cut, or becomes the copy of another one. What lies on disk of an
  // index goes with it, unless it is what a manifest names.
  void forget(u32 session);
  void truncate(u32 session, u32 n_tokens);
  void copy(u32 from, u32 to, const kv::Sequence& sequence);
  // What owns the records of the session's index; zeros: nothing does. Its manifest names this
  // owner's from now on, or none: what the one before named goes where it is not in use.
  store::Key codebooks_key(u32 session) const;
  void note_named(u32 session, const store::Key& key);
  // They are wanted now, of all that may give way.
  void touch_codebooks(u32 session) { saved_.touch(codebooks_key(session)); }

  // What a session's choices depend on beside its KV, and a session that is told it: of n_tokens,
  // n_slots are in the KV. Its index is read back or made again, in idle steps or when its next row
  // wants it. False, and it is forgotten, where that is no life under this configuration.
  KeptIndex kept(u32 session) const;
  // Whether there is anything to tell: an index, or one that is being made.
  bool has_index(u32 session) const;
  bool restore(u32 session, const kv::Sequence& sequence, const KeptIndex& kept, u32 n_slots,
               u32 n_tokens);

  // The session's n_tokens are all in the KV, and its first token is about to be sampled: what an
  // index is made from where one is due. Clusters nothing yet.
  void end_turn(u32 session, const kv::Sequence& sequence, u32 n_tokens);
  // A step begins, for which these sessions are ready; none has begun its row. A session that is
  // not ready for two steps has stopped.
  void begin_step(std::span<const step::Ready> ready);
  // The session's next row is that of a generated token, its n_tokens-th, alone in its run; all
  // before it are in the KV. Does a unit of what has to be done before that row, if any: little or
  // none where `beside_prompt`. Whether there is more, so that the row waits for another step;
  // until begin_row() the session may end, be cut or go on otherwise. With a device there never is.
  Result<bool> make_index(u32 session, u32 n_tokens, bool beside_prompt);
  // Behind that the row begins. Whether it selects. With a device, which drops no rows, what is due
  // is waited for, and counts at once; the rest is left to work_beside().
  Result<bool> begin_row(u32 session, const kv::Sequence& sequence, u32 n_tokens,
                         bool beside_prompt);
  // The row that begin_row() has begun in this step counts, if it has begun one.
  void commit(u32 session);
  // Some of any session's. Fails where a device is lost; what the disk fails is told by the next
  // row.
  bool has_work() const;
  Result<void> work();
  // With a device, while it computes a step: what the step's rows left to it; where that is
  // nothing, and nobody may wait for a first token then, some of any session's.
  bool has_units_due() const;
  Result<void> work_beside();

  StepParts::Spent take_spent();
  // Of a session in use, for tests.
  const PqIndex& pq_index(u32 session, u32 head) const;

 private:
  void propose(IndexSession& s, u32 n_tokens);
  void truncate_heads(IndexSession& s);
  Result<void> send_index(IndexSession& s);

  IndexMemory memory_{};
  const SelectorArgs& args_ = memory_.args;
  PqOrder order_{&memory_};
  SavedIndexes saved_{&memory_, &order_};
  IndexJobs jobs_{&memory_, &order_, &saved_};
  StepParts parts_;
};

}  // namespace tarn::method
