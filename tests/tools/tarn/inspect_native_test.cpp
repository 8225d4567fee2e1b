// Goal    tarn inspect shows every valid GGUF file, whether it runs here or not, with every reason
//         against it; tarn run refuses for the first one and names tarn inspect.
// Method  a table of bent tiny models with the reasons of each, one at a time and all together, as
//         text and as JSON; random mutations, of which each is shown or refused in one sentence.
#include <doctest/doctest.h>
#include <rapidjson/document.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/seed.h"
#include "tests/support/temp_file.h"
#include "tests/support/tiny_model.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"

namespace tarn::inspect_native_test {
namespace {

using test::GgufImage;

constexpr u32 kF64Type = 28, kNoType = 99, kQ8Type = 8;

// A model that runs here, with a vocabulary of SentencePiece's kind.
GgufImage sound_model() {
  GgufImage image = test::tiny_model({.rope_factors = true});
  image.set_string("tokenizer.ggml.model", "llama");
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  while (tokens.size() < 40) tokens.push_back("t" + std::to_string(tokens.size()));
  image.set_strings("tokenizer.ggml.tokens", tokens);
  image.set_f32s("tokenizer.ggml.scores", std::vector<f32>(tokens.size(), -1.0f));
  image.set_u32("tokenizer.ggml.bos_token_id", 1);
  image.set_u32("tokenizer.ggml.eos_token_id", 2);
  image.set_string("tokenizer.chat_template", "{{ messages[0].content }}");
  return image;
}

void set_type(GgufImage& image, const char* tensor, u32 type, u64 element_bytes) {
  auto& entry = image.tensor(tensor);
  entry.type = type;
  entry.data.assign(entry.dims[0] * (entry.dims.size() > 1 ? entry.dims[1] : 1) * element_bytes,
                    std::byte{0});
}

struct Case {
  const char* name;
  std::function<void(GgufImage&)> bend;
  std::vector<const char*> says;  // in one reason each
  bool goes_with_others = true;
  bool is_planned = true;  // false: a plan reads less than what is wrong
};

const Case kCases[] = {
    {"an architecture that is not known",
     [](GgufImage& i) { i.set_string("general.architecture", "kettle"); },
     {"this architecture is not known here"},
     false},
    {"another architecture with keys of its own",
     [](GgufImage& i) {
       i.set_string("general.architecture", "kettle");
       i.set_u32("kettle.expert_count", 8);
       i.set_u32("kettle.attention.key_length", 512);
     },
     {"this architecture is not known here", "a mixture of experts", "out of range"},
     false},
    {"no architecture",
     [](GgufImage& i) { i.erase_key("general.architecture"); },
     {"the key is missing: general.architecture"},
     false},
    {"a vocabulary alone",
     [](GgufImage& i) { i.tensors.clear(); },
     {"a vocabulary but no weights"},
     false},
    {"keys alone",
     [](GgufImage& i) {
       i.tensors.clear();
       i.erase_key("tokenizer.ggml.tokens");
     },
     {"the file holds no weights", "a key is missing: tokenizer.ggml.tokens"},
     false},
    {"the first file of several, without tensors",
     [](GgufImage& i) {
       i.tensors.clear();
       i.set_u16("split.count", 3);
     },
     {"split over several files"},
     false},
    {"one file of several",
     [](GgufImage& i) {
       i.set_u16("split.no", 1);
       i.set_u16("split.count", 3);
       i.erase_tensor("blk.0.ffn_up.weight");
     },
     {"split over several files"},
     false},
    {"a later file of several, with tensors alone",
     [](GgufImage& i) {
       i.keys.clear();
       i.set_u16("split.no", 1);
       i.set_u16("split.count", 3);
     },
     {"split over several files"},
     false},
    {"a RoPE factor of zero",
     [](GgufImage& i) { i.tensor("rope_freqs.weight").data.assign(16, std::byte{0}); },
     {"a RoPE frequency factor"},
     false,
     false},
    {"no tokenizer",
     [](GgufImage& i) { i.erase_key("tokenizer.ggml.model"); },
     {"tokenizer.ggml.model"},
     false},
    {"a token list that is too long",
     [](GgufImage& i) {
       i.set_strings("tokenizer.ggml.tokens", std::vector<std::string>(41, "a"));
       i.erase_key("tokenizer.ggml.scores");
     },
     {"not as long as the embedding table", "token"},
     false},
    {"a pre-tokenizer that is not known, and arrays of other lengths",
     [](GgufImage& i) {
       i.set_string("tokenizer.ggml.model", "gpt2");
       i.set_string("tokenizer.ggml.pre", "kettle");
       i.set_strings("tokenizer.ggml.merges", {});
       i.set_string("tokenizer.ggml.bos_token_id", "one");
       i.set_i32s("tokenizer.ggml.token_type", {1});
     },
     {"tokenizer.ggml.pre) is not known", "it must be an integer: tokenizer.ggml.bos_token_id",
      "one element for each: tokenizer.ggml.token_type"},
     false},
    {"a part of a model",
     [](GgufImage& i) { i.set_string("general.type", "adapter"); },
     {"a part of a model (adapter, projector)"}},
    {"a tokenizer that is not known",
     [](GgufImage& i) { i.set_string("tokenizer.ggml.model", "kettle"); },
     {"kettle"}},
    {"a key that changes the mathematics",
     [](GgufImage& i) { i.set_u32("llama.expert_count", 8); },
     {"a mixture of experts is not supported; use a dense model: llama.expert_count"}},
    {"two of a kind",
     [](GgufImage& i) {
       i.set_f32("llama.logit_scale", 2.0f);
       i.set_f32("llama.embedding_scale", 2.0f);
     },
     {"llama.logit_scale; also llama.embedding_scale"}},
    {"a missing key",
     [](GgufImage& i) { i.erase_key("llama.context_length"); },
     {"the key is missing: llama.context_length"}},
    {"a key out of its range",
     [](GgufImage& i) { i.set_u32("llama.embedding_length", 4); },
     {"llama.embedding_length (value 4, min 8"}},
    {"a key of the wrong type",
     [](GgufImage& i) { i.set_string("llama.feed_forward_length", "64"); },
     {"it must be an integer: llama.feed_forward_length"}},
    {"a kind of RoPE",
     [](GgufImage& i) { i.set_string("llama.rope.scaling.type", "yarn"); },
     {"YaRN"}},
    {"a type without kernels",
     [](GgufImage& i) {
       set_type(i, "blk.0.attn_q.weight", kF64Type, 8);
       set_type(i, "blk.1.attn_q.weight", kF64Type, 8);
     },
     {"f64 of blk.0.attn_q.weight (type 28)"}},
    {"a type that ggml does not name",
     [](GgufImage& i) { set_type(i, "blk.1.ffn_up.weight", kNoType, 1); },
     {"of blk.1.ffn_up.weight (type 99)"}},
    {"a quantized norm",
     [](GgufImage& i) {
       i.tensor("output_norm.weight").type = kQ8Type;
       i.tensor("output_norm.weight").data.resize(34);
     },
     {"these must be f32, f16 or bf16: output_norm.weight"}},
    {"missing tensors",
     [](GgufImage& i) {
       i.erase_tensor("blk.0.ffn_down.weight");
       i.erase_tensor("blk.1.ffn_down.weight");
     },
     {"a tensor of the model is missing: blk.0.ffn_down.weight; also blk.1.ffn_down.weight"}},
    {"a tensor of another shape",
     [](GgufImage& i) {
       i.tensor("blk.0.attn_k.weight").dims = {16, 32};
     },
     {"blk.0.attn_k.weight (row 16, row_expected "}},
    {"a tensor with three dimensions",
     [](GgufImage& i) {
       i.tensor("blk.0.attn_v.weight").dims = {32, 8, 2};
     },
     {"more dimensions than a matrix: blk.0.attn_v.weight", "blk.0.attn_v.weight (row 32"}},
    {"a tensor that the architecture does not have",
     [](GgufImage& i) {
       i.add_f32("blk.0.attn_qkv.weight", {32, 64}, std::vector<f32>(2048));
     },
     {"a fused Q, K and V tensor is not supported"}},
};

struct Inspected {
  explicit Inspected(const test::Bytes& bytes) : file("inspected.gguf") {
    tools::write_file(file.path(), bytes.data(), bytes.size());
    text = test::run_tarn({"inspect", file.path()});
    const test::Ended as_json = test::run_tarn({"inspect", file.path(), "--json"});
    CHECK(as_json.exit_code == text.exit_code);
    json.Parse(as_json.out.c_str());
  }
  std::string last_line() const {
    if (text.out.empty()) return "";
    const size_t begin = text.out.rfind('\n', text.out.size() - 2);
    return text.out.substr(begin == std::string::npos ? 0 : begin + 1);
  }
  std::vector<std::string> reasons() const {
    std::vector<std::string> all;
    for (const auto& reason : json["reasons"].GetArray()) all.emplace_back(reason.GetString());
    return all;
  }

