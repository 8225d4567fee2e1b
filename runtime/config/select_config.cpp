#include "runtime/config/select_config.h"

namespace tarn {

Result<void> select_config_validate(const SelectConfig& config) {
  if (config.code_format == CodeFormat::packed && config.code_bits > kPackedCodeBitsMax) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .key = "select.code_bits",
                 .hint = "packed codes have 6 bits at most; set select.code_format = \"bytes\"",
                 .detail = Detail("select.code_bits"),
                 .figures = {Figure{"code_bits", config.code_bits}}});
  }
  if (config.method == SelectMethod::quest && config.context_divisor == 0 &&
      config.k < kQuestPageTokens) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .key = "select.k_tokens",
                 .hint = "quest chooses whole pages; select.k_tokens must be at least a page",
                 .detail = Detail("select.k_tokens"),
                 .figures = {Figure{"k_tokens", config.k}, Figure{"page", kQuestPageTokens}}});
  }
  if (config.preset == SelectPreset::compare_pqcache && config.is_full()) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .key = "select.preset",
                 .hint = "compare-pqcache is a budget for the compared methods, and full has none: "
                         "name a method with select.method; on a command line leave the key out "
                         "and give --select compare-pqcache/pq, /oracle, /quest, /window or "
                         "/random (tarn-bench and tarn verify take all five)",
                 .detail = Detail("select.preset")});
  }
  return {};
}

SelectConfig with_preset(SelectConfig config, SelectPreset preset) {
  config.preset = preset;
  if (preset == SelectPreset::none) return config;
  const bool is_wide = preset == SelectPreset::pqcache_infinitebench;
  if (preset != SelectPreset::compare_pqcache) config.method = SelectMethod::pq;
  config.n_subspaces = is_wide ? 4 : 2;
  config.code_bits = is_wide ? 8 : 6;
  config.context_divisor = 10;
  config.tokens_min = 256;
  config.n_sinks = 32;
  return config;
}

}  // namespace tarn
