// /v1/chat/completions and /v1/completions.
#include <algorithm>

#include "tools/tarnd/completion_reply.h"
#include "tools/tarnd/log.h"
#include "tools/tarnd/routes.h"

namespace tarn::daemon {
namespace {

// The built-in model goes on with questions of its own; this ends a chat's answer.
constexpr const char* kBuiltInStop = "\n";

tarn_generate_options options_of(const Body& body, bool is_chat) {
  tarn_generate_options options = tools::options_of(body);
  options.ignore_end = body.ignore_eos ? 1 : 0;
  const bool has_logprobs = is_chat ? body.logprobs : body.n_logprobs >= 0;
  options.no_logprobs = has_logprobs ? 0 : 1;
  const i64 n_top = is_chat ? body.top_logprobs : std::max<i64>(body.n_logprobs, 0);
  options.n_top_logprobs = static_cast<u32>(n_top);
  return options;
}

AnswerPlan plan_of(Body& body, bool is_chat, const Request& request, const Model& model) {
  AnswerPlan plan;
  plan.is_chat = is_chat;
  plan.messages_json = std::move(body.messages_json);
  plan.arguments_json = std::move(body.template_arguments_json);
  plan.has_generation_prompt = body.add_generation_prompt;
  plan.prompts = std::move(body.prompts);
  plan.chunks = std::move(body.chunks);
  plan.has_chunks = body.has_chunks;
  plan.recompute = static_cast<f32>(body.recompute);
  plan.n_choices = static_cast<u32>(body.n);
  plan.options = options_of(body, is_chat);
  plan.reads_alone = body.max_tokens == 0;
  plan.stops = std::move(body.stops);
  if (is_chat && model.is_built_in && !body.has_stops) plan.stops = {kBuiltInStop};
  plan.biases = std::move(body.biases);
  plan.tenant = request.peer.tenant;
  plan.session = std::move(body.session);
  plan.is_background = body.background;
  return plan;
}

ReplyForm form_of(const Body& body, bool is_chat, const Request& request, const Service& service) {
  return {.is_chat = is_chat,
          .streams = body.stream,
          .includes_usage = body.include_usage,
          .has_logprobs = is_chat ? body.logprobs : body.n_logprobs >= 0,
          .model = service.model.name,
          .tenant = request.peer.tenant,
          .session = body.session,
          .select = service.model.status.select,
          .engine = service.port.get()};
}

// The share of chunks that is computed anew is the model's, and no record names it.
void warn_unblended(const Body& body, const Service& service, const Request& request) {
  const bool has_chunks = body.has_chunks || !body.chunks.empty();
  const bool is_auto = body.recompute == f64{TARN_RECOMPUTE_AUTO};
  if (!has_chunks || !is_auto || service.model.status.recompute < 1) return;
  log_event(Event::chunks_in_full,
            {{"id", request.id},
             {"text",
              "no record names a share for this model: tarn verify --reuse --record FILE finds one "
              "(then --config FILE), and a request's tarn.recompute sets one"}});
}

void answer(Service& service, const std::shared_ptr<Exchange>& exchange, bool is_chat) {
  Body body;
  body.n_vocab = service.model.status.n_vocab;
  const Endpoint endpoint = is_chat ? kChat : kCompletions;
  Request& request = exchange->request;
  std::optional<HttpError> error = read_body(endpoint, request.body, body);
  if (!error && !body.select.empty() && body.select != service.model.status.select) {
    error = invalid_request(
        std::string("'tarn.select' is chosen at the start, and is ") + service.model.status.select,
        "tarn.select");
  }
  if (error) return exchange->reply(*error);
  std::string().swap(request.body);
  warn_unblended(body, service, request);
  ReplyForm form = form_of(body, is_chat, request, service);
  AnswerPlan plan = plan_of(body, is_chat, request, service.model);
  const u32 n_choices = plan.n_prompts() * plan.n_choices;
  auto sink = std::make_unique<CompletionReply>(exchange, std::move(form), n_choices);
  Answer* const started = service.answers.start(std::move(plan), std::move(sink));
  if (started != nullptr) exchange->on_gone([started] { started->abandon(); });
}

}  // namespace

void answer_chat(Service& service, const std::shared_ptr<Exchange>& exchange) {
  answer(service, exchange, /*is_chat=*/true);
}

void answer_completion(Service& service, const std::shared_ptr<Exchange>& exchange) {
  answer(service, exchange, /*is_chat=*/false);
}

}  // namespace tarn::daemon