  test::TempFile file;
  test::Ended text;
  rapidjson::Document json;
};

void check_reasons(const Inspected& shown, const std::vector<const char*>& says) {
  REQUIRE(shown.text.exit_code == 0);
  CHECK(shown.text.err.empty());
  REQUIRE(shown.json.IsObject());
  CHECK_FALSE(shown.json["runs_here"].GetBool());
  CHECK(shown.last_line().starts_with("runs here: no: "));
  const std::vector<std::string> reasons = shown.reasons();
  for (const char* piece : says) {
    CAPTURE(piece);
    CHECK(std::ranges::any_of(reasons, [&](const std::string& reason) {
      return reason.find(piece) != std::string::npos;
    }));
  }
  for (const std::string& reason : reasons) {
    CHECK(shown.last_line().find(reason) != std::string::npos);
  }
}

TEST_CASE("a model that runs is shown with its facts") {
  const Inspected shown(sound_model().bytes());
  CAPTURE(shown.text.err);
  REQUIRE(shown.text.exit_code == 0);
  CHECK(shown.last_line() == "runs here: yes\n");
  for (const char* line :
       {"architecture  llama\n", "licence       not named\n",
        "layers        2 of width 32, feed-forward 64\n", "heads         4, 2 for KV",
        "context       128 tokens trained\n", "vocabulary    40 tokens\n",
        "token         eos: 2 </s>\n", "tokenizer     llama\n", "tensors, ", "(type 0)\n",
        "template      tokenizer.chat_template, 25 bytes, compiles\n"}) {
    CAPTURE(line);
    CHECK(shown.text.out.find(line) != std::string::npos);
  }
  CHECK(shown.json["runs_here"].GetBool());
  CHECK(shown.reasons().empty());
  CHECK(shown.json["shape"]["kv_heads"].GetUint() == 2);
  CHECK(shown.json["hyper_parameters"]["head_dim"].GetUint() == 8);
  CHECK(shown.json["tokenizer"]["special_tokens"]["bos"]["text"] == "<s>");
  CHECK(shown.json["types"][0]["n_tensors"].GetUint() == sound_model().tensors.size());
  CHECK(shown.json["templates"][0]["compiles"].GetBool());
}

struct OddCase {
  const char* name;
  std::function<void(GgufImage&)> bend;
};

TEST_CASE("odd values that no model needs are no reason") {
  const std::string zeros("a\0b", 3), long_text(5000, 'x');
  std::vector<OddCase> cases;
  for (const char* key : {"general.name", "general.size_label", "general.license",
                          "tokenizer.chat_template", "tokenizer.chat_template.tool_use"}) {
    cases.push_back({key, [=](GgufImage& i) { i.set_string(key, zeros); }});
    cases.push_back({key, [=](GgufImage& i) { i.set_string(key, long_text); }});
    cases.push_back({key, [=](GgufImage& i) { i.set_string(key, "\xff\xc0\x80{\"}\n"); }});
    cases.push_back({key, [=](GgufImage& i) { i.set_u32(key, 7); }});
    cases.push_back({key, [=](GgufImage& i) { i.set_strings(key, {"a", "b"}); }});
  }
  cases.push_back({"split.no", [](GgufImage& i) { i.set_string("split.no", "1"); }});
  for (const OddCase& each : cases) {
    CAPTURE(each.name);
    GgufImage image = sound_model();
    each.bend(image);
    const Inspected shown(image.bytes());
    CAPTURE(shown.text.err);
    CHECK(shown.last_line() == "runs here: yes\n");
    CHECK_FALSE(shown.json.HasParseError());
    CHECK(shown.json["reasons"].Empty());
  }
}

TEST_CASE("each reason alone is the only one, and tarn run says it and names tarn inspect") {
  for (const Case& each : kCases) {
    const std::string name = each.name;
    CAPTURE(name);
    GgufImage image = sound_model();
    each.bend(image);
    const Inspected shown(image.bytes());
    CAPTURE(shown.last_line());
    check_reasons(shown, each.says);
    CHECK(shown.reasons().size() == each.says.size());
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"run", "-m", shown.file.path(), "-p", "a", "-c", "32"},
          std::vector<std::string>{"plan", "-m", shown.file.path(), "-c", "32"}}) {
      if (words[0] == "plan" && !each.is_planned) continue;
      const test::Ended ended = test::run_tarn(words);
      CAPTURE(ended.err);
      CHECK(ended.exit_code == 78);
      CHECK(ended.err.find("tarn inspect " + shown.file.path() + " shows every reason") !=
            std::string::npos);
    }
  }
}

