#include "tools/tarnd/value_readers.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runtime/chat/chat_template.h"
#include "tools/tarnd/json_copy.h"
#include "tools/tarnd/messages_reader.h"

namespace tarn::daemon {
namespace {

using Kind = JsonToken::Kind;

constexpr size_t kKeysMax = 256;

std::string number_text(f64 value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

// Takes anything, and keeps nothing.
class Skip : public ValueReader {
 public:
  bool take(const JsonToken&, u32) override { return true; }
};

constexpr const char* kCutText = "must not have the character U+0000";
bool is_cut(const Field& field, std::string_view text) {
  return field.is_c_text && text.find('\0') != std::string_view::npos;
}

// Refuses every value but null, empty ones, and the row's harmless ones. False is one of these
// where the row names neither true nor null.
class Refuse : public ValueReader {
 public:
  explicit Refuse(const Field& field) : field_(field) {}
  bool take(const JsonToken& token, u32) override {
    const bool is_schema = field_.type == FieldType::json && token.kind == Kind::begin_object;
    const bool is_empty = (token.begins() || token.ends()) && !is_schema;
    const bool is_fine = token.kind == Kind::null || is_empty ||
                         (token.kind == Kind::boolean && is_harmless_flag(token.flag)) ||
                         (token.kind == Kind::text && is_harmless(token.text)) ||
                         (token.kind == Kind::number && is_harmless(number_text(token.number)));
    return is_fine || fail("is not served by this version: leave it out");
  }

 private:
  bool is_harmless(std::string_view value) const {
    std::string_view rest = field_.harmless;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('|'), rest.size());
      if (rest.substr(0, end) == value) return true;
      rest.remove_prefix(std::min(rest.size(), end + 1));
    }
    return value.empty();
  }
  bool is_harmless_flag(bool flag) const {
    return flag ? is_harmless("true") : !is_harmless("true") && !is_harmless("null");
  }
  const Field& field_;
};

class Scalar : public ValueReader {
 public:
  Scalar(const Field& field, Body& body) : field_(field), body_(body) {}
  bool take(const JsonToken& token, u32) override {
    if (token.kind == Kind::null && !field_.is_required) return true;
    switch (field_.type) {
      case FieldType::boolean:
        if (token.kind != Kind::boolean) return fail_type();
        body_.*field_.flag = token.flag;
        return true;
      case FieldType::integer:
        return take_integer(token);
      case FieldType::number:
        if (token.kind != Kind::number) return fail_type();
        if (!is_within(token.number)) return fail_bounds("");
        if (wins()) body_.*field_.number = token.number;
        return true;
      default:
        if (token.kind != Kind::text) return fail_type();
        if (!is_within(static_cast<f64>(token.text.size()))) return fail_bounds(" bytes");
        if (is_cut(field_, token.text)) return fail(kCutText);
        body_.*field_.text = token.text;
        return true;
    }
  }

 private:
  bool take_integer(const JsonToken& token) {
    if (token.kind != Kind::number || token.number != std::floor(token.number)) return fail_type();
    constexpr f64 kEnd = 0x1p63;  // a whole number below it fits, written as 1e3 too
    const bool is_i64 = token.is_integer || std::abs(token.number) < kEnd;
    const i64 value = token.is_integer ? token.integer
                      : is_i64         ? static_cast<i64>(token.number)
                                       : 0;
    if (!is_i64 || value < field_.integer_least || value > field_.integer_most) {
      return fail("must be " + std::to_string(field_.integer_least) + " to " +
                  std::to_string(field_.integer_most));
    }
    if (wins()) body_.*field_.integer = value;
    return true;
  }
  // Whether no earlier row of the same target was given. Of two names the first row wins.
  bool wins() {
    const auto is_earlier = [this](const Field* other) {
      return other < &field_ && other->integer == field_.integer && other->number == field_.number;
    };
    const bool wins = std::ranges::none_of(body_.given, is_earlier);
    body_.given.push_back(&field_);
    return wins;
  }
  bool is_within(f64 value) const { return value >= field_.least && value <= field_.most; }
  bool fail_type() { return fail(std::string("must be ") + field_type_name(field_.type)); }
  bool fail_bounds(const char* unit) {
    return fail("must be " + number_text(field_.least) + " to " + number_text(field_.most) + unit);
  }

  const Field& field_;
  Body& body_;
};

// Adds ids of the vocabulary.
class IdReader : public ValueReader {
 protected:
  explicit IdReader(Body& body) : body_(body) {}
  bool add_id(const JsonToken& token, std::vector<u32>& ids, const char* must_be) {
    if (token.kind != Kind::number || token.number != std::floor(token.number))
      return fail(must_be);
    if (!(token.number >= 0 && token.number < static_cast<f64>(body_.n_vocab))) return fail_range();
    ids.push_back(static_cast<u32>(token.number));
    return true;
  }
  bool fail_range() {
    return fail("has a token id that is not 0 to " + std::to_string(body_.n_vocab - 1));
  }

