// One conversation: its tokens, its KV, and the generation that runs on it, if any.
//
//   idle         nothing to do; the last token, fed or sampled, is not in the KV yet
//   computing    fed tokens are being put into the KV, all but the last: its row runs when its
//                logits are wanted, so that they never have to be computed again
//   generating   the same, and the last row's logits are sampled
//
// A session that computes or generates waits for a run slot first (admission.h). One without a run
// slot keeps its KV until another needs the room; its tokens stay in any case.
//
//   thread       the engine's, but for `cancel` and the reader's end of `events`
//
// Invariant: KV slots <= n_ids; with a run slot, KV slots are reserved for all n_ids tokens.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <span>

#include "platform/log/log.h"
#include "runtime/control/control.h"
#include "runtime/engine/sessions/generation.h"
#include "runtime/kv/sequence.h"
#include "runtime/reuse/blend/chunks.h"
#include "runtime/reuse/saved_as.h"
#include "runtime/step/batch.h"

namespace tarn::engine {

// Which tokens of a session were fed, and which generated: inputs and answers in turn. An input's
// last row reads everything, and a turn's end may make an index: tokens and turns alone decide it.
// When full, the oldest answer is forgotten: a cut that far back finds one input there.
class Turns {
 public:
  static constexpr u32 kAnswersMax = 32;

  // Tokens up to the last one that was fed; what follows was generated.
  u32 n_fed() const { return n_fed_; }
  // Returns where what was fed since a token was generated begins.
  u32 input_begin() const { return n_answers_ == 0 ? 0 : answers_[n_answers_ - 1].end; }

  using Answer = reuse::ManifestAnswer;
  // Returns the last ones with an input behind them, in order.
  std::span<const Answer> answers() const { return std::span(answers_).first(n_answers_); }
  // Restores what a kept session had.
  void restore(u32 n_fed, std::span<const Answer> answers) {
    n_fed_ = n_fed;
    n_answers_ = 0;
    for (const Answer& answer : answers) add(answer);
  }

  // n tokens more, behind the n_ids that the session has.
  void feed(u32 n_ids, u32 n) {
    if (n == 0) return;
    if (n_ids != n_fed_) add({.begin = n_fed_, .end = n_ids});
    n_fed_ = n_ids + n;
  }
  // Keeps the first n_ids tokens only.
  void truncate(u32 n_ids) {
    n_fed_ = std::min(n_fed_, n_ids);
    for (; n_answers_ > 0 && n_ids <= answers_[n_answers_ - 1].end; --n_answers_) {
      n_fed_ = std::min(n_ids, answers_[n_answers_ - 1].begin);
    }
  }
  // Makes all of its n_ids tokens one input.
  void start_over(u32 n_ids) {
    n_fed_ = n_ids;
    n_answers_ = 0;
  }

 private:
  void add(const Answer& answer) {
    if (n_answers_ == kAnswersMax) {
      std::copy(answers_.begin() + 1, answers_.end(), answers_.begin());
      --n_answers_;
    }
    answers_[n_answers_++] = answer;
  }

  u32 n_fed_ = 0;
  u32 n_answers_ = 0;  // with an input behind them
  std::array<Answer, kAnswersMax> answers_{};
};

struct Tokens {
  std::span<u32> ids{};  // [slots_max], lent by the engine
  u32 n_ids = 0;
  step::GeneratedMarks generated{};  // of the ids; lent by the engine
  Turns turns{};
  u32 turn_begin = 0;  // where the last input begins
  u32 n_settled = 0;   // tokens that a cancelled prefill leaves: those of before it was fed
  u32 n_chat_ids = 0;  // of the conversation that was fed last
  bool has_told_of_chat = false;  // that such a one was not the beginning of the next

