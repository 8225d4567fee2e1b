#include "tools/tarnd/fields.h"

namespace tarn::daemon {
namespace {

constexpr u8 kBoth = kChat | kCompletions;
constexpr f64 kTextMax = 1e9;  // the body's own bound is lower
constexpr f64 kListMax = 1e9;
using Type = FieldType;
constexpr FieldKind kServed = FieldKind::served, kIgnored = FieldKind::ignored,
                    kRefused = FieldKind::refused;

constexpr Field flag(const char* name, u8 endpoints, bool Body::*to) {
  Field field{name, endpoints, Type::boolean};
  field.flag = to;
  return field;
}
constexpr Field integer(const char* name, u8 endpoints, i64 Body::*to, f64 least, f64 most) {
  Field field{name, endpoints, Type::integer, kServed, least, most};
  field.integer = to;
  return field;
}
constexpr Field number(const char* name, f64 Body::*to, f64 least, f64 most, u8 endpoints = kBoth) {
  Field field{name, endpoints, Type::number, kServed, least, most};
  field.number = to;
  return field;
}
constexpr Field text(const char* name, u8 endpoints, std::string Body::*to, f64 least, f64 most,
                     bool is_required = false) {
  Field field{name, endpoints, Type::text, kServed, least, most, is_required};
  field.text = to;
  return field;
}
constexpr Field list(const char* name, u8 endpoints, Type type, f64 least, f64 most,
                     bool is_required = false) {
  return {name, endpoints, type, kServed, least, most, is_required};
}
constexpr Field object(const char* name, u8 endpoints) { return {name, endpoints, Type::object}; }
constexpr Field ignored(const char* name, u8 endpoints = kBoth) {
  return {name, endpoints, Type::any, kIgnored};
}
constexpr Field refused(const char* name, u8 endpoints = kBoth, const char* harmless = "") {
  return {name, endpoints, Type::any, kRefused, 0, 0, false, harmless};
}

constexpr Field kFields[] = {
    text("model", kBoth | kTokenize | kDetokenize | kApplyTemplate | kIngest, &Body::model, 0,
         1024),
    list("messages", kChat | kApplyTemplate, Type::messages, 1, kListMax, true),
    list("prompt", kCompletions, Type::prompt, 1, kChoicesMax, true),
    flag("stream", kBoth, &Body::stream),
    object("stream_options", kBoth),
    flag("stream_options.include_usage", kBoth, &Body::include_usage),
    integer("max_tokens", kBoth, &Body::max_tokens, -1, 2147483647),
    integer("max_completion_tokens", kBoth, &Body::max_tokens, -1, 2147483647),
    integer("n_predict", kBoth, &Body::max_tokens, -1, 2147483647),
    number("temperature", &Body::temperature, 0, 100),
    number("top_p", &Body::top_p, 0, 1),
    number("min_p", &Body::min_p, 0, 1),
    integer("top_k", kBoth, &Body::top_k, -1, 2147483647),
    number("repeat_penalty", &Body::repeat_penalty, 0, 100),
    integer("repeat_last_n", kBoth, &Body::repeat_last_n, -1, 4096),
    number("presence_penalty", &Body::presence_penalty, -2, 2),
    number("frequency_penalty", &Body::frequency_penalty, -2, 2),
    integer("seed", kBoth, &Body::seed, -1, kIntegerMax),
    list("stop", kBoth, Type::texts, 0, kStopsMax),
    integer("n", kBoth, &Body::n, 1, kChoicesMax),
    flag("logprobs", kChat, &Body::logprobs),
    integer("top_logprobs", kChat, &Body::top_logprobs, 0, 20),
    integer("logprobs", kCompletions, &Body::n_logprobs, 0, 20),
    list("logit_bias", kBoth, Type::biases, 0, kBiasesMax),
    flag("ignore_eos", kBoth, &Body::ignore_eos),
    list("chat_template_kwargs", kChat | kApplyTemplate, Type::json, 0, 0),
    flag("add_generation_prompt", kChat | kApplyTemplate, &Body::add_generation_prompt),
    object("tarn", kBoth | kIngest),
    text("tarn.session", kBoth, &Body::session, 1, 128),
    text("tarn.select", kBoth, &Body::select, 0, 64),
    flag("tarn.background", kBoth, &Body::background),
    list("tarn.chunks", kCompletions, Type::passages, 0, kChunksMax),
    refused("tarn.chunks", kChat),
    number("tarn.recompute", &Body::recompute, 0, 1),

    text("content", kTokenize, &Body::content, 0, kTextMax, true),
    flag("add_special", kTokenize, &Body::add_special),
    flag("parse_special", kTokenize, &Body::parse_special),
    flag("with_pieces", kTokenize, &Body::with_pieces),
    list("tokens", kDetokenize, Type::ids, 0, kListMax, true),

    text("name", kIngest, &Body::name, 1, 128, true),
    text("content", kIngest, &Body::content, 1, kTextMax),
    list("tokens", kIngest, Type::ids, 1, kListMax),

    ignored("user"),
    ignored("metadata"),
    ignored("store"),
    ignored("service_tier"),
    ignored("safety_identifier"),
    ignored("prompt_cache_key"),
    ignored("prompt_cache_retention"),
    ignored("parallel_tool_calls"),
    ignored("cache_prompt"),
    ignored("id_slot"),
    ignored("timings_per_token"),
    ignored("return_progress"),
    ignored("stream_options.include_obfuscation"),

    refused("tools", kBoth | kApplyTemplate),
    refused("tool_choice", kBoth, "none|auto"),
    refused("functions"),
    refused("function_call", kBoth, "none|auto"),
    object("response_format", kBoth),
    refused("response_format.type", kBoth, "text"),
    refused("grammar"),
    refused("json_schema"),
    refused("modalities", kBoth, "text"),
    refused("audio"),
    refused("prediction"),
    refused("web_search_options"),
    refused("reasoning_effort", kBoth, "none"),
    refused("verbosity", kBoth, "medium"),
    refused("best_of", kBoth, "1"),
    refused("echo"),
    refused("suffix"),
    refused("continue_final_message", kBoth | kApplyTemplate),
    refused("t_max_predict_ms", kBoth, "-1"),
    refused("typical_p", kBoth, "1"),
    refused("top_n_sigma", kBoth, "-1"),
    refused("xtc_probability", kBoth, "0"),
    refused("dry_multiplier", kBoth, "0"),
    refused("dynatemp_range", kBoth, "0"),
    refused("mirostat", kBoth, "0"),
    refused("n_keep", kBoth, "0|-1"),
    refused("lora"),
    refused("samplers"),
    refused("post_sampling_probs"),
    refused("return_tokens"),
};

}  // namespace

std::span<const Field> fields() { return kFields; }

const Field* find_field(Endpoint endpoint, std::string_view name) {
  for (const Field& field : kFields) {
    if ((field.endpoints & endpoint) != 0 && field.name == name) return &field;
  }
  return nullptr;
}

const char* field_type_name(FieldType type) {
  constexpr const char* kNames[] = {"true or false",
                                    "an integer",
                                    "a number",
                                    "a text",
                                    "a text or a list of texts",
                                    "a list of texts",
                                    "a text, a list of texts, or token ids",
                                    "a list of token ids",
                                    "an object of token ids and biases",
                                    "a list of messages",
                                    "an object",
                                    "an object",
                                    "any value"};
  return kNames[static_cast<u32>(type)];
}

}  // namespace tarn::daemon
