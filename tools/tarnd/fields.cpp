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
constexpr Field integer(const char* name, u8 endpoints, i64 Body::*to, i64 least, i64 most) {
  Field field{name, endpoints, Type::integer};
  field.integer = to;
  field.integer_least = least;
  field.integer_most = most;
  return field;
}
constexpr Field number(const char* name, f64 Body::*to, f64 least, f64 most) {
  Field field{name, kBoth, Type::number, kServed, least, most};
  field.number = to;
  return field;
}
// A row of tools::kAnswerFields, also under another name.
constexpr Field answer(const char* of, const char* name = nullptr) {
  const tools::AnswerField& row = tools::answer_field(of);
  const char* const own = name != nullptr ? name : row.name;
  Field field = row.integer != nullptr
                    ? integer(own, kBoth, row.integer, row.integer_least, row.integer_most)
                    : number(own, row.number, row.number_least, row.number_most);
  field.about = row.about;
  return field;
}
constexpr Field text(const char* name, u8 endpoints, std::string Body::*to, f64 least, f64 most,
                     bool is_required = false) {
  Field field{name, endpoints, Type::text, kServed, least, most, is_required};
  field.text = to;
  return field;
}
// One that ends up as a const char*.
constexpr Field c_text(const char* name, u8 endpoints, std::string Body::*to, f64 least, f64 most,
                       bool is_required = false) {
  Field field = text(name, endpoints, to, least, most, is_required);
  field.is_c_text = true;
  return field;
}
constexpr Field list(const char* name, u8 endpoints, Type type, f64 least, f64 most,
                     bool is_required = false) {
  return {name, endpoints, type, kServed, least, most, is_required};
}
constexpr Field stops(const char* name) {
  Field field = list(name, kBoth, Type::texts, 0, kStopsMax);
  field.is_c_text = true;
  return field;
}
constexpr Field object(const char* name, u8 endpoints) { return {name, endpoints, Type::object}; }
constexpr Field ignored(const char* name, u8 endpoints = kBoth) {
  return {name, endpoints, Type::any, kIgnored};
}
// A schema: an empty one asks for JSON, too.
constexpr Field refused_schema(const char* name) { return {name, kBoth, Type::json, kRefused}; }
constexpr Field refused(const char* name, u8 endpoints = kBoth, const char* harmless = "") {
  return {name, endpoints, Type::any, kRefused, 0, 0, false, harmless};
}

