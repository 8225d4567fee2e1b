#include "tools/tarn-bench/format.h"

#include <rapidjson/document.h>

#include <cstdarg>
#include <cstdio>

#include "platform/base/assert.h"
#include "tools/support/json.h"

namespace tarn::bench {
namespace {

// Numbers keep their digits.
rapidjson::Document objects_of(const std::string& json_list) {
  rapidjson::Document list;
  list.Parse<rapidjson::kParseNumbersAsStringsFlag>(json_list.c_str());
  TARN_ASSERT(list.IsArray());
  return list;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

std::string cell(const rapidjson::Value& value) {
  if (value.IsBool()) return value.GetBool() ? "1" : "0";
  return value.IsString() ? value.GetString() : "";
}

}  // namespace

std::string to_csv(const std::string& json_list) {
  const rapidjson::Document list = objects_of(json_list);
  std::string head, lines;
  for (const auto& object : list.GetArray()) {
    std::string names, line;
    for (const auto& member : object.GetObject()) {
      if (member.value.IsArray()) continue;
      const char* const comma = names.empty() ? "" : ",";
      names += comma + std::string(member.name.GetString());
      line += comma + quoted(cell(member.value));
    }
    if (head.empty()) head = names + "\n";
    lines += line + "\n";
  }
  return head + lines;
}

std::string to_json_lines(const std::string& json_list) {
  rapidjson::Document list;
  list.Parse<rapidjson::kParseFullPrecisionFlag>(json_list.c_str());
  TARN_ASSERT(list.IsArray());
  std::string lines;
  for (const auto& object : list.GetArray()) {
    rapidjson::StringBuffer buffer;
    tools::JsonWriter<rapidjson::Writer<rapidjson::StringBuffer>> writer(buffer);
    object.Accept(writer);
    lines += buffer.GetString() + std::string("\n");
  }
  return lines;
}

std::string Forms::in(const std::string& format) const {
  if (format == "md") return table;
  if (format == "json") return json_list;
  if (format == "jsonl") return to_json_lines(json_list);
  return format == "csv" ? to_csv(json_list) : "";
}

void print_forms(const Options& options, const Forms& forms) {
  std::fputs(forms.in(options.output).c_str(), stdout);
  std::fputs(forms.in(options.output_err).c_str(), stderr);
}

std::string text_of(const char* format, ...) {
  char line[400];
  va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  return line;
}

}  // namespace tarn::bench
