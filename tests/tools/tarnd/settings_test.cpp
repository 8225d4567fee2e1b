// Goal    Every key of [daemon] is read within its bounds and refused beyond them, with file, line
//         and column; the engine ignores the table.
// Method  For each key a text with each wrong value, and the text that --check-config prints.
#include "tools/tarnd/settings.h"

#include <doctest/doctest.h>

#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"

namespace tarn::daemon::settings_test {
namespace {

// "" or the refusal.
std::string refusal(const std::string& toml) {
  Settings settings;
  try {
    read_settings(toml, "f.toml", settings);
    check_settings(settings);
    return "";
  } catch (const tools::Failure& failure) {
    CHECK(failure.code == tools::kExitRefused);
    return failure.text;
  }
}

struct Trials {
  void operator()(const char* key, const auto&, u64 min, u64 max, bool, const char*) {
    const auto line = [&](const std::string& value) {
      return "[daemon]\n" + std::string(key) + " = " + value + "\n";
    };
    CAPTURE(key);
    for (const char* wrong : {"true", "1.5", "'x'", "[1]", "-1"}) {
      CAPTURE(wrong);
      CHECK(refusal(line(wrong)).starts_with("f.toml:2:"));
    }
    if (min > 0) CHECK(refusal(line(std::to_string(min - 1))).starts_with("f.toml:2:"));
    CHECK(refusal(line(std::to_string(max + 1))).starts_with("f.toml:2:"));
    CHECK(refusal("[daemon]\n" + std::string(key) + " = 1\n" + key + " = 1\n") != "");
  }
  void operator()(const char* key, const auto&, bool, const char*) {
    CAPTURE(key);
    for (const char* wrong : {"1", "1.5", "{a = 1}", "[[1]]"}) {
      CAPTURE(wrong);
      CHECK(refusal("[daemon]\n" + std::string(key) + " = " + wrong + "\n").starts_with("f.toml:"));
    }
  }
};

TEST_CASE("every key refuses what it cannot be") { Settings().visit(Trials{}); }

TEST_CASE("unknown keys, and relations between keys") {
  CHECK(refusal("[daemon]\nlisten = 'unix:///s'\n").empty());
  CHECK(refusal("[daemon]\n\n  listens = 'x'\n").starts_with("f.toml:3:"));
  CHECK(refusal("daemon = 1\n").starts_with("f.toml:1:"));
  CHECK(refusal("[daemon]\nlisten = 'tcp://127.0.0.1:1'\n").find("keys_file") != std::string::npos);
  CHECK(refusal("[daemon]\nsocket_mode = 680\n").find("octal") != std::string::npos);
  CHECK(refusal("[daemon]\nlog_level = 'loud'\n") != "");
  CHECK(refusal("[daemon]\nmemory_bytes = '16MiB'\n").find("memory_bytes") != std::string::npos);
  CHECK(refusal("[daemon]\nmemory_bytes = '16MiB'\nbody_bytes_max = '1MiB'\n").empty());
  CHECK(refusal("[kv]\ncontext_tokens = 1\n").empty());  // the engine's
}

TEST_CASE("hosts and origins that could never match are refused") {
  const std::string kHosts[] = {"tarn:8080", "http://tarn", "tarn/", "*", "", "a b"};
  for (const std::string& host : kHosts) {
    CAPTURE(host);
    CHECK(refusal("[daemon]\nhosts = ['" + host + "']\n").starts_with("daemon.hosts: "));
  }
  CHECK(refusal("[daemon]\nhosts = ['tarn', 'a.example.com']\n").empty());
  const std::string kOrigins[] = {"localhost:3000",
                                  "http://localhost:3000/",
                                  "*",
                                  "http://*",
                                  "",
                                  "http://",
                                  "://x",
                                  "http://a?b",
                                  "http://a#b"};
  for (const std::string& origin : kOrigins) {
    CAPTURE(origin);
    CHECK(refusal("[daemon]\norigins = ['" + origin + "']\n").starts_with("daemon.origins: "));
  }
  CHECK(refusal("[daemon]\norigins = ['http://localhost:3000', 'null', 'app://x']\n").empty());
}

TEST_CASE("TCP without a key is the command line's choice, and not beside keys") {
  Settings settings;
  settings.listen = {"tcp://127.0.0.1:1"};
  CHECK_THROWS_AS(check_settings(settings), tools::Failure);
  settings.insecure_no_key = true;
  check_settings(settings);
  settings.keys_file = "/k";
  CHECK_THROWS_AS(check_settings(settings), tools::Failure);
  CHECK(refusal("[daemon]\ninsecure_no_key = true\n").find("unknown") != std::string::npos);
}

TEST_CASE("texts hold any number of dots, and nothing that another layer would cut or change") {
  Settings settings;
  read_settings(
      "[daemon]\nhosts = ['a.ai.example.com', 'b.ai.example.com', 'c.ai.example.com', "
      "'d.ai.example.com', 'e.ai.example.com', 'f.ai.example.com']\n",
      "f.toml", settings);
  CHECK(settings.hosts.size() == 6);
  CHECK(settings.hosts.at(5) == "f.ai.example.com");
  for (const char* text : {R"("a\u0000b")", R"("a\nb")", R"("a\u001bb")", R"("a\u007fb")"}) {
    CAPTURE(text);
    CHECK(refusal("[daemon]\nhosts = [" + std::string(text) + "]\n").starts_with("f.toml:2:"));
    CHECK(refusal("[daemon]\nkeys_file = " + std::string(text) + "\n")
              .find("daemon.keys_file: a text here has no control") != std::string::npos);
  }
  CHECK(refusal("[daemon]\nchat_template = \"{{ 'a\\u0000' }}\"\n").starts_with("f.toml:2:"));
  read_settings("[daemon]\nkeys_file = \"/sch\\u00f6n?\"\nchat_template = '''\n{{ 1 }}\n\t'''\n",
                "f.toml", settings);
  CHECK(settings.keys_file == "/schön?");
  CHECK(settings.chat_template == "{{ 1 }}\n\t");
  CHECK(refusal("[daemon]\nkeys_file = 'schön'\n").find("letter beyond ASCII") !=
        std::string::npos);
  CHECK(refusal(std::string("[daemon]\n#\0", 11)) ==
        "f.toml: the configuration has a zero byte: save it as UTF-8 text (line 2, byte 10)");
  CHECK(refusal("a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s = 1").find("more dots") !=
        std::string::npos);
  CHECK(refusal("\xef\xbb\xbf[daemon]\nlisten = 'unix:///s' # ü\n").empty());
}

TEST_CASE("what is printed reads back") {
  Settings settings;
  settings.listen = {"unix:///a", "unix:///b"};
  settings.allow_users = {"root"};
  settings.drain_s = 9;
  settings.body_bytes_max = 4096;
  settings.keys_file = "/schön's \\ \"keys\"";
  settings.chat_template = "{{ '<｜User｜>' }}\n\t{{ 1 }}";
  Settings again;
  read_settings(settings_toml(settings), "f.toml", again);
  CHECK(settings_toml(again) == settings_toml(settings));
  CHECK(again.listen == settings.listen);
  CHECK(again.keys_file == settings.keys_file);
  CHECK(again.chat_template == settings.chat_template);
}

TEST_CASE("SIGHUP takes limits, keys and the log's level, and nothing else") {
  Settings now, then;
  then.listen = {"unix:///other"};
  then.connections_max = 1;
  then.drain_s = 99;
  then.log_level = "debug";
  take_reloadable(then, now);
  CHECK(now.listen.empty());
  CHECK(now.connections_max == 64);
  CHECK(now.drain_s == 99);
  CHECK(now.log_level == "debug");
}

TEST_CASE("the engine ignores the table, and nothing beside it") {
  CHECK(config_from_toml("[daemon]\nanything = 1\n[kv]\ncontext_tokens = 64\n", {}).has_value());
  CHECK_FALSE(config_from_toml("[daemons]\nanything = 1\n", {}).has_value());
}

TEST_CASE("modes") {
  u32 mode = 0;
  CHECK(octal_mode(660, &mode));
  CHECK(mode == 0660);
  CHECK(octal_mode(0, &mode));
  CHECK(mode == 0);
  CHECK_FALSE(octal_mode(608, &mode));
}

}  // namespace
}  // namespace tarn::daemon::settings_test
