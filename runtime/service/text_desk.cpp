#include "runtime/service/text_desk.h"

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

Result<chat::Rendered> TextDesk::render(const chat::RenderArgs& args) {
  TARN_TRY(const chat::Rendered rendered, common_.engine->render_chat(args));
  TARN_CHECK(
      encode(rendered.text, {.add_bos = true, .parse_special = true, .origins = rendered.origins}));
  std::array<char, plan::kPieceBytesMax> piece;
  const Ids kept = ids();
  chat::note_origins(rendered, kept.ids, common_.engine->text().tokenizer(), piece, kept.origins);
  return rendered;
}

}  // namespace tarn::service
