// What a text stage works with: the engine's templates and tokenizer, and room for the ids that it
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
  // A conversation's ids, and where each comes from, stay. Its text is there until the next one.
  Result<chat::Rendered> render(const chat::RenderArgs& args);
  Ids ids() const { return common_.ids.of(request_.block); }

 private:
  Result<Ids> take_room(u64 text_bytes);
  void keep(u64 n_ids);

  Common& common_;
  Request& request_;
};

}  // namespace tarn::service
