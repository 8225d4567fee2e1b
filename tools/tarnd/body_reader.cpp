#include "tools/tarnd/body_reader.h"

#include "tools/tarnd/value_readers.h"

namespace tarn::daemon {
namespace {

using Kind = JsonToken::Kind;

class BodyTokens : public JsonTokens {
 public:
  BodyTokens(Endpoint endpoint, Body& body) : endpoint_(endpoint), body_(body) {}

  bool take(const JsonToken& token, u32 depth) override {
    if (depth == 0) {
      return token.kind == Kind::begin_object || token.kind == Kind::end_object ||
             fail("", "the body must be a JSON object");
    }
    if (depth == 1 && token.kind == Kind::key) return take_key(token.text);
    if (value_->take(token, depth - 1)) return true;
    const ValueError& error = value_->error();
    const std::string& name = error.field.empty() ? name_ : error.field;
    return fail(name, "'" + name + "' " + error.sentence);
  }

  // After the last token.
  bool check() {
    for (const Field& field : fields()) {
      const bool counts = (field.endpoints & endpoint_) != 0 && field.is_required;
      if (counts && !keys_.has(field.name)) {
        return fail(field.name, std::string("'") + field.name + "' is missing");
      }
    }
    if (body_.top_logprobs > 0 && !body_.logprobs) {
      return fail("top_logprobs", "'top_logprobs' needs 'logprobs': true");
    }
    const bool has_choices = endpoint_ == kCompletions || endpoint_ == kChat;
    const u64 n_prompts = endpoint_ == kCompletions ? body_.prompts.size() : 1;
    const u64 n_choices = static_cast<u64>(body_.n) * n_prompts;
    if (has_choices && n_choices > kChoicesMax) {
      return fail("n", "'n' times the number of prompts must be at most 8");
    }
    if (!body_.session.empty() && n_choices > 1) {
      return fail("tarn.session", "'tarn.session' has one answer at a time: leave out 'n'");
    }
    if (endpoint_ == kIngest && (body_.content.empty() == body_.tokens.empty())) {
      return fail("content", "give one of 'content' and 'tokens'");
    }
    return true;
  }

  const std::string& field() const { return field_; }
  const std::string& sentence() const { return sentence_; }

 private:
  bool take_key(std::string_view key) {
    const Field* const row = find_field(endpoint_, key);
    name_ = row != nullptr ? row->name : "";
    if (!keys_.add(key)) return fail(name_, "a field is there twice, or there are more than 256");
    value_ = value_reader(row, endpoint_, body_);
    return true;
  }
  bool fail(const std::string& field, std::string sentence) {
    field_ = field;
    sentence_ = std::move(sentence);
    return false;
  }

  Endpoint endpoint_;
  Body& body_;
  KeySet keys_;
  std::string name_, field_, sentence_;
  std::unique_ptr<ValueReader> value_;
};

}  // namespace

std::optional<HttpError> read_body(Endpoint endpoint, std::string& text, Body& body) {
  BodyTokens tokens(endpoint, body);
  const std::string wrong = read_json(text, tokens);
  if (wrong == kJsonStopped || (wrong.empty() && !tokens.check())) {
    return invalid_request(tokens.sentence(), tokens.field());
  }
  if (!wrong.empty()) return invalid_request("the body is no JSON: " + wrong);
  return std::nullopt;
}

}  // namespace tarn::daemon