TEST_CASE("a big-endian file is shown, and refused for that alone") {
  const Inspected shown(test::big_endian(sound_model().bytes()));
  check_reasons(shown, {"a big-endian GGUF file"});
  CHECK(shown.reasons().size() == 1);
  CHECK(shown.json["big_endian"].GetBool());
  CHECK(shown.json["shape"]["kv_heads"].GetUint() == 2);
  CHECK(shown.json["tokenizer"]["special_tokens"]["bos"]["text"] == "<s>");
  CHECK(shown.text.out.find("GGUF version 3, big-endian, ") != std::string::npos);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"run", "-m", shown.file.path(), "-p", "a", "-c", "32"},
        std::vector<std::string>{"plan", "-m", shown.file.path(), "-c", "32"},
        std::vector<std::string>{"quantize", shown.file.path(), shown.file.path() + "2", "f16"}}) {
    const test::Ended ended = test::run_tarn(words);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 78);
    CHECK(ended.err.find("a big-endian GGUF file") != std::string::npos);
  }
}

TEST_CASE("all reasons together are all shown") {
  GgufImage image = sound_model();
  std::vector<const char*> says;
  for (const Case& each : kCases) {
    if (!each.goes_with_others) continue;
    each.bend(image);
    says.insert(says.end(), each.says.begin(), each.says.end());
  }
  const Inspected shown(image.bytes());
  check_reasons(shown, says);
}

