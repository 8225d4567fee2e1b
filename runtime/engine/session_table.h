// The sessions of an engine and what they share, and what becomes of the KV of one: it is taken
// from others' pages, committed, cut, lost, and given up where somebody else needs the room.
//
//   room     KV of sessions without a place is given up for one that needs room: of idle ones, the
//            longest unused first; for one that has something to do, of those that wait, the last
//            one first; last, of background ones that run, for an interactive one. Tokens stay.
//            What of the pages is still there, in memory or on the disk, is taken again, and the
//            rest is computed again with equal bits (recomputation: vLLM, arXiv:2309.06180,
//            section 4.5)
//   stays    KV that does not follow from its tokens (selection), and KV whose rows are watched
//   thread   the engine's
//   memory   the engine's regions, lent from open() to close()
#pragma once

#include <span>

#include "platform/clock/clock.h"
#include "platform/log/log.h"
#include "runtime/control/controller.h"
#include "runtime/engine/session.h"
#include "runtime/kv/parts/whole_parts.h"
#include "runtime/method/selector.h"
#include "runtime/model/embedding_file.h"
#include "runtime/plan/plan.h"
#include "runtime/reuse/archive.h"
#include "runtime/reuse/blend/blend.h"
#include "runtime/text/tokenizer.h"

namespace tarn::engine {

// An answer that has begun comes before others, interactive work before background work.
bool comes_before(const Session& a, const Session& b);

// A base of Engine, which opens and places its parts.
class SessionTable {
 protected:
  bool any_runs() const;
  u32 tenant_idx_of(const Session& session) const;
  // The next n_rows slots are in the KV.
  void commit(Session& session, u32 n_rows);
  // Ends what the session does, with this error.
  void give_up(Session& session, const Error& error);
  void lose_kv(Session& session);
  void take_prefix(Session& session, u32 n_ids);
  // Whether its KV on the disk is read, or computed anew.
  void decide_loading(Session& session);
  void probe_disk(Session& session, u32 n_ids);
  // How much of chunks is computed anew: parts of ids that begin at token `begin` of the session.
  void decide_share(Session& session, std::span<const reuse::ChunkSpan> chunks,
                    std::span<const u32> ids, u32 begin);
  void cut_taken(Session& session, u32 n_slots);
  Result<void> cut(Session& session, u32 n_slots);
  // Idle sessions release slots that they reserved for tokens which a cancel took back.
  void release_slots();
  // The blend is nobody's any more whose session does not go on with it.
  void check_blend();
  // Whether its next rows are of the blend.
  bool blends(const Session& session) const;
  // Of a chunk that is blended into its prompt KV could not be read.
  void lose_chunk(Session& session, const Error& error);
  // The next slots of its blend are in the KV.
  void commit_blended(Session& session, u32 n_slots);
  // Whether it has to have the blend, and somebody else has it.
  bool waits_for_blend(const Session& session) const;
  // Slots for all of its tokens, and the blend of its chunks. False: what holds the room stays.
  bool make_room(Session& session);
  // Somebody gives KV up for this session. False: what holds the room stays.
  bool take_room(const Session& needs);
  // fn(), which returns Result<void>, again while it finds no room and somebody gives KV up.
  template <class Fn>
  Result<void> with_room(const Session& needs, Fn&& fn) {
    for (;;) {
      const Result<void> done = fn();
      const bool is_full = !done && done.error().status == Status::would_block;
      if (!is_full || !take_room(needs)) return done;
    }
  }
  bool reserve(Session& session);
  Session* room_holder(const Session& needs);
  bool can_park(const Session& session) const;
  void park(Session& session);

  Clock* clock_ = nullptr;
  Log log_{};
  plan::Plan plan_{};
  model::LoadedModel model_{};
  text::Encoder text_{};
  SelectConfig select_config_{};
  store::Key selection_key_{};    // of select_config_ and the type of KV
  reuse::KvIdentity identity_{};  // of the default tenant
  kv::KvCache kv_{};
  reuse::Archive archive_{};  // off where the plan keeps no sessions
  kv::WholeParts whole_parts_{&kv_};
  method::Selector selector_{&kv_};
  reuse::Blend blend_{};
  control::Controller controller_{};
  f32 least_share_ = 1;  // of chunks, computed anew where a call leaves it to the engine
  std::span<Session> sessions_{};
  GenerationScratch scratch_{};
};

}  // namespace tarn::engine
