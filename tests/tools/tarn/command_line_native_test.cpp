// Goal    a wrong command line, a missing or a broken file ends with its exit code and a sentence
//         that names the remedy, and every command explains itself.
// Method  a table of command lines of the program itself, on a tiny model and on one whose weights
//         are damaged.
#include <doctest/doctest.h>
#include <rapidjson/document.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "platform/gpu/device.h"
#include "tests/support/temp_dir.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/alloc_counter.h"
#include "tools/support/input.h"
#include "tools/support/model_file.h"
#include "tools/synth/synth.h"

namespace tarn::command_line_native_test {
namespace {

struct Case {
  const char* name;
  std::vector<std::string> arguments;  // MODEL, NAN, BOOK, PROSE, NOISE, CHAT, KEEPS: this test's
                                       // files; STORE, OPEN: folders, the second open to others
  int exit_code;
  const char* says;  // on standard error, or on standard output where the code is 0
};

const Case kCases[] = {
    {"nothing", {}, 0, "Exit codes: 0 ok"},
    {"help", {"--help"}, 0, "Exit codes: 0 ok"},
    {"help of run", {"run", "--help"}, 0, "tarn run -m model.gguf"},
    {"help of eval", {"eval", "--help"}, 0, "logbook"},
    {"version", {"--version"}, 0, "tarn "},
    {"unknown command", {"serve"}, 64, "no command 'serve'"},
    {"unknown option", {"run", "--fast"}, 64, "--fast"},
    {"no prompt", {"run", "-m", "MODEL"}, 64, "-p TEXT"},
    {"no such model", {"run", "-m", "/nowhere.gguf", "-p", "a"}, 74, "/nowhere.gguf"},
    {"no GGUF", {"run", "-m", "NOISE", "-p", "a"}, 78, "GGUF"},
    {"a budget that is none", {"plan", "-m", "MODEL", "--budget", "6GB"}, 78, "KiB, MiB, GiB"},
    {"too small a budget", {"plan", "-m", "MODEL", "--budget", "1MiB"}, 78, "raise it to"},
    {"a plan", {"plan", "-m", "MODEL", "-c", "256"}, 0, "kv_groups"},
    {"for how many sessions a plan is",
     {"plan", "-m", "MODEL", "-c", "256"},
     0,
     "sessions       4 open at a time; tarn run opens one: plan for it with --sessions 1\n"},
    {"a plan for one session",
     {"plan", "-m", "MODEL", "-c", "256", "--sessions", "1"},
     0,
     "sessions       1 open at a time\n"},
    {"a plan for no session", {"plan", "-m", "MODEL", "--sessions", "0"}, 78, "sessions_max"},
    {"a plan's sessions as JSON",
     {"plan", "-m", "MODEL", "-c", "256", "--sessions", "2", "--json"},
     0,
     "\"sessions_max\": 2"},
    {"a prompt longer than -c", {"run", "-m", "MODEL", "-c", "1", "-p", "a b c"}, 78, "raise -c"},
    {"until the end", {"run", "-m", "MODEL", "-c", "32", "-p", "a", "-n", "-1"}, 0, ""},
    {"more than there is room for",
     {"run", "-m", "MODEL", "-c", "32", "-p", "a", "-n", "4000000000"},
     0,
     ""},
    {"fewer than none", {"run", "-m", "MODEL", "-p", "a", "-n", "-2"}, 64, "-n"},
    {"layers on a GPU", {"run", "-m", "MODEL", "-p", "a", "-n", "1", "-ngl", "99"}, 0, ""},
    {"all layers on a GPU", {"plan", "-m", "MODEL", "-c", "32", "-ngl", "all"}, 0, "kv_groups"},
    {"layers without a number", {"run", "-m", "MODEL", "-p", "a", "-ngl", "x"}, 64, "'x' is not"},
    {"no layers on a GPU", {"plan", "-m", "MODEL", "-c", "32", "-ngl", "0"}, 0, "kv_groups"},
    {"a damaged model", {"run", "-m", "NAN", "-c", "32", "-p", "a"}, 78, "get the file again"},
    {"a damaged model evaluated", {"eval", "-m", "NAN", "--text", "NOISE"}, 78, "get the file"},
    {"a damaged model's prose", {"eval", "-m", "NAN", "logbook", "PROSE"}, 78, "get the file"},
    {"a damaged model's answers", {"eval", "-m", "NAN", "logbook", "BOOK"}, 78, "get the file"},
    {"logits over the base",
     {"eval", "-m", "MODEL", "--text", "NOISE", "--base", "BOOK", "--logits-out", "BOOK"},
     64,
     "another file"},
    {"answers over the log book",
     {"eval", "-m", "MODEL", "logbook", "BOOK", "--answers-out", "BOOK"},
     64,
     "another file"},
    {"no text to tokenize", {"tokenize", "-m", "MODEL"}, 64, "-p TEXT or -f FILE"},
    {"an empty text to tokenize", {"tokenize", "-m", "MODEL", "-p", ""}, 0, ""},
    {"a method of the lab", {"plan", "-m", "MODEL", "--select", "random"}, 64, "for measurements"},
    {"no such type of KV", {"run", "-m", "MODEL", "--kv-type", "q3", "-p", "a"}, 64, "q3"},
    {"nothing to evaluate", {"eval", "-m", "MODEL"}, 64, "--text FILE"},
    {"no log book", {"eval", "-m", "MODEL", "logbook"}, 64, "logbook FILE"},
    {"a log book that is none", {"eval", "-m", "MODEL", "logbook", "NOISE"}, 78, "no JSON"},
    {"a log book", {"eval", "-m", "MODEL", "logbook", "BOOK"}, 0, "95 % interval"},
    {"a model without a template",
     {"template", "-m", "MODEL", "--messages", "BOOK"},
     78,
     "--chat-template"},
    {"a conversation for the built-in model",
     {"template", "--messages", "CHAT"},
     0,
     "Be kind.\nQ: Hi A:"},
    {"a conversation by a built-in template",
     {"template", "--chat-template", "chatml", "--messages", "CHAT", "--no-generation-prompt"},
     0,
     "<|im_start|>user\nHi<|im_end|>\n"},
    {"the ids of a conversation",
     {"template", "-m", "MODEL", "--chat-template", "plain", "--messages", "CHAT", "--json"},
     0,
     "\"ids\": [\n"},
    {"messages that are no JSON",
     {"template", "--chat-template", "chatml", "--messages", "NOISE"},
     78,
     "JSON"},
    {"no messages", {"template", "--chat-template", "chatml"}, 64, "--messages"},
    {"no such template",
     {"template", "--chat-template", "/nowhere", "--messages", "BOOK"},
     74,
     "/nowhere"},
    {"ids of a text", {"tokenize", "-m", "MODEL", "-p", "a b"}, 0, "a"},
    {"the built-in model",
     {"run"},
     0,
     tools::alloc_counter_works() ? "allocations after READY: 0" : "READY: not counted"},
    {"the built-in model asked", {"run", "-p", "Log.\nQ:", "-n", "2"}, 0, ""},
    {"the recall model", {"run", "--sample", "recall"}, 0, "| ok\n"},
    {"the recall model on more", {"run", "--sample", "recall", "-c", "9000"}, 0, "document  89"},
    {"too short a sample", {"run", "-c", "100"}, 78, "raise -c"},
    {"no such sample", {"run", "--sample", "poem"}, 64, "poem"},
    {"a comparison that compares nothing",
     {"run", "-m", "MODEL", "-p", "a", "--select", "compare-pqcache"},
     78,
     "compare-pqcache/pq"},
    {"one method of a comparison",
     {"run", "-m", "MODEL", "-p", "a", "-n", "2", "--json", "--select", "compare-pqcache/quest"},
     0,
     "\"select\": \"quest\""},
    {"a later configuration over an earlier one",
     {"plan", "-m", "MODEL", "--config", "PROFILE", "--config", "BOX"},
     0,
     "for 192 tokens of context; budget 1.00 GiB"},
    {"kept sessions without a folder",
     {"plan", "-m", "MODEL", "-c", "256", "--config", "KEEPS"},
     78,
     "store.sessions"},
    {"kept sessions in a folder",
     {"plan", "-m", "MODEL", "-c", "256", "--config", "KEEPS", "--store", "STORE"},
     0,
     "kv_disk"},
    {"a plan with a file for a folder",
     {"plan", "-m", "MODEL", "-c", "256", "--store", "NOISE"},
     74,
     "a link or a file"},
    {"a plan with a folder open to others",
     {"plan", "-m", "MODEL", "-c", "256", "--store", "OPEN"},
     74,
     "chmod 700"},
    {"a plan for no instruction set",
     {"plan", "-m", "MODEL", "-c", "256", "--isa", "neon"},
     64,
     "neon"},
    {"no name of a session",
     {"run", "-p", "a", "--session", "", "--store", "STORE"},
     64,
     "--session: the value is empty"},
    {"no name of a folder", {"run", "-p", "a", "--store", ""}, 64, "--store: the value is empty"},
    {"a plan without a name of a folder",
     {"plan", "-m", "MODEL", "--store", ""},
     64,
     "--store: the value is empty"},
    {"an empty text to evaluate",
     {"eval", "-m", "MODEL", "--text", "/dev/null"},
     78,
     "there is no text"},
    {"which session gives way", {"run", "--help"}, 0, "(store.kept_tokens)"},
    {"a file looked at", {"inspect", "MODEL"}, 0, "llama"},
    {"a file hashed", {"inspect", "MODEL", "--hash"}, 0, "SHA-256       HASH"},
    {"the hash as JSON", {"inspect", "MODEL", "--hash", "--json"}, 0, "\"sha256\": \"HASH\""},
    {"a file with its hash", {"inspect", "MODEL", "--sha256", "HASH"}, 0, "SHA-256       HASH"},
    {"a file with another's hash", {"inspect", "NAN", "--sha256", "HASH"}, 78, "HASH"},
    {"a hash that is none", {"inspect", "MODEL", "--sha256", "abc"}, 64, "64 hexadecimal digits"},
    {"a model that is verified",
     {"run", "-m", "MODEL", "-p", "a", "-n", "1", "--config", "HASHED", "--json"},
     0,
     "\"model_verified\": true"},
    {"a model that is not",
     {"run", "-m", "MODEL", "-p", "a", "-n", "1", "--json"},
     0,
     "\"model_verified\": false"},
    {"a model that is another",
     {"run", "-m", "NAN", "-p", "a", "--config", "HASHED"},
     78,
     "get it again, or correct the key"},
    {"both hashes are told", {"run", "-m", "NAN", "-p", "a", "--config", "HASHED"}, 78, "is HASH"},
};

// The models, log books and other files that command lines name.
struct Files {
  const test::TempFile model{"model.gguf"}, nan{"nan.gguf"}, book{"book.jsonl"},
      prose{"prose.jsonl"}, noise{"noise.bin"}, chat{"chat.json"}, keeps{"keeps.toml"},
      profile{"profile.toml"}, box{"box.toml"}, hashed{"hashed.toml"};
  const test::TempDir store{"command_line"}, open{"command_line_open"};

