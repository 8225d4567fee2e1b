// Goal    a real model answers, in every tensor type, as the same weights do in f32 products: the
//         ids of 20 prompts' answers, the best tokens' log-probabilities, the perplexity of a text.
// Method  smollm2.txt, made by llama.cpp (make_golden.py). The model is smollm2.gguf in the folder
//         TARN_MODELS, as toolchain/model leaves it in build/models, and is requantised here.
//         Without the variable the test is skipped by name, so the default run needs no model. Of
//         the types those are tried that contain the others: rows of 576 do not fit blocks of 256
//         and have the replacement. TARN_WEIGHTS=all tries each type.
// Bound   Products of quantised types round x to i8 by 32 elements, in steps of max|x| / 127: an
//         error of step / sqrt(12) for each element. With max|x| = c rms, a product of independent
//         terms is off by c / (127 sqrt(12)) of its rms; c is 3 for rows like a normal's, with a
//         few larger values. A layer has four such products in series (q k v, o, gate and up,
//         down), and layers add up in the stream as their parts do: sqrt(5) with the output's.
//         Later layers amplify, by at most kGrowth. A logit of rms L, centred, is then off by
//         sigma = kGrowth sqrt(5) c L / (127 sqrt(12)), a difference of two by sqrt(2) sigma; four
//         of these are the bound. Float types round K and V to f16 alone: 2^-12 instead of
//         c / (127 sqrt(12)).
// Noise   q8_0's perplexity is 0.91 % off, that of llama.cpp's own products of q8_0 0.38 %. Both
//         round x to i8, and one text decides little: its standard error is 0.35 %. Five texts of
//         610 tokens were read with K and V in f16: this one and four pages of the tree. Tarn is
//         0.06 to 0.91 % off, on average 0.56 %; llama.cpp 0.12 to 1.28 %, on average 0.81 %. So
//         the type's rounding is the cause, not Tarn's arithmetic. The message has llama.cpp's
//         figure.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/lab/probe.h"
#include "tests/support/folders.h"
#include "tests/support/skip.h"
#include "tests/support/temp_file.h"
#include "tools/quantize/quantize_file.h"
#include "tools/support/model_file.h"