  Body& body_;
};

class Ids : public IdReader {
 public:
  Ids(const Field& field, Body& body) : IdReader(body), field_(field) {}
  bool take(const JsonToken& token, u32 depth) override {
    if (depth == 0 && token.kind == Kind::null && !field_.is_required) return true;
    if (depth == 0 && token.kind == Kind::begin_array) return true;
    if (depth == 0 && token.kind == Kind::end_array) {
      return static_cast<f64>(body_.tokens.size()) >= field_.least || fail("must not be empty");
    }
    constexpr const char* kMustBe = "must be a list of token ids";
    return depth == 1 ? add_id(token, body_.tokens, kMustBe) : fail(kMustBe);
  }

 private:
  const Field& field_;
};

class Texts : public ValueReader {
 public:
  Texts(const Field& field, Body& body) : field_(field), body_(body) { body_.stops.clear(); }
  bool take(const JsonToken& token, u32 depth) override {
    if (depth == 0 && token.kind == Kind::null) return true;
    body_.has_stops = true;
    if (depth == 0 && (token.kind == Kind::begin_array || token.kind == Kind::end_array)) {
      return true;
    }
    if (token.kind != Kind::text) return fail("must be a text or a list of texts");
    if (body_.stops.size() == kStopsMax) return fail("must be at most 16 texts");
    if (token.text.empty() || token.text.size() > kStopBytesMax) {
      return fail("must be texts of 1 to 128 bytes");
    }
    if (is_cut(field_, token.text)) return fail(kCutText);
    body_.stops.emplace_back(token.text);
    return true;
  }

 private:
  const Field& field_;
  Body& body_;
};

class PassageTexts : public ValueReader {
 public:
  PassageTexts(const Field& field, Body& body) : field_(field), body_(body) {
    body_.chunks.clear();
  }
  bool take(const JsonToken& token, u32 depth) override {
    if (depth == 0 && token.kind == Kind::null) return true;
    if (depth == 0 && (token.kind == Kind::begin_array || token.kind == Kind::end_array))
      return true;
    if (depth != 1 || token.kind != Kind::text) return fail("must be a list of texts");
    if (token.text.empty()) return fail("must not have an empty text");
    if (static_cast<f64>(body_.chunks.size()) >= field_.most)
      return fail("must be at most " + number_text(field_.most) + " texts");
    body_.chunks.emplace_back(token.text);
    return true;
  }

 private:
  const Field& field_;
  Body& body_;
};

class Prompts : public IdReader {
 public:
  explicit Prompts(Body& body) : IdReader(body) { body_.prompts.clear(); }
  bool take(const JsonToken& token, u32 depth) override {
    if (depth == 0) return take_whole(token);
    if (depth == 1 && token.kind == Kind::text) {
      return is_form(Form::texts) && add({.text = std::string(token.text)});
    }
    if (depth == 1 && token.kind == Kind::begin_array) {
      return is_form(Form::lists) && add({.has_ids = true});
    }
    if (depth == 1 && token.kind == Kind::end_array) {
      return !body_.prompts.back().ids.empty() || fail("must not have an empty prompt");
    }
    const bool is_first = depth == 1 && form_ == Form::unknown;
    if (!is_form(depth == 1 ? Form::ids : Form::lists)) return false;
    if (is_first && !add({.has_ids = true})) return false;
    return add_id(token, body_.prompts.back().ids, kMustBe);
  }

 private:
  enum class Form : u8 { unknown, texts, ids, lists };
  static constexpr const char* kMustBe = "must be a text, a list of texts, or token ids";

  bool fail_type() { return fail(kMustBe); }
  bool take_whole(const JsonToken& token) {
    if (token.kind == Kind::text) return add({.text = std::string(token.text)});
    if (token.kind == Kind::begin_array) return true;
    if (token.kind != Kind::end_array) return fail_type();
    return !body_.prompts.empty() || fail("must not be empty");
  }
  // All items of the list have the form of the first one.
  bool is_form(Form form) {
    if (form_ == Form::unknown) form_ = form;
    return form_ == form || fail_type();
  }
  bool add(Prompt prompt) {
    if (body_.prompts.size() == kChoicesMax) return fail("must be at most 8 prompts");
    body_.prompts.push_back(std::move(prompt));
    return true;
  }

  Form form_ = Form::unknown;
};

class Biases : public IdReader {
 public:
  explicit Biases(Body& body) : IdReader(body) { body_.biases.clear(); }
  bool take(const JsonToken& token, u32 depth) override {
    if (depth == 0)
      return token.kind != Kind::text && token.kind != Kind::number ? begin_or_end(token)
                                                                    : fail_type();
    if (token.kind == Kind::key) return depth == 1 && add_text(token.text);
    if (is_object_) return depth == 1 ? set_bias(token) : fail_type();
    if (depth == 1 && token.kind == Kind::begin_array) return n_in_pair_ = 0, true;
    if (depth == 1 && token.kind == Kind::end_array) return n_in_pair_ == 2 || fail_type();
    if (depth != 2 || n_in_pair_ > 1) return fail_type();
    return n_in_pair_++ == 0 ? add_number(token) : set_bias(token);
  }