  Files() {
    std::filesystem::create_directory(open.path());
    std::filesystem::permissions(open.path(), std::filesystem::perms::all);
    synth::SynthOptions options;
    options.path = model.path();
    synth::synth_write(options);
    write_nan_model();
    const std::string line =
        R"({"seed":1000000,"kind":"hop0","tokens":3,"prompt":"Log.\nA:","answer":" x"})";
    const std::string prose_line =
        R"({"seed":1000000,"kind":"prose","tokens":3,"prompt":"Log.\nA:","answer":" x"})";
    tools::write_file(book.path(), line.data(), line.size());
    tools::write_file(prose.path(), prose_line.data(), prose_line.size());
    tools::write_file(noise.path(), "noise\n", 6);
    const std::string messages =
        R"([{"role":"system","content":"Be kind."},{"role":"user","content":"Hi"}])";
    tools::write_file(chat.path(), messages.data(), messages.size());
    const std::string toml = "[store]\nsessions = true\n";
    tools::write_file(keeps.path(), toml.data(), toml.size());
    const std::string both = "memory.budget_bytes = '1GiB'\nkv.context_tokens = 128\n";
    const std::string one = "[kv]\ncontext_tokens = 192\n";
    tools::write_file(profile.path(), both.data(), both.size());
    tools::write_file(box.path(), one.data(), one.size());
    const std::string with_hash = "[model]\nsha256 = '" + model_sha256() + "'\n";
    tools::write_file(hashed.path(), with_hash.data(), with_hash.size());
  }
  // The model with a weight that is no number in its last vector.
  void write_nan_model() const {
    std::string bytes = tools::read_file(model.path());
    const tools::ModelFile file(model.path());
    for (const model::GgufTensor& tensor : file.gguf().tensors()) {
      const f32 value = NAN;
      if (tensor.name == "output_norm.weight") {
        std::memcpy(bytes.data() + tensor.offset, &value, sizeof value);
      }
    }
    tools::write_file(nan.path(), bytes.data(), bytes.size());
  }
  std::string model_sha256() const {
    const std::string bytes = tools::read_file(model.path());
    Sha256 hash;
    hash.add(std::as_bytes(std::span(bytes)));
    return hash.finish().data();
  }
  std::string path_of(const std::string& word) const {
    return word == "MODEL"     ? model.path()
           : word == "HASH"    ? model_sha256()
           : word == "HASHED"  ? hashed.path()
           : word == "NAN"     ? nan.path()
           : word == "BOOK"    ? book.path()
           : word == "PROSE"   ? prose.path()
           : word == "NOISE"   ? noise.path()
           : word == "CHAT"    ? chat.path()
           : word == "KEEPS"   ? keeps.path()
           : word == "STORE"   ? store.path()
           : word == "OPEN"    ? open.path()
           : word == "PROFILE" ? profile.path()
           : word == "BOX"     ? box.path()
                               : word;
  }
};

TEST_CASE("every command line has its exit code and its sentence") {
  const Files files;
  const std::string model_bytes = tools::read_file(files.model.path());
  const std::string book_bytes = tools::read_file(files.book.path());
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    std::vector<std::string> words = c.arguments;
    for (auto& word : words) word = files.path_of(word);
    const test::Ended ended = test::run_tarn(words);
    const std::string& text = c.exit_code == 0 ? ended.out : ended.err;
    std::string says = c.says;
    const size_t hash_at = says.find("HASH");
    if (hash_at != std::string::npos) says.replace(hash_at, 4, files.model_sha256());
    CAPTURE(ended.err);
    CHECK(ended.exit_code == c.exit_code);
    CHECK(text.find(says) != std::string::npos);
  }
  const bool unharmed = tools::read_file(files.model.path()) == model_bytes &&
                        tools::read_file(files.book.path()) == book_bytes;
  CHECK(unharmed);
}

TEST_CASE("a plan for one session is what a run takes") {
  const Files files;
  const auto number_after = [](const std::string& text, const std::string& key) {
    const size_t at = text.find("\"" + key + "\": ");
    REQUIRE(at != std::string::npos);
    return std::stoull(text.substr(at + key.size() + 4));
  };
  std::vector<std::string> words = {"plan", "-m", files.model.path(), "-c", "256", "--json"};
  const u64 several = number_after(test::run_tarn(words).out, "total_bytes");
  words.insert(words.end(), {"--sessions", "1"});
  const u64 one = number_after(test::run_tarn(words).out, "total_bytes");
  words = {"run", "-m", files.model.path(), "-c", "256", "-p", "a", "-n", "1", "--json"};
  CHECK(number_after(test::run_tarn(words).out, "plan_bytes") == one);
  CHECK(one < several);
}

TEST_CASE("what a sample did not show depends on whether it had a disk") {
  const test::TempDir store("sample_store");
  for (const bool on_disk : {false, true}) {
    std::vector<std::string> words = {"run", "--sample", "recall", "-c", "1024"};
    if (on_disk) words.insert(words.end(), {"--store", store.path(), "--session", "s"});
    const test::Ended ended = test::run_tarn(words);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(ended.out.find(on_disk ? "a GPU.\n" : "a GPU, KV on a disk.\n") != std::string::npos);
  }
}

TEST_CASE("a report that cannot be written is an I/O failure") {
  const Files files;
  const std::vector<std::string> lines[] = {
      {"--help"},
      {"inspect", "MODEL", "--json"},
      {"plan", "-m", "MODEL", "-c", "32"},
      {"tokenize", "-m", "MODEL", "-p", "a"},
      {"run", "-m", "MODEL", "-c", "32", "-p", "a", "-n", "2"},
  };
  for (auto words : lines) {
    CAPTURE(words[0]);
    for (auto& word : words) word = files.path_of(word);
    const test::Ended ended = test::run_tarn(words, "/dev/full");
    CHECK(ended.exit_code == 74);
    CHECK(ended.err.find("standard output") != std::string::npos);
  }
}

TEST_CASE("a GPU that is not there is refused where it is asked for, and not missed elsewhere") {
  if (device_choose("cuda")) return;  // there is one
  const Files files;
  const std::vector<std::string> lines[] = {
      {"run", "-m", files.model.path(), "-p", "a", "-n", "1"},
      {"plan", "-m", files.model.path(), "-c", "32"},
      {"eval", "-m", files.model.path(), "--text", files.noise.path()},
  };
  for (auto words : lines) {
    CAPTURE(words[0]);
    words.insert(words.end(), {"--device", "auto"});
    CHECK(test::run_tarn(words).exit_code == 0);
    words.back() = "cuda";
    const test::Ended ended = test::run_tarn(words);
    CHECK(ended.exit_code == 78);
    CHECK(ended.err.find("choose the device \"cpu\"") != std::string::npos);
  }
}

TEST_CASE("a speed is told where something was timed, and left out where nothing was") {
  for (const std::string n : {"1", "3"}) {
    const std::vector<std::string> words = {"run", "-p", "Log.", "-n", n, "--ignore-eos"};
    const test::Ended ended = test::run_tarn(words);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
    const bool told = ended.err.find("decode " + n + " tokens, ") != std::string::npos;
    CHECK(told == (n == "3"));
    std::vector<std::string> with_json = words;
    with_json.push_back("--json");
    const bool is_null =
        test::run_tarn(with_json).out.find("\"decode_tok_s\": null") != std::string::npos;
    CHECK(is_null == (n == "1"));
  }
}

TEST_CASE("a context beyond what the model was trained for is warned of, one within is not") {
  const Files files;
  for (const char* n_context : {"4096", "4097"}) {
    const test::Ended ended =
        test::run_tarn({"run", "-m", files.model.path(), "-p", "a", "-n", "1", "-c", n_context});
    CHECK(ended.exit_code == 0);
    const bool warned = ended.err.find("was trained for 4096") != std::string::npos;
    CHECK(warned == (std::string(n_context) == "4097"));
  }
}

TEST_CASE("more tokens than the model's context holds are as many as it holds, and -n is named") {
  const test::TempFile model("short_context.gguf"), ids("short_context.ids");
  synth::SynthShape shape{.name = "short", .n_layers = 1, .d_ff = 172, .n_vocab = 1024};
  shape.n_ctx = 64;  // a page
  synth::synth_write(shape, *synth::parse_quant("f16"), 1, model.path(), 1);
  tools::write_file(ids.path(), "1 2 3 4 5 6 7 8", 15);
  for (const std::string n : {"56", "57", "4294967295"}) {
    const test::Ended ended = test::run_tarn(
        {"run", "-m", model.path(), "--prompt-ids", ids.path(), "-n", n, "--ignore-eos", "--json"});
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(ended.err.find("may make no sense") == std::string::npos);
    rapidjson::Document json;
    json.Parse(ended.out.c_str());
    REQUIRE(json.IsObject());
    CHECK(json["tokens"].Size() == (n == "56" ? 56 : 57));  // the last one needs no place
    const bool is_full = ended.err.find("-n " + n + ": the answer ends") != std::string::npos;
    CHECK(is_full == (n != "56"));
  }
}

}  // namespace
}  // namespace tarn::command_line_native_test