  void reset() { *this = {.ids = ids, .generated = generated}; }
  // Copies the source; the memory holds the source's ids and marks afterwards.
  void copy_from(const Tokens& source) {
    Tokens copy = source;
    copy.ids = ids;
    copy.generated = generated;
    copy.n_settled = 0;
    std::copy_n(source.ids.begin(), source.n_ids, copy.ids.begin());
    copy.generated.copy(source.generated, source.n_ids);
    *this = copy;
  }
  // Tokens beyond the first n are gone.
  void truncate(u32 n) {
    n_ids = n;
    turns.truncate(n);
    turn_begin = std::min(turn_begin, n);
    n_settled = std::min(n_settled, n);
    n_chat_ids = std::min(n_chat_ids, n);
  }
};

enum class SessionState : u8 { free, idle, computing, generating };

// Every row's logits, for evaluation: row `position` predicts what follows tokens 0..position.
using LogitsFn = void (*)(void* context, u32 position, std::span<const f32> logits);

// Why what was fed last is not computed, or a generation ended: an event has no room for it. The
// tokens stay, for what comes next.
struct LastError {
  Status status = Status::ok;
  Reason reason = Reason::none;
  const char* hint = "";
  std::array<Figure, 4> figures{};
  Result<void> as_result() const {
    if (status == Status::ok) return {};
    const bool is_full = status == Status::would_block;
    return fail({.status = is_full ? Status::invalid_request : status,
                 .reason = reason,
                 .hint = hint,
                 .figures = figures});
  }
};

constexpr u32 kNoSlot = ~u32{0};

// The session's tenant and priority. Sessions of one tenant have the same root.
struct Client {
  step::Priority priority = step::Priority::interactive;
  u32 tenant_idx = 0;  // of the tenants that have open sessions
  store::Key root{};   // of its pages' keys: only sessions of one tenant share them
};

// Whether it runs, and its turn until it does (admission.h).
struct RunSlot {
  bool is_admitted = false;  // steps give it rows
  u64 order = 0;             // of arrival among those that wait for a run slot
  u32 n_overtaken = 0;       // by later ones
  u64 used_at = 0;           // when it was last admitted, in admissions
  u64 admitted_ns = 0;       // and by the clock
  u32 n_evicted = 0;         // KV slots that it had when others needed the room

  void reset(u64 now) { *this = {.used_at = now}; }
  // Makes the copy wait for a run slot of its own; its KV was the source's.
  void copy_from(const RunSlot& source) { n_evicted = source.n_evicted; }
  void truncate(u32 n_slots) { n_evicted = std::min(n_evicted, n_slots); }
  void leave() {
    is_admitted = false;
    order = n_overtaken = 0;
  }
};

// KV that others had computed, and the part of it that is read from the disk.
struct Loading {
  u32 n_taken = 0;                // slots up to here hold KV that others have computed, in part
  u32 n_from_disk_max = kNoSlot;  // tokens of KV on the disk that it may take now
  u64 decided_order = 0;          // when it was decided, once for what was fed up to
  u32 decided_fed = 0;            // this token
  control::Decision decision{};   // of its last input

  void reset() { *this = {}; }
  void truncate(u32 n_slots) { n_taken = std::min(n_taken, n_slots); }
};

// KV that does not follow from the tokens: of chunks, and of rows that select.
struct Approximate {
  // The first slot whose KV was placed, or computed by a row that selects: the pages from there on
  // have names that no other session can ask for.
  u32 first_slot = kNoSlot;
  u32 blended_end = 0;                // KV of chunks was placed up to here
  reuse::Chunks chunks{};             // of its tokens
  control::ChunkDecision decision{};  // of its last input's chunks

