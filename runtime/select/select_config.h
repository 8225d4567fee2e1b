// runtime/select/select_config.h
//
// The selection's share of the configuration, in the form of runtime/config's visit(): key, field,
// range or names, help. Config takes it in when the engine reads by selection; until then no reader
// knows the keys, since a key that does nothing would be a lie.
//
// Presets are the paper's two settings (PQCache, arXiv:2407.12820, section on experiments), and
// what the comparison with other methods adds: every method at one budget and, for codes, one
// amount of communication, code_bits * subspaces / 16 of a key's head_dim.
#pragma once

#include <string_view>

#include "runtime/config/config.h"
#include "runtime/select/pq_index.h"
#include "runtime/select/segments.h"

namespace tarn::select {

enum class Method : u8 { full, pq, oracle, quest, window, random };
inline constexpr const char* kMethodNames[] = {"full", "pq", "oracle", "quest", "window", "random"};
enum class CodeFormat : u8 { bytes, packed };
inline constexpr const char* kCodeFormatNames[] = {"bytes", "packed"};

struct SelectConfig {
  Method method = Method::full;
  CodeFormat code_format = CodeFormat::bytes;
  u32 n_subspaces = 2;
  u32 code_bits = 6;
  u32 context_divisor = 0;
  u32 tokens_min = 256;
  u32 n_sinks = 32;
  u32 n_local = 512;
  u32 k = 2048;
  u32 iterations_min = 3;
  u32 iterations_max = 300;
  u32 turns_max = 1;

  template <class Visitor>
  void visit(Visitor&& on) {
    visit_fields(*this, on);
  }
  template <class Visitor>
  void visit(Visitor&& on) const {
    visit_fields(*this, on);
  }

  BudgetRule budget_rule() const { return {context_divisor, tokens_min, n_sinks, n_local, k}; }
  // Of the index of one KV head; head_dim must be a multiple of n_subspaces.
  PqShape pq_shape(u32 head_dim, u32 capacity_tokens) const;

 private:
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor& on);
};

template <class Self, class Visitor>
void SelectConfig::visit_fields(Self& self, Visitor& on) {
  on("select.method", self.method, ChoiceNames(kMethodNames),
     "which K and V a step reads; full is exact");
  on("select.subspaces", self.n_subspaces, u64{1}, u64{kernels::kPqSubspacesMax},
     "pq: parts of a key that are coded apart");
  on("select.code_bits", self.code_bits, u64{1}, u64{8}, "pq: bits of a part's code");
  on("select.code_format", self.code_format, ChoiceNames(kCodeFormatNames),
     "pq: a byte a code, or packed (4 and 6 bits); the same choices");
  on("select.context_divisor", self.context_divisor, u64{0}, u64{1024},
     "read one in so many tokens, half of them the last ones; 0: local_tokens and k_tokens");
  on("select.tokens_min", self.tokens_min, u64{0}, u64{1} << 20,
     "with a divisor: read at least so many");
  on("select.sink_tokens", self.n_sinks, u64{0}, u64{4096}, "first tokens, always read");
  on("select.local_tokens", self.n_local, u64{1}, u64{1} << 20, "last tokens, always read");
  on("select.k_tokens", self.k, u64{1}, u64{1} << 20, "tokens chosen from between them, a step");
  on("select.iterations_min", self.iterations_min, u64{1}, u64{300},
     "pq: clustering steps that are always done");
  on("select.iterations_max", self.iterations_max, u64{1}, u64{300},
     "pq: clustering steps at most, where time is left; as iterations_min: that many");
  on("select.turns_max", self.turns_max, u64{1}, u64{1024},
     "pq: inputs of a conversation with codebooks of their own");
}

// Every range and relation; names the first that is broken.
Result<void> select_config_validate(const SelectConfig& config);

// Sets what the preset says and leaves the rest.
//   pqcache-longbench      2 x 6, 1/10 of the tokens, 32 sinks, at least 256 tokens
//   pqcache-infinitebench  4 x 8, likewise
//   compare-pqcache        pqcache-longbench, with the method left as it is: run it once with each
inline constexpr const char* kPresetNames[] = {"pqcache-longbench", "pqcache-infinitebench",
                                               "compare-pqcache"};
Result<SelectConfig> with_preset(SelectConfig config, std::string_view preset);

}  // namespace tarn::select
