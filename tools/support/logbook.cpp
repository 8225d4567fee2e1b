#include "tools/support/logbook.h"

#include <rapidjson/document.h>
#include <rapidjson/error/en.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "tools/support/exit_code.h"

namespace tarn::tools {
namespace {

constexpr f64 kZ = 1.959963984540054;  // for 95 %, two-sided
constexpr u64 kLengthMin = 128, kLengthMax = u64{1} << 32;

struct SourceLine {
  const std::string& where;
  u64 line_number;
};

[[noreturn]] void refuse(const SourceLine& source, const std::string& what) {
  throw Failure{kExitRefused,
                source.where + ":" + std::to_string(source.line_number) + ": " + what +
                    "; a log book has one JSON object per line, {seed, kind, tokens, prompt, "
                    "answer} (tools/train/make-logbook)"};
}

using Object = rapidjson::Document;

u64 number(const Object& object, const char* key, const SourceLine& source) {
  const auto member = object.FindMember(key);
  if (member == object.MemberEnd() || !member->value.IsUint64()) {
    refuse(source, std::string("'") + key + "' is not a whole number");
  }
  return member->value.GetUint64();
}

std::string text(const Object& object, const char* key, const SourceLine& source) {
  const auto member = object.FindMember(key);
  if (member == object.MemberEnd() || !member->value.IsString() ||
      member->value.GetStringLength() == 0) {
    refuse(source, std::string("'") + key + "' is not a text");
  }
  return {member->value.GetString(), member->value.GetStringLength()};
}

LogbookLine parse_line(std::string_view line, const SourceLine& source) {
  Object object;
  object.Parse<rapidjson::kParseIterativeFlag>(line.data(), line.size());
  if (object.HasParseError()) {
    refuse(source, std::string("no JSON: ") + rapidjson::GetParseError_En(object.GetParseError()));
  }
  if (!object.IsObject()) refuse(source, "no JSON object");
  return {.seed = number(object, "seed", source),
          .kind = text(object, "kind", source),
          .n_tokens = number(object, "tokens", source),
          .prompt = text(object, "prompt", source),
          .answer = text(object, "answer", source)};
}

// Centre and half width of the interval.
struct Wilson {
  f64 centre = 0, half = 0;
};
Wilson wilson(const Rate& rate) {
  const f64 n = static_cast<f64>(rate.n), p = rate.share(), z2 = kZ * kZ;
  return {.centre = (p + z2 / (2 * n)) / (1 + z2 / n),
          .half = kZ * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)};
}

}  // namespace

std::vector<LogbookLine> parse_logbook(std::string_view text, const std::string& where) {
  std::vector<LogbookLine> lines;
  for (u64 line_number = 1; !text.empty(); ++line_number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    lines.push_back(parse_line(line, {where, line_number}));
  }
  if (lines.empty()) refuse({where, 1}, "it has no question");
  return lines;
}

f64 Rate::share() const { return n == 0 ? NAN : static_cast<f64>(n_true) / static_cast<f64>(n); }
f64 Rate::low() const {
  if (n == 0) return NAN;
  const Wilson w = wilson(*this);
  return std::max(0.0, w.centre - w.half);
}
f64 Rate::high() const {
  if (n == 0) return NAN;
  const Wilson w = wilson(*this);
  return std::min(1.0, w.centre + w.half);
}

u64 logbook_length(u64 n_tokens) {
  return std::bit_ceil(std::clamp(n_tokens, kLengthMin, kLengthMax));
}

}  // namespace tarn::tools
