// Goal    a configuration text gives exactly the values that it says, or an error with key, line
// and
//         column; nothing is ignored silently.
// Method  one table of texts and errors; every key is set once through its own entry in visit(),
// and
//         given once wrong type, unknown, twice and out of range.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/config/config.h"

namespace tarn::toml_test {
namespace {

u64 figure(const Error& error, std::string_view name) {
  for (const Figure& f : error.figures) {
    if (f.name != nullptr && name == f.name) return f.value;
  }
  return ~u64{0};
}

TEST_CASE("a full text is read, the rest keeps the base's values") {
  constexpr const char* kText = R"(# comment
[memory]
budget_bytes = "4.5GiB"
lock = "try"
[kv]
context_tokens = 32_768
type = "q8_0"
[engine]
sessions_max = 2
[cpu]
isa = "avx2"
pin_threads = true
[device]
[io]
backend = "threads"
)";
  Config base;
  base.n_threads = 7;
  base.sessions_max = 9;
  Origins origins{};
  const Result<Config> config = config_from_toml(kText, base, &origins);
  REQUIRE(config.has_value());
  CHECK(config->budget_bytes == 4608 * kMiB);
  CHECK(config->lock == LockChoice::attempt);
  CHECK(config->context_tokens == 32768);
  CHECK(config->kv_type == KvTypeChoice::q8_0);
  CHECK(config->sessions_max == 2);
  CHECK(config->n_threads == 7);
  CHECK(std::string(config->isa.data()) == "avx2");
  CHECK(config->pin_threads);
  CHECK(config->huge_pages);
  CHECK(std::string(config->device.data()) == "auto");
  CHECK(std::string(config->io.data()) == "threads");
  CHECK(origins[key_idx("cpu.isa")] == Origin::file);
  CHECK(origins[key_idx("kv.type")] == Origin::file);
  CHECK(origins[key_idx("cpu.threads")] == Origin::built_in);
  CHECK(config_from_toml("", Config{}).has_value());
  CHECK(config_from_toml("kv.type = 'q8_0'\nkv.context_tokens = 64", Config{})->context_tokens ==
        64);
  CHECK(config_from_toml("memory = { budget_bytes = 123, lock = 'off' }", Config{})->budget_bytes ==
        123);
}

// Where toml++ itself refuses a text, words and column are its own and differ by version.
constexpr const char* kTheirWords = "";
constexpr u64 kNone = ~u64{0}, kTheirColumn = kNone - 1;

struct Case {
  const char* name;
  const char* text;
  const char* hint;    // how the hint begins
  const char* detail;  // all of it
  u64 line, column;
};
constexpr Case kBad[] = {
    {"unknown key", "[kv]\ncontxt_tokens = 1\n", "a key is unknown",
     "kv.contxt_tokens -> kv.context_tokens", 2, 1},
    {"a cost by itself", "[box]\nprefill_layer_ns = 1\n", "a key is unknown; the nearest",
     "box.prefill_layer_ns -> box.profile", 2, 1},
    {"no profile", "\n[box]\nprofile = '1 2 3'\n", "this is no profile", "box.profile", 3, 11},
    {"unknown section", "[memry]\nbudget_bytes = 1", "a key is unknown",
     "memry.budget_bytes -> memory.budget_bytes", 2, 1},
    {"unknown empty section", "\n[kvs]\n", "a key is unknown", "kvs", 2, 2},
    {"no section", "context_tokens = 1", "a key is unknown", "context_tokens -> kv.context_tokens",
     1, 1},
    {"a section as a value", "kv = 1", "a key is unknown", "kv", 1, 1},
    {"a list of sections", "[[kv]]\ntype = 'f16'", "a key is unknown", "kv", 1, 3},
    {"too deep", "[kv.type]\nx = 1", "a value is not one of its", "kv.type = f16 | q8_0 | q4_0", 1,
     1},
    {"quoted whole key", "\"kv.type\" = 'q8_0'", "a key is unknown", "kv.type -> kv.type", 1, 1},
    {"key with a zero byte", "[kv]\n\"type\\u0000\" = 'q8_0'", "a key is unknown",
     "kv.type? -> kv.type", 2, 1},
    {"long key",
     "[kv]\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa = 1",
     "a key is unknown", "kv.aaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 2, 1},
    {"twice", "[kv]\ntype = 'f16'\ntype = 'f16'",
     "the configuration is not valid TOML, or gives a key twice", kTheirWords, 3, kTheirColumn},
    {"section twice", "[kv]\ntype = 'f16'\n[kv]\n",
     "the configuration is not valid TOML, or gives a key twice", kTheirWords, 3, kTheirColumn},
    {"twice in two ways", "kv.type = 'f16'\n[kv]\ntype = 'f16'",
     "the configuration is not valid TOML, or gives a key twice", kTheirWords, 2, kTheirColumn},
    {"no key in a header", "\n[~kv]\n", "the configuration is not valid TOML", kTheirWords, 2,
     kTheirColumn},
    {"cut off", "[kv]\ntype = ", "the configuration is not valid TOML", kTheirWords, 2,
     kTheirColumn},
    {"letters beyond ASCII in a key", "[kv]\ntyp\u00e9 = 'f16'",
     "the configuration is not valid TOML", kTheirWords, 2, kTheirColumn},
    {"a word joiner in a key", "\xef\xbb\xb7 = 1", "the configuration is not valid TOML",
     kTheirWords, 1, kTheirColumn},
    {"letters beyond ASCII before a value", "[kv]\n\"t\u00e9\" = 'f16'",
     "a text has a letter beyond ASCII", "", 2, kNone},
    {"letters beyond ASCII in a value", "[kv]\ntype = 'f\u00e916'",
     "a text has a letter beyond ASCII", "", 2, kNone},
    {"an escape for a letter beyond ASCII", "[kv]\ntype = \"f\\u00e916\"",
     "a value is not one of its", "kv.type = f16 | q8_0 | q4_0", 2, 8},
    {"deep list", "[kv]\ntype = [[[[[[1]]]]]]", "the configuration is not valid TOML", kTheirWords,
     2, kTheirColumn},
    {"deep dotted key", "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s = 1", "a key has more dots", "", 1,
     kNone},
    {"deep dotted key behind a hash in a text",
     "x = { y = '#', a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s = 1 }", "a key has more dots", "", 1,
     kNone},
    {"deep dotted key behind a hash and quotes in a text",
     "x = { y = \"'\\\"#'\", a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s = 1 }", "a key has more dots",
     "", 1, kNone},
    {"deep dotted key behind a hash in a text of two lines",
     "x = { y = '''\n#''', a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s = 1 }", "a key has more dots", "",
     2, kNone},
    {"the same with a stray byte between the quotes",
     "x = { y = '\x80''\n#''', a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s = 1 }",
     "a text has a letter beyond ASCII", "", 1, kNone},
    {"negative", "[kv]\n context_tokens = -1", "a value is out of its range", "kv.context_tokens",
     2, 19},
    {"above the range", "[kv]\ncontext_tokens = 16777217", "a value is out of its range",
     "kv.context_tokens", 2, 18},
    {"above 32 bits", "[cpu]\nthreads = 4294967297", "a value is out of its range", "cpu.threads",
     2, 11},
    {"below the range", "[engine]\nsessions_max = 0", "a value is out of its range",
     "engine.sessions_max", 2, 16},
    {"size above the range", "[memory]\nbudget_bytes = '17TiB'", "a value is out of its range",
     "memory.budget_bytes", 2, 16},
    {"number too large for TOML", "[memory]\nbudget_bytes = 9223372036854775808",
     "the configuration is not valid TOML", kTheirWords, 2, kTheirColumn},
    {"text for a number", "[kv]\ncontext_tokens = '64'", "a whole number is expected",
     "kv.context_tokens", 2, 18},
    {"float for a number", "[kv]\ncontext_tokens = 64.0", "a whole number is expected",
     "kv.context_tokens", 2, 18},
    {"date for a size", "[memory]\nbudget_bytes = 1979-05-27", "a size is expected",
     "memory.budget_bytes", 2, 16},
    {"bad unit", "[memory]\nbudget_bytes = '6GB'", "a size is a whole number of bytes, or",
     "memory.budget_bytes", 2, 16},
    {"number for a choice", "[kv]\ntype = 8", "a value is not one of its",
     "kv.type = f16 | q8_0 | q4_0", 2, 8},
    {"unknown choice", "[kv]\ntype = 'q4_1'", "a value is not one of its",
     "kv.type = f16 | q8_0 | q4_0", 2, 8},
    {"choice with a zero byte", "[kv]\ntype = \"f16\\u0000\"", "a value is not one of its",
     "kv.type = f16 | q8_0 | q4_0", 2, 8},
    {"unknown text", "[device]\nkind = 'gpu'", "a value is not one of its",
     "device.kind = auto | cpu | cuda", 2, 8},
    {"number for a flag", "[cpu]\npin_threads = 1", "true or false is expected", "cpu.pin_threads",
     2, 15},
    {"text for a flag", "[cpu]\npin_threads = 'true'", "true or false is expected",
     "cpu.pin_threads", 2, 15},
    {"relation", "[engine]\nsessions_max = 8\nbatch_rows_max = 4", "a step must hold one row",
     "engine.batch_rows_max", kNone, kNone},
    {"page of no multiple of 16", "[kv]\npage_tokens = 24", "a page holds a multiple of 16",
     "kv.page_tokens", kNone, kNone},
};

TEST_CASE("every broken text is refused with its place") {
  for (const Case& c : kBad) {
    CAPTURE(c.name);
    const Result<Config> config = config_from_toml(c.text, Config{});
    REQUIRE_FALSE(config.has_value());
    const Error& error = config.error();
    CHECK(error.status == Status::invalid_config);
    CHECK(std::string(error.hint).substr(0, std::string(c.hint).size()) == c.hint);
    CHECK(figure(error, "line") == c.line);
    if (c.column == kTheirColumn) {
      CHECK_FALSE(error.detail.empty());
      CHECK(figure(error, "column") != kNone);
    } else {
      CHECK(std::string(error.detail.c_str()) == c.detail);
      CHECK(figure(error, "column") == c.column);
    }
  }
}

TEST_CASE("comments may hold any bytes, and a byte order mark is passed over") {
  const Result<Config> config = config_from_toml(
      "\xef\xbb\xbf# gr\u00f6\u00dfer \u4e2d \xff\xfe\x80\n[kv]\ntype = 'q8_0' # \xef\xbb\xb7\n",
      Config{});
  REQUIRE(config.has_value());
  CHECK(config->kv_type == KvTypeChoice::q8_0);
  const Result<Config> bad = config_from_toml("[kv]\nkv_\u4e2d.x = 1", Config{});
  CHECK_FALSE(bad.has_value());
}

TEST_CASE("dots of keys alone count, whatever else has dots") {
  const std::string dots(40, '.');
  const std::string texts[] = {
      "hosts = ['a.ai.example.com', 'b.ai.example.com', \"c.ai.example.com\", 'd.ai.example.com', "
      "\"e.ai.example.com\", 'f.ai.example.com']",
      "a = '" + dots + "'",
      "a = \"" + dots + "\"",
      "a = \"\\\"" + dots + "\"",
      "a = '''" + dots + "\n" + dots + "'''",
      "a = \"\"\"" + dots + "\n\\\"\"\"" + dots + "\"\"\"",
      "a = \"\"\"x\"\"\"\"\" # " + dots,
      "a = '''x'''' # " + dots,
      "a = '' # " + dots,
      "a = '\\' # " + dots,
      "a = { b = '" + dots + "', c = \"" + dots + "\" }",
      "a = [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5]",
      "a = [1979-05-27T07:32:00.999, 1979-05-27T07:32:00.999Z]",
      "a = { b.c = 1.5, d.e = 1.5, f.g = 1.5, h.i = 1.5, j.k = 1.5, l.m = 1.5, n.o = 1.5, "
      "p.q = 1.5, r.s = 1.5, t.u = 1.5 }",
      "a.'" + dots + "'.\"" + dots + "\" = 1",
  };
  constexpr const char* kDeepKey = "z.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s = 1";
  for (const std::string& text : texts) {
    CAPTURE(text);
    const std::string daemon = "[daemon]\n" + text + "\n";  // another reader's
    const Result<Config> config = config_from_toml(daemon + "[kv]\ntype = 'q8_0'\n", Config{});
    REQUIRE(config.has_value());
    CHECK(config->kv_type == KvTypeChoice::q8_0);
    const Result<Config> bad = config_from_toml(daemon + kDeepKey, Config{});
    REQUIRE_FALSE(bad.has_value());
    CHECK(std::string(bad.error().hint).starts_with("a key has more dots"));
  }
  // On the line of a text that ends with quotes of its own.
  for (const char* text : {"'''x''''", "'''x'''''", R"("""x"""")", R"("""x\"""")", "''", R"("")",
                           R"('\')", R"("\\")", R"("#")", R"('"')"}) {
    CAPTURE(text);
    const Result<Config> bad =
        config_from_toml("a = { b = " + std::string(text) + ", " + kDeepKey + " }", Config{});
    REQUIRE_FALSE(bad.has_value());
    CHECK(std::string(bad.error().hint).starts_with("a key has more dots"));
  }
}

TEST_CASE("a zero byte is refused with its line, an escape that stands for one with its key") {
  for (const std::string before : {"[kv]\n#", "\n", "[kv]\ntype = 'q8_0", "[kv]\n"}) {
    CAPTURE(before);
    const Result<Config> config = config_from_toml(before + '\0' + "'\n", Config{});
    REQUIRE_FALSE(config.has_value());
    CHECK(std::string(config.error().hint).starts_with("the configuration has a zero byte"));
    CHECK(figure(config.error(), "line") == 2);
    CHECK(figure(config.error(), "byte") == before.size());
  }
  for (const char* path : {R"("/a\u0000b")", R"("/a\u001bb")"}) {
    CAPTURE(path);
    const Result<Config> config =
        config_from_toml("[store]\npath = " + std::string(path), Config{});
    REQUIRE_FALSE(config.has_value());
    CHECK(std::string(config.error().detail.c_str()) == "store.path");
  }
  CHECK_FALSE(config_from_toml("[kv]\ntype = \"q8_0\\u0000\"", Config{}).has_value());
  CHECK_FALSE(config_from_toml("[kv]\n\"type\\u0000\" = 'q8_0'", Config{}).has_value());
}

TEST_CASE("comments may hold any number of dots") {
  const Result<Config> config = config_from_toml(
      "# ................................................................\n[kv]\n"
      "type = 'q8_0'  # it's ........................ \"..............................\n"
      "page_tokens = 32 # ................................................................",
      Config{});
  REQUIRE(config.has_value());
  CHECK(config->kv_type == KvTypeChoice::q8_0);
  CHECK(config->page_tokens == 32);
}

TEST_CASE("a text is read up to its limit and not beyond") {
  std::string text = "[kv]\ntype = 'q8_0'\n#";
  text.resize(kConfigTextBytesMax, '#');
  CHECK(config_from_toml(text, Config{}).has_value());
  text.push_back('#');
  const Result<Config> config = config_from_toml(text, Config{});
  REQUIRE_FALSE(config.has_value());
  CHECK(figure(config.error(), "bytes_max") == kConfigTextBytesMax);
}

// For each key of visit(): a text with a good value, and one with a value of the wrong type.
struct Examples {
  std::vector<std::pair<std::string, std::string>> good_and_bad;
  template <class Number>
  void operator()(const char* key, const Number&, u64 min, u64, const char*) {
    add(key, std::to_string(min), "true");
  }
  void operator()(const char* key, const auto&, ChoiceNames names, const char*) {
    std::string quoted(names[0]);
    quoted.insert(quoted.begin(), '\'');
    quoted.push_back('\'');
    add(key, quoted, "1");
  }
  void operator()(const char* key, const bool&, const char*) { add(key, "false", "'false'"); }
  template <u64 n>
  void operator()(const char* key, const std::array<char, n>&, const char*) {
    add(key, "'" + std::string(n - 1, 'a') + "'", "1");  // 64 of them are a SHA-256
  }
  void add(const std::string& key, const std::string& good, const std::string& bad) {
    good_and_bad.emplace_back(key + " = " + good, key + " = " + bad);
  }
};

TEST_CASE("every key can be set, and is refused with a value of another type or twice") {
  Examples examples;
  Config{}.visit(examples);
  for (u32 idx = 0; idx < examples.good_and_bad.size(); ++idx) {
    std::string good = examples.good_and_bad[idx].first;
    if (good.starts_with("box.profile"))
      good = std::string("box.profile = '") + box_text({}).data() + "'";
    const std::string& bad = examples.good_and_bad[idx].second;
    CAPTURE(good);
    Origins origins{};
    Config base;
    base.sessions_max = 1;
    base.store.quota_bytes = kGiB;    // a path needs one
    base.box.layer.update_ps = 1000;  // 0 iterations follow from costs
    const Result<Config> config = config_from_toml(good, base, &origins);
    CHECK(config.has_value());
    for (u32 i = 0; i < kConfigKeysMax; ++i) {
      CHECK(origins[i] == (i == idx ? Origin::file : Origin::built_in));
    }
    CHECK_FALSE(config_from_toml(bad, base).has_value());
    CHECK_FALSE(config_from_toml(good + "\n" + good, base).has_value());
  }
}

}  // namespace
}  // namespace tarn::toml_test
