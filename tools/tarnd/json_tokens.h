// A JSON text as a row of tokens, for readers that keep nothing of what they do not need. The text
// is changed in place, and the tokens' texts point into it.
#pragma once

#include <string>
#include <string_view>

#include "platform/base/types.h"

namespace tarn::daemon {

inline constexpr u32 kJsonDepthMax = 64;

struct JsonToken {
  enum class Kind : u8 {
    null,
    boolean,
    number,
    text,
    key,
    begin_object,
    end_object,
    begin_array,
    end_array
  };
  Kind kind = Kind::null;
  bool flag = false;
  bool is_integer = false;  // then `integer` has it exactly
  i64 integer = 0;
  f64 number = 0;
  std::string_view text{};

  bool begins() const { return kind == Kind::begin_object || kind == Kind::begin_array; }
  bool ends() const { return kind == Kind::end_object || kind == Kind::end_array; }
};

class JsonTokens {
 public:
  virtual ~JsonTokens() = default;
  // depth: how many containers are open around the token; of a container's own begin and end, those
  // around it. False ends the reading.
  virtual bool take(const JsonToken& token, u32 depth) = 0;
};

// Returns "" or what is wrong with the text. It is the reader's own error if `take` returned false:
// then the result is kJsonStopped.
std::string read_json(std::string& text, JsonTokens& to);
inline constexpr const char* kJsonStopped = "stopped";

}  // namespace tarn::daemon
