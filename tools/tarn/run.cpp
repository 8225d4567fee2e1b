// tarn run: answers a prompt from one fixed budget.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "runtime/api/tarn_chat.h"
#include "runtime/api/tarn_chunks.h"
#include "runtime/engine/engine.h"
#include "tools/chat/conversation.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/json.h"
#include "tools/support/model_file.h"
#include "tools/support/passages.h"
#include "tools/tarn/answer_options.h"
#include "tools/tarn/chat_options.h"
#include "tools/tarn/commands.h"
#include "tools/tarn/context.h"
#include "tools/tarn/kept_session.h"
#include "tools/tarn/report.h"
#include "tools/tarn/sample.h"

namespace tarn::tools {
namespace {

struct RunCommand {
  EngineOptions engine;
  std::string text, file, ids_file;
  std::vector<std::string> chunk_files;
  u32 chunk_tokens = kPassageTokens;
  std::string recompute = "auto";
  SessionOptions session;
  std::string sample = kBuiltInNames[0];
  ChatOptions chat;
  bool is_chat = false;
  bool parse_special = false;
  bool json = false;
  i64 n_predict = 128;  // -1: until the end
  AnswerOptions answer;
  Option prompt_option;
};

constexpr u64 kSessionTokens = 8192;  // the least context of a kept session without -c

void warn_of_full_context(const RunCommand& command, u64 n_prompt, u64 n_context) {
  if (n_context >= n_prompt + static_cast<u64>(command.n_predict)) return;
  std::fprintf(stderr,
               "tarn warning: -n %lld: the answer ends when the model's context of %llu tokens is "
               "full; set another with -c\n",
               static_cast<long long>(command.n_predict),
               static_cast<unsigned long long>(n_context));
}

// The input. A pipe is read only once, and a session's next input is encoded differently.
struct Prompt {
  std::string text;
  std::vector<u32> ids;
  bool is_empty = false;  // except for BOS
};

std::vector<u32> encoded(const RunCommand& command, const std::string& text, bool add_bos) {
  ModelFile file(command.engine.model);
  return file.encode(text, {.add_bos = add_bos, .parse_special = command.parse_special});
}

Prompt prompt_of(const RunCommand& command, bool add_bos) {
  Prompt prompt;
  if (!command.ids_file.empty()) {
    prompt.ids = read_ids(command.ids_file);
    prompt.is_empty = prompt.ids.empty();
  } else {
    prompt.text = command.file.empty() ? command.text : read_file(command.file);
    prompt.ids = encoded(command, prompt.text, add_bos);
    prompt.is_empty = prompt.text.empty();
  }
  if (prompt.is_empty) warn_of_empty("prompt", command.file + command.ids_file);
  return prompt;
}

f32 recompute_of(const std::string& text) {
  if (text == "auto") return TARN_RECOMPUTE_AUTO;
  if (text == "all") return 1;
  char* end = nullptr;
  const f32 share = std::strtof(text.c_str(), &end);
  if (!text.empty() && *end == '\0' && share >= 0 && share <= 1) return share;
  throw Failure{kExitUsage, "--recompute takes auto, all, or a share from 0 to 1, as in 0.15"};
}

// A message's content has chunks between two characters that no text needs.
bool has_mark(const std::string& text) {
  return text.find(TARN_CHUNK_BEGIN) != text.npos || text.find(TARN_CHUNK_END) != text.npos;
}

std::string marked_as_chunk(const std::string& text, const std::string& path) {
  if (!has_mark(text)) return TARN_CHUNK_BEGIN + text + TARN_CHUNK_END;
  throw Failure{kExitRefused, path +
                                  ": has U+FDD0 or U+FDD1, which stand around chunks: remove "
                                  "them"};
}

// Returns what comes in front of the prompt, which has no BOS then.
std::optional<Passages> passages_of(const RunCommand& command) {
  if (command.chunk_files.empty()) return std::nullopt;
  if (command.session.is_kept() || !command.ids_file.empty()) {
    throw Failure{kExitUsage,
                  "--chunk goes with -p TEXT or -f FILE, without --session and --prompt-ids"};
  }
  Passages passages{.begin = encoded(command, "", /*add_bos=*/true),
                    .recompute = recompute_of(command.recompute)};
  ModelFile model(command.engine.model);
  for (const std::string& path : command.chunk_files) {
    const std::string text = read_file(path);
    if (text.empty()) throw Failure{kExitRefused, path + ": a chunk is empty: leave it out"};
    for (Passage& passage : cut_into_passages(model, text, command.chunk_tokens)) {
      if (command.is_chat) passages.marked += marked_as_chunk(passage.text, path);
      passages.chunks.push_back(std::move(passage.ids));
    }
  }
  const bool blends = passages.recompute >= 0 && passages.recompute < 1;
  if (blends && passages.chunks.size() > reuse::Chunks::kMax) {
    throw Failure{kExitRefused, "the files are " + std::to_string(passages.chunks.size()) +
                                    " chunks, more than " + std::to_string(reuse::Chunks::kMax) +
                                    " of one prompt: raise --chunk-tokens, or give fewer files"};
  }
  return passages;
}

// Beside the prompt a blend holds its longest chunk, and the KV of the layers in front of the check
// layer.
u64 n_beside(const RunCommand& command, const Passages& passages) {
  ModelFile file(command.engine.model);
  const model::ModelSpec& spec = file.description().spec;
  const u64 n_check_layers = reuse::BlendSizes{.spec = &spec}.n_check_cache_layers();
  u64 n_longest = 0;
  for (const auto& chunk : passages.chunks) n_longest = std::max<u64>(n_longest, chunk.size());
  constexpr u64 kPagesOver = 2 * 256;  // of both, that are not full
  return n_longest + passages.n_tokens() * n_check_layers / spec.n_cache_layers + kPagesOver;
}

// Throws if there is no token, not even BOS, for an answer to follow.
void check_has_tokens(u64 n_tokens) {
  if (n_tokens > 0) return;
  throw Failure{kExitRefused,
                "the prompt is empty, and this vocabulary adds no BOS: give a text with -p TEXT or "
                "-f FILE"};
}

// Tokens that a template writes around the messages, about: for a context without -c.
constexpr u64 kTemplateTokens = 256;

void check_chat(const RunCommand& command) {
  if (!command.is_chat && (command.chat.system || !command.chat.chat_template.empty())) {
    throw Failure{kExitUsage, "--system and --chat-template need --chat"};
  }
  const bool has_text = command.prompt_option.count() > 0 || !command.file.empty();
  if (command.is_chat && (!has_text || command.parse_special || command.session.is_kept())) {
    throw Failure{kExitUsage,
                  "--chat takes a message from -p TEXT or -f FILE, without --parse-special and "
                  "--session: tarn chat keeps a conversation"};
  }
}

// Answers the text, behind the passages, as one message of a conversation.
GenerationResult answer_chat(const RunCommand& command, const tarn_generate_options& options,
                             const ApiSession& session, const Prompt& prompt,
                             const Passages* passages) {
  tarn_chat_options chat = TARN_INIT(tarn_chat_options);
  if (passages != nullptr) {
    if (has_mark(prompt.text) || has_mark(command.chat.system.value_or(""))) {
      throw Failure{kExitRefused,
                    "the prompt or --system has U+FDD0 or U+FDD1, which stand around chunks: "
                    "remove them"};
    }
    chat.has_chunks = 1;
    chat.recompute = passages->recompute;
  }
  Conversation conversation;
  conversation.begin({{"user", (passages != nullptr ? passages->marked : "") + prompt.text}});
  if (command.chat.system) conversation.set_system(*command.chat.system);
  const std::string json = messages_to_json(conversation.messages());
  check_api(tarn_session_feed_chat(session.get(), json.data(), json.size(), &chat));
  tarn_session_info info = TARN_INIT(tarn_session_info);
  check_api(tarn_session_info_get(session.get(), &info));
  GenerationResult result = generate(
      session, {}, options, {.only_reads = command.n_predict == 0, .stream = !command.json});
  result.n_prompt_tokens = info.n_tokens;
  if (passages != nullptr) result.recompute = passages->recompute;
  return result;
}

BuiltIn built_in_of(const RunCommand& command) {
  return command.sample == kBuiltInNames[0] ? BuiltIn::logbook : BuiltIn::recall;
}

// Answers the next input of a kept session, or continues the one that was cut off.
GenerationResult answer_kept(const RunCommand& command, const tarn_generate_options& options,
                             KeptSession& kept, Prompt prompt) {
  std::vector<u32>& ids = prompt.ids;
  // An empty input is a prefix of every input, so it never continues one.
  const bool goes_on = !prompt.is_empty && kept.goes_on_with(ids);
  if (!goes_on && kept.n_tokens() > 0 && command.ids_file.empty()) {
    ids = encoded(command, prompt.text, /*add_bos=*/false);
  }
  const bool also_goes_on = goes_on || (!prompt.is_empty && kept.goes_on_with(ids));
  check_has_tokens(ids.size() + kept.n_tokens());
  kept.begin_input(also_goes_on);
  GenerationResult result = generate(
      kept.api(), also_goes_on ? std::vector<u32>{} : ids, options,
      {.only_reads = command.n_predict == 0, .stream = !command.json, .stop = &asked_to_end});
  result.n_prompt_tokens = ids.size() + (also_goes_on ? 0 : kept.n_tokens());
  result.n_prompt_tokens -= std::min<u64>(result.n_prompt_tokens, kept.n_computed());
  kept.save();
  if (result.was_stopped) end_as_asked();
  return result;
}

void run(RunCommand& command) {
  if (command.session.must_exist && !command.session.is_kept()) {
    throw Failure{kExitUsage, "--session-must-exist needs --session NAME: give both"};
  }
  check_chat(command);
  const bool has_prompt =
      command.prompt_option.count() > 0 || !command.file.empty() || !command.ids_file.empty();
  if (command.engine.model.empty() && !has_prompt) {
    return run_sample(
        command.engine,
        {.which = built_in_of(command), .json = command.json, .session = command.session});
  }
  if (!has_prompt) {
    throw Failure{kExitUsage, "run -m MODEL needs a prompt: -p TEXT, -f FILE or --prompt-ids FILE"};
  }
  const bool is_built_in = command.engine.model.empty();
  if (is_built_in && command.is_chat) command.answer.stop_by_default(kBuiltInStop);
  const auto built_in = built_in_unless_named(command.engine.model, built_in_of(command));
  const std::optional<Passages> passages = passages_of(command);
  const Prompt prompt = prompt_of(command, /*add_bos=*/!passages);
  u64 n_prompt = prompt.ids.size();
  if (passages) n_prompt += passages->n_tokens();
  if (command.is_chat) {
    n_prompt += encoded(command, command.chat.system.value_or(""), false).size() + kTemplateTokens;
  }
  if (!command.session.is_kept()) check_has_tokens(n_prompt);
  Config config = command.engine.config();
  const bool keeps = command.session.is_kept();
  if (keeps) keep_sessions(config);
  if (has_kept_sessions(config)) config.store.sessions = true;  // their KV is reused
  const bool is_sized = config.context_tokens != 0;             // by -c or the configuration
  const bool is_sized_here = !is_sized && command.n_predict >= 0;
  u64 n_more = 0;
  if (is_sized_here) {
    config.context_tokens =
        context_for(command.engine.model, n_prompt, static_cast<u64>(command.n_predict));
    if (passages) n_more = n_beside(command, *passages);
    config.context_tokens += n_more;
  }
  if (keeps && !is_sized) {
    config.context_tokens = std::max(config.context_tokens, kSessionTokens);
  }
  if (is_sized_here) warn_of_full_context(command, n_prompt, config.context_tokens - n_more);
  config.sessions_max = 1;
  if (!command.is_chat && config.context_tokens != 0 && n_prompt > config.context_tokens) {
    throw Failure{kExitRefused, "the prompt has " + std::to_string(n_prompt) +
                                    " tokens, more than -c " +
                                    std::to_string(config.context_tokens) + ": raise -c"};
  }
  warn_beyond_training(command.engine.model, config.context_tokens - n_more);
  const EngineHandle engine(command.engine, config,
                            command.is_chat ? command.chat.template_text(is_built_in) : "");
  // At most the context: an answer's KV is reserved before it begins.
  const auto n_max = static_cast<i64>(engine.status().context_tokens);
  const i64 n_wanted = command.n_predict < 0 ? n_max : std::min(command.n_predict, n_max);
  const tarn_generate_options options = command.answer.for_tokens(static_cast<u32>(n_wanted));
  GenerationResult result;
  std::optional<KeptSession> kept;
  if (keeps) {
    kept.emplace(engine.get(), command.session, config.store.path.data());
    result = answer_kept(command, options, *kept, prompt);
  } else if (const ApiSession session(engine.get()); command.is_chat) {
    result = answer_chat(command, options, session, prompt, passages ? &*passages : nullptr);
  } else {
    result = generate(session, prompt.ids, options,
                      {.only_reads = command.n_predict == 0,
                       .stream = !command.json,
                       .passages = passages ? &*passages : nullptr});
  }
  if (!command.json) print_figures(engine, result);
  warn_unselected(engine.status().select, result.n_select_steps);
  if (passages && passages->recompute == TARN_RECOMPUTE_AUTO) warn_unblended(engine.status());
  if (!command.json) return;
  Json json;
  json.begin_object();
  write_answer(engine, result, json);
  if (kept) kept->write(json);
  json.end_object();
  print_json(json);
}

}  // namespace

void add_run(const Command& app) {
  auto command = std::make_shared<RunCommand>();
  const Command sub = app.add_subcommand(
      "run", "answer a prompt from one fixed budget; without -m with the built-in model");
  sub.footer(
      "\nExamples:\n"
      "  tarn run                                    the built-in model, on a sample\n"
      "  tarn run --sample recall -c 131072          recall over 128K tokens\n"
      "  tarn run -m model.gguf -p \"Once upon a time\" -n 64\n"
      "  tarn run -m model.gguf --chat -p \"Why is the sky blue?\" -c 8192 --budget 6GiB\n"
      "  tarn run -m model.gguf -f book.txt --session book --store ~/tarn -c 32768\n"
      "  tarn run -m model.gguf --store ~/tarn --chunk a.txt --chunk b.txt --recompute 0.15 "
      "-p \"What do they say?\"\n"
      "  tarn run -m model.gguf --store ~/tarn --chat --chunk a.txt -p \"What does it say?\"\n"
      "  tarn run -m model.gguf -p \"A list:\" --temp 0.7 --seed 7 --stop Note --json\n"
      "\nWhere --store DIR has kept sessions (tarn ingest, --session), a prompt that begins with "
      "the text of one takes its KV from there. With --chat a prompt begins with the model's "
      "template, "
      "and not with a document: keep documents by tarn ingest --chunks, and give them with "
      "--chunk, which works behind every template. The answer goes to standard output, everything "
      "else to standard error. What a memory limit allows is shown by tarn plan, before anything "
      "is loaded.\n");
  command->engine.add_to(sub, "what the prompt and -n need");
  const Option text = sub.add_option("-p,--prompt", command->text, "the prompt");
  const Option file = sub.add_option("-f,--file", command->file,
                                     "the prompt, from a file, byte for byte; -: standard input");
  const Option ids = sub.add_option("--prompt-ids", command->ids_file,
                                    "the prompt as token ids from a file; nothing is added");
  sub.add_option(
      "--chunk", command->chunk_files,
      "a passage in front of the prompt, from a file; may be repeated. Its KV is computed "
      "alone or comes from --store DIR (tarn ingest --chunks), in any order with others");
  sub.add_option("--chunk-tokens", command->chunk_tokens, kChunkTokensHelp)
      .between(kPassageTokensMin, kPassageTokensMax)
      .capture_default_str();
  sub.add_option(
         "--recompute", command->recompute,
         "the share of the chunks' tokens that is computed anew in the prompt, 0 to 1: less "
         "is faster, and approximate. all: every token, exact. auto: the share that tarn verify "
         "--reuse has found for this model, else all")
      .capture_default_str();
  sub.add_option(
         "--session", command->session.name,
         "keep the conversation under this name in --store DIR: the next run continues it, also "
         "after a stop or a crash. Each command's prompt is the next input; an interrupted one "
         "continues if it is repeated unchanged. The context is at least 8192 tokens unless -c or "
         "the configuration sets it. When the store is full, the least recently used session is "
         "evicted (store.kept_tokens)")
      .check(is_not_empty);
  sub.add_flag("--session-must-exist", command->session.must_exist,
               "exit with 78 if the store has no session of that name, instead of beginning one");
  command->prompt_option = text;
  text.excludes(file).excludes(ids);
  file.excludes(ids);
  sub.add_flag("--chat", command->is_chat,
               "give the prompt to the model as a user's message, by its chat template");
  command->chat.add_to(sub);
  sub.add_flag("--parse-special", command->parse_special,
               "read control tokens written in the prompt as such");
  sub.add_option("--sample", command->sample,
                 "without -m: logbook, a trained model on its log book, or recall, a computed "
                 "model on a document of any length (-c)")
      .is_member({kBuiltInNames[0], kBuiltInNames[1]})
      .capture_default_str();
  constexpr const AnswerField& kMaxTokens = answer_field("max_tokens");
  sub.add_option(kMaxTokens.option, command->n_predict, kMaxTokens.about)
      .between(kMaxTokens.integer_least, kMaxTokens.integer_most)
      .capture_default_str();
  command->answer.add_to(sub);
  sub.add_flag("--json", command->json, "one JSON object on standard output");
  sub.callback([command] { run(*command); });
}

}  // namespace tarn::tools
