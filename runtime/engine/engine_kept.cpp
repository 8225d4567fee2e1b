// What a kept session that selects needs beside its KV, and how it is taken up again.
#include <algorithm>
#include <array>
#include <bit>

#include "runtime/engine/engine.h"
#include "runtime/method/iterations.h"
#include "runtime/method/method.h"
#include "runtime/method/select_shape.h"

namespace tarn::engine {

static_assert(Turns::kAnswersMax == reuse::kKeptAnswersMax);
static_assert(sizeof(method::KeptLife) == sizeof(reuse::ManifestIndex::life));

// What a publication keeps of the session's KV: full pages, since the rest follows from tokens; or
// all of it, where what its choices depend on has changed since the last full page (rows of an
// input change nothing of that).
u32 Engine::n_published_slots(const Session& s) const {
  const u32 n_slots = s.sequence.n_slots();
  const u32 n_full = n_full_pages(s) * plan_.group_shape.page_tokens;
  const bool chooses = s.lossy_from != Session::kExact || selector_.has_index(idx_of(s));
  const bool reads = n_slots < s.turns.n_fed() && n_full >= s.turns.input_begin();
  return chooses && !reads ? n_slots : n_full;
}

// What a session by selection is kept with beside its KV.
void Engine::put_index(const Session& s, reuse::SaveArgs& args) const {
  if (!selector_.is_on()) return;
  const method::KeptIndex kept = selector_.kept(idx_of(s));
  args.policy = policy();
  args.index = {.life = std::bit_cast<std::array<u32, 8>>(kept.life), .turn_end = kept.turn_end};
  const u32 n_rows = kept.life.rows_used;
  if (n_rows > 0) {
    args.codebook = {.key = kept.key,
                     .first_slot = select_config_.n_sinks,
                     .n_slots = n_rows,
                     .iterations = method::iterations(select_config_, n_rows)};
  }
  for (const Turns::Answer& answer : s.turns.answers()) {
    args.answers[args.n_answers++] = {answer.begin, answer.end};
  }
  args.n_fed = s.turns.n_fed();
}

// What manifests name of them stays on the disk, and nothing else.
void Engine::leave_indexes() {
  for (Session& s : sessions_) {
    if (s.state != SessionState::free) selector_.forget(idx_of(s));
  }
}

// Everything that choices follow from but tokens and turns, and that the method looks at.
void Engine::write_policy() {
  const SelectConfig& c = select_config_;
  const bool has_codes = method::method_of(c).is_trained;
  const LayerCost cost = has_codes && c.iterations == 0 ? c.cost : LayerCost{};
  policy_words_ = {method::kSelectionId,
                   static_cast<u64>(c.method),
                   has_codes ? c.n_subspaces : 0,
                   c.code_bits,
                   c.context_divisor,
                   c.tokens_min,
                   c.n_sinks,
                   c.n_local,
                   c.k,
                   c.context_min,
                   has_codes ? c.block_tokens : 0,
                   1,  // codebook of an index; earlier builds could make several
                   c.swap_tokens,
                   has_codes ? c.iterations : 0,
                   cost.job_ns,
                   cost.row_ps,
                   cost.update_ps,
                   cost.layer_ns,
                   cost.token_ps,
                   cost.squared_fs,
                   cost.share_percent,
                   c.control != nullptr ? 1u : 0u};
}

std::string_view Engine::policy() const {
  if (!selector_.is_on()) return {};
  return {reinterpret_cast<const char*>(policy_words_.data()), sizeof policy_words_};
}

// What a session chooses by beside its KV, all of which is there. False where the manifest does not
// say so, or says what cannot be, or an engine that chooses otherwise has written it.
bool Engine::take_up_index(Session& s, const reuse::Manifest& manifest) {
  if (!selector_.is_on() || manifest.index.empty() || manifest.policy != policy()) return false;
  const reuse::ManifestIndex& index = manifest.index[0];
  method::KeptIndex kept{.life = std::bit_cast<method::KeptLife>(index.life),
                         .turn_end = index.turn_end};
  if (manifest.codebooks.size() != (kept.life.rows_used == 0 ? 0u : 1u)) return false;
  if (manifest.answers.size() > Turns::kAnswersMax) return false;
  for (const reuse::ManifestCodebook& codebook : manifest.codebooks) {
    if (codebook.first_slot != select_config_.n_sinks) return false;
    if (codebook.n_slots != kept.life.rows_used) return false;
    kept.key = codebook.key;
  }
  const u32 n_tokens = static_cast<u32>(manifest.token_ids.size());
  if (!selector_.take_up(idx_of(s), s.sequence, kept, manifest.n_slots, n_tokens)) return false;
  std::array<Turns::Answer, Turns::kAnswersMax> answers{};
  for (u64 i = 0; i < manifest.answers.size(); ++i) {
    answers[i] = {manifest.answers[i].begin, manifest.answers[i].end};
  }
  s.turns.take_up(manifest.n_fed, std::span(answers).first(manifest.answers.size()));
  return true;
}

}  // namespace tarn::engine