  void reset() { *this = {}; }
  void copy_from(const Approximate& source) {
    *this = source;
    decision = {};
  }
  // KV behind the first n_slots is gone; whether chunks' was among it.
  bool truncate(u32 n_slots) {
    if (n_slots <= first_slot) first_slot = kNoSlot;
    const bool has_cut_chunks = n_slots < blended_end;
    blended_end = std::min(blended_end, n_slots);
    return has_cut_chunks;
  }
  bool is_any() const { return first_slot != kNoSlot; }
};

// Takes every row's logits, for evaluation; without fn none are taken.
struct LogitsWatch {
  LogitsFn fn = nullptr;
  void* context = nullptr;
};

struct Session {
  u32 idx = 0;  // of the engine's sessions
  SessionState state = SessionState::free;
  std::atomic<bool> cancel{false};
  Client client{};
  kv::Sequence sequence{};
  Tokens tokens{};
  RunSlot run{};
  Loading load{};
  Approximate approx{};
  reuse::SavedAs saved{};  // in the store
  Generation generation{};
  LastError last_error{};
  LogitsWatch watch{};

  // Tokens that are not in the KV yet, and those of them that can go there without a generation.
  u32 n_pending() const { return tokens.n_ids - sequence.n_slots(); }
  u32 n_computable() const {
    return watch.fn != nullptr || n_pending() == 0 ? n_pending() : n_pending() - 1;
  }
  bool is_busy() const {
    return state == SessionState::computing || state == SessionState::generating;
  }
  bool has_begun() const { return state == SessionState::generating && generation.n_generated > 0; }
  bool is_admitted() const { return run.is_admitted; }
  bool waits() const { return is_busy() && !run.is_admitted; }
  // Returns the chunks whose KV comes next, or after some rows; where every row's logits are
  // wanted, none.
  std::span<const reuse::Chunk> chunks_ahead() const {
    if (watch.fn != nullptr) return {};
    return approx.chunks.behind(sequence.n_slots());
  }
  // Rows that it could put into a step now.
  u32 n_ready_rows(const GenerationScratch& scratch) const {
    if (!run.is_admitted) return 0;
    if (state == SessionState::computing) return n_computable();
    if (state != SessionState::generating) return 0;
    return generation.has_room(scratch) ? n_pending() : 0;
  }
  // Returns whether a cancel can be carried out now: a generation's end has to find room.
  bool can_cancel(const GenerationScratch& scratch) const {
    if (state == SessionState::computing) return true;
    return state == SessionState::generating && generation.has_room(scratch);
  }
  // Returns when its answer ends, begun or not; 0: never, or there is no room to tell the end.
  u64 deadline_ns(const GenerationScratch& scratch) const {
    if (state != SessionState::generating || generation.deadline_ns == 0) return 0;
    return generation.has_room(scratch) ? generation.deadline_ns : 0;
  }
  // Ends a cancelled session. Of what was fed last, tokens stay that were computed before this
  // step.
  void end_cancelled(Finish reason, const GenerationScratch& scratch);
  void finish(Finish reason, const Error* error, const GenerationScratch& scratch);
  // Ends what it does, with this error.
  void give_up(const Error& error, const Log& log, const GenerationScratch& scratch);
  void rest() {
    state = SessionState::idle;
    run.leave();
  }
  // Makes the session idle where all of its input is computed.
  void end_input() {
    if (state != SessionState::computing || n_computable() > 0) return;
    rest();
    if (!saved.restored || saved.restored->is_cut_off) saved.stopped_at = reuse::StoppedAt::input;
  }
  // KV was cut: approximate KV may be gone with it.
  void note_cut() {
    load.truncate(sequence.n_slots());
    if (approx.truncate(sequence.n_slots())) generation.reused.forget_blended();
  }
  // Tokens beyond the first n are gone; their KV is gone already.
  void cut_tokens(u32 n) {
    tokens.truncate(n);
    approx.chunks.truncate(n);
  }

  // Makes it an idle session without tokens; `now` in admissions. Its client and name are the
  // caller's.
  void reset(const text::Tokenizer& tokenizer, u64 now);
  // Takes the source's tokens, client and error; the caller copies KV and index.
  void copy_from(const Session& source);
  // Keeps the first n tokens, as if no more had been fed; its KV is the caller's.
  void truncate(u32 n);
};

// Returns whether `a` comes first: an answer that has begun before others, interactive work before
// background work.
bool comes_before(const Session& a, const Session& b);

}  // namespace tarn::engine
