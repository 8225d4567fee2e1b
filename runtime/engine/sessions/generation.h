// A running answer: how its tokens are drawn, where its text stops, and what its reader is told.
//
//   thread   the engine's, but for the reader's end of `events`
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "runtime/engine/sessions/event_ring.h"
#include "runtime/engine/sessions/sampler.h"
#include "runtime/text/text_stream.h"
#include "runtime/text/tokenizer.h"

namespace tarn::engine {

struct GenerateParams {
  SamplerParams sampler{};
  u32 max_tokens = 0;  // 0: until the model ends or the KV is full
  bool ignore_end = false;
  u64 deadline_ns = 0;  // of the engine's clock; the answer ends then, begun or not. 0: none
  u64 first_draw = 0;   // draws that a generation made which this one goes on from
  std::span<const std::string_view> stops{};  // copied
};

// The scratch of an engine's generations, used by one at a time.
struct GenerationScratch {
  const text::Tokenizer* tokenizer = nullptr;
  SampleScratch sample{};
  std::span<char> piece{};  // bytes of one token
  std::span<char> shown{};  // text that a token makes visible
};

class Generation {
 public:
  // Comes before begin(). invalid_request if there are too many, or one is empty or too long.
  Result<void> set_stops(std::span<const std::string_view> stops) { return text_.reset(stops); }
  void begin(const GenerateParams& params, const text::Tokenizer& tokenizer);

  // Returns whether the reader has left room for a token, or for the end.
  bool has_room(const GenerationScratch& scratch) const;
  // Returns whether the row's best token is all that is asked of its logits.
  bool takes_best() const { return engine::takes_best(sampler); }
  // Draws the next token; `history` are all tokens of the session, `generated` are its marks.
  Result<Sampled> draw(std::span<f32> logits, std::span<const u32> history,
                       const step::GeneratedMarks& generated,
                       const GenerationScratch& scratch) const;
  // Tells the reader of a token. Returns why the answer ends with it, if it does.
  std::optional<Finish> accept(const Sampled& sampled, u64 now_ns,
                               const GenerationScratch& scratch);
  // Tells the reader of the text that was held back, and of the end.
  void finish(Finish reason, const Error* error, const GenerationScratch& scratch);

  u64 n_drawn() const { return first_draw_ + n_generated; }

  EventRing events{};
  SamplerParams sampler{};
  u32 max_tokens = 0;
  bool ignore_end = false;
  u32 n_generated = 0;
  u64 deadline_ns = 0;  // 0: none
  u64 fed_ns = 0;       // first feed since the last end; 0: none
  u64 turn_ns = 0;      // first run slot since then; before fed_ns: had one, or has none yet
  KvReads kv_reads{};
  kv::Reused reused{};  // of what was fed since the last end
  // The results of the first draws, whatever the logits say (lab::Probe); lent until the end.
  std::span<const u32> forced{};

 private:
  u64 first_draw_ = 0;  // draws before this generation that it goes on from
  u64 first_token_ns_ = 0, last_token_ns_ = 0;
  text::TextStream text_{};
  text::Detokenizer detokenizer_{};
};

}  // namespace tarn::engine
