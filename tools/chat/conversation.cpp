#include "tools/chat/conversation.h"

#include <rapidjson/document.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/text/unicode.h"
#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"
#include "tools/support/json.h"

namespace tarn::tools {
namespace {

constexpr std::string_view kBlock = "\"\"\"";
constexpr const char* kCommands = "/help /reset /undo /save /stats /context";
constexpr const char* kHelp =
    "/help     these lines\n"
    "/reset    begin anew; the system message stays\n"
    "/undo     drop the last message and its answer\n"
    "/save     save the session (--session)\n"
    "/stats    speeds and memory of the last answer\n"
    "/context  how full the context is\n"
    "\"\"\"       begins and ends a message of several lines\n"
    "^C        ends an answer; twice at the prompt, or ^D, it leaves";

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

}  // namespace

void Conversation::set_system(const std::string& text) {
  if (messages_.empty() || messages_[0].role != "system") {
    messages_.insert(messages_.begin(), {"system", ""});
  }
  messages_[0].content = text;
}

ChatStep Conversation::take(const std::string& line) {
  if (!text::is_utf8(line)) {
    drop_open();
    return {ChatWant::refuse, "the message is not UTF-8: convert it first"};
  }
  if (!is_open_) {
    if (is_blank(line)) return {};
    if (line[0] == '/') return obey(line);
    if (!line.starts_with(kBlock)) return say(line);
  }
  open_text_ += is_open_ ? '\n' + line : line.substr(kBlock.size());
  is_open_ = !open_text_.ends_with(kBlock);
  if (is_open_) return {};
  std::string text = std::exchange(open_text_, "");
  text.resize(text.size() - kBlock.size());
  // Line breaks beside """ are not the text's.
  if (text.starts_with('\n')) text.erase(0, 1);
  if (text.ends_with('\n')) text.pop_back();
  return is_blank(text) ? ChatStep{} : say(text);
}

void Conversation::drop_open() {
  open_text_.clear();
  is_open_ = false;
}

void Conversation::answered(const std::string& text) { messages_.push_back({"assistant", text}); }

bool Conversation::undo() {
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(),
                                 [](const ChatMessage& m) { return m.role == "user"; });
  if (last == messages_.rend()) return false;
  messages_.erase(last.base() - 1, messages_.end());
  return true;
}

ChatStep Conversation::say(const std::string& text) {
  messages_.push_back({"user", text});
  return {ChatWant::answer};
}

ChatStep Conversation::obey(const std::string& command) {
  const std::string name = command.substr(0, command.find_last_not_of(" \t\r") + 1);
  if (name == "/help") return {ChatWant::tell, kHelp};
  if (name == "/save") return {ChatWant::save};
  if (name == "/stats") return {ChatWant::stats};
  if (name == "/context") return {ChatWant::context};
  if (name == "/reset") {
    std::erase_if(messages_, [](const ChatMessage& m) { return m.role != "system"; });
    return {ChatWant::changed, "the conversation begins anew"};
  }
  if (name == "/undo") {
    if (!undo()) return {ChatWant::refuse, "there is no message to undo"};
    return {ChatWant::changed, "the last message and its answer are dropped; messages left: " +
                                   std::to_string(messages_.size())};
  }
  return {ChatWant::refuse, "no command '" + escaped(name) + "'; there are: " + kCommands +
                                "; a message that begins with / stands in \"\"\""};
}

std::string messages_to_json(const std::vector<ChatMessage>& messages) {
  Json json;
  json.begin_array();
  for (const ChatMessage& message : messages) {
    json.begin_object();
    json.key("role").text(message.role);
    json.key("content").text(message.content);
    json.end_object();
  }
  json.end_array();
  return std::string(json.str()) + '\n';
}

std::vector<ChatMessage> messages_from_json(const std::string& json, const std::string& name) {
  rapidjson::Document list;
  list.Parse<rapidjson::kParseValidateEncodingFlag | rapidjson::kParseIterativeFlag>(json.data(),
                                                                                     json.size());
  const auto text_of = [](const rapidjson::Value& message, const char* key) {
    const auto member = message.FindMember(key);
    const bool is_text = member != message.MemberEnd() && member->value.IsString();
    return is_text ? std::optional(
                         std::string(member->value.GetString(), member->value.GetStringLength()))
                   : std::nullopt;
  };
  const auto is_message = [&](const auto& value) {
    return value.IsObject() && text_of(value, "role") && text_of(value, "content");
  };
  if (list.HasParseError() || !list.IsArray() ||
      !std::all_of(list.Begin(), list.End(), is_message)) {
    throw Failure{kExitRefused, name +
                                    ": not a list of messages ({\"role\": ..., \"content\": "
                                    "...}): remove the file, or choose another --session"};
  }
  std::vector<ChatMessage> messages;
  for (const rapidjson::Value& value : list.GetArray()) {
    messages.push_back({*text_of(value, "role"), *text_of(value, "content")});
  }
  return messages;
}

}  // namespace tarn::tools
