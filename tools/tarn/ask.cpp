// tarn ask: a question to a running tarnd.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "runtime/text/unicode.h"
#include "tools/client/daemon_client.h"
#include "tools/support/answer_fields.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/json.h"
#include "tools/support/shown_answer.h"
#include "tools/tarn/commands.h"

namespace tarn::tools {
namespace {

struct AskCommand {
  DaemonClient daemon;
  std::string text, file, system, session;
  std::vector<std::string> stops;
  AnswerFields fields;
  std::array<Option, std::size(kAnswerFields)> field_options;  // as kAnswerFields
  bool json = false;
  Option text_option;
};

std::string question_of(const AskCommand& command) {
  if (command.text_option.count() == 0 && command.file.empty() && isatty(STDIN_FILENO) != 0) {
    throw Failure{kExitUsage, "no question: give -p TEXT, -f FILE, or a pipe"};
  }
  std::string question = command.text;
  if (command.text_option.count() == 0) {
    question = read_file(command.file.empty() ? "-" : command.file);
  }
  if (!text::is_utf8(question)) {
    throw Failure{kExitRefused, "the question is not UTF-8: convert it first"};
  }
  if (question.empty()) warn_of_empty("question", command.file);
  return question;
}

void write_message(const char* role, const std::string& content, Json& json) {
  json.begin_object();
  json.key("role").text(role);
  json.key("content").text(content);
  json.end_object();
}

// Makes the request. Options that are not given are left to the server.
std::string request_of(const AskCommand& command) {
  Json json;
  json.begin_object();
  json.key("messages").begin_array();
  if (!command.system.empty()) write_message("system", command.system, json);
  write_message("user", question_of(command), json);
  json.end_array();
  for (size_t i = 0; i < std::size(kAnswerFields); ++i) {
    const AnswerField& field = kAnswerFields[i];
    if (command.field_options[i].count() == 0) continue;
    json.key(field.name);
    field.integer != nullptr ? json.integer(command.fields.*field.integer)
                             : json.real(command.fields.*field.number);
  }
  if (!command.stops.empty()) {
    json.key("stop").begin_array();
    for (const std::string& stop : command.stops) json.text(stop);
    json.end_array();
  }
  if (!command.session.empty()) {
    json.key("tarn").begin_object().key("session").text(command.session).end_object();
  }
  json.key("stream").boolean(!command.json);
  json.key("stream_options").begin_object().key("include_usage").boolean(true).end_object();
  json.end_object();
  return std::string(json.str());
}

// The facts that the events of an answer say beside its text.
struct AnswerEnd {
  std::string finish;
  u64 n_prompt = 0, n_cached = 0;
  f64 tokens_per_s = 0;
  bool ends_line = true;  // the text, which is printed
};

void print_text(const std::string& text, AnswerEnd& end) {
  if (text.empty()) return;
  print_answer(text);
  end.ends_line = text.ends_with('\n');
}

void take(const rapidjson::Value& event, AnswerEnd& end) {
  const rapidjson::Value& choices = member(event, "choices");
  if (choices.IsArray() && !choices.Empty()) {
    print_text(text_of(member(choices[0], "delta"), "content"), end);
    const std::string finish = text_of(choices[0], "finish_reason");
    if (!finish.empty()) end.finish = finish;
  }
  const rapidjson::Value& usage = member(event, "usage");
  if (usage.IsObject()) {
    end.n_prompt = count_of(usage, "prompt_tokens");
    end.n_cached = count_of(member(usage, "prompt_tokens_details"), "cached_tokens");
  }
  const rapidjson::Value& timings = member(event, "timings");
  if (timings.IsObject()) end.tokens_per_s = number_of(timings, "predicted_per_second");
}

void ask(const AskCommand& command) {
  const std::string request = request_of(command);
  constexpr const char* kTarget = "/v1/chat/completions";
  if (command.json) return print_reply(command.daemon.text("POST", kTarget, request));
  AnswerEnd end;
  try {
    command.daemon.stream(kTarget, request,
                          [&](const rapidjson::Document& event) { take(event, end); });
  } catch (...) {
    if (!end.ends_line) std::fputc('\n', stdout);
    throw;
  }
  if (!end.ends_line) std::fputc('\n', stdout);
  std::fflush(stdout);
  if (end.finish == "length") {
    std::fprintf(stderr, "tarn: length: the answer has all tokens of -n, or the context is full\n");
  }
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "[%llu of %llu tokens reused, %.1f tok/s]\n",
               static_cast<unsigned long long>(end.n_cached),
               static_cast<unsigned long long>(end.n_prompt), end.tokens_per_s);
}

}  // namespace

void add_ask(const Command& app) {
  auto command = std::make_shared<AskCommand>();
  const Command sub = app.add_subcommand("ask", "ask a running tarnd a question");
  sub.footer(
      "\nExamples:\n"
      "  tarn ask -p \"Why is the sky blue?\"\n"
      "  cat manual.txt question.txt | tarn ask --system \"Answer briefly.\"\n"
      "  tarn ask --socket tcp://127.0.0.1:8080 --key-file key -p \"Why?\" --json\n"
      "\nThe answer is printed as it comes. ^C ends it, in tarnd too. What is not given is tarnd's "
      "default. With --json the whole reply of /v1/chat/completions is printed at its end.\n");
  command->daemon.add_to(sub);
  command->text_option = sub.add_option("-p,--prompt", command->text, "the question");
  sub.add_option("-f,--file", command->file,
                 "read the question from a file; -: standard input (default: a pipe)")
      .check(is_not_empty)
      .excludes(command->text_option);
  sub.add_option("--system", command->system, "the system message");
  sub.add_option("--session", command->session,
                 "keep the conversation under this name in tarnd's store")
      .check(is_not_empty);
  for (size_t i = 0; i < std::size(kAnswerFields); ++i) {  // tarnd says what is out of range
    const AnswerField& field = kAnswerFields[i];
    command->field_options[i] =
        field.integer != nullptr
            ? sub.add_option(field.option, command->fields.*field.integer, field.about)
            : sub.add_option(field.option, command->fields.*field.number, field.about);
  }
  sub.add_option("--stop", command->stops, "text that ends the answer; may be repeated")
      .one_value_each();
  sub.add_flag("--json", command->json, "the whole reply as JSON on standard output");
  sub.callback([command] { ask(*command); });
}

}  // namespace tarn::tools