namespace tarn::golden::weights_golden_test {
namespace {

constexpr f64 kCrest = 3, kGrowth = 2;
constexpr const char* kFolder = "/tests/golden/weights/";
// Their rows of 576 are in q8_0, q4_0, q5_0, q5_1 and iq4_nl.
constexpr std::string_view kAlways[] = {"file", "f16",  "q8_0", "q2_k",   "q3_k",
                                        "q4_k", "q5_k", "q6_k", "iq4_xs", "mxfp4"};

struct Named {
  u32 id = 0;
  f64 value = 0;  // a margin, or a log-probability
};

struct Best {
  u32 prompt = 0, at = 0;
  std::vector<Named> tokens;
};

struct Section {
  std::vector<std::vector<Named>> answers;  // by prompt
  std::vector<Best> best;
  u32 n_text_ids = 0;
  f64 perplexity = 0, own_perplexity = 0;  // of f32 products, and of llama.cpp's own
};

struct Golden {
  std::vector<std::vector<u32>> prompts;
  std::map<std::string, Section> types;
};

std::vector<Named> named_of(std::istream& fields) {
  std::vector<Named> out;
  Named each;
  for (char colon = 0; fields >> each.id >> colon >> each.value;) out.push_back(each);
  return out;
}

Golden read_golden() {
  Golden golden;
  Section* section = nullptr;
  std::ifstream file(test::source_folder() + kFolder + "smollm2.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string what, name;
    u32 prompt = 0;
    fields >> what;
    if (what == "type") {
      fields >> name;
      section = &golden.types[name];
    } else if (what == "perplexity") {
      fields >> section->n_text_ids >> section->perplexity;
    } else if (what == "own_perplexity") {
      fields >> section->n_text_ids >> section->own_perplexity;
    } else {
      fields >> prompt;
      if (what == "prompt") {
        golden.prompts.emplace_back();
        for (u32 id = 0; fields >> id;) golden.prompts.back().push_back(id);
      } else if (what == "answer") {
        section->answers.push_back(named_of(fields));
      } else {
        Best best{.prompt = prompt, .at = 0, .tokens = {}};
        fields >> best.at;
        best.tokens = named_of(fields);
        section->best.push_back(best);
      }
    }
  }
  return golden;
}

std::string file_text(const char* name) {
  std::ifstream file(test::source_folder() + kFolder + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> prompt_texts() {
  std::vector<std::string> texts;
  std::istringstream lines(file_text("prompts.txt"));
  for (std::string line; std::getline(lines, line);) {
    for (u64 at = 0; (at = line.find("\\n", at)) != std::string::npos;) line.replace(at, 2, "\n");
    texts.push_back(line);
  }
  return texts;
}

f64 log_sum_of(std::span<const f32> row) {
  const f64 most = *std::max_element(row.begin(), row.end());
  f64 sum = 0;
  for (const f32 logit : row) sum += std::exp(logit - most);
  return most + std::log(sum);
}

f64 centred_rms(std::span<const f32> row) {
  f64 sum = 0, squares = 0;
  for (const f32 logit : row) {
    sum += logit;
    squares += f64{logit} * logit;
  }
  const f64 n = static_cast<f64>(row.size()), mean = sum / n;
  return std::sqrt(squares / n - mean * mean);
}

class Model {
 public:
  explicit Model(const std::string& path) {
    Config config;
    config.context_tokens = 1024;
    config.n_threads = 2;
    config.pin_threads = false;
    config.huge_pages = false;
    const Result<void> opened = engine_.open(
        {.model_path = path.c_str(), .config = config, .reserve = &reserve_, .clock = &clock_});
    if (!opened) FAIL(opened.error().hint);
  }
  ~Model() { engine_.close(); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Calls `on_row(position, logits)` for every row of `ids`.
  template <class OnRow>
  void read(std::span<const u32> ids, OnRow on_row) {
    const auto session = engine_.sessions().create();
    REQUIRE(session.has_value());
    lab::Probe(engine_).watch_logits(
        *session,
        [](void* context, u32 position, std::span<const f32> logits) {
          (*static_cast<OnRow*>(context))(position, logits);
        },
        &on_row);
    REQUIRE(engine_.sessions().feed(*session, ids).has_value());
    while (engine_.has_work()) engine_.step();
    engine_.sessions().destroy(*session);
  }

 private:
  SystemReserve reserve_;
  SystemClock clock_;
  engine::Engine engine_;
};

struct Figures {
  u32 n_decided = 0, n_near = 0;
  f64 worst_share = 0;  // of the bound, over all log-probabilities
  f64 squares = 0;      // of errors of log-probabilities over the row's rms
  u32 n_log_probs = 0;
};

f64 bound_of(f64 rms, bool is_float) {
  const f64 each = is_float ? 0x1p-12 : kCrest / (127 * std::sqrt(12.0));
  return 4 * std::sqrt(2.0) * kGrowth * std::sqrt(5.0) * each * rms;
}

// `row` comes before the answer's token `at`.
void check_row(const Section& section, u32 prompt, u64 at, std::span<const f32> row, bool is_float,
               Figures& figures) {
  const Named want = section.answers[prompt][at];
  const f64 rms = centred_rms(row), bound = bound_of(rms, is_float);
  const auto first = static_cast<u32>(std::max_element(row.begin(), row.end()) - row.begin());
  CAPTURE(prompt);
  CAPTURE(at);
  if (want.value > bound) {
    ++figures.n_decided;
    CHECK(first == want.id);
  } else {
    ++figures.n_near;
  }
  for (const Best& best : section.best) {
    if (best.prompt != prompt || best.at != at) continue;
    const f64 log_sum = log_sum_of(row);
    for (const Named token : best.tokens) {
      const f64 error = std::abs(row[token.id] - log_sum - token.value);
      CHECK(error <= bound);
      figures.worst_share = std::max(figures.worst_share, error / bound);
      figures.squares += error * error / (rms * rms);
      ++figures.n_log_probs;
    }
  }
}

void check_answers(Model& model, const Golden& golden, const Section& section, bool is_float,
                   Figures& figures) {
  for (u32 p = 0; p < golden.prompts.size(); ++p) {
    std::vector<u32> ids = golden.prompts[p];
    const u64 first = ids.size() - 1;
    for (const Named token : section.answers[p]) ids.push_back(token.id);
    ids.pop_back();
    model.read(ids, [&](u32 position, std::span<const f32> row) {
      if (position >= first) check_row(section, p, position - first, row, is_float, figures);
    });
  }
}

f64 perplexity_of(Model& model, const std::vector<u32>& ids) {
  f64 sum = 0;
  model.read(ids, [&](u32 position, std::span<const f32> row) {
    if (position + 1 < ids.size()) sum += log_sum_of(row) - row[ids[position + 1]];
  });
  return std::exp(sum / static_cast<f64>(ids.size() - 1));
}

void check_type(const std::string& name, const std::string& path, const Golden& golden,
                const std::vector<u32>& text_ids) {
  CAPTURE(name);
  const Section& section = golden.types.at(name);
  REQUIRE(section.answers.size() == golden.prompts.size());
  REQUIRE(section.n_text_ids == text_ids.size());
  Model model(path);
  const bool is_float = name == "f16";
  Figures figures;
  check_answers(model, golden, section, is_float, figures);
  std::string more;
  // By the issue: 0.2 % for f16, 1 % for q8_0 and q4_1; the others' texts would cost time alone.
  if (is_float || name == "q8_0" || name == "file") {
    const f64 perplexity = perplexity_of(model, text_ids);
    const f64 change = perplexity / section.perplexity - 1;
    CHECK(std::abs(change) <= (is_float ? 0.002 : 0.01));
    more = ", perplexity " + std::to_string(perplexity) + ", changed by " + std::to_string(change) +
           ", llama.cpp's by " + std::to_string(section.own_perplexity / section.perplexity - 1);
  }
  CHECK(figures.n_decided > 50);
  MESSAGE(name << ": " << figures.n_decided << " ids equal, " << figures.n_near
               << " within the bound; log-probabilities at most " << figures.worst_share
               << " of the bound, rms " << std::sqrt(figures.squares / figures.n_log_probs)
               << " of the row's" << more);
}

// Empty where there is no model.
std::string model_path() {
  const char* folder = std::getenv("TARN_MODELS");
  if (folder == nullptr) return "";
  const std::string path = std::string(folder) + "/smollm2.gguf";
  return std::filesystem::exists(path) ? path : "";
}

TEST_CASE("a real model's ids, log-probabilities and perplexity are those of f32 products") {
  const std::string path = model_path();
  if (path.empty()) TARN_SKIP("TARN_MODELS names no folder with smollm2.gguf");
  const char* asked = std::getenv("TARN_WEIGHTS");
  const bool all = asked != nullptr && std::string_view(asked) == "all";
  const Golden golden = read_golden();
  tools::ModelFile file(path);
  const auto text_ids = file.encode(file_text("text.txt"), {.parse_special = true});
  for (const auto& entry : golden.types) {
    const std::string& name = entry.first;
    if (!all && std::find(std::begin(kAlways), std::end(kAlways), name) == std::end(kAlways)) {
      continue;
    }
    if (name == "file") {
      check_type(name, path, golden, text_ids);
      continue;
    }
    const auto quant = tools::parse_quant(name);
    REQUIRE(quant);
    const test::TempFile target("weights.gguf");
    tools::quantize_file({.in = path,
                          .out = target.path(),
                          .quant = *quant,
                          .requantize = tools::Requantize::accept});
    check_type(name, target.path(), golden, text_ids);
  }
}

TEST_CASE("a real vocabulary's ids are llama.cpp's") {
  const std::string path = model_path();
  if (path.empty()) TARN_SKIP("TARN_MODELS names no folder with smollm2.gguf");
  const Golden golden = read_golden();
  tools::ModelFile file(path);
  const auto texts = prompt_texts();
  REQUIRE(texts.size() == golden.prompts.size());
  for (u64 p = 0; p < texts.size(); ++p) {
    CAPTURE(texts[p]);
    CHECK(file.encode(texts[p], {.parse_special = true}) == golden.prompts[p]);
  }
}

}  // namespace
}  // namespace tarn::golden::weights_golden_test
