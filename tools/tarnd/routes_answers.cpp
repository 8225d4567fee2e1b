// /v1/chat/completions and /v1/completions.
#include <sys/random.h>

#include <algorithm>

#include "tools/tarnd/completion_reply.h"
#include "tools/tarnd/routes.h"

namespace tarn::daemon {
namespace {

// The built-in model goes on with questions of its own; this ends a chat's answer.
constexpr const char* kBuiltInStop = "\n";

u64 random_seed() {
  u64 seed = 0;
  static_cast<void>(getrandom(&seed, sizeof seed, GRND_NONBLOCK));
  return seed;
}

tarn_generate_options options_of(const Body& body, bool is_chat) {
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  options.max_tokens = static_cast<u32>(std::max<i64>(body.max_tokens, 0));
  options.temperature = static_cast<f32>(body.temperature);
  options.top_k = static_cast<u32>(std::max<i64>(body.top_k, 0));
  options.top_p = static_cast<f32>(body.top_p);
  options.min_p = static_cast<f32>(body.min_p);
  if (body.repeat_last_n != 0) {
    options.repetition_penalty = static_cast<f32>(body.repeat_penalty);
    options.frequency_penalty = static_cast<f32>(body.frequency_penalty);
    options.presence_penalty = static_cast<f32>(body.presence_penalty);
    constexpr u32 kPenaltyTokensMax = 4096;
    options.penalty_last_tokens =
        body.repeat_last_n < 0 ? kPenaltyTokensMax : static_cast<u32>(body.repeat_last_n);
  }
  options.seed = body.seed < 0 ? random_seed() : static_cast<u64>(body.seed);
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

void answer(Service& service, const std::shared_ptr<Exchange>& exchange, bool is_chat) {
  Body body;
  const Endpoint endpoint = is_chat ? kChat : kCompletions;
  Request& request = exchange->request;
  std::optional<HttpError> error = read_body(endpoint, request.body, body);
  if (!error && !body.select.empty() && body.select != service.model.status.select) {
    error = invalid_request(
        std::string("'tarn.select' is chosen at the start, and is ") + service.model.status.select,
        "tarn.select");
  }
  const u64 n_vocab = service.model.status.n_vocab;
  const auto is_unknown = [n_vocab](const tarn_logit_bias& bias) { return bias.token >= n_vocab; };
  if (!error && std::ranges::any_of(body.biases, is_unknown)) {
    error = invalid_request("'logit_bias' names a token that the vocabulary of " +
                                std::to_string(n_vocab) + " does not have",
                            "logit_bias");
  }
  if (error) return exchange->reply(*error);
  std::string().swap(request.body);
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
