// An engine on a small random model, for tests that step it themselves.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine/engine.h"
#include "tests/support/seed.h"
#include "tests/support/temp_file.h"
#include "tools/synth/synth.h"

namespace tarn::test {

// A model of `arch` ("llama", "qwen2", "qwen3") whose matrices are of one type, 1024 tokens.
class SmallModel {
 public:
  SmallModel(const std::string& arch, const std::string& type, u64 seed = 1, u32 n_layers = 2)
      : file_(arch + "_" + type + "_" + std::to_string(seed) + "_" + std::to_string(n_layers) +
              ".gguf") {
    synth::SynthShape shape{.name = "small", .n_layers = n_layers, .n_vocab = 1024};
    shape.d_ff = type[0] == 'f' ? 172 : 512;
    if (arch == "qwen2") {
      shape.arch = synth::Arch::qwen2;
      shape.n_kv_heads = 1;
      shape.vocab = synth::VocabFamily::qwen2;
      shape.output = synth::Output::tied;
    }
    if (arch == "qwen3") {
      shape.arch = synth::Arch::qwen3;
      shape.n_kv_heads = 4;
      shape.vocab = synth::VocabFamily::qwen3;
    }
    synth::synth_write(shape, *synth::parse_quant(type), seed, file_.path(), 1);
  }
  const std::string& path() const { return file_.path(); }

 private:
  TempFile file_;
};

inline Config small_config() {
  Config config;
  config.context_tokens = 512;
  config.n_threads = 1;
  config.pin_threads = false;
  config.huge_pages = false;
  return config;
}

// Sets a text of the configuration.
template <u64 n>
void set_text(std::array<char, n>& to, std::string_view text) {
  REQUIRE(text.size() < n);
  to.fill('\0');
  std::copy(text.begin(), text.end(), to.begin());
}

struct OpenEngine {
  OpenEngine(const std::string& path, const Config& config, Clock* lent_clock = nullptr,
             IoBackend* store_io = nullptr, const Log& log = {}, const char* chat_template = "") {
    const Result<void> opened = engine.open({.model_path = path.c_str(),
                                             .config = config,
                                             .chat_template = chat_template,
                                             .reserve = &reserve,
                                             .clock = lent_clock != nullptr ? lent_clock : &clock,
                                             .store_io = store_io,
                                             .log = log});
    if (!opened) FAIL(std::string(opened.error().hint));
  }
  ~OpenEngine() { engine.close(); }

  void run() {
    while (engine.has_work()) engine.step();
  }
  engine::SessionIdx session_with(const std::vector<u32>& ids) {
    const Result<engine::SessionIdx> session = engine.sessions().create();
    REQUIRE(session.has_value());
    REQUIRE(engine.sessions().feed(*session, ids).has_value());
    return *session;
  }

  SystemReserve reserve;
  SystemClock clock;
  engine::Engine engine;
};

// The least kv.memory_bytes for this configuration, from the plan's refusal.
inline u64 least_kv_memory_bytes(const std::string& path, Config config) {
  config.kv_memory_bytes = 1;
  SystemReserve reserve;
  SystemClock clock;
  engine::Engine engine;
  const Result<void> opened = engine.open(
      {.model_path = path.c_str(), .config = config, .reserve = &reserve, .clock = &clock});
  REQUIRE_FALSE(opened.has_value());
  for (const Figure& figure : opened.error().figures) {
    if (figure.name != nullptr && std::string_view(figure.name) == "least_bytes") {
      return figure.value;
    }
  }
  FAIL("no least_bytes: ", opened.error().hint);
  return 0;
}

inline std::vector<u32> random_ids(u64 seed, u32 n, u32 n_vocab = 1024) {
  Random random(seed);
  std::vector<u32> ids(n);
  for (u32& id : ids) id = static_cast<u32>(random.below(n_vocab));
  return ids;
}

// All logits of a session by position, for a comparison of bits.
struct LogitsRecord {
  std::vector<std::vector<f32>> rows;
  static void on_logits(void* context, u32 position, std::span<const f32> logits) {
    auto& rows = static_cast<LogitsRecord*>(context)->rows;
    if (rows.size() <= position) rows.resize(position + 1);
    rows[position].assign(logits.begin(), logits.end());
  }
};

inline void require_same_bits(const LogitsRecord& a, const LogitsRecord& b) {
  REQUIRE(a.rows.size() == b.rows.size());
  for (u64 i = 0; i < a.rows.size(); ++i) {
    CAPTURE(i);
    REQUIRE(a.rows[i].size() == b.rows[i].size());
    if (a.rows[i].empty()) continue;  // not watched
    REQUIRE(std::memcmp(a.rows[i].data(), b.rows[i].data(), a.rows[i].size() * sizeof(f32)) == 0);
  }
}

// The output of a generation.
struct Said {
  std::vector<u32> tokens;
  std::string text;
  engine::DoneEvent done;
  std::vector<engine::Sampled> sampled;
};

// Returns the token, and its log-probability's bits.
inline u64 bits_of(const engine::Sampled& sampled) {
  return u64{sampled.token} << 32 | std::bit_cast<u32>(sampled.logprob);
}
inline std::vector<u64> bits_of(const Said& said) {
  std::vector<u64> bits;
  for (const engine::Sampled& each : said.sampled) bits.push_back(bits_of(each));
  return bits;
}

// Reads events until the end; steps the engine when there are none.
inline Said read_all(engine::Engine& engine, engine::SessionIdx session) {
  Said said;
  engine::Event event;
  char text[256];
  for (;;) {
    if (!engine.sessions().take_event(session, &event, text)) {
      REQUIRE(engine.has_work());
      engine.step();
      continue;
    }
    if (event.type == engine::EventType::token) {
      said.tokens.push_back(event.token.token);
      said.sampled.push_back(event.token);
    }
    if (event.type == engine::EventType::text) said.text.append(text, event.text_bytes);
    if (event.type == engine::EventType::done) {
      said.done = event.done;
      return said;
    }
  }
}

}  // namespace tarn::test
