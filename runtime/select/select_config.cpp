#include "runtime/select/select_config.h"

#include <type_traits>

#include "runtime/config/keys.h"
#include "runtime/select/quest_index.h"

namespace tarn::select {
namespace {

// Keeps the first range or choice that is broken.
struct RangeChecker {
  Result<void> result{};
  void operator()(const char* key, const u32& value, u64 min, u64 max, const char*) {
    if (result && (value < min || value > max)) result = fail(range_error(key, min, max));
  }
  template <class Choice>
  void operator()(const char* key, const Choice& value, ChoiceNames names,
                  const char*) requires std::is_enum_v<Choice> {
    if (result && static_cast<u64>(value) >= names.size()) result = fail(choice_error(key, names));
  }
};

kernels::PqCodeFormat format_of(const SelectConfig& config) {
  if (config.code_format == CodeFormat::bytes) return kernels::PqCodeFormat::bytes;
  return config.code_bits <= 4 ? kernels::PqCodeFormat::packed4 : kernels::PqCodeFormat::packed6;
}

}  // namespace

PqShape SelectConfig::pq_shape(u32 head_dim, u32 capacity_tokens) const {
  return {.head_dim = head_dim,
          .n_subspaces = n_subspaces,
          .code_bits = code_bits,
          .format = format_of(*this),
          .capacity_tokens = capacity_tokens,
          .codebooks_max = turns_max};
}

Result<void> select_config_validate(const SelectConfig& config) {
  RangeChecker checker;
  config.visit(checker);
  if (!checker.result) return checker.result;
  if (config.iterations_min > config.iterations_max) {
    return fail({.status = Status::invalid_config,
                 .hint = "select.iterations_min is above select.iterations_max; lower it",
                 .figures = {Figure{"select.iterations_min", config.iterations_min},
                             Figure{"select.iterations_max", config.iterations_max}}});
  }
  if (config.code_bits > kernels::pq_bits_max(format_of(config))) {
    return fail({.status = Status::invalid_config,
                 .hint = "packed codes have 6 bits at most; set select.code_format = \"bytes\"",
                 .figures = {Figure{"select.code_bits", config.code_bits}}});
  }
  if (config.method == Method::quest && config.context_divisor == 0 &&
      config.k < QuestIndex::kPageTokens) {
    return fail({.status = Status::invalid_config,
                 .hint = "quest chooses whole pages; select.k_tokens must be a page's at least",
                 .figures = {Figure{"select.k_tokens", config.k},
                             Figure{"page", QuestIndex::kPageTokens}}});
  }
  return {};
}

Result<SelectConfig> with_preset(SelectConfig config, std::string_view preset) {
  const bool is_wide = preset == "pqcache-infinitebench";
  const bool compares = preset == "compare-pqcache";
  if (!is_wide && !compares && preset != "pqcache-longbench") {
    return fail({.status = Status::invalid_config,
                 .hint = "a preset is pqcache-longbench, pqcache-infinitebench or compare-pqcache",
                 .detail = Detail(preset)});
  }
  if (!compares) config.method = Method::pq;
  config.n_subspaces = is_wide ? 4 : 2;
  config.code_bits = is_wide ? 8 : 6;
  config.context_divisor = 10;
  config.tokens_min = 256;
  config.n_sinks = 32;
  return config;
}

}  // namespace tarn::select
