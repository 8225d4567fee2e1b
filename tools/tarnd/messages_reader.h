// Reads a conversation's messages and writes them as the engine's templates take them: a list of
// text parts becomes one text, joined by line breaks; "developer" becomes "system"; what other
// members there are is handed on (name, tool_calls, ...). A part with "tarn": {"chunk": true} is a
// chunk: it gets the marks of tarn_chat.h, which no other text may have then.
#pragma once

#include <optional>

#include "tools/tarnd/json_copy.h"
#include "tools/tarnd/value_readers.h"

namespace tarn::daemon {

class MessagesReader : public ValueReader {
 public:
  MessagesReader(std::string& json, bool& has_chunks) : json_(json), has_chunks_(has_chunks) {}
  bool take(const JsonToken& token, u32 depth) override;

 private:
  enum class Member : u8 { role, content, other };

  bool take_list(const JsonToken& token);
  bool take_message(const JsonToken& token);
  bool take_key(const JsonToken& token);
  bool take_role(const JsonToken& token);
  bool take_content(const JsonToken& token, u32 depth);
  bool take_part(const JsonToken& token, u32 depth);
  bool take_part_mark(const JsonToken& token, u32 depth);
  bool end_part();
  std::string where() const;  // "messages[2]"

  std::string& json_;
  bool& has_chunks_;
  JsonCopy copy_;
  KeySet keys_, part_keys_;
  u64 n_messages_ = 0;
  Member member_ = Member::other;
  bool has_role_ = false, has_content_ = false, is_assistant_ = false;
  std::string content_;  // of the parts so far
  u64 n_parts_ = 0, n_chunks_ = 0;
  std::string part_key_, part_type_;
  std::optional<std::string> part_text_, part_refusal_;
  bool part_is_chunk_ = false;
};

}  // namespace tarn::daemon
