// Who runs. A session that has something to do waits for a place. At most running_max sessions have
// one, and who has one has KV slots for all of its tokens.
//
//   order    that of step::next_admitted() (step/admission.h); an answer that has begun and lost
//            its place comes first
//   waiting  who waits takes what is there of its prompt while the KV of all before it has room:
//            nobody evicts it meanwhile. What of that lies on the disk is read while memory has
//            room (control/look_ahead.h)
//   pauses   a background session, where an interactive one gets its place
//   no end   where nobody runs and what holds the room stays, who waits ends with the reason
//   thread   the engine's
#pragma once

#include "runtime/engine/session_table.h"
#include "runtime/step/admission.h"

namespace tarn::engine {

class Places : public SessionTable {
 protected:
  void init_places(std::span<step::ShareRing::Account> shares, std::span<step::Waiting> waiting,
                   std::span<u32> n_running);
  // would_block where too many wait already, its tenant's among them; the figures say when to try
  // again.
  Result<void> check_queue(const Session& session) const;
  // Of a session that may have something new to do, or less.
  void wait_for_place(Session& session);
  // Gives out places while there are any, and looks ahead.
  void admit();
  // Those whose KV is read ahead, in the order of their turns. They may have ended since.
  std::span<const step::Waiting> looked_ahead() const { return waiting_.first(n_ahead_); }

  step::Shares shares_{};  // of tenants
  step::RunSlotTime place_time_{};
  u64 n_given_ = 0;  // places

 private:
  Session* next_waiting();
  void note_shared_prefixes(std::span<step::Waiting> waiting);
  void note_overtaken(const Session& placed);
  u64 state_of_room() const;
  bool start(Session& session);
  bool give_places();
  void look_ahead();
  void pause_background(const Session& placed);

  u64 n_asked_ = 0;     // times that a session asked for a place
  u64 blocked_at_ = 0;  // the state of the room when somebody found none
  u32 n_waiting_ = 0, n_ahead_ = 0;
  std::span<step::Waiting> waiting_{};  // [sessions_max]
  std::span<u32> n_running_{};          // [sessions_max], by tenant
};

}  // namespace tarn::engine
