// A rendered conversation as tokens.
#pragma once

#include <span>
#include <string_view>

#include "runtime/chat/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace tarn::chat {

// An id's note: where its text comes from, with all later messages as one, and what the id is of a
// chunk (tarn_chat.h).
enum class ChunkMark : u8 { none = 0, first = 64, rest = 128 };
inline constexpr u8 kIdOriginMax = 63;
constexpr u8 id_origin(u8 note) { return note & kIdOriginMax; }
constexpr ChunkMark chunk_mark(u8 note) {
  return static_cast<ChunkMark>(note & static_cast<u8>(~kIdOriginMax));
}

struct Conversation {
  std::span<const text::TokenId> ids{};
  std::span<const u8> notes{};  // [ids.size()]
};

// Marks around a chunk in a message's content: noncharacters, for a program's own use.
inline constexpr std::string_view kChunkBegin = "\xEF\xB7\x90", kChunkEnd = "\xEF\xB7\x91";

// Calls fn(begin, end, is_chunk) for what a text with such marks has between them, in order. What
// no end follows is no chunk.
template <class Fn>
void for_pieces(std::string_view text, Fn&& fn) {
  constexpr u64 kMarkBytes = kChunkBegin.size();
  bool in_chunk = false;
  u64 begin = 0;
  for (u64 at = text.find(kChunkBegin.substr(0, 2)); at != text.npos;
       at = text.find(kChunkBegin.substr(0, 2), at + 1)) {
    const std::string_view mark = text.substr(at, kMarkBytes);
    if (mark != kChunkBegin && mark != kChunkEnd) continue;
    if (at > begin) fn(begin, at, in_chunk && mark == kChunkEnd);
    in_chunk = mark == kChunkBegin;
    begin = at + kMarkBytes;
  }
  if (text.size() > begin) fn(begin, text.size(), false);
}

// Writes where the text that begins with each id comes from: from a message, if the template wrote
// that text for one. Near enough for a message to people: characters that the vocabulary lacks may
// shift it. `piece` has room for a piece of the vocabulary.
void note_origins(const Rendered& rendered, std::span<const text::TokenId> ids,
                  const text::Tokenizer& tokenizer, std::span<char> piece, std::span<u8> notes);

}  // namespace tarn::chat
