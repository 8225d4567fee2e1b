// tarn chat: a conversation on a terminal or through a pipe.
#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "runtime/api/tarn_chat.h"
#include "tools/builtin/built_in_model.h"
#include "tools/chat/conversation.h"
#include "tools/chat/line_reader.h"
#include "tools/support/engine_options.h"
#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"
#include "tools/tarn/answer_options.h"
#include "tools/tarn/chat_options.h"
#include "tools/tarn/commands.h"
#include "tools/tarn/context.h"
#include "tools/tarn/kept_session.h"
#include "tools/tarn/message_file.h"
#include "tools/tarn/report.h"

namespace tarn::tools {
namespace {

constexpr u64 kContextTokens = 8192;  // at most, without -c

struct ChatCommand {
  EngineOptions engine;
  ChatOptions chat;
  SessionOptions session;
  i64 n_predict = -1;  // until the end
  AnswerOptions answer;
};

void tell(const std::string& text) {
  print_escaped(text, stderr);
  std::fputc('\n', stderr);
}
void tell_error(const std::string& text) { print_failure("tarn", text); }

// Behind an answer.
void tell_dim(const std::string& text) {
  const char* no_color = std::getenv("NO_COLOR");
  const bool is_dim = has_escapes() && (no_color == nullptr || *no_color == '\0');
  if (is_dim) std::fputs("\x1b[2m", stderr);
  tell(text);
  if (is_dim) std::fputs("\x1b[0m", stderr);
}

class Chat {
 public:
  // `folder`: of the store.
  Chat(const EngineHandle& engine, ChatCommand& command, const std::string& folder);
  void run(LineReader& lines);
  void save();

 private:
  void obey(const ChatStep& step);
  void answer();
  void tell_end() const;
  void tell_context() const;
  // Writes the messages of a kept conversation.
  void keep_messages();

  tarn_session_info info() const;
  const ApiSession& session() const { return kept_ ? kept_->api() : *own_; }