 private:
  static constexpr f64 kBiasMax = 100;
  static constexpr const char* kMustBe = "must be an object of token ids and biases";

  bool fail_type() { return fail(kMustBe); }
  bool begin_or_end(const JsonToken& token) {
    is_object_ = is_object_ || token.kind == Kind::begin_object;
    return token.kind != Kind::boolean || fail_type();
  }
  bool add(u32 id) {
    if (body_.biases.size() == kBiasesMax) return fail("must have at most 256 entries");
    body_.biases.push_back({.token = id, .bias = 0});
    return true;
  }
  bool add_text(std::string_view text) {
    i64 id = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, id);
    if (text.empty() || read.ptr != end) return fail_type();
    const bool is_id = read.ec == std::errc{} && id >= 0 && static_cast<u64>(id) < body_.n_vocab;
    return is_id ? add(static_cast<u32>(id)) : fail_range();
  }
  bool add_number(const JsonToken& token) {
    std::vector<u32> ids;
    return add_id(token, ids, kMustBe) && add(ids[0]);
  }
  bool set_bias(const JsonToken& token) {
    if (body_.biases.empty()) return fail_type();
    f32& bias = body_.biases.back().bias;
    if (token.kind == Kind::boolean && !token.flag) {
      bias = -INFINITY;
      return true;
    }
    if (token.kind != Kind::number) return fail_type();
    if (std::abs(token.number) > kBiasMax) return fail("must have biases from -100 to 100");
    bias = static_cast<f32>(token.number);
    return true;
  }

  bool is_object_ = false;
  u32 n_in_pair_ = 0;
};

// An object whose members have rows of their own.
class Members : public ValueReader {
 public:
  Members(const Field& field, Endpoint endpoint, Body& body)
      : field_(field), endpoint_(endpoint), body_(body) {}
  bool take(const JsonToken& token, u32 depth) override {
    if (depth == 0) {
      const bool is_fine = token.kind == Kind::null || token.kind == Kind::begin_object ||
                           token.kind == Kind::end_object;
      return is_fine || fail("must be an object");
    }
    if (depth == 1 && token.kind == Kind::key) {
      if (!keys_.add(token.text)) return fail("has a member twice, or more than 256");
      name_ = std::string(field_.name) + "." + std::string(token.text);
      const Field* const row = find_field(endpoint_, name_);
      member_ = value_reader(row, endpoint_, body_);
      return true;
    }
    if (member_->take(token, depth - 1)) return true;
    return fail({name_, member_->error().sentence});
  }

 private:
  const Field& field_;
  Endpoint endpoint_;
  Body& body_;
  KeySet keys_;
  std::string name_;
  std::unique_ptr<ValueReader> member_;
};

// The arguments of a chat template as JSON again, for the engine.
class Copy : public ValueReader {
 public:
  Copy(const Field& field, std::string& to) : field_(field), to_(to) {}
  bool take(const JsonToken& token, u32 depth) override {
    if (depth == 0 && token.kind == Kind::null) return true;
    if (depth == 0 && token.kind != Kind::begin_object && token.kind != Kind::end_object) {
      return fail("must be an object");
    }
    if (depth == 1 && token.kind == Kind::key && chat::is_own_name(token.text)) {
      return fail({std::string(field_.name) + "." + std::string(token.text),
                   "is set by the server: leave it out"});
    }
    copy_.put(token);
    if (depth == 0 && token.ends()) to_ = copy_.str();
    return true;
  }

 private:
  const Field& field_;
  std::string& to_;
  JsonCopy copy_;
};

}  // namespace

bool KeySet::has(std::string_view key) const {
  return std::ranges::find(keys_, key) != keys_.end();
}

bool KeySet::add(std::string_view key) {
  if (keys_.size() == kKeysMax || has(key)) return false;
  keys_.push_back(key);
  return true;
}

std::unique_ptr<ValueReader> value_reader(const Field* field, Endpoint endpoint, Body& body) {
  if (field == nullptr || field->kind == FieldKind::ignored) return std::make_unique<Skip>();
  if (field->kind == FieldKind::refused) return std::make_unique<Refuse>(*field);
  switch (field->type) {
    case FieldType::texts:
      return std::make_unique<Texts>(*field, body);
    case FieldType::passages:
      return std::make_unique<PassageTexts>(*field, body);
    case FieldType::prompt:
      return std::make_unique<Prompts>(body);
    case FieldType::ids:
      return std::make_unique<Ids>(*field, body);
    case FieldType::biases:
      return std::make_unique<Biases>(body);
    case FieldType::messages:
      return std::make_unique<MessagesReader>(body.messages_json, body.has_chunks);
    case FieldType::object:
      return std::make_unique<Members>(*field, endpoint, body);
    case FieldType::json:
      return std::make_unique<Copy>(*field, body.template_arguments_json);
    default:
      return std::make_unique<Scalar>(*field, body);
  }
}

}  // namespace tarn::daemon
