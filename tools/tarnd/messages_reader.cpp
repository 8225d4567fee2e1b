#include "tools/tarnd/messages_reader.h"

#include <algorithm>

#include "runtime/api/tarn_chat.h"

namespace tarn::daemon {
namespace {

using Kind = JsonToken::Kind;

// Depths of the tokens within the list.
constexpr u32 kMessage = 1, kMember = 2, kPart = 3, kPartMember = 4;

u64 n_marks_of(std::string_view text) {
  u64 n = 0;
  for (const std::string_view mark : {TARN_CHUNK_BEGIN, TARN_CHUNK_END}) {
    for (u64 at = text.find(mark); at != text.npos; at = text.find(mark, at + mark.size())) ++n;
  }
  return n;
}

constexpr const char* kChunkPlace =
    "has no meaning here: a chunk is a part of a content, {\"type\": \"text\", \"text\": ..., "
    "\"tarn\": {\"chunk\": true}}";

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
  if (!has_chunks_ || n_marks_of(json_) == 2 * n_chunks_) return true;
  return fail("has U+FDD0 or U+FDD1, which stand around chunks, in a text: leave them out");
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
  if (token.text == "chunk" || token.text == "tarn") {
    return fail({where() + "." + std::string(token.text), kChunkPlace});
  }
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
    part_text_.reset();
    part_refusal_.reset();
    part_is_chunk_ = false;
    return true;
  }
  if (depth == kPart && token.kind == Kind::end_object) return end_part();
  if (depth < kPartMember) return fail({field, "must be a text or a list of parts"});
  const bool is_own_key = token.kind == Kind::key && depth == kPartMember;
  if (part_key_ == "tarn" && !is_own_key) return take_part_mark(token, depth);
  if (depth > kPartMember) return true;  // of other types, which end in an error
  if (token.kind == Kind::key) {
    if (!part_keys_.add(token.text)) return fail({field, "has a member twice, or more than 256"});
    part_key_ = token.text;
    if (part_key_ == "chunk") return fail({field + ".chunk", kChunkPlace});
    return true;
  }
  if (part_key_ == "type" && token.kind == Kind::text) part_type_ = token.text;
  if (part_key_ == "text" && token.kind == Kind::text) part_text_ = token.text;
  if (part_key_ == "refusal" && token.kind == Kind::text) part_refusal_ = token.text;
  return true;
}

// "tarn": {"chunk": true}
bool MessagesReader::take_part_mark(const JsonToken& token, u32 depth) {
  const Kind kind = token.kind;
  if (depth == kPartMember) {
    if (kind == Kind::begin_object || kind == Kind::end_object || kind == Kind::null) return true;
  } else if (depth == kPartMember + 1) {
    if (kind == Kind::boolean) part_is_chunk_ = token.flag;
    const bool is_key = kind == Kind::key && token.text == "chunk";
    if (is_key || kind == Kind::boolean || kind == Kind::null) return true;
  }
  return fail({where() + ".content", "has a part with another tarn than {\"chunk\": true}"});
}

bool MessagesReader::end_part() {
  const std::string field = where() + ".content";
  if (part_type_ != "text" && part_type_ != "refusal") {
    return fail({field, "has a part that is no text: this version reads text alone"});
  }
  const std::optional<std::string>& text = part_type_ == "text" ? part_text_ : part_refusal_;
  if (!text) return fail({field, "has a part without its text"});
  if (n_parts_++ > 0) content_ += '\n';
  if (!part_is_chunk_) {
    content_ += *text;
    return true;
  }
  if (text->empty()) return fail({field, "has a chunk that is empty: leave it out"});
  if (++n_chunks_ > kChunksMax) return fail("has more than 128 chunks: join some of them");
  has_chunks_ = true;
  content_ += TARN_CHUNK_BEGIN + *text + TARN_CHUNK_END;
  return true;
}

}  // namespace tarn::daemon