constexpr Field kFields[] = {
    c_text("model", kBoth | kTokenize | kDetokenize | kApplyTemplate | kIngest, &Body::model, 0,
           1024),
    list("messages", kChat | kApplyTemplate, Type::messages, 1, kListMax, true),
    list("prompt", kCompletions, Type::prompt, 1, kChoicesMax, true),
    flag("stream", kBoth, &Body::stream),
    object("stream_options", kBoth),
    flag("stream_options.include_usage", kBoth, &Body::include_usage),
    answer("max_tokens", "max_completion_tokens"),
    answer("max_tokens"),
    answer("max_tokens", "n_predict"),
    answer("temperature"),
    answer("top_p"),
    answer("min_p"),
    answer("top_k"),
    answer("repeat_penalty"),
    answer("repeat_penalty", "repetition_penalty"),
    answer("repeat_last_n"),
    answer("presence_penalty"),
    answer("frequency_penalty"),
    answer("seed"),
    stops("stop"),
    integer("n", kBoth, &Body::n, 1, kChoicesMax),
    flag("logprobs", kChat, &Body::logprobs),
    integer("top_logprobs", kChat, &Body::top_logprobs, 0, 20),
    integer("logprobs", kCompletions, &Body::n_logprobs, 0, 20),
    list("logit_bias", kBoth, Type::biases, 0, kBiasesMax),
    flag("ignore_eos", kBoth, &Body::ignore_eos),
    list("chat_template_kwargs", kChat | kApplyTemplate, Type::json, 0, 0),
    flag("add_generation_prompt", kChat | kApplyTemplate, &Body::add_generation_prompt),
    object("tarn", kBoth | kIngest),
    c_text("tarn.session", kBoth, &Body::session, 1, 128),
    c_text("tarn.select", kBoth, &Body::select, 0, 64),
    flag("tarn.background", kBoth, &Body::background),
    list("tarn.chunks", kCompletions, Type::passages, 0, kChunksMax),
    refused("tarn.chunks", kChat),
    refused("chunk", kBoth | kIngest),
    refused("chunks", kBoth | kIngest),
    number("tarn.recompute", &Body::recompute, 0, 1),

    text("content", kTokenize, &Body::content, 0, kTextMax, true),
    flag("add_special", kTokenize, &Body::add_special),
    flag("parse_special", kTokenize, &Body::parse_special),
    flag("with_pieces", kTokenize, &Body::with_pieces),
    list("tokens", kDetokenize, Type::ids, 0, kListMax, true),

    c_text("name", kIngest, &Body::name, 1, 128, true),
    text("content", kIngest, &Body::content, 1, kTextMax),
    list("tokens", kIngest, Type::ids, 1, kListMax),
    flag("replace", kIngest, &Body::replaces),

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
    ignored("stream_options.continuous_usage_stats"),
    ignored("chat_id"),
    ignored("request_id"),
    ignored("rid"),
    ignored("priority"),
    ignored("cache_salt"),
    ignored("keep_alive"),
    ignored("ttl"),
    ignored("include_reasoning"),
    ignored("separate_reasoning"),
    ignored("parse_tool_calls"),
    ignored("mm_processor_kwargs"),
    ignored("guided_decoding_backend"),
    ignored("guided_whitespace_pattern"),
    ignored("length_penalty"),  // of beams, as early_stopping
    ignored("early_stopping"),
    ignored("dry_base"),  // each without its multiplier, range, probability or mode
    ignored("dry_allowed_length"),
    ignored("dry_penalty_last_n"),
    ignored("dry_sequence_breakers"),
    ignored("dynatemp_exponent"),
    ignored("xtc_threshold"),
    ignored("mirostat_tau"),
    ignored("mirostat_eta"),
    ignored("n_discard"),
    ignored("n_cache_reuse"),
    ignored("adaptive_decay"),
    ignored("grammar_lazy"),
    ignored("grammar_triggers"),
    ignored("reasoning_budget_message"),
    ignored("reasoning_budget_start_tag"),
    ignored("reasoning_budget_end_tag"),
    ignored("reasoning_budget_end_tags"),
    ignored("num_beam_groups"),
    ignored("diversity_penalty"),
    ignored("smoothing_curve"),
    ignored("backend_sampling"),
    ignored("verbose"),
    ignored("sse_ping_interval"),
    ignored("kv_transfer_params"),
    ignored("media_io_kwargs"),
    ignored("draft_model"),
    ignored("shift"),

    // OpenAI's interface.
    refused("tools", kBoth | kApplyTemplate),
    refused("tool_choice", kBoth, "none|auto"),
    refused("functions"),
    refused("function_call", kBoth, "none|auto"),
    object("response_format", kBoth),
    refused("response_format.type", kBoth, "text"),
    refused("modalities", kBoth, "text"),
    refused("audio"),
    refused("prediction"),
    refused("web_search_options"),
    refused("reasoning_effort", kBoth, "none"),
    refused("verbosity", kBoth, "medium"),
    refused("best_of", kBoth, "1"),
    refused("echo"),
    refused("suffix"),
    refused("max_output_tokens"),

    // Templates and prompts.
    refused("continue_final_message", kBoth | kApplyTemplate),
    refused("chat_template", kBoth | kApplyTemplate),
    refused("chat_format"),
    refused("chat_parser"),
    refused("generation_prompt"),
    refused("documents", kBoth | kApplyTemplate),
    refused("enable_thinking", kBoth | kApplyTemplate, "null"),
    refused("think", kBoth | kApplyTemplate, "null"),
    refused("thinking", kBoth | kApplyTemplate, "null"),
    refused("reasoning", kBoth | kApplyTemplate),
    refused("reasoning_format", kBoth, "none|auto"),
    refused("reasoning_budget", kBoth, "-1"),
    refused("reasoning_budget_tokens", kBoth, "-1"),
    refused("thinking_budget_tokens", kBoth, "-1"),
    refused("reasoning_control"),
    refused("prompt_mode"),
    refused("thinking_budget"),
    refused("thinking_token_budget"),
    refused("add_special_tokens", kCompletions, "true"),
    refused("add_special_tokens", kChat | kTokenize),
    refused("return_token_strs", kTokenize),
    refused("truncate_prompt_tokens"),
    refused("truncate"),
    refused("transforms"),
    refused("system"),
    refused("template"),
    refused("raw"),
    refused("context"),
    refused("images"),
    refused("image_data"),
    refused("multimodal_data"),
    refused("prompt_embeds"),
    refused("input_ids"),
    refused("negative_prompt"),
    refused("tool_prompt"),
    refused("prompt_truncate_len"),
    refused("context_length_exceeded_behavior", kBoth, "error"),
    refused("input_prefix"),
    refused("input_suffix"),
    refused("input_extra"),
    refused("safe_prompt"),
    refused("session_params"),

    // The form of an answer.
    refused("grammar"),
    refused_schema("json_schema"),
    refused_schema("format"),
    refused_schema("guided_json"),
    refused_schema("structural_tag"),
    refused("guided_decoding"),
    refused("guided_choice"),
    refused("guided_regex"),
    refused("guided_grammar"),
    refused("structured_outputs"),
    refused("guideline"),
    refused("regex"),
    refused("ebnf"),
    refused("bad_words"),
    refused("banned_tokens"),
    refused("banned_strings"),
    refused("custom_token_bans"),
    refused("preserved_tokens"),
    refused("allowed_token_ids"),
    refused("logit_bias_type", kBoth, "input_ids"),
    refused("logits_processors"),
    refused("logit_processors"),
    refused("custom_logit_processor"),
    refused("watermark"),

    // Where it ends.
    refused("stop_token_ids"),
    refused("stop_sequence"),
    refused("stop_sequences"),
    refused("stop_words"),
    refused("stop_regex"),
    refused("no_stop_trim"),
    refused("include_stop_str_in_output"),
    refused("min_tokens", kBoth, "0"),
    refused("min_new_tokens", kBoth, "0"),
    refused("min_length", kBoth, "0"),
    refused("max_length"),
    refused("max_new_tokens"),
    refused("num_predict"),
    refused("t_max_predict_ms", kBoth, "-1|0"),
    refused("t_max_prompt_ms", kBoth, "-1|0"),
    refused("repetition_detection"),
    refused("n_indent", kBoth, "0"),

    // How its tokens are drawn.
    refused("options"),
    refused("parameters"),
    refused("sampling_params"),
    refused("num_ctx"),
    refused("random_seed"),
    refused("do_sample", kBoth, "true"),
    refused("use_beam_search"),
    refused("num_beams", kBoth, "1"),
    refused("beam_width", kBoth, "1"),
    refused("vllm_xargs"),
    refused("custom_params"),
    refused("typical", kBoth, "1"),
    refused("tfs", kBoth, "1"),
    refused("nsigma", kBoth, "0"),
    refused("skew", kBoth, "0"),
    refused("temperature_last"),
    refused("dynamic_temperature"),
    refused("rep_pen", kBoth, "1"),
    refused("repetition_penalty_range", kBoth, "0"),
    refused("encoder_repetition_penalty", kBoth, "1"),
    refused("penalty_alpha", kBoth, "0"),
    refused("penalize_newline", kBoth, "true"),
    refused("typical_p", kBoth, "1"),
    refused("tfs_z", kBoth, "1"),
    refused("top_a", kBoth, "0"),
    refused("top_n_sigma", kBoth, "0|-1"),
    refused("min_keep", kBoth, "0|1"),
    refused("xtc_probability", kBoth, "0"),
    refused("dry_multiplier", kBoth, "0"),
    refused("dynatemp_range", kBoth, "0"),
    refused("mirostat", kBoth, "0"),
    refused("mirostat_mode", kBoth, "0"),
    refused("adaptive_target", kBoth, "-1"),
    refused("smoothing_factor", kBoth, "0"),
    refused("epsilon_cutoff", kBoth, "0"),
    refused("eta_cutoff", kBoth, "0"),
    refused("no_repeat_ngram_size", kBoth, "0"),
    refused("guidance_scale", kBoth, "1"),
    refused("penalize_nl", kBoth, "true"),
    refused("n_keep", kBoth, "0|-1"),
    refused("samplers"),
    refused("sampler_order"),
    refused("lora"),
    refused("lora_path"),
    refused("adapter_id"),

    // Facts about its tokens.
    refused("n_probs", kBoth, "0"),
    refused("n_cmpl", kBoth, "1"),
    refused("prompt_logprobs"),
    refused("logprob_token_ids"),
    refused("return_hidden_states"),
    refused("top_n_tokens", kBoth, "0"),
    refused("decoder_input_details"),
    refused("post_sampling_probs"),
    refused("return_tokens"),
    refused("return_token_ids"),
    refused("return_tokens_as_token_ids"),
    refused("return_full_text"),
    refused("response_fields"),
    refused("skip_special_tokens", kBoth, "true"),
    refused("spaces_between_special_tokens", kBoth, "true"),
    refused("detokenize", kBoth, "true"),
    refused("details"),
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
