// /tokenize, /detokenize and /apply-template. What is submitted lives in a Call until its reply.
#include "runtime/api/tarn_chat.h"
#include "runtime/text/unicode.h"
#include "tools/support/escaped.h"
#include "tools/support/json.h"
#include "tools/tarnd/routes.h"

namespace tarn::daemon {
namespace {

struct Tokenizing {
  Body body;
  std::vector<u32> ids;
  u64 n_ids = 0;
};

void write_tokens(Service& service, const Tokenizing& call, tools::JsonLine& json) {
  json.begin_object().key("tokens").begin_array();
  for (u64 i = 0; i < call.n_ids; ++i) {
    if (!call.body.with_pieces) {
      json.number(call.ids[i]);
      continue;
    }
    const std::string piece = piece_of(service.port.get(), call.ids[i]).value_or("");
    json.begin_object().key("id").number(call.ids[i]).key("piece");
    text::is_utf8(piece) ? json.text(piece) : json.bytes(piece);
    json.end_object();
  }
  json.end_array().end_object();
}

}  // namespace

void answer_tokenize(Service& service, const std::shared_ptr<Exchange>& exchange) {
  auto call = std::make_shared<Tokenizing>();
  if (auto error = read_body(kTokenize, exchange->request.body, call->body)) {
    return exchange->reply(*error);
  }
  call->ids.resize(ids_max(call->body.content.size()));
  const u64 piece_bytes = call->body.with_pieces ? 64 : 12;
  if (!exchange->request.lease.grow_to(exchange->request.lease.bytes() +
                                       call->ids.size() * piece_bytes)) {
    return exchange->reply(no_request_memory());
  }
  service.port.call(
      [call](tarn_engine* engine, void* request) {
        const u32 flags = (call->body.add_special ? u32{TARN_ADD_SPECIAL} : 0) |
                          (call->body.parse_special ? u32{TARN_PARSE_SPECIAL} : 0);
        return tarn_submit_tokenize(engine, call->body.content.data(), call->body.content.size(),
                                    flags, call->ids.data(), call->ids.size(), &call->n_ids,
                                    request);
      },
      [call, exchange, &service](const tarn_event& reply) {
        if (reply.status != TARN_OK) {
          return exchange->reply(http_error(error_in(reply), "content"));
        }
        tools::JsonLine json;
        write_tokens(service, *call, json);
        exchange->reply({.body = json.str()});
      });
}

void answer_detokenize(Service& service, const std::shared_ptr<Exchange>& exchange) {
  Body body;
  body.n_vocab = service.model.status.n_vocab;
  if (auto error = read_body(kDetokenize, exchange->request.body, body)) {
    return exchange->reply(*error);
  }
  std::string text;
  for (size_t i = 0; i < body.tokens.size(); ++i) {
    const std::optional<std::string> piece = piece_of(service.port.get(), body.tokens[i]);
    if (!piece) {
      return exchange->reply(invalid_request(
          "'tokens' has an id that is no token: entry " + std::to_string(i), "tokens"));
    }
    text += *piece;
  }
  tools::JsonLine json;
  json.begin_object().key("content").text(tools::as_utf8(text)).end_object();
  exchange->reply({.body = json.str()});
}

namespace {

struct Rendering {
  Body body;
  std::string text;
  u64 text_bytes = 0, n_ids = 0;
  std::vector<u32> ids;
};

// First for the lengths, then with room for them.
void render(Service& service, const std::shared_ptr<Exchange>& exchange,
            const std::shared_ptr<Rendering>& call, bool is_second) {
  service.port.call(
      [call](tarn_engine* engine, void* request) {
        tarn_chat_options options = TARN_INIT(tarn_chat_options);
        options.no_generation_prompt = call->body.add_generation_prompt ? 0 : 1;
        const std::string& arguments = call->body.template_arguments_json;
        options.arguments_json = arguments.empty() ? nullptr : arguments.c_str();
        options.has_chunks = call->body.has_chunks ? 1 : 0;
        return tarn_submit_chat_render(engine, call->body.messages_json.data(),
                                       call->body.messages_json.size(), &options, call->text.data(),
                                       call->text.size(), &call->text_bytes, call->ids.data(),
                                       call->ids.size(), &call->n_ids, request);
      },
      [call, exchange, &service, is_second](const tarn_event& reply) {
        const bool is_too_small =
            call->text_bytes > call->text.size() || call->n_ids > call->ids.size();
        if (!is_second && is_too_small) {
          call->text.resize(call->text_bytes);
          call->ids.resize(call->n_ids);
          return render(service, exchange, call, /*is_second=*/true);
        }
        if (reply.status != TARN_OK) {
          return exchange->reply(http_error(error_in(reply), "messages"));
        }
        call->text.resize(call->text_bytes);
        tools::JsonLine json;
        json.begin_object().key("prompt").text(call->text).end_object();
        exchange->reply({.body = json.str()});
      });
}

}  // namespace

void answer_apply_template(Service& service, const std::shared_ptr<Exchange>& exchange) {
  auto call = std::make_shared<Rendering>();
  if (auto error = read_body(kApplyTemplate, exchange->request.body, call->body)) {
    return exchange->reply(*error);
  }
  render(service, exchange, call, /*is_second=*/false);
}

}  // namespace tarn::daemon
