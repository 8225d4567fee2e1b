// tarn top: what a running tarnd does.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "tools/client/daemon_client.h"
#include "tools/support/engine_options.h"
#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"
#include "tools/support/json.h"
#include "tools/support/utc.h"
#include "tools/tarn/commands.h"

namespace tarn::tools {
namespace {

struct TopCommand {
  DaemonClient daemon;
  f64 interval_s = 1;
  bool once = false, json = false;
};

unsigned long long count(u64 n) { return n; }

// Counters of the engine at one moment.
struct Counters {
  u64 n_prompt = 0, n_answer = 0;
  f64 prompt_s = 0, answer_s = 0, uptime_s = 0;
};

struct Sample {
  rapidjson::Document props, slots, store;  // store: null without one
  Counters counters;
};

// Speeds between two samples; since the start of tarnd if there is one alone.
struct Speeds {
  f64 prompt_tokens_per_s = 0, answer_tokens_per_s = 0;  // while such steps run
  f64 busy_ratio = 0;                                    // of the time
};

const rapidjson::Value& engine_of(const Sample& sample) { return member(sample.props, "tarn"); }

Sample sample_of(const DaemonClient& daemon) {
  Sample sample;
  sample.props = daemon.json("GET", "/props");
  sample.slots = daemon.json("GET", "/slots");
  const rapidjson::Value& engine = engine_of(sample);
  if (!engine.IsObject()) {
    throw Failure{kExitIo, "this server is no tarnd: its /props have no `tarn`"};
  }
  if (text_of(engine, "store") != "none") sample.store = daemon.json("GET", "/v1/tarn/store");
  sample.counters = {.n_prompt = count_of(engine, "prompt_tokens"),
                     .n_answer = count_of(engine, "answer_tokens"),
                     .prompt_s = number_of(engine, "prompt_seconds"),
                     .answer_s = number_of(engine, "answer_seconds"),
                     .uptime_s = number_of(engine, "uptime_seconds")};
  return sample;
}

Speeds speeds_of(const Counters& now, const Counters& before) {
  const auto ratio = [](f64 a, f64 b) { return b > 0 ? a / b : 0; };
  const f64 prompt_s = now.prompt_s - before.prompt_s, answer_s = now.answer_s - before.answer_s;
  return {.prompt_tokens_per_s = ratio(static_cast<f64>(now.n_prompt - before.n_prompt), prompt_s),
          .answer_tokens_per_s = ratio(static_cast<f64>(now.n_answer - before.n_answer), answer_s),
          .busy_ratio = ratio(prompt_s + answer_s, now.uptime_s - before.uptime_s)};
}

u64 stored_bytes(const Sample& sample, u64& n_stored) {
  u64 bytes = 0;
  n_stored = 0;
  const rapidjson::Value& rows = member(sample.store, "data");
  if (!rows.IsArray()) return 0;
  n_stored = rows.Size();
  for (const rapidjson::Value& row : rows.GetArray()) bytes += count_of(row, "bytes");
  return bytes;
}

f64 kv_used_ratio(const rapidjson::Value& engine) {
  const u64 n_max = count_of(engine, "kv_groups_max");
  return n_max == 0
             ? 0
             : 1 - static_cast<f64>(count_of(engine, "kv_groups_free")) / static_cast<f64>(n_max);
}

void print_sessions(const Sample& sample) {
  if (!sample.slots.IsArray() || sample.slots.Empty()) return;
  std::printf("\n  session  state          tokens   computed\n");
  for (const rapidjson::Value& slot : sample.slots.GetArray()) {
    const rapidjson::Value& own = member(slot, "tarn");
    std::printf("  %7llu  %-10s %10llu %10llu%s\n", count(count_of(slot, "id")),
                escaped(text_of(own, "state")).c_str(), count(count_of(own, "tokens")),
                count(count_of(own, "computed")), is_true(own, "background") ? "  background" : "");
  }
}

void print_errors(const rapidjson::Value& engine) {
  const rapidjson::Value& errors = member(engine, "errors");
  if (!errors.IsArray() || errors.Empty()) return;
  std::printf("\nlast warnings and errors\n");
  for (const rapidjson::Value& error : errors.GetArray()) {
    std::printf("  %s  %s\n", utc_at(count_of(error, "at")).c_str(),
                escaped(text_of(error, "text")).c_str());
  }
}

void print(const Sample& sample, const Speeds& speeds) {
  const rapidjson::Value& engine = engine_of(sample);
  u64 n_stored = 0;
  const u64 bytes = stored_bytes(sample, n_stored);
  std::printf("%s on %s (%s), select %s%s, up %.0f s, plan %s\n",
              escaped(text_of(sample.props, "model_alias")).c_str(),
              escaped(text_of(engine, "device")).c_str(), escaped(text_of(engine, "isa")).c_str(),
              escaped(text_of(engine, "select")).c_str(),
              is_true(engine, "verified") ? "" : " (not verified)", sample.counters.uptime_s,
              format_bytes(count_of(engine, "plan_bytes")).c_str());
  std::printf("sessions  %llu of %llu open, %llu running, %llu waiting\n",
              count(count_of(engine, "sessions")), count(count_of(engine, "sessions_max")),
              count(count_of(engine, "running")), count(count_of(engine, "waiting")));
  std::printf("prompts   %llu tokens, %.1f tok/s\n", count(sample.counters.n_prompt),
              speeds.prompt_tokens_per_s);
  std::printf("answers   %llu tokens, %.1f tok/s; busy %.0f %%\n", count(sample.counters.n_answer),
              speeds.answer_tokens_per_s, 100 * speeds.busy_ratio);
  std::printf("KV        %.0f %% of %llu tokens\n", 100 * kv_used_ratio(engine),
              count(count_of(engine, "context_tokens")));
  std::printf("store     %s", escaped(text_of(engine, "store")).c_str());
  if (!sample.store.IsNull())
    std::printf(", %llu sessions, %s", count(n_stored), format_bytes(bytes).c_str());
  std::printf("\n");
  print_sessions(sample);
  print_errors(engine);
}

// The server's own objects, and what is computed here.
void print_as_json(const Sample& sample, const Speeds& speeds) {
  rapidjson::StringBuffer buffer;
  JsonWriter<rapidjson::Writer<rapidjson::StringBuffer>> writer(buffer);
  u64 n_stored = 0;
  const u64 bytes = stored_bytes(sample, n_stored);
  writer.StartObject();
  writer.Key("model");
  writer.String(text_of(sample.props, "model_alias").c_str());
  writer.Key("engine");
  engine_of(sample).Accept(writer);
  writer.Key("sessions");
  sample.slots.Accept(writer);
  writer.Key("prompt_tok_s");
  writer.Double(speeds.prompt_tokens_per_s);
  writer.Key("answer_tok_s");
  writer.Double(speeds.answer_tokens_per_s);
  writer.Key("busy");
  writer.Double(speeds.busy_ratio);
  writer.Key("kv_used");
  writer.Double(kv_used_ratio(engine_of(sample)));
  writer.Key("stored_sessions");
  writer.Uint64(n_stored);
  writer.Key("stored_bytes");
  writer.Uint64(bytes);
  writer.EndObject();
  std::printf("%s\n", buffer.GetString());
}

void top(const TopCommand& command) {
  Counters before;
  const bool clears = !command.json && !command.once && isatty(STDOUT_FILENO) != 0;
  while (true) {
    const Sample sample = sample_of(command.daemon);
    // tarnd was started again: its counters begin anew.
    if (sample.counters.uptime_s < before.uptime_s) before = {};
    const Speeds speeds = speeds_of(sample.counters, before);
    if (clears) std::printf("\033[H\033[2J");
    command.json ? print_as_json(sample, speeds) : print(sample, speeds);
    std::fflush(stdout);
    if (command.once || std::ferror(stdout) != 0) return;
    before = sample.counters;
    std::this_thread::sleep_for(std::chrono::duration<f64>(command.interval_s));
  }
}

}  // namespace

void add_top(const Command& app) {
  auto command = std::make_shared<TopCommand>();
  const Command sub = app.add_subcommand("top", "show what a running tarnd does");
  sub.footer(
      "\nExamples:\n"
      "  tarn top\n"
      "  tarn top --once --json\n"
      "\nSpeeds are those of the last interval while prompts are read, and while answers are "
      "written; with --once, since tarnd was started. A session's text is never shown.\n");
  command->daemon.add_to(sub);
  sub.add_option("--interval", command->interval_s, "seconds between two looks")
      .between(0.1, 3600.0)
      .capture_default_str();
  sub.add_flag("--once", command->once, "look once, and end");
  sub.add_flag("--json", command->json, "one JSON object for each look, a line each");
  sub.callback([command] { top(*command); });
}

}  // namespace tarn::tools
