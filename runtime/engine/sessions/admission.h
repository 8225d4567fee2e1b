// Decides which sessions run. A session that has something to do asks for a run slot; give() hands
// them out, twice in a step. running_max sessions have one, a tenant of which none runs may have
// one beyond them, and so may an interactive answer that goes on. Each has KV slots for all of its
// tokens.
//
//   order    that of step::next_admitted() (step/admission.h); an answer that has begun and lost
//            its run slot comes first
//   waiting  a session that waits takes what is there of its prompt while the KV of all before it
//            has room: no other evicts it meanwhile. The part on the disk is read while
//            memory has room (control/look_ahead.h)
//   pauses   a background session, where an interactive one gets its run slot
//   no end   where no session runs and what holds the room stays, the one that waits ends with the
//            reason
//   thread   the engine's
#pragma once

#include "runtime/engine/sessions/load_control.h"
#include "runtime/step/admission.h"

namespace tarn::engine {

class Admission {
 public:
  struct Memory {
    std::span<step::ShareRing::Account> shares;
    std::span<step::Waiting> waiting;  // [sessions_max]
    std::span<u32> n_running;          // [sessions_max], by tenant
  };

  Admission(const Opened& opened, SessionKv& kv, LoadControl& loads)
      : o_(opened), kv_(kv), loads_(loads) {}
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;
  void init(const Memory& memory);

  // would_block where too many wait already, sessions of its tenant among them; the figures say
  // when to try again.
  Result<void> check_queue(const Session& session) const;
  // Notes that the session may have something new to do, or less: give() sees to it.
  void ask(Session& session);
  // Notes that a session has left: another may run.
  void note_left() { ++n_asked_; }
  // Returns whether a session asked, or left, since the last give().
  bool has_news() const { return n_asked_ != n_seen_; }
  // Gives out run slots while there are any, and looks ahead.
  void give();
  // Sessions whose KV is read ahead, in the order of their turns. They may have ended since.
  std::span<const step::Waiting> looked_ahead() const { return waiting_.first(n_ahead_); }
  bool any_runs() const;
  // Notes the end of an answer, and how long its session had a run slot.
  void note_end(const Session& session);

  // Returns a time stamp of the use of run slots, and the next one.
  u64 now() const { return n_given_; }
  u64 next() { return ++n_given_; }
  step::Shares& shares() { return shares_; }  // of tenants

 private:
  Session* next_waiting();
  void note_shared_prefixes(std::span<step::Waiting> waiting);
  void note_overtaken(const Session& admitted);
  u32 n_running() const;
  u64 state_of_room() const;
  bool start(Session& session);
  bool give_slots();
  void look_ahead();
  void pause_background(const Session& admitted);

  const Opened& o_;
  SessionKv& kv_;
  LoadControl& loads_;
  step::Shares shares_{};
  step::RunSlotTime slot_time_{};
  u64 n_given_ = 0;     // run slots
  u64 n_asked_ = 0;     // times that a session asked, or left
  u64 n_seen_ = 0;      // of them, at the last give()
  u64 blocked_at_ = 0;  // the state of the room when a session found none
  u32 n_waiting_ = 0, n_ahead_ = 0;
  std::span<step::Waiting> waiting_{};
  std::span<u32> n_running_of_{};
};

}  // namespace tarn::engine
