// tarn top: what a running tarnd does.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tools/client/daemon_client.h"
#include "tools/support/count.h"
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

const rapidjson::Value& state_of(const Sample& sample) { return member(sample.props, "tarn"); }

bool has_store(const Sample& sample) {
  const std::string state = text_of(sample.props, "store");
  return state == "on" || state == "read-only";
}

Sample sample_of(const DaemonClient& daemon) {
  Sample sample;
  sample.props = daemon.json("GET", "/props");
  sample.slots = daemon.json("GET", "/slots");
  const rapidjson::Value& state = state_of(sample);
  if (!state.IsObject()) {
    throw Failure{kExitIo, "this server is no tarnd: its /props have no `tarn`"};
  }
  if (has_store(sample)) {
    try {
      sample.store = daemon.json("GET", "/v1/tarn/store");
    } catch (const Failure& failure) {
      if (failure.code != kExitRefused) throw;
      // A store without saved sessions (store.sessions).
    }
  }
  sample.counters = {.n_prompt = count_of(state, "prompt_tokens"),
                     .n_answer = count_of(state, "answer_tokens"),
                     .prompt_s = number_of(state, "prompt_seconds"),
                     .answer_s = number_of(state, "answer_seconds"),
                     .uptime_s = number_of(state, "uptime_seconds")};
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

f64 kv_used_ratio(const rapidjson::Value& state) {
  const auto n_max = static_cast<f64>(count_of(state, "kv_groups_max"));
  return n_max > 0 ? 1 - static_cast<f64>(count_of(state, "kv_groups_free")) / n_max : 0;
}

bool is_open(const rapidjson::Value& slot) { return text_of(slot, "state") != "free"; }

void print_sessions(const Sample& sample) {
  if (!sample.slots.IsArray() || std::ranges::none_of(sample.slots.GetArray(), is_open)) return;
  std::printf("\n  session  state          tokens   computed\n");
  for (const rapidjson::Value& slot : sample.slots.GetArray()) {
    if (!is_open(slot)) continue;
    std::printf("  %7llu  %-10s %10llu %10llu%s\n", count(count_of(slot, "id")),
                escaped(text_of(slot, "state")).c_str(), count(count_of(slot, "n_tokens")),
                count(count_of(slot, "n_computed")),
                is_true(slot, "background") ? "  background" : "");
  }
}

void print_errors(const rapidjson::Value& state) {
  const rapidjson::Value& errors = member(state, "errors");
  if (!errors.IsArray() || errors.Empty()) return;
  std::printf("\nlast warnings and errors\n");
  for (const rapidjson::Value& error : errors.GetArray()) {
    std::printf("  %s  %s\n", utc_at(count_of(error, "at")).c_str(),
                escaped(text_of(error, "text")).c_str());
  }
}

// Nothing where the machine shows nothing.
void print_power(const rapidjson::Value& power) {
  const std::string mode = text_of(power, "mode"), zone = text_of(power, "hottest_zone");
  std::string line = mode.empty() ? "" : ", mode " + mode;
  for (const auto& [name, key] : {std::pair{"CPU", "cpu_mhz"}, {"GPU", "gpu_mhz"}}) {
    const u64 mhz = count_of(power, key),
              most = count_of(power, (std::string(key) + "_max").c_str());
    if (mhz == 0) continue;
    line += std::string(", ") + name + " " + std::to_string(mhz);
    line += (most > 0 ? " of " + std::to_string(most) : "") + " MHz";
  }
  if (!zone.empty()) {
    std::array<char, 32> celsius{};
    std::snprintf(celsius.data(), celsius.size(), ", %.1f C (",
                  number_of(power, "hottest_celsius"));
    line += celsius.data() + zone + ")";
  }
  if (count_of(power, "throttling") > 0) line += ", THROTTLED";
  if (!line.empty()) std::printf("board     %s\n", escaped(line.substr(2)).c_str());
}

void print(const Sample& sample, const Speeds& speeds) {
  const rapidjson::Value& props = sample.props;
  const rapidjson::Value& state = state_of(sample);
  std::printf("%s on %s (%s), select %s%s, up %.0f s, plan %s\n",
              escaped(text_of(props, "model_alias")).c_str(),
              escaped(text_of(props, "device")).c_str(), escaped(text_of(props, "isa")).c_str(),
              escaped(text_of(props, "select")).c_str(),
              is_true(props, "verified") ? "" : " (loss not measured: tarn verify)",
              sample.counters.uptime_s, format_bytes(count_of(state, "plan_bytes")).c_str());
  std::printf("sessions  %llu of %llu open, %llu running, %llu waiting\n",
              count(count_of(state, "sessions")), count(count_of(props, "total_slots")),
              count(count_of(state, "running")), count(count_of(state, "waiting")));
  std::printf("prompts   %llu tokens, %.1f tok/s\n", count(sample.counters.n_prompt),
              speeds.prompt_tokens_per_s);
  std::printf("answers   %llu tokens, %.1f tok/s; busy %.0f %%\n", count(sample.counters.n_answer),
              speeds.answer_tokens_per_s, 100 * speeds.busy_ratio);
  const rapidjson::Value& settings = member(props, "default_generation_settings");
  std::printf("KV        %.0f %% of %llu tokens\n", 100 * kv_used_ratio(state),
              count(count_of(settings, "n_ctx")));
  std::printf("store     %s", escaped(text_of(props, "store")).c_str());
  u64 n_stored = 0;
  const u64 bytes = stored_bytes(sample, n_stored);
  if (n_stored > 0) {
    std::printf(", %llu sessions, %s", count(n_stored), format_bytes(bytes).c_str());
  }
  std::printf("\n");
  print_power(member(state, "power"));
  print_sessions(sample);
  print_errors(state);
}

// The server's own objects, and what is computed here.
void print_as_json(const Sample& sample, const Speeds& speeds) {
  rapidjson::StringBuffer buffer;
  JsonWriter<rapidjson::Writer<rapidjson::StringBuffer>> writer(buffer);
  u64 n_stored = 0;
  const u64 bytes = stored_bytes(sample, n_stored);
  writer.StartObject();
  writer.Key("props");
  sample.props.Accept(writer);
  writer.Key("slots");
  sample.slots.Accept(writer);
  writer.Key("prompt_tok_s");
  writer.Double(speeds.prompt_tokens_per_s);
  writer.Key("answer_tok_s");
  writer.Double(speeds.answer_tokens_per_s);
  writer.Key("busy");
  writer.Double(speeds.busy_ratio);
  writer.Key("kv_used");
  writer.Double(kv_used_ratio(state_of(sample)));
  writer.Key("stored_sessions");
  writer.Uint64(n_stored);
  writer.Key("stored_bytes");
  writer.Uint64(bytes);
  writer.EndObject();
  print_json_text({buffer.GetString(), buffer.GetSize()});
  std::printf("\n");
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
  sub.add_option("--interval", command->interval_s, "seconds between two readings")
      .between(0.1, 3600.0)
      .capture_default_str();
  sub.add_flag("--once", command->once, "look once, and end");
  sub.add_flag("--json", command->json, "one JSON object for each look, a line each");
  sub.callback([command] { top(*command); });
}

}  // namespace tarn::tools
