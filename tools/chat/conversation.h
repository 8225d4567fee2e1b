// A conversation of lines: what a person types becomes a list of messages, or a command. Nothing
// here prints, or knows a model.
#pragma once

#include <string>
#include <vector>

#include "platform/base/types.h"

namespace tarn::tools {

struct ChatMessage {
  std::string role, content;
  bool operator==(const ChatMessage&) const = default;
};

// The wish of a line.
enum class ChatWant : u8 {
  nothing,
  answer,   // the messages end with one of the user's
  tell,     // `text` is for the person
  refuse,   // `text` says what is wrong with the line
  changed,  // like tell; messages were dropped
  save,
  stats,
  context,
};

struct ChatStep {
  ChatWant want = ChatWant::nothing;
  std::string text{};
};

class Conversation {
 public:
  const std::vector<ChatMessage>& messages() const { return messages_; }
  // Begins with these messages.
  void begin(std::vector<ChatMessage> messages) { messages_ = std::move(messages); }
  // Sets the system message, the first one.
  void set_system(const std::string& text);

  // A line without its line break.
  ChatStep take(const std::string& line);
  // Whether the last line belongs to a message that """ has not ended yet.
  bool is_open() const { return is_open_; }
  void drop_open();

  // Adds an answer.
  void answered(const std::string& text);
  // Drops the user's last message and what follows it. Returns false if there is none.
  bool undo();

 private:
  ChatStep say(const std::string& text);
  ChatStep obey(const std::string& command);

  std::vector<ChatMessage> messages_;
  std::string open_text_;
  bool is_open_ = false;
};

// The list as a JSON array of {"role", "content"}.
std::string messages_to_json(const std::vector<ChatMessage>& messages);
// Throws Failure; `name` is the text's in the sentence.
std::vector<ChatMessage> messages_from_json(const std::string& json, const std::string& name);

}  // namespace tarn::tools
