// A model's chat template: turns a conversation into the text that the model was trained to read.
//
// The language is the part of Jinja2 that such templates use, with the settings of transformers'
// renderer (trim_blocks, lstrip_blocks, loop controls, an immutable sandbox): the text is equal to
// Jinja2's, byte by byte. A template comes with a file and is hostile: parsing and rendering are
// bounded in memory, steps, depth and output, and what the interpreter does not know is refused.
//
//   memory   parse() uses at most memory_bytes() of its region; render() what it is lent
//   thread   render() is const and takes the caller's memory; any thread
//   errors   unsupported: the template uses what the interpreter does not know; detail and figure
//            name it and its line. invalid_model: not a template. invalid_request: the messages are
//            no JSON, the template refuses them (raise_exception), or a bound was reached
#pragma once

#include <ctime>
#include <span>
#include <string_view>

#include "platform/base/result.h"

namespace tarn::chat {

// The largest templates in use have 17 KiB.
inline constexpr u64 kSourceBytesMax = u64{128} * 1024;

// Who wrote a byte of a rendered text. What the template wrote may be a control token; what came
// with the messages never is, but for the role of a message if it is a usual one: templates make
// tokens of it. Messages from the 254th on share a number.
inline constexpr u8 kFromTemplate = 0;
inline constexpr u8 kFromCaller = 1;  // tools and arguments
constexpr u8 origin_of_message(u64 idx) { return static_cast<u8>(2 + (idx < 253 ? idx : 253)); }

struct Rendered {
  std::string_view text{};
  std::span<const u8> origins{};  // [text.size()]
};

// A variable of the template with a text of the model's: bos_token, eos_token, ...
struct Variable {
  std::string_view name{};
  std::string_view text{};
};

struct RenderArgs {
  std::string_view messages{};   // a JSON array of objects
  std::string_view tools{};      // a JSON array; empty: none
  std::string_view arguments{};  // a JSON object: more variables; empty: none
  bool add_generation_prompt = true;
  std::span<const Variable> variables{};
  std::tm now{};  // for strftime_now
};

// Whether rendering itself gives this name a meaning, as a variable (messages, bos_token) or a
// function: an argument of that name is refused.
bool is_own_name(std::string_view name);

struct Program;  // syntax.h

class ChatTemplate {
 public:
  ChatTemplate() = default;
  // An upper bound for a source of this size; a longer one than kSourceBytesMax needs no more.
  static u64 memory_bytes(u64 source_bytes);
  // Copies the source into the region, which is borrowed for the life of the object.
  static Result<ChatTemplate> parse(std::string_view source, std::span<std::byte> region);

  bool is_there() const { return program_ != nullptr; }
  // The text lies in `memory` until its next use. `memory` bounds the text, and what the template
  // makes on its way: four times the bytes of the messages, and 64 KiB, suffice for a template that
  // prints its messages, trimmed and joined; another copy of a message takes four times its bytes.
  Result<Rendered> render(const RenderArgs& args, std::span<std::byte> memory) const;

 private:
  const Program* program_ = nullptr;
};

}  // namespace tarn::chat
