#include "tools/tarnd/messages_reader.h"

#include <algorithm>

namespace tarn::daemon {
namespace {

using Kind = JsonToken::Kind;

// Depths of the tokens within the list.
constexpr u32 kMessage = 1, kMember = 2, kPart = 3, kPartMember = 4;

constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool", "function"};

}  // namespace

std::string MessagesReader::where() const {
  return "messages[" + std::to_string(n_messages_) + "]";
}

bool MessagesReader::take(const JsonToken& token, u32 depth) {
  if (depth == 0) return take_list(token);
  if (depth == kMessage) return take_message(token);
  if (depth == kMember && token.kind == Kind::key) return take_key(token);
  if (member_ == Member::role) return take_role(token);
  if (member_ == Member::content) return take_content(token, depth);
  copy_.put(token);
  return true;
}

bool MessagesReader::take_list(const JsonToken& token) {
  if (token.kind != Kind::begin_array && token.kind != Kind::end_array) {
    return fail("must be a list of messages");
  }
  copy_.put(token);
  if (token.kind == Kind::begin_array) return true;
  if (n_messages_ == 0) return fail("must have a message");
  json_ = copy_.str();
  return true;
}

bool MessagesReader::take_message(const JsonToken& token) {
  if (!token.begins() && !token.ends()) return fail({where(), "must be an object"});
  if (token.kind == Kind::begin_array || token.kind == Kind::end_array) {
    return fail({where(), "must be an object"});
  }
  if (token.kind == Kind::begin_object) {
    keys_.clear();
    has_role_ = has_content_ = is_assistant_ = false;
    copy_.put(token);
    return true;
  }
  if (!has_role_) return fail({where() + ".role", "is missing"});
  if (!has_content_ && !is_assistant_) return fail({where() + ".content", "is missing"});
  if (!has_content_) {  // as null: a message with tool calls alone
    copy_.put({.kind = Kind::key, .text = "content"});
    copy_.text("");
  }
  copy_.put(token);
  ++n_messages_;
  return true;
}

bool MessagesReader::take_key(const JsonToken& token) {
  if (!keys_.add(token.text)) return fail({where(), "has a member twice, or more than 256"});
  member_ = token.text == "role"      ? Member::role
            : token.text == "content" ? Member::content
                                      : Member::other;
  copy_.put(token);
  return true;
}

bool MessagesReader::take_role(const JsonToken& token) {
  if (token.kind != Kind::text) return fail({where() + ".role", "must be a text"});
  const std::string_view role = token.text == "developer" ? "system" : token.text;
  if (std::ranges::find(kRoles, role) == std::end(kRoles)) {
    return fail({where() + ".role", "must be system, developer, user, assistant or tool"});
  }
  has_role_ = true;
  is_assistant_ = role == "assistant";
  copy_.text(role);
  return true;
}

bool MessagesReader::take_content(const JsonToken& token, u32 depth) {
  has_content_ = true;
  if (depth > kMember) return take_part(token, depth);
  switch (token.kind) {
    case Kind::null:
      copy_.text("");
      return true;
    case Kind::text:
      copy_.put(token);
      return true;
    case Kind::begin_array:
      content_.clear();
      n_parts_ = 0;
      return true;
    case Kind::end_array:
      copy_.text(content_);
      return true;
    default:
      return fail({where() + ".content", "must be a text or a list of parts"});
  }
}

bool MessagesReader::take_part(const JsonToken& token, u32 depth) {
  const std::string field = where() + ".content";
  if (depth == kPart && token.kind == Kind::begin_object) {
    part_keys_.clear();
    part_type_.clear();
    part_has_text_ = false;
    if (n_parts_++ > 0) content_ += '\n';
    return true;
  }
  if (depth == kPart && token.kind == Kind::end_object) {
    if (part_type_ != "text" && part_type_ != "refusal") {
      return fail({field, "has a part that is no text: this version reads text alone"});
    }
    return part_has_text_ || fail({field, "has a part without its text"});
  }
  if (depth < kPartMember) return fail({field, "must be a text or a list of parts"});
  if (depth > kPartMember) return true;  // of other types, which end in an error
  if (token.kind == Kind::key) {
    if (!part_keys_.add(token.text)) return fail({field, "has a member twice, or more than 256"});
    part_key_ = token.text;
    return true;
  }
  if (part_key_ == "type" && token.kind == Kind::text) part_type_ = token.text;
  if ((part_key_ == "text" || part_key_ == "refusal") && token.kind == Kind::text) {
    content_ += token.text;
    part_has_text_ = true;
  }
  return true;
}

}  // namespace tarn::daemon
