#include "tools/tarn-bench/passages.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "tools/support/engine_options.h"
#include "tools/support/stepping.h"
#include "tools/tarn-bench/random_ids.h"
#include "tools/tarn-bench/value_list.h"

namespace tarn::bench {

using engine::SessionIdx;
using tools::value_of;

PassagesShape parse_passages(const std::string& text) {
  PassagesShape shape;
  if (std::sscanf(text.c_str(), "%ux%u", &shape.n_passages, &shape.n_tokens) != 2 ||
      shape.n_in_all() == 0 || shape.n_in_all() > (1u << 20)) {
    throw std::invalid_argument("--reuse takes passages and tokens of each, as in 6x512");
  }
  return shape;
}

std::vector<f32> parse_shares(const std::string& text) {
  std::vector<f32> shares;
  for (size_t at = 0; at < text.size();) {
    char* end = nullptr;
    shares.push_back(std::strtof(text.c_str() + at, &end));
    const auto next = static_cast<size_t>(end - text.c_str());
    const bool ends = next == text.size() || text[next] == ',';
    if (next == at || !ends || !(shares.back() >= 0 && shares.back() <= 1))
      throw std::invalid_argument("--shares takes shares from 0 to 1, as in 0,0.15");
    at = next + 1;
  }
  return shares;
}

Config passages_config(const Options& options, u64 context_tokens) {
  tools::EngineOptions engine;
  engine.budget = options.budget;
  engine.isa = options.isa;
  engine.io = options.io;
  engine.device = options.device;
  engine.config_paths = options.config_paths;
  engine.store_dir = options.store_dir;
  if (!options.kv_types.empty()) engine.kv_type = options.kv_types.front();
  if (!options.threads.empty()) engine.n_threads = parse_values(options.threads).front();
  engine.context_tokens = context_tokens;
  engine.sessions_max = 2;
  return engine.config();
}

PassagesText::PassagesText(const engine::Engine& engine) : n_vocab(engine.spec().n_vocab) {
  if (const auto bos = engine.text().tokenizer().first_token()) begin = {*bos};
}

std::vector<u32> PassagesText::passage(u32 number, u32 n_tokens) const {
  return random_ids(100 + number, n_tokens, n_vocab);
}

PassagesPrompt PassagesText::prompt(std::span<const u32> passages, u32 n_tokens, u32 question,
                                    u32 n_question) const {
  PassagesPrompt prompt{.ids = begin};
  const auto append = [&](const std::vector<u32>& ids) {
    prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
  };
  for (const u32 number : passages) {
    const u32 from = static_cast<u32>(prompt.ids.size());
    append(passage(number, n_tokens));
    prompt.chunks.push_back({from, from + n_tokens});
  }
  append(random_ids(1'000'000 + question, n_question, n_vocab));
  return prompt;
}

FirstToken time_first_token(engine::Engine& engine, const PassagesPrompt& prompt,
                            std::optional<f32> share, std::string_view tenant) {
  SystemClock clock;
  const SessionIdx session = value_of(engine.sessions().create({.tenant = tenant}));
  const engine::DiskTrace before = engine.status().counters.disk;
  const u64 begin_ns = clock.now_ns();
  value_of(share ? engine.sessions().feed(session, prompt.ids, {prompt.chunks, *share})
                 : engine.sessions().feed(session, prompt.ids));
  const f64 predicted_s = engine.sessions().state(session).approx.decision.blend_s;
  value_of(engine.sessions().generate(session, {.max_tokens = 1, .ignore_end = true}));
  engine::Event event{};
  char text[256];
  u64 first_ns = 0;
  while (event.type != engine::EventType::done) {
    if (!engine.sessions().take_event(session, &event, text)) {
      tools::step(engine);
    } else if (event.type == engine::EventType::token) {
      first_ns = clock.now_ns();
    }
  }
  if (event.done.status != Status::ok)
    tools::throw_failure({.status = event.done.status, .hint = "the prompt was not answered"});
  engine.sessions().destroy(session);
  const engine::DiskTrace after = engine.status().counters.disk;
  return {.seconds = static_cast<f64>(first_ns - begin_ns) * 1e-9,
          .predicted_s = predicted_s,
          .disk_bytes = after.bytes_read - before.bytes_read,
          .disk_wait_ns = after.wait_ns - before.wait_ns,
          .reused = event.done.reused};
}

}  // namespace tarn::bench
