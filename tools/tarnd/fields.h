// The table of request fields: what a body may say at which endpoint, within which bounds. A body
// becomes a Body only by it (body_reader.h); the documentation and the tests read it, too.
//
//   served    taken, within its bounds
//   ignored   known to clients, without a meaning here
//   refused   known, and would change the answer, which is not done yet: 400 with its name, unless
//             the value is null, empty, false, or one of `harmless`. Where that names true or null,
//             false is refused, too; of type json, an empty object is
//
// A name that no row has is ignored, too. Rows of one target are names of one field: the first row
// that a body has wins, in whatever order the body has them.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/types.h"
#include "runtime/api/tarn_chunks.h"
#include "tools/support/answer_fields.h"

namespace tarn::daemon {

enum Endpoint : u8 {
  kChat = 1,
  kCompletions = 2,
  kTokenize = 4,
  kDetokenize = 8,
  kApplyTemplate = 16,
  kIngest = 32,
};

enum class FieldType : u8 {
  boolean,
  integer,
  number,
  text,      // bounds: bytes
  texts,     // one text or a list; bounds: how many, each 1..128 bytes
  passages,  // a list of texts; bounds: how many, each of a byte at least
  prompt,    // a text, a list of texts, ids, or a list of lists of ids; bounds: how many prompts
  ids,       // a list; bounds: how many
  biases,    // {"ID": bias} or [[ID, bias]]; bounds: how many
  messages,  // a list of {role, content, ...}; bounds: how many
  object,    // its fields have rows of their own, NAME.FIELD
  json,      // any object, handed on
  any,       // not looked at
};
enum class FieldKind : u8 { served, ignored, refused };

struct Prompt {
  std::string text = {};
  std::vector<u32> ids = {};
  bool has_ids = false;  // instead of the text
};

struct Field;

// The defaults are the fields' defaults.
struct Body : tools::AnswerFields {
  u64 n_vocab = u64{1} << 32;  // set before reading: which token ids there are
  std::vector<const Field*> given =
      {};  // rows whose values were taken, where several have a target
  std::string model;
  bool stream = false, include_usage = false;
  i64 n = 1;
  bool logprobs = false, ignore_eos = false;
  i64 top_logprobs = 0;
  i64 n_logprobs = -1;  // of /v1/completions; -1: none
  bool has_stops = false;
  std::vector<std::string> stops;
  std::vector<tarn_logit_bias> biases;
  std::string messages_json, template_arguments_json;
  bool add_generation_prompt = true;
  std::vector<Prompt> prompts;
  std::string session, select;
  bool background = false;
  std::vector<std::string> chunks;  // of a completion
  bool has_chunks = false;          // messages_json has
  f64 recompute = TARN_RECOMPUTE_AUTO;
  std::string content, name;
  bool replaces = false;  // a document of this name
  bool add_special = false, parse_special = true, with_pieces = false;
  std::vector<u32> tokens;
};

struct Field {
  const char* name;
  u8 endpoints;
  FieldType type;
  FieldKind kind = FieldKind::served;
  f64 least = 0, most = 0;  // the bounds of the type, but for integers
  bool is_required = false;
  const char* harmless = "";  // of a refused field: values that change nothing, between '|'
  const char* about = "";     // of those of tools::kAnswerFields
  i64 integer_least = 0, integer_most = 0;
  bool is_c_text = false;  // ends up as a const char*, which U+0000 would cut
  bool Body::*flag = nullptr;
  i64 Body::*integer = nullptr;
  f64 Body::*number = nullptr;
  std::string Body::*text = nullptr;
};

std::span<const Field> fields();
// nullptr if the endpoint has no such field.
const Field* find_field(Endpoint endpoint, std::string_view name);
const char* field_type_name(FieldType type);

inline constexpr u64 kStopsMax = 16, kStopBytesMax = 128, kChunksMax = 128, kChoicesMax = 8,
                     kBiasesMax = 256;

}  // namespace tarn::daemon
