// The seeds of toml: a text with every key, each key on its own, and TOML's other ways to write
// things.
#include <fstream>
#include <string>
#include <vector>

#include "runtime/config/config.h"

namespace {

struct Lines {
  std::vector<std::string> lines;
  template <class Number>
  void operator()(const char* key, const Number&, tarn::u64, tarn::u64, const char*) {
    add(key, std::string_view(key).ends_with("_bytes") ? "'4.5GiB'" : "64");
  }
  void operator()(const char* key, const auto&, tarn::ChoiceNames names, const char*) {
    for (const char* name : names) add(key, std::string("\"").append(name).append("\""));
  }
  void operator()(const char* key, const bool&, const char*) { add(key, "false"); }
  template <tarn::u64 n>
  void operator()(const char* key, const std::array<char, n>&, const char*) {
    const bool is_profile = key == std::string_view("box.profile");
    add(key, is_profile ? std::string("'") + tarn::box_text({}).data() + "'" : "'a/folder'");
  }
  void add(const char* key, const std::string& value) {
    lines.push_back(std::string(key) + " = " + value + "\n");
  }
};

constexpr const char* kOthers[] = {
    "[kv]\ntype = 'f16' # comment \xc3\xa9\ncontext_tokens = 0x1_000\n\n[kv.deeper]\nx = 1\n",
    "memory = { budget_bytes = 6_000, lock = \"try\" }\n[[lists]]\na = [1, 2.5e3, [inf, nan]]\n",
    "\"quoted key\" = \"\\u00e9\\n\"\n'literal' = '''\nlines\n'''\nb = \"\"\"\\\n  x\"\"\"\n",
    "when = 1979-05-27T07:32:00.5-07:00\nday = 1979-05-27\ntime = 07:32:00\n",
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  Lines all;
  tarn::Config{}.visit(all);
  std::vector<std::string> texts(all.lines);
  std::string joined, last_key;
  for (const std::string& line : all.lines) {
    const std::string key = line.substr(0, line.find(' '));
    if (key != last_key) joined += line;
    last_key = key;
  }
  texts.push_back(joined);
  texts.insert(texts.end(), std::begin(kOthers), std::end(kOthers));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::ofstream(std::string(argv[1]) + "/toml" + std::to_string(i), std::ios::binary) << texts[i];
  }
  return 0;
}
