// The C border of a conversation that a template writes.
#include <algorithm>
#include <string_view>

#include "runtime/api/border.h"
#include "runtime/api/tarn_chat.h"
#include "runtime/api/tarn_chunks.h"
#include "runtime/service/chunk_list.h"
#include "runtime/service/text_desk.h"

using namespace tarn;
using namespace tarn::api;
using engine::Engine;
using engine::SessionIdx;
using service::Ids;
using service::TextDesk;

namespace {

std::string_view view_of(const char* text) {
  return text == nullptr ? std::string_view() : std::string_view(text);
}

// A conversation as a call holds it.
struct Chat {
  std::string_view messages, tools, arguments;
  bool add_generation_prompt = true;
  bool has_chunks = false;
  f32 recompute = 1;
  chat::RenderArgs args() const {
    return {.messages = messages,
            .tools = tools,
            .arguments = arguments,
            .add_generation_prompt = add_generation_prompt};
  }
};

// Why the arguments of a call are refused, or nothing.
Refusal read_args(const char* messages_json, uint64_t n_bytes, const tarn_chat_options* options,
                  Chat* chat) {
  tarn_chat_options own{};
  if (const Refusal why_not = options == nullptr ? Refusal() : copy_in(options, &own))
    return why_not;
  if (messages_json == nullptr)
    return {"messages_json", "messages_json is NULL: give a JSON array of messages"};
  *chat = {.messages = {messages_json, n_bytes},
           .tools = view_of(own.tools_json),
           .arguments = view_of(own.arguments_json),
           .add_generation_prompt = own.no_generation_prompt == 0,
           .has_chunks = own.has_chunks != 0,
           .recompute = own.has_chunks != 0 ? own.recompute : 1};
  return is_share(chat->recompute) ? Refusal() : kBadShare;
}

// Where a rendered conversation goes.
struct Rendering {
  char* text = nullptr;
  uint64_t text_max = 0;
  uint64_t* text_bytes = nullptr;
  uint32_t* ids = nullptr;
  uint64_t ids_max = 0;
  uint64_t* n_ids = nullptr;

  Result<void> write(std::string_view from, std::span<const u32> from_ids) const {
    *text_bytes = from.size();
    *n_ids = from_ids.size();
    const bool fits =
        (text_max == 0 || from.size() <= text_max) && (ids_max == 0 || from_ids.size() <= ids_max);
    if (!fits) {
      return fail({.status = Status::invalid_request,
                   .reason = Reason::bad_field,
                   .key = "text_max",
                   .hint =
                       "text_max or ids_max is too small for this conversation: text_bytes_out and "
                       "n_ids_out have the lengths"});
    }
    std::copy_n(from.begin(), std::min<u64>(from.size(), text_max), text);
    std::copy_n(from_ids.begin(), std::min<u64>(from_ids.size(), ids_max), ids);
    return {};
  }
};

int32_t render(const Way& way, tarn_engine* engine, const char* messages_json, uint64_t n_bytes,
               const tarn_chat_options* options, const Rendering& out) {
  const EngineCall call(engine);
  if (out.text_bytes != nullptr) *out.text_bytes = 0;
  if (out.n_ids != nullptr) *out.n_ids = 0;
  if (out.text_bytes == nullptr || out.n_ids == nullptr)
    return refuse({"text_bytes_out", "text_bytes_out or n_ids_out is NULL"});
  if (!call) return refuse(call.why_not());
  if (out.text == nullptr && out.text_max > 0)
    return refuse({"text_out", "text_out is NULL and text_max is not 0"});
  if (out.ids == nullptr && out.ids_max > 0)
    return refuse({"ids_out", "ids_out is NULL and ids_max is not 0"});
  Chat chat;
  if (const Refusal why_not = read_args(messages_json, n_bytes, options, &chat))
    return refuse(why_not);
  return call.serve_text(way, [chat, out](TextDesk& desk) -> Result<void> {
    TARN_TRY(const chat::Rendered rendered, desk.render(chat.args(), chat.has_chunks));
    return out.write(rendered.text, desk.ids().ids);
  });
}

int32_t feed_chat(const Way& way, tarn_session* session, const char* messages_json,
                  uint64_t n_bytes, const tarn_chat_options* options) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  Chat chat;
  if (const Refusal why_not = read_args(messages_json, n_bytes, options, &chat))
    return refuse(why_not);
  return call.serve_text(
      way,
      [chat](TextDesk& desk) -> Result<void> {
        TARN_CHECK(desk.render(chat.args(), chat.has_chunks));
        return {};
      },
      [recompute = chat.recompute](Engine& engine, SessionIdx idx, const Ids& ids) -> Result<void> {
        TARN_TRY(const service::ChunkList chunks, service::chunks_of(engine, ids, recompute));
        return engine.sessions().feed_chat(idx, {.ids = ids.ids, .notes = ids.notes},
                                           chunks.parts());
      });
}

}  // namespace

extern "C" {

int32_t tarn_chat_render(tarn_engine* engine, const char* messages_json, uint64_t n_bytes,
                         const tarn_chat_options* options, char* text_out, uint64_t text_max,
                         uint64_t* text_bytes_out, uint32_t* ids_out, uint64_t ids_max,
                         uint64_t* n_ids_out) {
  return render(kWaits, engine, messages_json, n_bytes, options,
                {text_out, text_max, text_bytes_out, ids_out, ids_max, n_ids_out});
}
int32_t tarn_submit_chat_render(tarn_engine* engine, const char* messages_json, uint64_t n_bytes,
                                const tarn_chat_options* options, char* text_out, uint64_t text_max,
                                uint64_t* text_bytes_out, uint32_t* ids_out, uint64_t ids_max,
                                uint64_t* n_ids_out, void* request) {
  return render(later(request), engine, messages_json, n_bytes, options,
                {text_out, text_max, text_bytes_out, ids_out, ids_max, n_ids_out});
}

int32_t tarn_session_feed_chat(tarn_session* session, const char* messages_json, uint64_t n_bytes,
                               const tarn_chat_options* options) {
  return feed_chat(kWaits, session, messages_json, n_bytes, options);
}
int32_t tarn_submit_feed_chat(tarn_session* session, const char* messages_json, uint64_t n_bytes,
                              const tarn_chat_options* options, void* request) {
  return feed_chat(later(request), session, messages_json, n_bytes, options);
}

}  // extern "C"
