// Sessions and steps. How an engine is built is in engine_open.cpp.
#include "runtime/engine/engine.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "platform/base/assert.h"

namespace tarn::engine {
namespace {

Unexpected refused(const char* hint, Figure a = {}, Figure b = {}) {
  return fail({.status = Status::invalid_request, .hint = hint, .figures = {{a, b}}});
}

constexpr u64 kIdleWaitNs = 1'000'000;  // for the disk, where a step has no rows

// Adds the time and the traffic of one run of a segment to its trace.
class SegmentTimer {
 public:
  SegmentTimer(StepTrace& trace, SegmentKind kind, Clock& clock)
      : segment_(trace.segments[static_cast<u64>(kind)]), clock_(clock), start_ns_(clock.now_ns()) {
    if (segment_.n_runs++ == 0) segment_.start_ns = start_ns_;
  }
  ~SegmentTimer() { segment_.busy_ns += clock_.now_ns() - start_ns_; }
  SegmentTimer(const SegmentTimer&) = delete;
  SegmentTimer& operator=(const SegmentTimer&) = delete;
  void add(const Backend::Traffic& traffic) {
    segment_.weight_bytes += traffic.weight_bytes;
    segment_.kv_bytes += traffic.kv_bytes;
  }

 private:
  SegmentTrace& segment_;
  Clock& clock_;
  u64 start_ns_;
};

}  // namespace

const char* segment_name(SegmentKind kind) {
  switch (kind) {
    case SegmentKind::layers:
      return "layers";
    case SegmentKind::logits:
      return "logits";
    case SegmentKind::sample:
      return "sample";
    case SegmentKind::select:
      return "select";
    case SegmentKind::gather:
      return "gather";
    case SegmentKind::attend:
      return "attend";
    case SegmentKind::cluster:
      return "cluster";
    case SegmentKind::cluster_beside:
      return "cluster_beside";
    case SegmentKind::count:
      break;
  }
  return "none";
}

Engine::~Engine() { close(); }

// ---- Sessions -------------------------------------------------------------------------------

Result<SessionIdx> Engine::create_session() {
  for (SessionIdx idx = 0; idx < n_session_slots_; ++idx) {
    Session& s = session(idx);
    if (s.state != SessionState::free) continue;
    s.state = SessionState::idle;
    s.n_ids = 0;
    s.turns.start_over(0);
    s.turn_begin = 0;
    s.n_settled = 0;
    s.given_up = {};
    s.fed_ns = 0;
    s.cancel.store(false);
    s.events.clear();
    s.on_logits = nullptr;
    forget_name(s);
    s.ended = Ended::nothing;
    s.refused_ns = 0;
    s.taken_up.reset();
    s.lossy_from = Session::kExact;
    selector_.forget(idx);
    return idx;
  }
  return fail({.status = Status::would_block,
               .hint = "all sessions are in use: destroy one, or raise engine.sessions_max",
               .figures = {{{"sessions_max", n_session_slots_}}}});
}

void Engine::destroy_session(SessionIdx idx) {
  Session& s = session(idx);
  TARN_ASSERT(s.state != SessionState::free);
  publish_last(s);
  drop_save(s);
  forget_name(s);
  s.sequence.clear();
  selector_.forget(idx);
  s.n_ids = 0;
  s.state = SessionState::free;
}

Result<void> Engine::check_ids(std::span<const u32> ids) const {
  for (const u32 id : ids) {
    if (id < spec_.n_vocab) continue;
    return refused("a token is not in the vocabulary", {"token", id}, {"n_vocab", spec_.n_vocab});
  }
  return {};
}

Unexpected Engine::no_places(u64 n_tokens) const {
  return fail({.status = Status::would_block,
               .hint = "other sessions hold the KV now: end or truncate one, or raise -c "
                       "(kv.context_tokens)",
               .figures = {{{"tokens", n_tokens}, {"groups_free", pool_.groups_free()}}}});
}

Result<void> Engine::feed(SessionIdx idx, std::span<const u32> ids) {
  Session& s = session(idx);
  if (s.state == SessionState::generating) {
    return refused("the session is generating: wait for its end, or cancel it");
  }
  const u64 room_tokens = plan_.context_tokens - s.n_ids;
  if (ids.size() > room_tokens) {  // before the ids are read: a wrong count leads out of them
    return refused(
        "the session would be longer than the context: shorten the text, or raise -c "
        "(kv.context_tokens)",
        {"tokens", ids.size()}, {"room", room_tokens});
  }
  TARN_CHECK(check_ids(ids));
  if (s.state == SessionState::idle) TARN_CHECK(redo_answer(idx));
  if (!find_places(s) || !s.sequence.reserve(static_cast<u32>(ids.size()))) {
    return no_places(ids.size());
  }
  s.given_up = {};
  if (s.state == SessionState::idle) {
    s.cancel.store(false);  // one that came too late for what it meant
    s.n_settled = s.n_ids;
    s.turn_begin = s.n_ids;
  }
  std::copy(ids.begin(), ids.end(), s.ids.begin() + s.n_ids);
  s.turns.feed(s.n_ids, static_cast<u32>(ids.size()));
  s.n_ids += static_cast<u32>(ids.size());
  ask_more(s);
  s.state = s.n_computable() > 0 ? SessionState::computing : SessionState::idle;
  if (s.fed_ns == 0) s.fed_ns = clock_->now_ns();
  return {};
}

Result<void> Engine::generate(SessionIdx idx, const GenerateParams& params) {
  Session& s = session(idx);
  if (s.state == SessionState::generating) return refused("the session is generating already");
  if (s.n_ids == 0) return refused("nothing was fed: feed at least one token (BOS, say) first");
  TARN_CHECK(validate(params.sampler, spec_.n_vocab));
  TARN_CHECK(check_ids(params.forced));
  TARN_CHECK(s.text.reset(params.stops));
  if (!find_places(s)) return no_places(s.n_pending());
  if (s.n_pending() == 0) {  // a cut behind a computed token: its logits are wanted again
    TARN_CHECK(cut(s, s.n_ids - 1));
    if (!s.sequence.reserve(s.n_pending())) {
      return fail({.status = Status::would_block,
                   .hint = "no KV group is free to redo the last token: end another session"});
    }
  }
  s.sampler = params.sampler;
  s.max_tokens = params.max_tokens;
  s.ignore_end = params.ignore_end;
  s.forced = params.forced;
  s.n_generated = 0;
  s.first_draw = params.first_draw;
  s.detokenizer = text::Detokenizer(tokenizer_, /*at_start=*/false);
  s.first_token_ns = 0;
  s.last_token_ns = 0;
  s.kv_reads = {};
  if (s.fed_ns == 0) s.fed_ns = clock_->now_ns();
  if (s.state == SessionState::idle) s.n_settled = s.n_ids;
  s.cancel.store(false);
  s.events.clear();
  s.given_up = {};  // computed after all, or an event says why not
  ask_more(s);
  s.state = SessionState::generating;
  return {};
}

Result<void> Engine::truncate(SessionIdx idx, u32 n_tokens) {
  Session& s = session(idx);
  if (s.state == SessionState::generating) {
    return refused("the session is generating: wait for its end, or cancel it");
  }
  if (n_tokens > s.n_ids) {
    return refused("the session has fewer tokens than that", {"asked", n_tokens},
                   {"tokens", s.n_ids});
  }
  s.sequence.abandon();
  drop_save(s);
  if (n_tokens < s.sequence.n_slots()) {
    const Result<void> is_cut = cut(s, n_tokens);
    if (!is_cut) {  // its KV may be lost, and others hold what was its
      if (!find_places(s)) s.state = SessionState::idle;
      return is_cut;
    }
  }
  selector_.truncate(idx, n_tokens);
  s.n_ids = n_tokens;
  s.turns.truncate(n_tokens);
  s.n_settled = n_tokens;
  s.turn_begin = std::min(s.turn_begin, n_tokens);
  s.n_published = std::min(s.n_published, n_tokens);
  ask_more(s);
  s.given_up = {};
  const bool computes = find_places(s) && s.n_computable() > 0;
  s.state = computes ? SessionState::computing : SessionState::idle;
  return {};
}

Result<SessionIdx> Engine::fork(SessionIdx idx) {
  Session& source = session(idx);
  if (source.state != SessionState::idle) {
    return refused("only an idle session can be forked: wait until it has computed and generated");
  }
  TARN_TRY(const SessionIdx copy_idx, create_session());
  Session& copy = session(copy_idx);
  if (kv_stream_.is_on()) {
    if (const Result<void> room = kv_stream_.prepare_fork(); !room) {
      destroy_session(copy_idx);
      return fail(room.error());
    }
  }
  if (!copy.sequence.fork_from(source.sequence) || !copy.sequence.reserve(source.n_pending())) {
    destroy_session(copy_idx);
    return fail({.status = Status::would_block,
                 .hint = "no KV group is free to copy the tail: end another session"});
  }
  std::copy_n(source.ids.begin(), source.n_ids, copy.ids.begin());
  copy.n_ids = source.n_ids;
  copy.turns = source.turns;
  copy.turn_begin = source.turn_begin;
  copy.lossy_from = source.lossy_from;
  copy.given_up = source.given_up;
  selector_.copy(idx, copy_idx, copy.sequence);
  return copy_idx;
}

void Engine::watch_logits(SessionIdx idx, LogitsFn on_logits, void* context) {
  session(idx).on_logits = on_logits;
  session(idx).logits_context = context;
}

u32 Engine::n_sessions() const {
  return static_cast<u32>(std::count_if(sessions_.begin(), sessions_.end(), [](const Session& s) {
    return s.state != SessionState::free;
  }));
}

// ---- One step -------------------------------------------------------------------------------

// Rows that a session could put into a step now.
u32 Engine::rows_ready(const Session& s) const {
  if (s.state == SessionState::computing) return s.n_computable();
  if (s.state != SessionState::generating) return 0;
  return s.events.has_room(2 * shown_.size()) ? s.n_pending() : 0;
}

bool Engine::has_work() const {
  return !device_lost() &&
         (selector_.has_work() || kv_stream_.is_moving() ||
          std::any_of(sessions_.begin(), sessions_.end(), [this](const Session& s) {
            return rows_ready(s) > 0 || (publishes() && rests_unpublished(s)) ||
                   (s.cancel.load() && can_cancel(s));
          }));
}

void Engine::add_rows(Session& s, u32 n) {
  const bool is_decode = n == 1 && s.n_generated > 0 && s.state == SessionState::generating;
  runs_[n_runs_++] = {.row_begin = batch_.n_rows,
                      .n_rows = n,
                      .sequence = &s.sequence,
                      .session = idx_of(s),
                      .kind = is_decode ? step::RunKind::decode : step::RunKind::prefill};
  const u32 first_slot = s.sequence.n_slots();
  for (u32 i = 0; i < n; ++i) {
    const u32 row = batch_.n_rows++;
    batch_.tokens[row] = s.ids[first_slot + i];
    batch_.positions[row] = first_slot + i;
    batch_.visible[row] = first_slot + i + 1;
    const bool is_last = s.state == SessionState::generating && first_slot + i + 1 == s.n_ids;
    if (is_last || s.on_logits != nullptr) logit_rows_[n_logit_rows_++] = row;
  }
  (is_decode ? trace_.n_decode_rows : trace_.n_prefill_rows) += n;
}

void Engine::drop_rows() {
  n_runs_ = n_logit_rows_ = 0;
  batch_.n_rows = 0;
  batch_.runs = {};
  batch_.logit_rows = {};
  trace_.n_decode_rows = trace_.n_prefill_rows = 0;
}

// Rows of an input go together. A session that was taken up may have tokens that it had generated
// to compute again. Of these the last one goes alone, as it would have: an index may begin with it.
// With those before it none has begun, or all of their KV would have been kept.
u32 Engine::n_rows_at_once(const Session& s) const {
  const u32 n_slots = s.sequence.n_slots(), n_fed = s.turns.n_fed();
  if (!selector_.is_on()) return plan_.rows_max;
  return n_slots < n_fed ? n_fed - n_slots : std::max(s.n_pending() - 1, 1u);
}

// Decode rows first, one each; then slices of what is to be prefilled, in turn.
void Engine::collect_rows() {
  drop_rows();
  for (Session& s : sessions_) {
    if (batch_.n_rows == plan_.rows_max) break;
    if (s.state == SessionState::generating && rows_ready(s) == 1 && !s.is_held) add_rows(s, 1);
  }
  const u32 first = next_session_;
  for (u32 i = 0; i < n_session_slots_; ++i) {
    const u32 idx = (first + i) % n_session_slots_;
    Session& s = session(idx);
    const u32 n_left = plan_.rows_max - batch_.n_rows;
    const u32 n_ready = rows_ready(s);
    if (n_left == 0) break;
    if (n_ready == 0 || (s.state == SessionState::generating && n_ready == 1) || s.is_held)
      continue;
    add_rows(s, std::min({n_ready, n_left, n_rows_at_once(s)}));
    next_session_ = (idx + 1) % n_session_slots_;
  }
  batch_.runs = runs_.first(n_runs_);
  batch_.logit_rows = logit_rows_.first(n_logit_rows_);
  batch_.takes_best = takes_best();
}

// Again, without whose row is not in the step: an answer whose reader has made room meanwhile has
// no index that was made for it.
void Engine::collect_fewer_rows() {
  for (u32 idx = 0; idx < n_session_slots_; ++idx) {
    const auto is_its = [idx](const step::Run& run) { return run.session == idx; };
    if (std::ranges::none_of(batch_.runs, is_its)) session(idx).is_held = true;
  }
  collect_rows();
  if (selector_.is_on()) selector_.change_step(batch_.runs);
}

// Whether nobody in the step wants more of its logits than the best token.
bool Engine::takes_best() const {
  return std::ranges::all_of(batch_.runs, [this](const step::Run& run) {
    const Session& s = sessions_[run.session];
    return s.on_logits == nullptr &&
           (s.state != SessionState::generating || engine::takes_best(s.sampler));
  });
}

// The rows' embeddings, where they are in the file. Nobody's step goes on without them.
void Engine::read_embeddings() {
  if (!embedding_.is_open() || n_runs_ == 0) return;
  const std::span<const u32> tokens(batch_.tokens, batch_.n_rows);
  const Result<void> read = embedding_.read(tokens, embedded_.data, embedded_.stride);
  if (read) return;
  for (const step::Run& run : batch_.runs) give_up(session(run.session), read.error());
  drop_rows();
}

// Whether the run is the row of a token that was generated.
bool Engine::is_generated(const step::Run& run) const {
  const Session& s = sessions_[run.session];
  return s.state == SessionState::generating && s.n_pending() == 1 &&
         s.sequence.n_slots() >= s.turns.n_fed();
}

// Clustering: a layer of what each row must have done before it; a row that wants more waits for
// the next step. Who is cancelled meanwhile hears it at once.
void Engine::make_indexes(u32 next_session) {
  is_put_off_ = false;
  if (!selector_.is_on() || n_runs_ == 0) return;
  SegmentTimer timer(trace_, SegmentKind::cluster, *clock_);
  if (kv_stream_.is_on()) kv_stream_.begin_step();
  selector_.begin_step(batch_.runs);
  for (const step::Run& run : batch_.runs) {
    if (!is_generated(run)) continue;
    selector_.want_row(run.session, session(run.session).sequence.n_slots() + 1);
  }
  may_abandon_ = true;
  for (const step::Run& run : batch_.runs) {
    Session& s = session(run.session);
    if (s.is_dropped || !is_generated(run)) continue;
    const Result<bool> waits = selector_.make_index(run.session, trace_.n_prefill_rows > 0);
    s.is_held = waits && *waits && !s.is_dropped;
    is_put_off_ = is_put_off_ || s.is_held || !waits;
    if (waits) continue;
    TARN_ASSERT(kv_stream_.is_on());
    (void)lose_kv(s);
    if (!s.is_dropped) give_up(s, waits.error());
  }
  may_abandon_ = false;
  for (const Session& s : sessions_) is_put_off_ = is_put_off_ || s.is_dropped;
  settle_dropped();
  if (!is_put_off_) return;
  next_session_ = next_session;
  collect_fewer_rows();
}

// Which rows select; in a step without rows, clustering that nobody waits for yet.
void Engine::prepare_selection() {
  if (!selector_.is_on() || (n_runs_ == 0 && is_put_off_)) return;
  SegmentTimer timer(trace_, SegmentKind::cluster, *clock_);
  if (n_runs_ == 0) {
    const Result<void> worked = selector_.work();
    if (!worked) lose_device(worked.error());
    return;
  }
  for (step::Run& run : runs_.first(n_runs_)) {
    if (!is_generated(run)) continue;
    const Session& s = session(run.session);
    const Result<bool> selects = selector_.begin_row(
        run.session, s.sequence, s.sequence.n_slots() + 1, trace_.n_prefill_rows > 0);
    if (!selects && !kv_stream_.is_on()) return lose_device(selects.error());
    if (!selects) {
      kv_stream_.note_failure(run.session, selects.error());
      continue;
    }
    run.selects = *selects;
    if (run.selects)
      selector_.offloaded_groups(run.session, &run.offloaded_begin, &run.offloaded_end);
  }
}

// The GPU has a step to compute: its part of a clustering meanwhile, once. Beside a prompt only
// what has to be: what takes longer than the GPU keeps a first token waiting.
bool Engine::work_beside() {
  if (plan_.gpu_select.n_rows == 0 || !std::exchange(may_work_beside_, false)) return true;
  SegmentTimer timer(trace_, SegmentKind::cluster_beside, *clock_);
  const Result<void> worked = selector_.work_beside();
  if (!worked) lose_device(worked.error());
  return worked.has_value();
}

void Engine::trace_selection() {
  if (!selector_.is_on()) return;
  const Selector::Spent spent = selector_.take_spent();
  trace_.n_cluster_units = spent.n_units;
  trace_.n_slots_chosen = spent.n_slots;
  trace_.disk.n_far_slots = spent.n_far;
  trace_.disk.n_cached_slots = spent.n_cached;
  if (spent.n_slots == 0) return;
  const auto put = [&](SegmentKind kind, u64 busy_ns, u64 kv_bytes) {
    const SegmentTrace& layers = trace_.segments[static_cast<u64>(SegmentKind::layers)];
    trace_.segments[static_cast<u64>(kind)] = {
        .start_ns = layers.start_ns, .busy_ns = busy_ns, .n_runs = 1, .kv_bytes = kv_bytes};
  };
  put(SegmentKind::select, spent.select_ns, 0);
  put(SegmentKind::gather, spent.gather_ns, spent.kv_bytes);
  put(SegmentKind::attend, spent.attend_ns, 0);
}

// Whether what the step has computed so far may be believed. An error of any kind ends the engine:
// which of the step's results it spoilt cannot be told, and after most of them the context is dead.
bool Engine::device_works() {
  if (!work_beside()) return false;
  Result<void> checked = backend_->finish();
  if (checked && device_ != nullptr && !on_gpu()) checked = device_->check();
  if (!checked) lose_device(checked.error());
  return checked.has_value();
}

void Engine::lose_device(const Error& error) {
  std::array<char, 256> text{};
  format_error(error, text.data(), text.size());
  log_.error("the GPU is lost: %s", text.data());
  device_->give_up();
  device_lost_.store(true, std::memory_order_release);
}

const StepTrace& Engine::step() {
  trace_ = StepTrace{.step_idx = counters_.n_steps, .start_ns = clock_->now_ns()};
  if (device_lost()) return trace_;
  handle_cancels();
  const u32 next_session = next_session_;
  for (Session& s : sessions_) s.is_held = false;
  collect_rows();
  const KvStats moved_before = kv_stats();
  make_indexes(next_session);
  find_frames();
  read_embeddings();
  prepare_selection();
  if (device_lost()) return trace_;
  leave_out_kept_chunks();
  if (kv_stream_.is_on() && n_runs_ > 0) kv_stream_.plan_step(batch_);
  trace_.n_rows = batch_.n_rows;
  trace_.n_sequences = n_runs_;
  trace_.n_logit_rows = n_logit_rows_;
  if (batch_.n_rows > 0) {
    batch_.watch = this;
    const ForwardArgs forward{.backend = backend_,
                              .spec = &spec_,
                              .weights = &weights_,
                              .buffers = &buffers_,
                              .batch = &batch_};
    {
      SegmentTimer timer(trace_, SegmentKind::layers, *clock_);
      may_work_beside_ = trace_.n_prefill_rows == 0 || selector_.has_units_due();
      may_abandon_ = true;
      forward_layers(forward);
      may_abandon_ = false;
      if (!device_works()) return trace_;
      timer.add(backend_->take_traffic());
    }
    trace_.abandoned = backend_->is_abandoned();
    if (!trace_.abandoned && !accept_rows(forward)) return trace_;
    settle_dropped();
    selector_.end_step();
  }
  trace_selection();
  const bool is_idle = trace_.n_rows == 0 && !is_put_off_;
  if (kv_stream_.is_moving()) kv_stream_.pump(is_idle ? kIdleWaitNs : 0);
  tell_store();
  if (kv_stream_.keeps_sessions()) publish();
  trace_disk(moved_before);
  trace_.groups_free = pool_.groups_free();
  trace_.end_ns = clock_->now_ns();
  count_step();
  return trace_;
}

// What the layers left counts. False when the device was lost on the way.
bool Engine::accept_rows(const ForwardArgs& forward) {
  if (n_logit_rows_ == 0) commit_rows();
  if (!run_logits(forward)) return false;
  for (const step::Run& run : batch_.runs) {
    Session& s = session(run.session);
    if (s.state != SessionState::computing || s.n_computable() > 0) continue;
    s.state = SessionState::idle;
    if (!s.taken_up || s.taken_up->is_cut_off) s.ended = Ended::input;
  }
  return true;
}

// False when the device was lost before all were computed. A decode step may be one graph, which
// ends with its first logits: its KV counts from then on.
bool Engine::run_logits(const ForwardArgs& forward) {
  const step::Run* run = batch_.runs.data();
  for (u32 begin = 0; begin < n_logit_rows_; begin += logit_rows_max_) {
    const u32 n = std::min(logit_rows_max_, n_logit_rows_ - begin);
    {
      SegmentTimer timer(trace_, SegmentKind::logits, *clock_);
      forward_logits(forward, begin, n, logits_);
      if (batch_.takes_best) {
        backend_->summarize(logits_, n, spec_.n_vocab);
      } else {
        backend_->fetch(logits_, n, spec_.n_vocab, host_logits_);
      }
      if (!device_works()) return false;
      timer.add(backend_->take_traffic());
    }
    if (begin == 0) commit_rows();
    SegmentTimer timer(trace_, SegmentKind::sample, *clock_);
    for (u32 i = 0; i < n; ++i) {
      const u32 row = logit_rows_[begin + i];
      while (row >= run->row_begin + run->n_rows) ++run;
      consume_logits(session(run->session), batch_.positions[row], i);
    }
  }
  return true;
}

void Engine::consume_logits(Session& s, u32 position, u32 logits_row) {
  if (s.is_dropped || kv_failed(s)) return;
  const std::span<f32> logits(from_row(host_logits_, logits_row).data, spec_.n_vocab);
  if (s.on_logits != nullptr) s.on_logits(s.logits_context, position, logits);
  if (s.state != SessionState::generating || position + 1 != s.n_ids) return;
  Result<Sampled> sampled = batch_.takes_best ? sample_best(backend_->summary(logits_row))
                                              : sample({.logits = logits,
                                                        .history = s.ids.first(s.n_ids),
                                                        .params = &s.sampler,
                                                        .draw_idx = s.first_draw + s.n_generated,
                                                        .candidates = candidates_,
                                                        .sorted_window = sorted_window_,
                                                        .saved = saved_logits_});
  if (!sampled) return give_up(s, sampled.error());
  if (s.n_generated < s.forced.size()) sampled->token = s.forced[s.n_generated];
  accept_token(s, *sampled);
}

void Engine::accept_token(Session& s, const Sampled& sampled) {
  s.last_token_ns = clock_->now_ns();
  if (s.n_generated++ == 0) s.first_token_ns = s.last_token_ns;
  ++trace_.n_tokens_out;
  s.events.push_token(sampled);

  const bool has_place = s.n_ids < plan_.context_tokens && s.sequence.reserve(1);
  if (has_place) s.ids[s.n_ids++] = sampled.token;

  // Embeddings may have more rows than the vocabulary has tokens; such an id has no text.
  const bool has_text = sampled.token < tokenizer_.n_vocab();
  if (has_text && tokenizer_.is_end(sampled.token) && !s.ignore_end) {
    return finish(s, Finish::end, Status::ok);
  }
  const u64 n_bytes = has_text ? s.detokenizer.push(sampled.token, piece_) : 0;
  const u64 n_shown = s.text.push({piece_.data(), n_bytes}, shown_);
  s.events.push_text({shown_.data(), n_shown});
  if (s.text.stopped()) return finish(s, Finish::stop, Status::ok);
  if (!has_place || s.n_generated == s.max_tokens) finish(s, Finish::length, Status::ok);
}

void Engine::finish(Session& s, Finish reason, Status status) {
  if (!s.text.stopped()) {
    const u64 n_bytes = s.detokenizer.finish(piece_);
    const u64 n_shown = s.text.push({piece_.data(), n_bytes}, shown_);
    s.events.push_text({shown_.data(), n_shown});
    s.events.push_text({shown_.data(), s.text.finish(shown_)});
  }
  s.events.push_done({.finish = reason,
                      .status = status,
                      .n_tokens = s.n_generated,
                      .prefill_ns = s.first_token_ns > 0 ? s.first_token_ns - s.fed_ns : 0,
                      .decode_ns = s.last_token_ns - s.first_token_ns,
                      .kv_reads = s.kv_reads});
  s.fed_ns = 0;
  s.state = SessionState::idle;
  s.ended = s.n_generated > 0 ? Ended::answer : Ended::nothing;  // or it was not read
  s.refused_ns = 0;
}

void Engine::count_step() {
  counters_.disk.bytes_read += trace_.disk.bytes_read;
  counters_.disk.bytes_written += trace_.disk.bytes_written;
  counters_.disk.wait_ns += trace_.disk.wait_ns;
  counters_.disk.n_hits += trace_.disk.n_hits;
  counters_.disk.n_waited += trace_.disk.n_waited;
  counters_.disk.n_far_slots += trace_.disk.n_far_slots;
  counters_.disk.n_cached_slots += trace_.disk.n_cached_slots;
  counters_.disk.n_sector_reads += trace_.disk.n_sector_reads;
  counters_.disk.n_extent_reads += trace_.disk.n_extent_reads;
  counters_.disk.bytes_sectors += trace_.disk.bytes_sectors;
  counters_.disk.bytes_of_slots += trace_.disk.bytes_of_slots;
  counters_.disk.bytes_here += trace_.disk.bytes_here;
  if (trace_.n_rows == 0 && is_put_off_) counters_.decode_ns += trace_.end_ns - trace_.start_ns;
  if (trace_.n_rows == 0 || trace_.abandoned) return;
  ++counters_.n_steps;
  counters_.n_prefill_rows += trace_.n_prefill_rows;
  counters_.n_decode_rows += trace_.n_decode_rows;
  (trace_.n_prefill_rows > 0 ? counters_.prefill_ns : counters_.decode_ns) +=
      trace_.end_ns - trace_.start_ns;
  for (const SegmentTrace& segment : trace_.segments) {
    counters_.weight_bytes += segment.weight_bytes;
    counters_.kv_bytes += segment.kv_bytes;
  }
}

}  // namespace tarn::engine
