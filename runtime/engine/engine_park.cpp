// Sessions that outlive the engine: kept under a name, parked, and taken up again.
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/engine/engine.h"

namespace tarn::engine {
namespace {

// Raised when the CPU's kernels give other bits than before. All ISAs give the same.
constexpr u32 kCpuNumericsId = 1;
// And a GPU's: one order of sums on all of them, which is not the CPU's.
constexpr u32 kGpuNumericsId = 0x1001;

constexpr Error kNotKept{.status = Status::invalid_request,
                         .hint =
                             "this engine keeps no sessions: set store.sessions to true and "
                             "store.path to a folder (--store DIR)"};

static_assert(sizeof(LogitBias) == sizeof(reuse::ManifestBias));
static_assert(kLogitBiasesMax == reuse::kManifestBiasesMax);

SamplerParams params_of(const reuse::Manifest& manifest) {
  const reuse::SamplerState& state = manifest.sampler;
  SamplerParams params{.temperature = state.temperature,
                       .top_k = state.top_k,
                       .top_p = state.top_p,
                       .min_p = state.min_p,
                       .repetition_penalty = state.repetition_penalty,
                       .frequency_penalty = state.frequency_penalty,
                       .presence_penalty = state.presence_penalty,
                       .penalty_last_tokens = state.penalty_last_tokens,
                       .seed = state.seed,
                       .n_logit_biases = static_cast<u32>(manifest.biases.size()),
                       .n_top_logprobs = state.n_top_logprobs};
  for (u32 i = 0; i < params.n_logit_biases; ++i) {
    params.logit_biases[i] = {manifest.biases[i].token, manifest.biases[i].bias};
  }
  return params;
}

}  // namespace

// Whatever makes KV of equal tokens differ. The bytes of the tensors say which model it is, and
// those hyper-parameters that they are computed with.
reuse::KvIdentity Engine::kv_identity() const {
  const std::array<u64, 11> model = {model_.weights.content_hash[0],
                                     model_.weights.content_hash[1],
                                     static_cast<u64>(model_.spec.arch),
                                     model_.spec.n_layers,
                                     model_.spec.d_model,
                                     model_.spec.d_ff,
                                     model_.spec.n_heads,
                                     model_.spec.n_vocab,
                                     std::bit_cast<u32>(model_.spec.rms_eps),
                                     model_.spec.qkv_bias,
                                     model_.spec.qk_norm};
  const u32 n_factors = model_.weights.rope_factors != nullptr ? model_.spec.n_rot / 2 : 0;
  const std::span<const f32> factors(model_.weights.rope_factors, n_factors);
  const std::array<u8, 32> no_entropy{};  // an identity is the same in every store
  const store::Secret open = store::make_secret(no_entropy);
  const std::array<u64, 3> rope = {std::bit_cast<u64>(model_.spec.rope_base),
                                   std::bit_cast<u64>(model_.spec.rope_scale),
                                   store::root_key(open, std::as_bytes(factors)).low};
  return {.model = store::root_key(open, std::as_bytes(std::span(model))),
          .n_cache_layers = model_.spec.n_cache_layers,
          .n_kv_heads = model_.spec.n_kv_heads,
          .head_dim = model_.spec.head_dim,
          .page_tokens = plan_.group_shape.page_tokens,
          .kv_type = static_cast<u32>(kv_type_),
          .layout = reuse::kPageLayout,
          .rope_type = model_.spec.rope_halves ? 1u : 0u,
          .rope_dims = model_.spec.n_rot,
          .rope_scaling = store::root_key(open, std::as_bytes(std::span(rope))).low,
          .numerics_id = executor_.on_gpu() ? kGpuNumericsId : kCpuNumericsId};
}

Result<void> Engine::check_keeps() const {
  if (!session_store_.is_on()) return fail(kNotKept);
  const store::Store& store = kv_.tiers().store.store();
  if (store.mode() == store::Mode::off) return fail(store.why());
  return {};
}

void Engine::forget_name(Session& s) {
  if (publishing_ == &s) publishing_ = nullptr;
  s.name_bytes = 0;
  s.revision = 0;
  s.n_published = 0;
  s.tails = {};
}

Result<void> Engine::take_name(SessionIdx idx, std::string_view name) {
  TARN_CHECK(check_keeps());
  if (name.empty() || name.size() > reuse::kManifestNameBytesMax) {
    return fail({.status = Status::invalid_request,
                 .hint = "a session's name has 1 to 128 bytes",
                 .figures = {{{"bytes", name.size()}}}});
  }
  for (SessionIdx other = 0; other < sessions_.size(); ++other) {
    if (other == idx || session(other).name() != name) continue;
    return fail({.status = Status::invalid_request,
                 .hint = "another open session has this name: destroy that one, or choose another "
                         "name",
                 .detail = Detail(name)});
  }
  if (idx >= sessions_.size()) return {};  // a look only
  Session& s = session(idx);
  if (s.name() == name) return {};
  drop_save(s);  // under the old name
  forget_name(s);
  std::copy(name.begin(), name.end(), s.name_text.begin());
  s.name_bytes = static_cast<u32>(name.size());
  return {};
}

Result<void> Engine::keep(SessionIdx idx, std::string_view name) {
  Session& s = session(idx);
  const bool has_name = s.name() == name;
  TARN_CHECK(take_name(idx, name));
  s.published_ns = clock_->now_ns();
  if (has_name) return {};
  const bool has_answer = s.state == SessionState::idle && s.n_ids > s.turns.n_fed();
  s.ended = has_answer ? Ended::answer : Ended::nothing;
  s.refused_ns = 0;
  return {};
}

reuse::SaveArgs Engine::save_args(Session& s, u32 n_slots) const {
  const bool is_lossy = s.lossy_from < n_slots;
  const SamplerParams& p = s.generation.sampler;
  const u64 n_drawn = s.state == SessionState::generating ? s.generation.n_drawn() : u64{0};
  const TakenUp stands = s.taken_up.value_or(TakenUp{s.state != SessionState::idle, n_drawn});
  reuse::SaveArgs args{.sequence = &s.sequence,
                       .n_slots = n_slots,
                       .lossy_from = is_lossy ? s.lossy_from : 0,
                       .name = s.name(),
                       .revision = ++s.revision,
                       .saved_at_s = clock_->unix_s(),
                       .sampler = {.temperature = p.temperature,
                                   .top_p = p.top_p,
                                   .min_p = p.min_p,
                                   .repetition_penalty = p.repetition_penalty,
                                   .frequency_penalty = p.frequency_penalty,
                                   .presence_penalty = p.presence_penalty,
                                   .top_k = p.top_k,
                                   .penalty_last_tokens = p.penalty_last_tokens,
                                   .n_top_logprobs = p.n_top_logprobs,
                                   .max_tokens = s.generation.max_tokens,
                                   .is_generating = stands.is_cut_off ? 1u : 0u,
                                   .ignores_end = s.generation.ignore_end ? 1u : 0u,
                                   .seed = p.seed,
                                   .n_drawn = stands.n_drawn},
                       .n_biases = p.n_logit_biases,
                       .ids = s.ids.first(s.n_ids),
                       .turn_begin = s.turn_begin,
                       .tails = &s.tails};
  for (u32 i = 0; i < p.n_logit_biases; ++i) {
    args.biases[i] = {p.logit_biases[i].token, p.logit_biases[i].bias};
  }
  put_index(s, args);
  return args;
}

Result<Engine::Saved> Engine::park(SessionIdx idx, std::string_view name) {
  TARN_CHECK(take_name(idx, name));
  Session& s = session(idx);
  end_publication();
  const u64 start_ns = clock_->now_ns();
  const u64 written_before = kv_.tiers().store.store().stats().bytes_written;
  selector_.touch_codebooks(idx);
  TARN_CHECK(session_store_.save(save_args(s, s.sequence.n_slots())));
  selector_.note_named(idx, selector_.codebooks_key(idx));
  s.ended = Ended::nothing;
  s.published_ns = clock_->now_ns();
  s.n_published = s.sequence.n_slots();
  tell_evictions();
  return Saved{.n_tokens = s.n_ids,
               .bytes_written = kv_.tiers().store.store().stats().bytes_written - written_before,
               .took_ns = s.published_ns - start_ns};
}

Result<Engine::Resumed> Engine::resume(std::string_view name) {
  TARN_CHECK(take_name(kSessionsMax, name));
  const u64 start_ns = clock_->now_ns();
  end_publication();
  TARN_TRY(const reuse::Manifest manifest, session_store_.find(name));
  TARN_TRY(const SessionIdx idx, create_session());
  Session& s = session(idx);
  Result<void> taken = take_up(s, manifest);
  if (taken) taken = take_name(idx, name);
  if (!taken) {
    destroy_session(idx);
    return fail(taken.error());
  }
  s.revision = manifest.revision;
  const bool is_drawn = reuse::unshared_page(manifest) < reuse::pages_of(manifest);
  if (is_drawn && reuse::has_tail(manifest)) s.tails.put(manifest.tail, 0);
  // An index without a name on the disk has one now, which is to be found there next time.
  const bool is_named = manifest.codebooks.empty() || !(manifest.codebooks[0].key == store::Key{});
  const bool has_key = !(selector_.codebooks_key(idx) == store::Key{});
  const bool is_cut_off = manifest.sampler.is_generating != 0;
  s.taken_up = {.is_cut_off = is_cut_off, .n_drawn = manifest.sampler.n_drawn};
  if (!is_named && has_key && !is_cut_off) s.ended = Ended::answer;
  s.turn_begin = manifest.turn_begins.empty() ? s.n_ids : manifest.turn_begins[0];
  s.n_published = manifest.n_slots;  // the manifest is the better one until as much is there again
  s.published_ns = clock_->now_ns();
  return Resumed{.idx = idx,
                 .n_tokens = s.n_ids,
                 .n_computed = s.sequence.n_slots(),
                 .turn_begin = s.turn_begin,
                 .is_cut_off = is_cut_off,
                 .n_drawn = manifest.sampler.n_drawn,
                 .revision = s.revision,
                 .took_ns = s.published_ns - start_ns};
}

// The pages whose records are all there stay where they are; the rest is computed from the tokens.
// So is all that does not follow from them where not all of it is of use.
Result<void> Engine::take_up(Session& s, const reuse::Manifest& manifest) {
  const u32 page_tokens = plan_.group_shape.page_tokens;
  const u64 n_ids = manifest.token_ids.size();
  if (n_ids > plan_.context_tokens) {
    return fail({.status = Status::invalid_request,
                 .hint = "the session is longer than the context: raise -c (kv.context_tokens)",
                 .figures = {{{"tokens", n_ids}, {"context", plan_.context_tokens}}}});
  }
  const SamplerParams params = params_of(manifest);
  const bool has_ids = std::all_of(manifest.token_ids.begin(), manifest.token_ids.end(),
                                   [&](u32 id) { return id < model_.spec.n_vocab; });
  if (!has_ids || !validate(params, model_.spec.n_vocab)) {
    return fail({.status = Status::io_failed,
                 .hint = "a saved session is damaged and cannot be taken up: begin a new one"});
  }
  reuse::SessionStore& sessions = session_store_;
  u32 n_pages = sessions.n_pages_there(manifest);
  bool has_index = n_pages == reuse::pages_of(manifest) && take_up_index(s, manifest);
  if (manifest.lossy_from != 0 && !has_index) {
    n_pages = std::min(n_pages, reuse::unshared_page(manifest));
  }
  const u32 n_there = std::min(n_pages * page_tokens, manifest.n_slots);
  const u32 n_full = n_there / page_tokens;
  const u32 n_exact = std::min(n_full, reuse::unshared_page(manifest));
  constexpr Error kNoKv{.status = Status::would_block,
                        .hint =
                            "other sessions hold the KV now: end or truncate one, or raise -c "
                            "(kv.context_tokens)"};
  if (!s.sequence.reserve(n_pages * page_tokens)) return fail(kNoKv);
  sessions.adopt(s.sequence, manifest, n_pages);
  s.sequence.commit(n_pages * page_tokens);
  std::copy(manifest.token_ids.begin(), manifest.token_ids.end(), s.ids.begin());
  s.n_ids = static_cast<u32>(n_ids);
  sessions.name_pages(s.sequence, s.ids, 0, n_exact);
  sessions.name_unshared(s.sequence, s.ids, n_exact, n_full, manifest.groups.subspan(n_exact));
  if (n_full < n_pages) {
    const Result<void> is_cut = kv_.truncate(s.sequence, n_there);
    if (!is_cut && is_cut.error().status != Status::io_failed) return is_cut;
    has_index = has_index && is_cut;
    const u32 n_left = manifest.lossy_from != 0 ? n_exact : n_full;
    if (!is_cut) TARN_CHECK(kv_.truncate(s.sequence, n_left * page_tokens));
  }
  if (!s.sequence.reserve(s.n_pending())) return fail(kNoKv);
  if (has_index && manifest.lossy_from != 0) s.lossy_from = manifest.lossy_from;
  if (!has_index) {
    selector_.forget(idx_of(s));
    s.turns.start_over(s.n_ids);  // its index is made from all of it
  }
  s.n_settled = s.n_ids;
  s.generation.restore(params, manifest.sampler.max_tokens, manifest.sampler.ignores_end != 0);
  s.state = s.n_computable() > 0 ? SessionState::computing : SessionState::idle;
  return {};
}

Result<reuse::ExportDone> Engine::export_session(std::string_view name, const char* path) {
  TARN_CHECK(check_keeps());
  end_publication();
  return session_store_.export_to(name, path);
}

Result<reuse::ImportDone> Engine::import_session(const char* path, std::string_view name) {
  TARN_CHECK(check_keeps());
  end_publication();
  std::array<char, reuse::kManifestNameBytesMax> own_name{};
  if (name.empty()) {
    TARN_TRY(const std::string_view in_file, session_store_.name_in(path));
    std::copy(in_file.begin(), in_file.end(), own_name.begin());
    name = {own_name.data(), in_file.size()};
  }
  TARN_CHECK(take_name(kSessionsMax, name));
  const Result<reuse::ImportDone> done = session_store_.import_from(path, name);
  tell_evictions();
  return done;
}

Result<reuse::DeleteDone> Engine::delete_session(std::string_view name) {
  TARN_CHECK(take_name(kSessionsMax, name));
  end_publication();
  return session_store_.erase(name);
}

// Who kept a session hears that it is gone from the log, since nobody asks for it then.
void Engine::tell_evictions() {
  const u64 n = kv_.tiers().store.store().index().n_manifests_evicted();
  if (n == n_evictions_told_) return;
  log_.warning(
      "%llu kept sessions gave way to newer ones in the store: raise store.kept_tokens, and "
      "store.quota_bytes where it is less than that takes, or delete those that are done with "
      "(tarn sessions delete)",
      static_cast<unsigned long long>(n - n_evictions_told_));
  n_evictions_told_ = n;
}

// What is on its way of a session whose KV is about to be cut, or gone: nothing of it counts.
void Engine::drop_save(Session& s) {
  s.tails.n_slots = 0;  // as many slots may be others
  session_store_.drop(s.sequence);
  if (publishing_ != &s) return;
  publishing_ = nullptr;
  if (s.ended == Ended::nothing) s.ended = publishing_ended_;  // what drops it may say otherwise
}

// Whether a manifest is due: of what goes on every publish_ms, as full pages come; of an answer
// that has ended at once, with its last token. A prompt that nobody has asked for an answer yet is
// no end: its manifest says that it was cut off. Where KV was lost, not before as much is there
// again: the manifest on disk may know of records that nobody has lost.
bool Engine::is_due(const Session& s, u64 now_ns) const {
  if (s.name_bytes == 0) return false;
  if (s.state != SessionState::idle || s.ended == Ended::input) {
    return now_ns - s.published_ns >= publish_ns_ && n_full_pages(s) > n_published_pages(s);
  }
  return has_answer_to_publish(s) && (s.refused_ns == 0 || now_ns - s.refused_ns >= publish_ns_);
}

bool Engine::has_answer_to_publish(const Session& s) const {
  return s.state == SessionState::idle && s.name_bytes > 0 && s.ended == Ended::answer &&
         n_full_pages(s) >= n_published_pages(s);
}

// What was refused is tried again, but nobody wakes up for it.
bool Engine::rests_unpublished(const Session& s) const {
  return has_answer_to_publish(s) && s.refused_ns == 0;
}

// The end of the store was told when it came.
bool Engine::publishes() const {
  return publish_ns_ > 0 && !is_ending_.load(std::memory_order_relaxed) && !device_lost() &&
         session_store_.is_on() && kv_.tiers().store.store().mode() == store::Mode::on;
}

u32 Engine::n_full_pages(const Session& s) const {
  return s.sequence.n_slots() / plan_.group_shape.page_tokens;
}

u32 Engine::n_published_pages(const Session& s) const {
  return s.n_published / plan_.group_shape.page_tokens;
}

// Full pages and tokens of the kept session that has waited longest, where there is news of it.
void Engine::publish() {
  take_publication();
  tell_evictions();
  if (!publishes() || !session_store_.may_begin()) return;
  const u64 now_ns = clock_->now_ns();
  Session* due = nullptr;
  for (Session& s : sessions_) {
    if (!is_due(s, now_ns)) continue;
    if (due == nullptr || s.published_ns < due->published_ns) due = &s;
  }
  if (due != nullptr) begin_publication(*due);
}

// What the session stood at the end of it stands in the middle of, from now on.
void Engine::ask_more(Session& s) {
  s.ended = Ended::nothing;
  if (publishing_ == &s) publishing_ended_ = Ended::nothing;
  s.taken_up.reset();
}

void Engine::begin_publication(Session& s) {
  reuse::SessionStore& sessions = session_store_;
  s.published_ns = clock_->now_ns();
  s.refused_ns = 0;
  publishing_ = &s;
  publishing_ended_ = std::exchange(s.ended, Ended::nothing);
  n_publishing_ = n_published_slots(s);
  selector_.touch_codebooks(idx_of(s));
  publishing_key_ = selector_.codebooks_key(idx_of(s));
  reuse::SaveArgs args = save_args(s, n_publishing_);
  if (publishing_ended_ == Ended::input) args.sampler.is_generating = 1;
  sessions.begin_save(args);
  (void)sessions.pump();
  take_publication();
}

// How the publication under way has ended, where it has.
void Engine::take_publication() {
  reuse::SessionStore& sessions = session_store_;
  if (publishing_ == nullptr || sessions.is_saving()) return;
  Session& s = *std::exchange(publishing_, nullptr);
  if (sessions.last()) {
    s.n_published = n_publishing_;
    selector_.note_named(idx_of(s), publishing_key_);
    return;
  }
  if (s.ended == Ended::nothing) s.ended = publishing_ended_;
  s.refused_ns = std::max<u64>(1, clock_->now_ns());
  tell_unpublished(sessions.last().error());
}

void Engine::tell_unpublished(const Error& why) const {
  std::array<char, 512> text{};
  format_error(why, text.data(), text.size());
  log_.warning("a session's work is not on disk: %s", text.data());
}

// Waits for it: for who uses the store's buffers next, or ends.
void Engine::end_publication() {
  if (publishing_ == nullptr) return;
  session_store_.finish_save();
  take_publication();
}

// Of a session that is done with: its answer, or what was fed last, is to be found by who asks for
// its name.
void Engine::publish_last(Session& s) {
  if (publishing_ == &s) end_publication();
  if (!publishes()) return;
  const bool has_input = s.name_bytes > 0 && s.ended == Ended::input && s.refused_ns == 0 &&
                         n_full_pages(s) >= n_published_pages(s);
  if (!rests_unpublished(s) && !has_input) return;
  end_publication();  // another's
  if (const Result<void> settled = session_store_.settle(); !settled) {
    return tell_unpublished(settled.error());
  }
  begin_publication(s);
  end_publication();
}

}  // namespace tarn::engine
