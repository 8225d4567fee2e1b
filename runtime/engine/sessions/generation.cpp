#include "runtime/engine/sessions/generation.h"

namespace tarn::engine {

void Generation::begin(const GenerateParams& params, const text::Tokenizer& tokenizer) {
  sampler = params.sampler;
  max_tokens = params.max_tokens;
  ignore_end = params.ignore_end;
  n_generated = 0;
  first_draw_ = params.first_draw;
  detokenizer_ = text::Detokenizer(tokenizer);
  first_token_ns_ = last_token_ns_ = 0;
  deadline_ns = params.deadline_ns;
  kv_reads = {};
  forced = {};
  events.clear();
}

bool Generation::has_room(const GenerationScratch& scratch) const {
  return events.has_room(2 * scratch.shown.size());
}

Result<Sampled> Generation::draw(std::span<f32> logits, std::span<const u32> history,
                                 const step::GeneratedMarks& generated,
                                 const GenerationScratch& scratch) const {
  return sample({.logits = logits,
                 .history = history,
                 .generated = generated,
                 .params = &sampler,
                 .draw_idx = n_drawn(),
                 .scratch = scratch.sample});
}

std::optional<Finish> Generation::accept(const Sampled& sampled, u64 now_ns,
                                         const GenerationScratch& scratch) {
  last_token_ns_ = now_ns;
  if (n_generated++ == 0) first_token_ns_ = now_ns;

  // Embeddings may have more rows than the vocabulary has tokens; such an id has no text.
  const bool has_text = sampled.token < scratch.tokenizer->n_vocab();
  const bool is_end = has_text && scratch.tokenizer->is_end(sampled.token) && !ignore_end;
  const u64 n_bytes = has_text && !is_end ? detokenizer_.push(sampled.token, scratch.piece) : 0;
  events.push_token(sampled, static_cast<u32>(n_bytes));
  if (is_end) return Finish::end;
  const u64 n_shown = text_.push({scratch.piece.data(), n_bytes}, scratch.shown);
  events.push_text({scratch.shown.data(), n_shown});
  if (text_.stopped()) return Finish::stop;
  if (n_generated == max_tokens) return Finish::length;
  return std::nullopt;
}

void Generation::finish(Finish reason, const Error* error, const GenerationScratch& scratch) {
  const std::span<char> shown = scratch.shown;
  if (!text_.stopped()) {
    const u64 n_bytes = detokenizer_.finish(scratch.piece);
    const u64 n_shown = text_.push({scratch.piece.data(), n_bytes}, shown);
    events.push_text({shown.data(), n_shown});
    events.push_text({shown.data(), text_.finish(shown)});
  }
  events.push_done({.finish = reason,
                    .status = error == nullptr ? Status::ok : error->status,
                    .reason = error == nullptr ? Reason::none : error->reason,
                    .n_tokens = n_generated,
                    .prefill_ns = first_token_ns_ > 0 ? first_token_ns_ - fed_ns : 0,
                    .wait_ns = turn_ns > fed_ns && fed_ns > 0 ? turn_ns - fed_ns : 0,
                    .decode_ns = last_token_ns_ - first_token_ns_,
                    .kv_reads = kv_reads,
                    .reused = reused});
  fed_ns = 0;
}

}  // namespace tarn::engine
