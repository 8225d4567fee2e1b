// A session whose tokens are a conversation's: each turn gives the whole conversation anew.
#include <algorithm>
#include <array>

#include "runtime/engine/sessions/session_pool.h"

namespace tarn::engine {
namespace {

// Once a session: a template that rewrites earlier messages does so each time.
void tell_of_change(const Log& log, Session& s, const chat::Conversation& conversation,
                    u32 n_common) {
  if (s.tokens.has_told_of_chat) return;
  s.tokens.has_told_of_chat = true;
  // Where the conversation ends too early, its last token says of what.
  const std::span<const u8> notes = conversation.notes;
  const u8 origin = notes.empty()
                        ? chat::kFromTemplate
                        : chat::id_origin(notes[std::min<u64>(n_common, notes.size() - 1)]);
  if (origin < chat::origin_of_message(0)) {
    log.info(
        "session %u: the conversation's tokens changed in front of its messages; %u of %u "
        "are kept",
        s.idx, n_common, s.tokens.n_chat_ids);
    return;
  }
  log.info(
      "session %u: message %u of the conversation changed, or the template writes it "
      "differently now; %u of %u tokens are kept",
      s.idx, 1u + origin - chat::origin_of_message(0), n_common, s.tokens.n_chat_ids);
}

}  // namespace

Result<void> SessionPool::feed_chat(SessionIdx idx, const chat::Conversation& conversation,
                                    const Parts& parts) {
  Session& s = o_.sessions[idx];
  const std::span<const u32> ids = conversation.ids;
  // All that a feed could refuse is asked before anything is dropped.
  TARN_CHECK(check_parts(parts));
  TARN_CHECK(begin_feed(s, ids, /*n_kept_max=*/0));
  const auto n_ids = static_cast<u32>(ids.size());
  const auto n_common = static_cast<u32>(
      std::ranges::mismatch(s.tokens.ids.first(s.tokens.n_ids), ids).in2 - ids.begin());
  if (n_common < std::min({s.tokens.n_chat_ids, s.tokens.n_ids, n_ids}))
    tell_of_change(o_.log, s, conversation, n_common);
  // The first input after a restore is one of its own, as in append().
  const bool is_first = s.saved.restored.has_value();
  if (n_common < s.tokens.n_ids) TARN_CHECK(truncate(idx, n_common));
  TARN_CHECK(kv_.cut_approximate(s));
  s.run.n_evicted = 0;  // what is taken of it again counts
  const u32 n_kept = std::min({n_common, s.sequence.n_slots(), n_ids - std::min(n_ids, 1u)});
  s.generation.reused = {};
  if (!ids.empty()) add_chunks(s, parts, ids, 0);
  append(s, ids.subspan(n_common));
  if (is_first) s.tokens.turn_begin = n_common;
  s.generation.reused.n_from_memory += n_kept;
  s.tokens.n_chat_ids = n_ids;
  return {};
}

}  // namespace tarn::engine
