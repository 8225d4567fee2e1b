// The tools of a text stage: the engine's templates and tokenizer, and room for the ids that it
// leaves for the engine's stage.
//
//   thread   the text thread, without the lock
//   errors   those of Encoder and ChatTemplate; why the engine ends, where it does so before there
//            is room
#pragma once

#include "runtime/service/common.h"

namespace tarn::service {

class TextDesk {
 public:
  TextDesk(Common& common, Request& request) : common_(common), request_(request) {}

  // Into the caller's memory, as text::Tokenizer::encode().
  Result<u64> encode(std::string_view text, const text::EncodeOptions& options,
                     std::span<u32> out) const {
    return common_.engine->text().encode(text, options, out);
  }
  // The ids stay for the engine's stage.
  Result<void> encode(std::string_view text, const text::EncodeOptions& options);
  // A conversation's ids, and a note of each, stay. Its text is there until the next one.
  // `has_chunks`: what stands between marks in its messages is a chunk.
  Result<chat::Rendered> render(const chat::RenderArgs& args, bool has_chunks = false);
  // Parts behind each other, with marks: room for n_units of all of them, then each, then the end,
  // which refuses what the context cannot hold. A part that was refused ends the call.
  static u64 n_units(u64 bytes_or_ids) { return bytes_or_ids + 2; }
  Result<void> begin_parts(u64 n_units);
  Result<void> add_part(std::string_view text, const text::EncodeOptions& options, bool is_chunk);
  void add_part(std::span<const u32> ids, bool is_chunk);
  Result<void> end_parts();
  Ids ids() const { return common_.ids.of(request_.block); }

 private:
  Result<Ids> take_room(u64 text_bytes);
  void keep(u64 n_ids);
  std::span<u32> room_left() const;
  bool parts_fit() const { return n_part_ids_ <= ids().ids.size(); }
  void mark_part(u64 n_ids, bool is_chunk);
  // Why a conversation was not rendered: where memory was too small, the context comes first.
  Error not_rendered(const Error& error, std::string_view messages) const;
  Result<void> encode_pieces(const chat::Rendered& rendered);

  Common& common_;
  Request& request_;
  u64 n_part_ids_ = 0;  // also of those that found no room
};

}  // namespace tarn::service
