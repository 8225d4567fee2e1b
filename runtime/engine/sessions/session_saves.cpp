// Sessions that outlive the engine: what the archive is shown of one, and how one is restored.
#include <algorithm>
#include <array>
#include <bit>

#include "runtime/engine/sessions/session_pool.h"

namespace tarn::engine {
namespace {

static_assert(Turns::kAnswersMax == reuse::kKeptAnswersMax);
static_assert(sizeof(method::KeptLife) == sizeof(reuse::ManifestIndex::life));

std::string_view policy_of(const store::Key& selection) {
  return {reinterpret_cast<const char*>(&selection), sizeof selection};
}

// Notes the last answers, and where what was generated behind the last input begins.
void note_answers(const step::GeneratedMarks& generated, reuse::SessionView& view) {
  const auto n_ids = static_cast<u32>(view.ids.size());
  view.n_fed = n_ids;
  generated.for_each_answer(n_ids, [&](u32 begin, u32 end) {
    if (end == n_ids) {
      view.n_fed = begin;
      return;
    }
    if (view.n_answers == view.answers.size()) {
      std::rotate(view.answers.begin(), view.answers.begin() + 1, view.answers.end());
      --view.n_answers;
    }
    view.answers[view.n_answers++] = {.begin = begin, .end = end};
  });
}

}  // namespace

reuse::SessionView SessionPool::view_of(Session& s) const {
  reuse::SessionView view{
      .saved = &s.saved,
      .session = s.idx,
      .sequence = &s.sequence,
      .ids = s.tokens.ids.first(s.tokens.n_ids),
      .root = s.client.root,
      .is_idle = s.state == SessionState::idle,
      .turn_begin = s.tokens.turn_begin,
      .first_approx_slot = s.approx.first_slot,
      .n_drawn = s.state == SessionState::generating ? s.generation.n_drawn() : 0};
  if (!kv_.selector().is_on()) {
    note_answers(s.tokens.generated, view);
    return view;
  }
  const method::KeptIndex kept = kv_.selector().kept(s.idx);
  view.policy = policy_of(o_.selection_key);
  view.chooses = s.approx.is_any() || kv_.selector().has_index(s.idx);
  view.index = {.key = kept.life.rows_used > 0 ? kept.key : store::Key{},
                .life = std::bit_cast<decltype(view.index.life)>(kept.life),
                .n_rows = kept.life.rows_used,
                .turn_end = kept.turn_end};
  view.index_owner = kv_.selector().codebooks_key(s.idx);
  std::ranges::copy(s.tokens.turns.answers(), view.answers.begin());
  view.n_answers = static_cast<u32>(s.tokens.turns.answers().size());
  view.n_fed = s.tokens.turns.n_fed();
  return view;
}

Result<void> SessionPool::autosave(SessionIdx idx, std::string_view name) {
  Session& s = o_.sessions[idx];
  const bool has_answer = s.state == SessionState::idle && s.tokens.n_ids > s.tokens.turns.n_fed();
  return kv_.archive().autosave(s.saved, name,
                                has_answer ? reuse::StoppedAt::answer : reuse::StoppedAt::nothing);
}

Result<void> SessionPool::save(SessionIdx idx, std::string_view name) {
  return kv_.archive().save(view_of(o_.sessions[idx]), name);
}

void SessionPool::checkpoint() {
  if (!kv_.archive().may_checkpoint()) return;
  Session* due = nullptr;
  for (Session& s : o_.sessions) {
    const bool is_idle = s.state == SessionState::idle;
    if (!kv_.archive().is_due(s.saved, s.sequence.n_slots(), is_idle)) continue;
    if (due == nullptr || s.saved.saved_ns < due->saved.saved_ns) due = &s;
  }
  if (due != nullptr) kv_.archive().checkpoint(view_of(*due));
}

Result<SessionPool::Restored> SessionPool::restore(std::string_view name, const SessionArgs& args) {
  const u64 start_ns = o_.clock->now_ns();
  TARN_TRY(const reuse::Archive::Found found, kv_.archive().find(args.tenant, name));
  TARN_TRY(SessionIdx idx, create(args));
  TARN_CHECK(kv_.with_room(o_.sessions[idx], [&]() -> Result<void> {
    if (o_.sessions[idx].state == SessionState::free) {  // the second time
      TARN_TRY(idx, create(args));
    }
    Result<void> restored = restore_from(o_.sessions[idx], found);
    if (!restored) destroy(idx);
    return restored;
  }));
  Session& s = o_.sessions[idx];
  return Restored{.idx = idx,
                  .n_tokens = s.tokens.n_ids,
                  .n_computed = s.sequence.n_slots(),
                  .turn_begin = s.tokens.turn_begin,
                  .is_cut_off = s.saved.restored->is_cut_off,
                  .n_drawn = s.saved.restored->n_drawn,
                  .took_ns = o_.clock->now_ns() - start_ns};
}

// Pages whose records are all there stay where they are; the rest is computed from the tokens.
Result<void> SessionPool::restore_from(Session& s, const reuse::Archive::Found& found) {
  const reuse::Manifest& manifest = found.manifest;
  const u64 n_ids = manifest.token_ids.size();
  if (n_ids > o_.plan.context_tokens) {
    return text::exceeds_context(n_ids, o_.plan.context_tokens);
  }
  const bool has_ids =
      std::ranges::all_of(manifest.token_ids, [&](u32 id) { return id < o_.model.spec.n_vocab; });
  if (!has_ids) {
    return fail({.status = Status::io_failed,
                 .reason = Reason::store_unreadable,
                 .hint = "a saved session is damaged and cannot be taken up: begin a new one"});
  }
  std::optional<store::Key> index_owner;
  if (found.is_whole() && restore_index(s, manifest)) {
    index_owner = kv_.selector().codebooks_key(s.idx);
  }
  TARN_TRY(const bool has_index,
           kv_.archive().restore(s.saved, s.sequence, found, s.client.root, index_owner));
  std::ranges::copy(manifest.token_ids, s.tokens.ids.begin());
  s.tokens.n_ids = s.tokens.n_settled = static_cast<u32>(n_ids);
  s.tokens.generated.set(0, s.tokens.n_ids, false);
  for (const reuse::ManifestAnswer& answer : manifest.answers)
    s.tokens.generated.set(answer.begin, answer.end, true);
  s.tokens.generated.set(manifest.n_fed, s.tokens.n_ids, true);
  s.tokens.turn_begin = manifest.turn_begin;
  if (has_index && manifest.first_approx_slot != 0)
    s.approx.first_slot = manifest.first_approx_slot;
  if (!has_index) {
    kv_.selector().forget(s.idx);
    s.tokens.turns.start_over(s.tokens.n_ids);  // its index is made from all of it
  }
  s.state = s.n_computable() > 0 ? SessionState::computing : SessionState::idle;
  s.run.used_at = admission_.next();
  admission_.ask(s);
  return {};
}

// Restores what a session whose KV is all there chooses by. False where the manifest does not say
// so, or says what cannot be, or an engine that chooses otherwise has written it.
bool SessionPool::restore_index(Session& s, const reuse::Manifest& manifest) {
  if (manifest.index.empty() || manifest.policy != policy_of(o_.selection_key)) return false;
  const reuse::ManifestIndex& index = manifest.index[0];
  const method::KeptIndex kept{.life = std::bit_cast<method::KeptLife>(index.life),
                               .turn_end = index.turn_end,
                               .key = index.key};
  if (index.n_rows != kept.life.rows_used) return false;
  if (manifest.answers.size() > Turns::kAnswersMax) return false;
  const u32 n_tokens = static_cast<u32>(manifest.token_ids.size());
  if (!kv_.selector().restore(s.idx, s.sequence, kept, manifest.n_slots, n_tokens)) return false;
  s.tokens.turns.restore(manifest.n_fed, manifest.answers);
  return true;
}

}  // namespace tarn::engine
