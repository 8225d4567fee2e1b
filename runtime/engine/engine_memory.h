// The engine's own share of the plan's regions: sessions, what is sampled from, text. Each
// struct has one carve(): carve_region() lets the plan count by it, the engine carves by it.
#pragma once

#include <algorithm>
#include <new>

#include "platform/base/assert.h"
#include "runtime/arena/carver.h"
#include "runtime/engine/sessions/session.h"
#include "runtime/plan/plan.h"
#include "runtime/reuse/blend/blend.h"
#include "runtime/step/admission.h"
#include "runtime/step/schedule.h"

namespace tarn::engine {

struct SessionsMemory {
  std::span<Session> sessions;                 // not constructed
  std::span<u32> ids;                          // [n_sessions, context_tokens]
  std::span<u64> generated;                    // [n_sessions, a bit for each id]
  std::span<Event> events;                     // [n_sessions, EventRing::kEvents]
  std::span<char> event_text;                  // [n_sessions, EventRing::kTextBytes]
  std::span<step::Ready> ready;                // [n_sessions], of a step
  std::span<step::Slice> slices;               // [n_sessions], of a step
  std::span<step::ShareRing::Account> shares;  // [n_sessions, step::Shares::kAccounts]
  std::span<step::Waiting> waiting;            // [n_sessions], for a run slot
  std::span<u32> n_running;                    // [n_sessions], by tenant
  static SessionsMemory carve(Carver& carver, u32 n_sessions, u32 context_tokens);
  // Session i, with its ids and events.
  Session& construct(u32 i) const;
};

inline Session& SessionsMemory::construct(u32 i) const {
  const auto share = [&](auto all) { return Carver::row(all, sessions.size(), i); };
  auto* session = new (&sessions[i]) Session();
  session->tokens.ids = share(ids);
  session->tokens.generated = step::GeneratedMarks(share(generated));
  session->generation.events.init(share(events), share(event_text));
  return *session;
}

struct BlendsMemory {
  std::span<reuse::Blend> blends;  // not constructed
  reuse::BlendMemory memory;       // of all of them
  static BlendsMemory carve(Carver& carver, const plan::Plan& plan, const model::ModelSpec& spec);
};

// On the host: a GPU's own logits lie on the device.
struct SamplingMemory {
  std::span<f32> logits;  // [logit_rows_max, n_vocab]
  SampleScratch scratch;
  static SamplingMemory carve(Carver& carver, u32 n_vocab, u32 logit_rows_max);
};

struct TextMemory {
  std::span<char> piece;  // of one token
  std::span<char> shown;  // what one token can show
  // [2 * context_tokens] each: ids of texts on their way to the engine, and whose text they are.
  std::span<u32> encoded;
  std::span<u8> origins;
  std::span<std::byte> encode_scratch;
  static TextMemory carve(Carver& carver, const plan::Plan& plan);
};

inline SessionsMemory SessionsMemory::carve(Carver& carver, u32 n_sessions, u32 context_tokens) {
  return {.sessions = carver.rows<Session>("session", n_sessions, 1),
          .ids = carver.rows<u32>("ids", n_sessions, context_tokens),
          .generated = carver.rows<u64>("generated", n_sessions,
                                        step::GeneratedMarks::n_words(context_tokens)),
          .events = carver.rows<Event>("events", n_sessions, EventRing::kEvents),
          .event_text = carver.rows<char>("text", n_sessions, EventRing::kTextBytes),
          .ready = carver.rows<step::Ready>("ready", n_sessions, 1),
          .slices = carver.rows<step::Slice>("slice", n_sessions, 1),
          .shares =
              carver.rows<step::ShareRing::Account>("shares", n_sessions, step::Shares::kAccounts),
          .waiting = carver.rows<step::Waiting>("waiting", n_sessions, 1),
          .n_running = carver.rows<u32>("running", n_sessions, 1)};
}

inline BlendsMemory BlendsMemory::carve(Carver& carver, const plan::Plan& plan,
                                        const model::ModelSpec& spec) {
  if (plan.n_blends == 0) return {};
  return {.blends = carver.take<reuse::Blend>("blend", plan.n_blends),
          .memory = reuse::BlendMemory::carve(carver, plan.blend_sizes(spec), plan.n_blends)};
}

inline SamplingMemory SamplingMemory::carve(Carver& carver, u32 n_vocab, u32 logit_rows_max) {
  return {.logits = carver.rows<f32>("logits", logit_rows_max, n_vocab),
          .scratch = {.candidates = carver.take<kernels::Candidate>("candidates", n_vocab),
                      .original = carver.take<f32>("original", n_vocab)}};
}

inline TextMemory TextMemory::carve(Carver& carver, const plan::Plan& plan) {
  const u64 scratch_bytes =
      std::min(text::Encoder::scratch_bytes(plan.context_tokens), plan.text_scratch_bytes);
  const u64 n_ids = scratch_bytes > 0 ? 2 * u64{plan.context_tokens} : 0;
  return {.piece = carver.take<char>("piece", plan::kShownBytesMax - text::kStopBytesMax),
          .shown = carver.take<char>("shown", plan::kShownBytesMax),
          .encoded = carver.take<u32>("ids", n_ids),
          .origins = carver.take<u8>("origins", n_ids),
          .encode_scratch = carver.take<std::byte>("tokenize", scratch_bytes)};
}

// plan::Inputs::carve.
inline void carve_region(plan::RegionId region, const plan::Plan& plan,
                         const model::ModelSpec& spec, Carver& carver) {
  switch (region) {
    case plan::RegionId::sessions:
      SessionsMemory::carve(carver, plan.sessions_max, plan.context_tokens);
      return;
    case plan::RegionId::blend:
      BlendsMemory::carve(carver, plan, spec);
      return;
    case plan::RegionId::logits:
      SamplingMemory::carve(carver, spec.n_vocab, plan.logit_rows_max);
      return;
    case plan::RegionId::text:
      TextMemory::carve(carver, plan);
      return;
    default:
      TARN_ASSERT(false);  // another room's
  }
}

}  // namespace tarn::engine
