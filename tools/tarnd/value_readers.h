// Readers of single values of a request's body. Each takes the tokens of one value, and adds it to
// the Body. Private to body_reader.cpp and its tests.
#pragma once

#include <memory>
#include <string>

#include "tools/tarnd/fields.h"
#include "tools/tarnd/json_tokens.h"

namespace tarn::daemon {

// An error: the sentence goes on behind the field's name ("must be an integer").
struct ValueError {
  std::string field, sentence;
};

class ValueReader : public JsonTokens {
 public:
  const ValueError& error() const { return error_; }

 protected:
  bool fail(std::string sentence) {
    error_.sentence = std::move(sentence);
    return false;
  }
  bool fail(ValueError error) {
    error_ = std::move(error);
    return false;
  }

 private:
  ValueError error_;
};

// nullptr `field`: one that no row has. Never returns nullptr.
std::unique_ptr<ValueReader> value_reader(const Field* field, Endpoint endpoint, Body& body);

// Members' names of one object: false if it is there already, or there are more than 256.
class KeySet {
 public:
  bool add(std::string_view key);
  bool has(std::string_view key) const;
  void clear() { keys_.clear(); }

 private:
  std::vector<std::string_view> keys_;
};

}  // namespace tarn::daemon
