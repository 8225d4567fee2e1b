// The C border of a conversation that a template writes.
#include <algorithm>
#include <string_view>

#include "runtime/api/border.h"
#include "runtime/api/tarn_chat.h"

using namespace tarn;
using namespace tarn::api;
using engine::Engine;
using engine::SessionIdx;

namespace {

std::string_view view_of(const char* text) {
  return text == nullptr ? std::string_view() : std::string_view(text);
}

// The reason why the arguments of a call are refused, or nullptr.
const char* read_args(const char* messages_json, uint64_t n_bytes, const tarn_chat_options* options,
                      chat::RenderArgs* args) {
  tarn_chat_options own{};
  if (const char* why_not = options == nullptr ? nullptr : copy_in(options, &own)) return why_not;
  if (messages_json == nullptr) return "messages_json is NULL: give a JSON array of messages";
  args->messages = {messages_json, n_bytes};
  args->tools = view_of(own.tools_json);
  args->arguments = view_of(own.arguments_json);
  args->add_generation_prompt = own.no_generation_prompt == 0;
  return nullptr;
}

}  // namespace

extern "C" {

int32_t tarn_chat_render(tarn_engine* engine, const char* messages_json, uint64_t n_bytes,
                         const tarn_chat_options* options, char* text_out, uint64_t text_max,
                         uint64_t* text_bytes_out, uint32_t* ids_out, uint64_t ids_max,
                         uint64_t* n_ids_out) {
  const EngineCall call(engine);
  if (text_bytes_out != nullptr) *text_bytes_out = 0;
  if (n_ids_out != nullptr) *n_ids_out = 0;
  if (text_bytes_out == nullptr || n_ids_out == nullptr)
    return refuse("text_bytes_out or n_ids_out is NULL");
  if (!call) return refuse(call.why_not());
  if (text_out == nullptr && text_max > 0) return refuse("text_out is NULL and text_max is not 0");
  if (ids_out == nullptr && ids_max > 0) return refuse("ids_out is NULL and ids_max is not 0");
  chat::RenderArgs args;
  if (const char* why_not = read_args(messages_json, n_bytes, options, &args))
    return refuse(why_not);
  bool fits = false;
  const Result<void> done = call.run_text([&](text::Encoder&) -> Result<void> {
    TARN_TRY(const auto conversation, call.engine().render_chat(args));
    const std::string_view text = conversation.rendered.text;
    *text_bytes_out = text.size();
    *n_ids_out = conversation.ids.size();
    fits = (text_max == 0 || text.size() <= text_max) &&
           (ids_max == 0 || conversation.ids.size() <= ids_max);
    if (!fits) return {};
    std::copy_n(text.begin(), std::min<u64>(text.size(), text_max), text_out);
    std::copy_n(conversation.ids.begin(), std::min<u64>(conversation.ids.size(), ids_max), ids_out);
    return {};
  });
  if (!done) return report(done);
  return fits ? TARN_OK
              : refuse(
                    "text_max or ids_max is too small for this conversation: text_bytes_out and "
                    "n_ids_out have the lengths");
}

int32_t tarn_session_feed_chat(tarn_session* session, const char* messages_json, uint64_t n_bytes,
                               const tarn_chat_options* options) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  chat::RenderArgs args;
  if (const char* why_not = read_args(messages_json, n_bytes, options, &args))
    return refuse(why_not);
  return report(call.run_text([&](text::Encoder&) -> Result<void> {
    TARN_TRY(const auto conversation, call.engine().render_chat(args));
    return call.run(
        [&](Engine& engine, SessionIdx idx) { return engine.feed_chat(idx, conversation); });
  }));
}

}  // extern "C"
