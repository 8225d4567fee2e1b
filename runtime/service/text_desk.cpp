#include "runtime/service/text_desk.h"

#include <algorithm>

#include "runtime/chat/conversation.h"
#include "runtime/plan/plan.h"

namespace tarn::service {

// For as many ids as a text of this length can have. Waits while the engine has not taken those of
// earlier texts.
Result<Ids> TextDesk::take_room(u64 text_bytes) {
  TARN_TRY(const u32 n_ids, common_.engine->text().ids_max(text_bytes));
  Lock lock(common_.mutex);
  for (;;) {
    if (const auto block = common_.ids.take(n_ids)) {
      request_.block = *block;
      return common_.ids.of(*block);
    }
    TARN_CHECK(common_.may_go_on());
    common_.texts.wait_for(lock, kDeadCheckNs);
  }
}

void TextDesk::keep(u64 n_ids) {
  const Lock lock(common_.mutex);
  common_.ids.shrink(&request_.block, static_cast<u32>(n_ids));
}

Result<void> TextDesk::encode(std::string_view text, const text::EncodeOptions& options) {
  TARN_TRY(const Ids room, take_room(text.size()));
  const Result<u64> n_ids = common_.engine->text().encode_whole(text, options, room.ids);
  keep(n_ids ? *n_ids : 0);
  TARN_CHECK(n_ids);
  return {};
}

// A part has an id more than its text at most has alone: BOS; n_units() has room for these.
Result<void> TextDesk::begin_parts(u64 n_units) {
  TARN_CHECK(take_room(n_units));
  n_part_ids_ = 0;
  return {};
}

Result<void> TextDesk::add_part(std::string_view text, const text::EncodeOptions& options,
                                bool is_chunk) {
  const Result<u64> n_ids = common_.engine->text().encode(text, options, room_left());
  if (!n_ids) {
    keep(0);
    return fail(n_ids.error());
  }
  mark_part(*n_ids, is_chunk);
  return {};
}

void TextDesk::add_part(std::span<const u32> part_ids, bool is_chunk) {
  const std::span<u32> room = room_left();
  std::ranges::copy(part_ids.first(std::min(part_ids.size(), room.size())), room.begin());
  mark_part(part_ids.size(), is_chunk);
}

Result<void> TextDesk::end_parts() {
  const bool fits = parts_fit();
  keep(fits ? n_part_ids_ : 0);
  if (!fits) return text::exceeds_context(n_part_ids_, common_.engine->text().context_tokens());
  return {};
}

std::span<u32> TextDesk::room_left() const {
  return ids().ids.subspan(std::min(n_part_ids_, ids().ids.size()));
}

void TextDesk::mark_part(u64 n_ids, bool is_chunk) {
  using chat::ChunkMark;
  const u64 first = n_part_ids_;
  n_part_ids_ += n_ids;
  if (!parts_fit()) return;
  const std::span<u8> notes = ids().notes.subspan(first, n_ids);
  std::ranges::fill(notes, static_cast<u8>(is_chunk ? ChunkMark::rest : ChunkMark::none));
  if (is_chunk && n_ids > 0) notes[0] = static_cast<u8>(ChunkMark::first);
}

Result<chat::Rendered> TextDesk::render(const chat::RenderArgs& args, bool has_chunks) {
  const auto made = common_.engine->render_chat(args);
  if (!made) return fail(not_rendered(made.error(), args.messages));
  const chat::Rendered& rendered = *made;
  if (has_chunks) {
    TARN_CHECK(encode_pieces(rendered));
    return rendered;
  }
  TARN_CHECK(encode(
      rendered.text,
      {.add_bos = true, .may_have_bos = true, .parse_special = true, .origins = rendered.origins}));
  std::array<char, plan::kPieceBytesMax> piece;
  const Ids kept = ids();
  chat::note_origins(rendered, kept.ids, common_.engine->text().tokenizer(), piece, kept.notes);
  return rendered;
}

// The messages' JSON stands for the text that could not be made of them.
Error TextDesk::not_rendered(const Error& error, std::string_view messages) const {
  if (error.reason != Reason::no_memory) return error;
  const text::Encoder& encoder = common_.engine->text();
  const Result<u64> n_ids = encoder.encode(messages, {}, {});
  if (!n_ids || *n_ids <= encoder.context_tokens()) return error;
  return Result<void>(
             text::exceeds_context(*n_ids, encoder.context_tokens(), text::Counted::estimated))
      .error();
}

// Each piece by itself, so that a chunk has the ids that it has anywhere.
Result<void> TextDesk::encode_pieces(const chat::Rendered& rendered) {
  u64 units = 2 * n_units(0);
  chat::for_pieces(rendered.text, [&](u64 begin, u64 end, bool) { units += n_units(end - begin); });
  TARN_CHECK(begin_parts(units));
  Result<void> added{};
  std::array<char, plan::kPieceBytesMax> shown;
  const auto add = [&](u64 begin, u64 end, bool is_chunk, bool add_bos) {
    if (!added) return;
    const chat::Rendered part{.text = rendered.text.substr(begin, end - begin),
                              .origins = rendered.origins.subspan(begin, end - begin)};
    const u64 first = n_part_ids_;
    added = add_part(
        part.text,
        {.add_bos = add_bos, .may_have_bos = true, .parse_special = true, .origins = part.origins},
        is_chunk);
    if (!added || !parts_fit()) return;
    const std::span<u8> notes = ids().notes.subspan(first, n_part_ids_ - first);
    std::array<u8, 2> marks{};  // of the first id, and of the others
    if (!notes.empty()) marks = {notes.front(), notes.back()};
    chat::note_origins(part, ids().ids.subspan(first, notes.size()),
                       common_.engine->text().tokenizer(), shown, notes);
    for (u64 i = 0; i < notes.size(); ++i) notes[i] |= marks[i > 0];
  };
  bool has_begun = false;
  chat::for_pieces(rendered.text, [&](u64 begin, u64 end, bool is_chunk) {
    if (!has_begun && is_chunk) add(0, 0, false, true);  // BOS is none of it
    add(begin, end, is_chunk, !has_begun && !is_chunk);
    has_begun = true;
  });
  if (!has_begun) add(0, 0, false, true);
  TARN_CHECK(added);
  return end_parts();
}

}  // namespace tarn::service