TEST_CASE("text of the file reaches a terminal as text") {
  GgufImage image = sound_model();
  image.set_string("general.name", "red\x1b[31m\xff");
  image.set_string("general.architecture", "\x1b[2J");
  image.set_string("tokenizer.chat_template", "{% kettle %}");
  image.set_string("tokenizer.chat_template.\x1b", "x");
  image.set_u32("tokenizer.ggml.\xfe_token_id", 3);
  image.set_u32("tokenizer.ggml.\xff_token_id", 4);
  const Inspected shown(image.bytes());
  REQUIRE(shown.text.exit_code == 0);
  CHECK(shown.text.out.find('\x1b') == std::string::npos);
  CHECK(shown.text.out.find("name          red\\x1b[31m\\xff\n") != std::string::npos);
  CHECK(shown.text.out.find("does not compile: ") != std::string::npos);
  CHECK(shown.json["name"] == "red\x1b[31m\xef\xbf\xbd");
  const auto& special_tokens = shown.json["tokenizer"]["special_tokens"];
  CHECK(special_tokens["\\xfe"]["id"].GetUint() == 3);
  CHECK(special_tokens["\\xff"]["id"].GetUint() == 4);
}

TEST_CASE("a mutated file is shown, or refused in one sentence") {
  const test::Bytes sound = sound_model().bytes();
  const u64 head_bytes = sound_model().directory_bytes();
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  u64 n_shown = 0;
  const test::TempFile file("mutated.gguf");
  for (u32 i = 0; i < 60; ++i) {
    test::Bytes bytes = sound;
    if (i % 3 == 0) bytes.resize(random.below(bytes.size()));
    for (u32 n = 0; n < 2 && !bytes.empty() && i % 3 != 0; ++n) {
      bytes[random.below(head_bytes)] ^= static_cast<std::byte>(1 + random.below(255));
    }
    tools::write_file(file.path(), bytes.data(), bytes.size());
    const test::Ended ended = test::run_tarn({"inspect", file.path()});
    CAPTURE(i);
    CAPTURE(ended.err);
    CHECK((ended.exit_code == 0 || ended.exit_code == 78));
    if (ended.exit_code == 0) {
      ++n_shown;
      CHECK(ended.out.find("\nruns here: ") != std::string::npos);
    } else {
      CHECK(ended.out.empty());
      CHECK(std::ranges::count(ended.err, '\n') == 1);
    }
  }
  CHECK(n_shown > 0);
}

}  // namespace
}  // namespace tarn::inspect_native_test