  const EngineHandle& engine_;
  u64 n_context_;
  tarn_generate_options options_;
  std::string message_path_;  // empty: not kept
  std::optional<KeptSession> kept_;
  std::optional<ApiSession> own_;
  Conversation conversation_;
  GenerationResult last_;
};

Chat::Chat(const EngineHandle& engine, ChatCommand& command, const std::string& folder)
    : engine_(engine), n_context_(engine.status().context_tokens) {
  const i64 n_max = static_cast<i64>(n_context_);
  const i64 n_wanted = command.n_predict < 0 ? n_max : std::min(command.n_predict, n_max);
  options_ = command.answer.for_tokens(static_cast<u32>(n_wanted));
  if (!command.session.is_kept()) {
    own_.emplace(engine.get());
  } else {
    message_path_ = message_path(folder, command.session.name);
    auto messages = read_messages(message_path_);
    command.session.is_cache = messages.has_value();
    kept_.emplace(engine.get(), command.session, folder);
    if (!messages && kept_->n_tokens() > 0) {
      throw Failure{kExitRefused, "the session " + command.session.name +
                                      " is not one of tarn chat: choose another name"};
    }
    if (messages) conversation_.begin(std::move(*messages));
  }
  if (command.chat.system) conversation_.set_system(*command.chat.system);
  // First the messages, then the session: without them it would not be one of ours.
  keep_messages();
}

void Chat::run(LineReader& lines) {
  for (const ChatMessage& message : conversation_.messages()) {
    const bool is_line = message.content.find('\n') == std::string::npos;
    if (message.role == "user" && is_line) lines.remember(message.content);
  }
  bool was_interrupted = false;  // at the prompt
  for (std::string line;;) {
    const LineRead read = lines.next(conversation_.is_open() ? "... " : "> ", line);
    if (read == LineRead::end) break;
    if (read == LineRead::caught_signal) {
      if (was_interrupted || !is_interactive() || signal_caught() != SIGINT) {
        throw Stopped{signal_caught()};
      }
      was_interrupted = true;
      clear_signal();
      conversation_.drop_open();
      tell("\n^C again, or ^D, leaves");
      continue;
    }
    was_interrupted = false;
    if (!line.empty()) lines.remember(line);
    obey(conversation_.take(line));
  }
  if (is_interactive()) tell("");
  if (conversation_.is_open()) {
    throw Failure{kExitRefused,
                  "the input ended in a message that \"\"\" began: end it with \"\"\""};
  }
}

void Chat::obey(const ChatStep& step) {
  switch (step.want) {
    case ChatWant::nothing:
      break;
    case ChatWant::answer:
      answer();
      break;
    case ChatWant::changed:
      keep_messages();
      [[fallthrough]];
    case ChatWant::tell:
      tell(step.text);
      break;
    case ChatWant::refuse:
      tell_error(step.text);
      break;
    case ChatWant::save:
      if (!kept_) {
        tell_error("nothing is kept: begin with --session NAME --store DIR");
      } else {
        save();
      }
      break;
    case ChatWant::stats:
      if (last_.finish == TARN_FINISH_NONE) {
        tell_error("there is no answer yet");
      } else {
        print_figures(engine_, last_);
      }
      break;
    case ChatWant::context:
      tell_context();
      break;
  }
}

void Chat::answer() {
  const std::string json = messages_to_json(conversation_.messages());
  try {
    check_api(tarn_session_feed_chat(session().get(), json.data(), json.size(), nullptr));
    const u64 n_prompt = info().n_tokens;
    last_ =
        generate(session(), {}, options_,
                 {.stream = true, .ends_line = true, .stop = [] { return signal_caught() != 0; }});
    last_.n_prompt_tokens = n_prompt;
  } catch (const Failure& failure) {
    conversation_.undo();
    if (!is_interactive() || failure.code != kExitRefused) throw;
    return tell_error(failure.text + "; the message is dropped");
  }
  if (last_.was_stopped) cancel(session());
  if (last_.was_stopped && last_.text.empty()) {
    conversation_.undo();
  } else {
    conversation_.answered(last_.text);
  }
  keep_messages();
  if (last_.was_stopped && (!is_interactive() || signal_caught() != SIGINT)) {
    throw Stopped{signal_caught()};
  }
  clear_signal();
  tell_end();
}

void Chat::tell_end() const {
  if (last_.was_stopped) {
    tell(last_.text.empty() ? "cancelled; the message is dropped" : "cancelled");
  } else if (last_.finish == TARN_FINISH_LENGTH) {
    tell(info().n_tokens >= n_context_
             ? "length: the context of " + std::to_string(n_context_) +
                   " tokens is full: /undo, /reset, or begin with a larger -c"
             : "length: the answer has the " + std::to_string(options_.max_tokens) +
                   " tokens of -n");
  }
  if (!is_interactive() || last_.was_stopped) return;
  std::array<char, 40> rate{};
  if (std::isfinite(last_.decode_tokens_per_s())) {
    std::snprintf(rate.data(), rate.size(), ", %.1f tok/s", last_.decode_tokens_per_s());
  }
  tell_dim("[" + std::to_string(last_.n_reused_from_memory + last_.n_reused_from_disk) + " of " +
           std::to_string(last_.n_prompt_tokens) + " tokens reused" + rate.data() + "]");
}

void Chat::tell_context() const {
  const u64 n_messages = conversation_.messages().size();
  u64 n_bytes = 0, n_tokens = 0;
  if (n_messages > 0) {
    const std::string json = messages_to_json(conversation_.messages());
    tarn_chat_options options = TARN_INIT(tarn_chat_options);
    options.no_generation_prompt = 1;
    check_api(tarn_chat_render(engine_.get(), json.data(), json.size(), &options, nullptr, 0,
                               &n_bytes, nullptr, 0, &n_tokens));
  }
  tell("messages: " + std::to_string(n_messages) + ", tokens: " + std::to_string(n_tokens) +
       " of " + std::to_string(n_context_));
}

void Chat::keep_messages() {
  if (!message_path_.empty()) write_messages(message_path_, conversation_.messages());
}

void Chat::save() {
  if (!kept_) return;
  keep_messages();
  kept_->save();
  tell(std::to_string(conversation_.messages().size()) + " messages in " + message_path_);
}

tarn_session_info Chat::info() const {
  tarn_session_info info = TARN_INIT(tarn_session_info);
  check_api(tarn_session_info_get(session().get(), &info));
  return info;
}

void run(ChatCommand& command) {
  const bool is_built_in = command.engine.model.empty();
  if (is_built_in) command.answer.stop_by_default(kBuiltInStop);
  const auto built_in = built_in_unless_named(command.engine.model);
  Config config = command.engine.config();
  if (command.session.is_kept()) keep_sessions(config);
  if (has_kept_sessions(config)) config.store.sessions = true;  // their KV is reused
  if (config.context_tokens == 0) {
    config.context_tokens = context_for(command.engine.model, 0, kContextTokens);
  }
  config.sessions_max = 1;
  warn_beyond_training(command.engine.model, config.context_tokens);
  // Before the engine has threads: the editor sets a locale.
  std::unique_ptr<LineReader> lines = edited_lines();
  if (lines == nullptr) lines = plain_lines();
  const EngineHandle engine(command.engine, config, command.chat.template_text(is_built_in));
  Chat chat(engine, command, config.store.path.data());
  catch_signals();
  if (is_interactive()) {
    tell(model_name(command.engine.model) + ", " + std::to_string(engine.status().context_tokens) +
         " tokens of context; /help lists the commands, ^D leaves");
  }
  try {
    chat.run(*lines);
  } catch (const Stopped&) {
    chat.save();
    throw;
  }
  chat.save();
}

}  // namespace

void add_chat(const Command& app) {
  auto command = std::make_shared<ChatCommand>();
  const Command sub = app.add_subcommand(
      "chat", "have a conversation with a model; without -m with the built-in one");
  sub.footer(
      "\nExamples:\n"
      "  tarn chat -m model.gguf --system \"Answer briefly.\"\n"
      "  tarn chat -m model.gguf --session plans --store ~/tarn\n"
      "  tarn chat -m model.gguf --chat-template chatml < questions.txt\n"
      "\nOn a terminal /help lists the commands; the arrow keys bring back earlier lines, which no "
      "file keeps. ^C ends an answer. Elsewhere each line is a message, and standard output has "
      "the answers alone. The whole conversation is in the context: when it is full, the answer "
      "ends, and nothing is dropped.\n");
  command->engine.add_to(sub, "the model's, at most " + std::to_string(kContextTokens));
  command->chat.add_to(sub);
  sub.add_option("--session", command->session.name,
                 "keep the conversation under this name in --store DIR, its messages as "
                 "NAME.chat.json: the next tarn chat continues it. A crash costs the message that "
                 "was being answered")
      .check(wrong_chat_name);
  sub.add_option("-n,--n-predict", command->n_predict,
                 "most tokens of an answer; -1: until the model ends or the context is full")
      .between(i64{-1}, kCountMax)
      .check([](const std::string& n) { return n == "0" ? "an answer has a token at least" : ""; })
      .capture_default_str();
  command->answer.add_to(sub);
  sub.callback([command] { run(*command); });
}

}  // namespace tarn::tools
