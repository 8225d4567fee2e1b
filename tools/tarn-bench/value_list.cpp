#include "tools/tarn-bench/value_list.h"

#include <charconv>
#include <stdexcept>
#include <utility>

namespace tarn::bench {
namespace {

constexpr size_t kValuesMax = 1000;

[[noreturn]] void refuse(const std::string& part) {
  throw std::invalid_argument("'" + part +
                              "' is not a number or range such as 512, 1-4, 16-64+16 or 1-8*2");
}

u32 number(const std::string& part, const std::string& text) {
  u32 value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) refuse(part);
  return value;
}

void append_part(const std::string& part, std::vector<u32>& values) {
  const size_t dash = part.find('-');
  if (dash == std::string::npos) return values.push_back(number(part, part));
  const size_t by = part.find_first_of("+*", dash);
  const u32 first = number(part, part.substr(0, dash));
  const u32 last =
      number(part, part.substr(dash + 1, by == std::string::npos ? by : by - dash - 1));
  const u32 step = by == std::string::npos ? 1 : number(part, part.substr(by + 1));
  const bool multiplies = by != std::string::npos && part[by] == '*';
  if (last < first || step == 0 || (multiplies && (step == 1 || first == 0))) refuse(part);
  for (u64 value = first; value <= last; value = multiplies ? value * step : value + step) {
    values.push_back(static_cast<u32>(value));
    if (values.size() > kValuesMax) refuse(part);
  }
}

}  // namespace

std::vector<u32> parse_values(const std::string& text) {
  std::vector<u32> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    append_part(text.substr(begin, end - begin), values);
    begin = end + 1;
  }
  return values;
}

std::pair<u32, u32> parse_pair(const std::string& text) {
  const size_t comma = text.find(',');
  if (comma == std::string::npos) refuse(text);
  return {number(text, text.substr(0, comma)), number(text, text.substr(comma + 1))};
}

}  // namespace tarn::bench
