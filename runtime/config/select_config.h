// The selection's share of the configuration: which K and V a decode step reads (runtime/method).
//
// Presets are the paper's two settings (PQCache, arXiv:2407.12820, section on experiments), and
// what the comparison with other methods adds: every method at one budget and, for codes, one
// amount of communication, code_bits * subspaces / 16 of a key's head_dim.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "platform/base/result.h"
#include "platform/base/types.h"
#include "runtime/config/box_config.h"
#include "runtime/config/verify_mark.h"

namespace tarn {

namespace method {
struct Method;
}

enum class SelectMethod : u8 { full, pq, quest, window };
inline constexpr const char* kSelectMethodNames[] = {"full", "pq", "quest", "window"};
enum class CodeFormat : u8 { bytes, packed };
inline constexpr const char* kCodeFormatNames[] = {"bytes", "packed"};

inline constexpr u32 kSubspacesMax = 64;      // what the kernels take
inline constexpr u32 kPackedCodeBitsMax = 6;  // likewise
inline constexpr u32 kQuestPageTokens = 16;   // Quest chooses pages of so many tokens
inline constexpr u32 kIterationsMax = 300;    // of PQCache's code

enum class SelectPreset : u8 { none, pqcache_longbench, pqcache_infinitebench, compare_pqcache };
inline constexpr const char* kSelectPresetNames[] = {"none", "pqcache-longbench",
                                                     "pqcache-infinitebench", "compare-pqcache"};

struct SelectConfig {
  SelectPreset preset = SelectPreset::none;
  SelectMethod method = SelectMethod::full;
  CodeFormat code_format = CodeFormat::bytes;
  u32 n_subspaces = 2;
  u32 code_bits = 6;
  u32 context_divisor = 0;
  u32 tokens_min = 256;
  u32 n_sinks = 32;
  u32 n_local = 512;
  u32 k = 2048;
  u32 context_min = 0;
  u32 iterations = 8;
  u32 index_delay_tokens = 64;
  bool disk_reorder = true;
  bool exact_answers = false;
  VerifyMark verified{};
  // No keys set these: box.profile does, where the configuration leaves iterations to it, and where
  // context_min is 0. In context_from 0: it says nothing.
  LayerCost cost{};
  u32 context_from = 0;
  // A method of runtime/lab, which replaces `method`:
  const method::Method* lab_method = nullptr;
  // Over a disk, the chosen tokens that a head keeps in memory at most; 0: what there is room for.
  u32 cache_tokens = 0;

  // Exact: every token is read.
  bool is_full() const { return method == SelectMethod::full && lab_method == nullptr; }

  // Config::visit()'s share of it.
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor& on);
};

template <class Self, class Visitor>
void SelectConfig::visit_fields(Self& self, Visitor& on) {
  using Names = std::span<const char* const>;
  on("select.preset", self.preset, Names(kSelectPresetNames),
     "settings of a paper, which go before the other keys of select; compare-pqcache leaves the "
     "method to select.method");
  on("select.method", self.method, Names(kSelectMethodNames),
     "which K and V a step reads; full is exact");
  on("select.subspaces", self.n_subspaces, u64{1}, u64{kSubspacesMax},
     "pq: parts of a key that are coded apart");
  on("select.code_bits", self.code_bits, u64{1}, u64{8}, "pq: bits of a part's code");
  on("select.code_format", self.code_format, Names(kCodeFormatNames),
     "pq: a byte a code, or packed (6 bits at most); the same choices");
  on("select.context_divisor", self.context_divisor, u64{0}, u64{1024},
     "read one in so many tokens, half of them the last ones; 0: local_tokens and k_tokens");
  on("select.tokens_min", self.tokens_min, u64{0}, u64{1} << 20,
     "with a divisor: read at least so many");
  on("select.sink_tokens", self.n_sinks, u64{0}, u64{4096}, "first tokens, always read");
  on("select.local_tokens", self.n_local, u64{1}, u64{1} << 20, "last tokens, always read");
  on("select.k_tokens", self.k, u64{1}, u64{1} << 20, "tokens chosen from between them, a step");
  on("select.context_min", self.context_min, u64{0}, u64{1} << 20,
     "shorter contexts are read whole, which is faster; 0: what box.profile says, or else twice "
     "what a "
     "step reads; with a divisor every length is read by selection");
  on("select.iterations", self.iterations, u64{0}, u64{kIterationsMax},
     "pq: updates of the centroids at most; 0: as many as box.profile leaves time for, 3 at least");
  on("select.index_delay_tokens", self.index_delay_tokens, u64{1}, u64{4096},
     "tokens from a clustering's start to its use; 1: the second token waits for it");
  on("select.disk_reorder", self.disk_reorder,
     "for selection by pairs of codes over a disk; keeps two more copies of that KV on disk, "
     "sorted the way selection reads it: fewer requests a token, if the quota has room");
  on("select.exact_answers", self.exact_answers,
     "with the next input an answer's KV is computed anew, exactly, so that nothing of what "
     "selection left in it stays");
  on("select.verified", self.verified,
     "what tarn verify wrote for this model and these settings; empty: replies are not verified");
}

// The relations between keys; config_validate() has seen to the ranges.
Result<void> select_config_validate(const SelectConfig& config);

// Sets what the preset says and leaves the rest.
//   pqcache-longbench      2 x 6, 1/10 of the tokens, 32 sinks, at least 256 tokens
//   pqcache-infinitebench  4 x 8, likewise
//   compare-pqcache        pqcache-longbench, with the method left as it is: run it once with each;
//                          full, which has no budget, is refused
SelectConfig with_preset(SelectConfig config, SelectPreset preset);

}  // namespace tarn
