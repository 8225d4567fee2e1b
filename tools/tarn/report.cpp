#include "tools/tarn/report.h"

#include <cmath>
#include <cstdio>
#include <string>

#include "platform/cpu/topology.h"
#include "tools/support/explanation.h"
#include "tools/support/memory_use.h"
#include "tools/support/shown_answer.h"

namespace tarn::tools {
namespace {

// "" if nothing was timed.
std::string rate(f64 tokens_per_s) {
  char text[32] = "";
  if (std::isfinite(tokens_per_s)) std::snprintf(text, sizeof text, ", %.1f tok/s", tokens_per_s);
  return text;
}

// Returns what attention read, and whether the loss of reading less is known.
std::string attended(const tarn_engine_status& status, const GenerationResult& result) {
  if (std::string_view(status.select) == "full") return "full (exact)";
  if (result.n_select_steps == 0)
    return std::string("full (exact; ") + status.select + " selected in no step)";
  char text[160];
  std::snprintf(text, sizeof text, "%s in %llu steps, %.3g of the KV read (approximate, %s)",
                status.select, static_cast<unsigned long long>(result.n_select_steps),
                result.kv_read_ratio,
                status.verified != 0 ? "loss measured" : "loss not measured: tarn verify");
  return text;
}

// Returns what was not computed again of the prompt; "" for nothing.
std::string reused(const GenerationResult& result) {
  const auto n_memory = static_cast<unsigned long long>(result.n_reused_from_memory);
  const auto n_disk = static_cast<unsigned long long>(result.n_reused_from_disk);
  char text[120] = "";
  if (n_memory + n_disk > 0) {
    std::snprintf(text, sizeof text, ", %llu of them reused (%llu from memory, %llu from the disk)",
                  n_memory + n_disk, n_memory, n_disk);
  }
  return text;
}

// The chunks are exact, or no worse than what tarn verify --reuse passed with this model.
bool chunks_are_verified(const tarn_engine_status& status, const GenerationResult& result) {
  const bool is_auto = result.recompute < 0;
  const bool is_enough = status.recompute < 1 && result.recompute >= status.recompute;
  return result.n_placed == 0 || is_auto || is_enough;
}

// Returns what became of the chunks; "" without any.
std::string blended(const tarn_engine_status& status, const GenerationResult& result) {
  const auto n_placed = static_cast<unsigned long long>(result.n_placed);
  const auto n_recomputed = static_cast<unsigned long long>(result.n_recomputed);
  if (n_placed + n_recomputed == 0) return "";
  char text[200];
  std::snprintf(text, sizeof text,
                ", of chunks %llu taken from the store and %llu computed anew (%s)", n_placed,
                n_recomputed,
                n_placed == 0                         ? "exact"
                : chunks_are_verified(status, result) ? "approximate, loss measured"
                                                      : "approximate, loss not measured: "
                                                        "tarn verify --reuse");
  return text;
}

// Exact, or no worse than what tarn verify passed with this model.
bool is_verified(const tarn_engine_status& status, const GenerationResult& result) {
  return status.verified != 0 && chunks_are_verified(status, result);
}

}  // namespace

void write_answer(const EngineHandle& engine, const GenerationResult& result, Json& json) {
  const tarn_engine_status status = engine.status();
  json.key("text").text(result.text);
  json.key("tokens").begin_array();
  for (const u32 id : result.tokens) json.number(id);
  json.end_array();
  json.key("prompt_tokens").number(result.n_prompt_tokens);
  json.key("reused").begin_object();
  json.key("tokens").number(result.n_reused_from_memory + result.n_reused_from_disk);
  json.key("from_memory").number(result.n_reused_from_memory);
  json.key("from_disk").number(result.n_reused_from_disk);
  json.key("placed").number(result.n_placed);
  json.key("recomputed").number(result.n_recomputed);
  json.end_object();
  json.key("approximate").boolean(result.n_placed > 0);
  json.key("control").begin_object();
  write_explanation(result.explanation, json);
  json.end_object();
  json.key("finish_reason").text(tarn_finish_name(result.finish));
  json.key("timings").begin_object();
  json.key("load_s").real(seconds_of(status.load_ns));
  json.key("prefill_s").real(result.prefill_s);
  json.key("decode_s").real(result.decode_s);
  json.key("prefill_tok_s").real(result.prefill_tokens_per_s());
  json.key("decode_tok_s").real(result.decode_tokens_per_s());
  json.end_object();
  json.key("memory").begin_object();
  json.key("plan_bytes").number(engine.plan().total_bytes);
  json.key("peak_rss_bytes").number(peak_rss_bytes());
  json.key("allocations_after_ready");
  if (result.n_allocations) {
    json.number(*result.n_allocations);
  } else {
    json.null();
  }
  json.end_object();
  json.key("device").text(status.device);
  if (status.gpu_bytes_per_s > 0) {
    json.key("gpu_memory").begin_object();
    json.key("bytes_per_s").number(status.gpu_bytes_per_s);
    json.key("shared_bytes_per_s").number(status.gpu_shared_bytes_per_s);
    json.key("promotes_without_copy").boolean(status.gpu_promotes_without_copy != 0);
    json.end_object();
  }
  json.key("isa").text(status.isa);
  json.key("store").text(status.store);
  json.key("select").text(status.select);
  json.key("select_steps").number(result.n_select_steps);
  json.key("kv_read_ratio").real(result.kv_read_ratio);
  json.key("verified").boolean(is_verified(status, result));
  json.key("model_verified").boolean(status.model_verified != 0);
}

void warn_unselected(const char* select, u64 n_select_steps) {
  if (n_select_steps > 0 || std::string_view(select) == "full") return;
  std::fprintf(stderr,
               "tarn warning: select %s was given, but no step selected: all KV was read. "
               "Selection needs a context of select.context_min tokens (0: twice what a step "
               "reads), and begins with an answer's token select.index_delay_tokens + 1: lower "
               "these keys, or use a longer context or answer\n",
               select);
}

void warn_unblended(const tarn_engine_status& status) {
  if (status.recompute < 1) return;
  std::fprintf(stderr,
               "tarn warning: the chunks were computed in full: no record names a share for this "
               "model. tarn verify --reuse --record FILE finds one (then --config FILE), and "
               "--recompute SHARE sets one\n");
}

void print_figures(const EngineHandle& engine, const GenerationResult& result) {
  const tarn_engine_status status = engine.status();
  std::fprintf(
      stderr,
      "%s[%s] loaded in %.2f s; prefill %llu tokens%s%s%s; decode %zu tokens%s; %s; "
      "attention: %s; model file %s\n",
      behind_answer(), tarn_finish_name(result.finish), static_cast<f64>(status.load_ns) * 1e-9,
      static_cast<unsigned long long>(result.n_prompt_tokens), reused(result).c_str(),
      blended(status, result).c_str(), rate(result.prefill_tokens_per_s()).c_str(),
      result.tokens.size(), rate(result.decode_tokens_per_s()).c_str(), status.isa,
      attended(status, result).c_str(),
      status.model_verified != 0 ? "matches model.sha256" : "not checked (set model.sha256)");
  std::fprintf(
      stderr, "memory: plan %s, peak RSS %s, allocations after READY: %s\n",
      format_bytes(engine.plan().total_bytes).c_str(), format_bytes(peak_rss_bytes()).c_str(),
      result.n_allocations ? std::to_string(*result.n_allocations).c_str() : "not counted");
}

std::string describe_machine(const EngineHandle& engine) {
  const CpuTopology topology = cpu_topology();
  const tarn_engine_status status = engine.status();
  return std::string(topology.model_name.data()) + ", " + std::to_string(status.n_workers) +
         " of " + std::to_string(topology.n_cpus) + " CPUs used, " + status.isa +
         ", weights read by " + status.io;
}

}  // namespace tarn::tools
