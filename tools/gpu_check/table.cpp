#include <algorithm>
#include <cstdio>
#include <optional>

#include "tools/gpu_check/report.h"

// The table for tests/golden/gpu, and the verdicts on what issue and README promise of a GPU.
namespace tarn::gpu_check {
namespace {

using rapidjson::Value;
using Figure = std::optional<f64>;

constexpr f64 kPeerRatio = 1.3;
constexpr f64 kKernelShare = 0.85;
constexpr f64 kBigWeightBytes = 64.0 * kMiB;
constexpr f64 kKlMax = 1e-4;
constexpr f64 kTop1Min = 0.995;

struct BandwidthGoal {
  const char* device;  // part of its name; the first that fits counts
  f64 share;
};
// An H100 or H200 is bound by launches and the gaps between them, boards by bandwidth.
constexpr BandwidthGoal kBandwidthGoals[] = {{"H100", 0.40}, {"H200", 0.33}, {"", 0.90}};

std::string fixed(Figure value, int decimals) {
  if (!value) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, *value);
  return text;
}
std::string short_form(f64 value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

const Value* member(const Value* object, const char* key) {
  if (object == nullptr || !object->IsObject()) return nullptr;
  const auto found = object->FindMember(key);
  return found != object->MemberEnd() ? &found->value : nullptr;
}
Figure number(const Value* object, const char* key) {
  const Value* value = member(object, key);
  return value != nullptr && value->IsNumber() ? Figure(value->GetDouble()) : std::nullopt;
}
std::string text(const Value* object, const char* key) {
  const Value* value = member(object, key);
  return value != nullptr && value->IsString() ? value->GetString() : "";
}

// The row of llama-bench's JSON with this many tokens of prompt and of generation.
const Value* bench_row(const Report& report, const std::string& step, u32 n_prompt, u32 n_gen) {
  const Value* rows = report.figures(step);
  if (rows == nullptr || !rows->IsArray()) return nullptr;
  for (const Value& row : rows->GetArray()) {
    if (number(&row, "n_prompt") == n_prompt && number(&row, "n_gen") == n_gen) return &row;
  }
  return nullptr;
}
Figure ratio(Figure a, Figure b) { return a && b && *b > 0 ? Figure(*a / *b) : std::nullopt; }

Figure peer_decode(const Report& report, u32 depth, u32 n_parallel) {
  if (n_parallel == 1) {
    return number(bench_row(report, "peer d" + std::to_string(depth), 0, 128), "avg_ts");
  }
  const Value* rows = depth == 0 ? report.figures("peer batch") : nullptr;
  if (rows == nullptr || !rows->IsArray()) return std::nullopt;
  for (const Value& row : rows->GetArray()) {
    if (number(&row, "pl") == n_parallel) return number(&row, "speed_tg");
  }
  return std::nullopt;
}

std::string device_name(const Report& report) { return text(report.figures("device"), "name"); }

Figure bandwidth_share(const Report& report) {
  return ratio(number(bench_row(report, decode_step_name(0, 1), 0, 128), "achieved_gb_per_s"),
               number(report.figures("kernels"), "copy_gb_per_s"));
}

Target target(const std::string& name, const std::string& wanted) {
  return {.name = name, .wanted = wanted, .seen = "-", .verdict = Verdict::absent};
}
void judge(Target& t, Figure seen, bool is_met, const std::string& words) {
  if (!seen) return;
  t.seen = words;
  t.verdict = is_met ? Verdict::met : Verdict::missed;
}

// All steps whose names begin so.
Target steps_target(const Report& report, const std::string& name, const std::string& prefix) {
  Target t = target(name, "all pass");
  u32 n = 0, n_ok = 0, n_bad = 0;
  for (const Step& step : report.steps) {
    if (!step.name.starts_with(prefix)) continue;
    ++n;
    n_ok += step.status == Status::ok ? 1 : 0;
    n_bad += step.status == Status::failed || step.status == Status::timed_out ? 1 : 0;
  }
  if (n_ok + n_bad == 0) return t;
  t.seen = std::to_string(n_ok) + " of " + std::to_string(n);
  t.verdict = n_ok == n ? Verdict::met : n_bad > 0 ? Verdict::missed : Verdict::absent;
  return t;
}

Target sanitizer_target(const Report& report, const std::string& tool) {
  Target t = target("compute-sanitizer " + tool + ", kernels' and engine's tests", "0 errors");
  u32 n_ok = 0;
  for (const std::string& name : {tool, tool + " engine"}) {
    const Step* step = report.find(name);
    if (step == nullptr) continue;
    n_ok += step->status == Status::ok ? 1 : 0;
    if (step->status == Status::failed) {
      judge(t, 0, false, name + ": " + step->why);
      return t;
    }
  }
  if (n_ok == 2) judge(t, 0, true, "0 errors");
  return t;
}

Target logits_target(const Report& report) {
  Target t = target("logits of the 8B beside the CPU's: mean KL, same best token",
                    "<= " + short_form(kKlMax) + ", >= " + fixed(kTop1Min, 3));
  const Figure kl = number(report.figures("logits"), "kl_mean");
  const Figure top1 = number(report.figures("logits"), "top1_agreement");
  if (kl && top1) {
    judge(t, kl, *kl <= kKlMax && *top1 >= kTop1Min, short_form(*kl) + ", " + fixed(top1, 3));
  }
  return t;
}

Target kernels_target(const Report& report) {
  Target t = target("slowest kernel with >= 64 MiB of weights, one row, share of copying",
                    ">= " + fixed(kKernelShare, 2));
  const Value* kernels = member(report.figures("kernels"), "kernels");
  if (kernels == nullptr || !kernels->IsArray()) return t;
  Figure least;
  for (const Value& kernel : kernels->GetArray()) {
    const Figure share = number(&kernel, "share");
    const bool counts =
        number(&kernel, "rows") == 1 && number(&kernel, "weight_bytes") >= kBigWeightBytes;
    if (!counts || !share || (least && *least <= *share)) continue;
    least = share;
    t.seen = fixed(share, 2) + " (" + text(&kernel, "name") + ")";
  }
  if (least) judge(t, least, *least >= kKernelShare, t.seen);
  return t;
}

// What a token takes beside the kernels themselves.
void add_gap(const Report& report, std::string& out) {
  const Value* step = member(report.figures("kernels"), "step");
  const Figure launches = number(step, "launches"), busy_ns = number(step, "busy_ns");
  const Figure tokens_per_s = number(bench_row(report, decode_step_name(0, 1), 0, 128), "avg_ts");
  if (!launches || !busy_ns) return;
  out += "\nOne token of the 8B: " + fixed(launches, 0) + " kernels, " + fixed(*busy_ns * 1e-3, 0) +
         " us in them when each is run by itself";
  if (tokens_per_s && *tokens_per_s > 0) {
    const f64 gap_ns = 1e9 / *tokens_per_s - *busy_ns;
    out += "; the token takes " + fixed(1e6 / *tokens_per_s, 0) + " us, so " +
           fixed(gap_ns * 1e-3, 0) + " us are gaps and the host's part, " +
           fixed(gap_ns / *launches, 0) + " ns a kernel";
  }
  out += ". A kernel that does nothing takes " +
         fixed(number(report.figures("kernels"), "graph_launch_ns"), 0) + " ns in a graph, " +
         fixed(number(report.figures("kernels"), "stream_launch_ns"), 0) + " ns without.\n";
}

struct Place {
  u32 depth, n_parallel;
  const char* kv_type;
};
constexpr Place kPlaces[] = {{0, 1, "f16"},     {0, 4, "f16"},     {0, 8, "f16"},
                             {4096, 1, "f16"},  {4096, 4, "f16"},  {4096, 8, "f16"},
                             {4096, 1, "q8_0"}, {32768, 1, "f16"}, {32768, 4, "f16"},
                             {32768, 8, "f16"}, {32768, 1, "q8_0"}};

void add_speeds(const Report& report, std::string& out) {
  out +=
      "\n| depth | batch | KV | pp512 t/s | llama.cpp | ratio | tg128 t/s | llama.cpp | ratio |\n"
      "|---|---|---|---|---|---|---|---|---|\n";
  for (const Place& p : kPlaces) {
    const std::string name = decode_step_name(p.depth, p.n_parallel, p.kv_type);
    const Step* step = report.find(name);
    out += "| " + std::to_string(p.depth) + " | " + std::to_string(p.n_parallel) + " | " +
           p.kv_type + " | ";
    if (step == nullptr || step->status != Status::ok) {
      out += step == nullptr ? "absent" : status_name(step->status);
      out += " | | | | | |\n";
      continue;
    }
    const bool has_peer = std::string(p.kv_type) == "f16";
    const Figure prompt = number(bench_row(report, name, 512, 0), "avg_ts");
    const Figure decode = number(bench_row(report, name, 0, 128), "avg_ts");
    Figure peer_prompt, peer;
    if (has_peer) peer = peer_decode(report, p.depth, p.n_parallel);
    if (has_peer && p.n_parallel == 1) {
      const std::string peer_name = "peer d" + std::to_string(p.depth);
      peer_prompt = number(bench_row(report, peer_name, 512, 0), "avg_ts");
    }
    out += fixed(prompt, 1) + " | " + fixed(peer_prompt, 1) + " | " +
           fixed(ratio(prompt, peer_prompt), 2) + " | " + fixed(decode, 1) + " | " +
           fixed(peer, 1) + " | " + fixed(ratio(decode, peer), 2) + " |\n";
  }
  out += "\nTarn's depths are filled in (`tarn-bench --fill-kv`), llama.cpp's are prefilled.\n";
}

// What selection adds to a token, and what it makes of one.
void add_selection(const Report& report, std::string& out) {
  const Value* tokens = member(report.figures("kernels"), "select");
  if (tokens == nullptr || !tokens->IsArray()) return;
  out +=
      "\n| depth, by selection | kernels more a token | us in them | tg128 t/s | all read | ratio "
      "|\n|---|---|---|---|---|---|\n";
  for (const Value& token : tokens->GetArray()) {
    const Figure ns = number(&token, "busy_ns");
    const u32 depth = static_cast<u32>(number(&token, "depth").value_or(0));
    const auto speed = [&](const std::string& step) {
      return number(bench_row(report, step, 0, 128), "avg_ts");
    };
    const Figure chosen = speed(select_step_name(depth)), all = speed(decode_step_name(depth, 1));
    out += "| " + std::to_string(depth) + " | " + fixed(number(&token, "launches"), 0) + " | " +
           fixed(ns ? Figure(*ns * 1e-3) : ns, 0) + " | " + fixed(chosen, 1) + " | " +
           fixed(all, 1) + " | " + fixed(ratio(chosen, all), 2) + " |\n";
  }
}

// What the driver took beside the plan's slabs, of what it may: an integrated GPU counts its
// context and the graphs there, and an engine whose driver takes more does not start.
void add_driver(const Report& report, std::string& out) {
  const Value* row = bench_row(report, decode_step_name(0, 1), 0, 128);
  const Figure bytes = number(row, "driver_bytes"), limit = number(row, "driver_limit_bytes");
  if (!bytes || !limit) return;
  out += "\nThe driver took " + fixed(*bytes * 1e-6, 0) + " MB of at most " +
         fixed(*limit * 1e-6, 0) + " MB (`device.driver_limit_bytes`).\n";
}

void add_machine(const Report& report, std::string& out) {
  for (const char* when : {"machine before", "machine after"}) {
    const Value* texts = report.figures(when);
    if (texts == nullptr || !texts->IsObject() || texts->ObjectEmpty()) continue;
    out += std::string("\n") + when + ": ";
    for (const auto& entry : texts->GetObject()) {
      out += std::string(entry.name.GetString()) + " " + entry.value.GetString() + ". ";
    }
    out += "\n";
  }
}

void add_kernels(const Report& report, std::string& out) {
  const Value* figures = report.figures("kernels");
  const Value* kernels = member(figures, "kernels");
  if (kernels == nullptr || !kernels->IsArray()) return;
  out += "\nCopying: " + fixed(number(figures, "copy_gb_per_s"), 0) +
         " GB/s read and written; reading: " + fixed(number(figures, "read_gb_per_s"), 0) +
         " GB/s.\n\n"
         "| kernel | rows | MB | us | GB/s | share of copying |\n|---|---|---|---|---|---|\n";
  for (const Value& kernel : kernels->GetArray()) {
    const Figure bytes = number(&kernel, "bytes"), ns = number(&kernel, "ns");
    out += "| " + text(&kernel, "name") + " | " + fixed(number(&kernel, "rows"), 0) + " | " +
           fixed(bytes ? Figure(*bytes * 1e-6) : bytes, 1) + " | " +
           fixed(ns ? Figure(*ns * 1e-3) : ns, 1) + " | " + fixed(number(&kernel, "gb_per_s"), 0) +
           " | " + fixed(number(&kernel, "share"), 2) + " |\n";
  }
  const Value* prompt = member(figures, "prompt");
  if (prompt == nullptr || !prompt->IsArray()) return;
  out += "\n| a prompt's product | rows | us | TOPS |\n|---|---|---|---|\n";
  for (const Value& kernel : prompt->GetArray()) {
    const Figure ns = number(&kernel, "ns");
    out += "| " + text(&kernel, "name") + " | " + fixed(number(&kernel, "rows"), 0) + " | " +
           fixed(ns ? Figure(*ns * 1e-3) : ns, 1) + " | " +
           fixed(number(&kernel, "tera_ops_per_s"), 1) + " |\n";
  }
  const Value* has_cublas = member(figures, "has_cublas");
  const bool is_there = has_cublas != nullptr && has_cublas->IsTrue();
  if (!is_there) out += "| cuBLAS | absent | | |\n";
  out +=
      "\nmatmat is what the engine computes quantised weights with, matvec f16 what it computes "
      "f16\n"
      "with, 8 rows at a time; matmul and cuBLAS are the weights dequantised to f16, the rows\n"
      "narrowed to f16, and a dense product of both.\n";
}

}  // namespace

bool is_asked_for(const std::string& step) {
  static const std::string kSteps[] = {"device",   "kernels", "model",      decode_step_name(0, 1),
                                       "peer d0",  "logits",  "logits cpu", "memcheck",
                                       "racecheck"};
  return step.starts_with("test ") ||
         std::find(std::begin(kSteps), std::end(kSteps), step) != std::end(kSteps);
}

std::vector<Target> targets_of(const Report& report) {
  std::vector<Target> targets = {
      steps_target(report, "GPU tests, for real", "test "),
      steps_target(report, "of these the engine's, determinism among them",
                   "test test_runtime_engine_gpu"),
      logits_target(report), sanitizer_target(report, "memcheck"),
      sanitizer_target(report, "racecheck")};
  const Figure ours = number(bench_row(report, decode_step_name(0, 1), 0, 128), "avg_ts");
  const Figure gain = ratio(ours, peer_decode(report, 0, 1));
  Target peer = target("tg128 beside llama.cpp's", ">= " + fixed(kPeerRatio, 1) + "x");
  if (gain) judge(peer, gain, *gain >= kPeerRatio, fixed(gain, 2) + "x");
  targets.push_back(peer);
  const std::string name = device_name(report);
  f64 wanted = 0;
  for (const BandwidthGoal& goal : kBandwidthGoals) {
    if (wanted == 0 && name.find(goal.device) != std::string::npos) wanted = goal.share;
  }
  Target share = target("tg128, share of the copy bandwidth", ">= " + fixed(wanted, 2));
  const Figure seen = bandwidth_share(report);
  if (seen) judge(share, seen, *seen >= wanted, fixed(seen, 2));
  targets.push_back(share);
  targets.push_back(kernels_target(report));
  return targets;
}

std::string to_table(const Report& report) {
  const std::string device = device_name(report);
  std::string out = "# " + (device.empty() ? std::string("no GPU") : device) + ", " + report.date +
                    "\n\n" + report.bundle + "\n\n| target | wanted | seen | verdict |\n" +
                    "|---|---|---|---|\n";
  for (const Target& t : targets_of(report)) {
    out += "| " + t.name + " | " + t.wanted + " | " + t.seen + " | " + verdict_name(t.verdict) +
           " |\n";
  }
  add_machine(report, out);
  if (report.find("decode d0 x1") != nullptr && !device.empty()) {
    add_speeds(report, out);
    add_gap(report, out);
    add_driver(report, out);
    add_selection(report, out);
  }
  add_kernels(report, out);
  std::string rest;
  for (const Step& step : report.steps) {
    if (step.status == Status::ok) continue;
    rest += "| " + step.name + " | " + status_name(step.status) + " | " + step.why + " |\n";
  }
  if (!rest.empty()) out += "\n| step | how it ended | why |\n|---|---|---|\n" + rest;
  return out;
}

}  // namespace tarn::gpu_check
