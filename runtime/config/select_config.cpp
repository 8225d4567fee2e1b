#include "runtime/config/select_config.h"

namespace tarn {

Result<void> select_config_validate(const SelectConfig& config) {
  if (config.code_format == CodeFormat::packed && config.code_bits > kPackedCodeBitsMax) {
    return fail({.status = Status::invalid_config,
                 .hint = "packed codes have 6 bits at most; set select.code_format = \"bytes\"",
                 .detail = Detail("select.code_bits"),
                 .figures = {Figure{"code_bits", config.code_bits}}});
  }
  if (config.method == SelectMethod::quest && config.context_divisor == 0 &&
      config.k < kQuestPageTokens) {
    return fail({.status = Status::invalid_config,
                 .hint = "quest chooses whole pages; select.k_tokens must be a page's at least",
                 .detail = Detail("select.k_tokens"),
                 .figures = {Figure{"k_tokens", config.k}, Figure{"page", kQuestPageTokens}}});
  }
  if (config.method == SelectMethod::pq && config.context_divisor == 0 &&
      config.k < config.block_tokens) {
    return fail({.status = Status::invalid_config,
                 .hint = "blocks are chosen whole; select.k_tokens must be a block's at least",
                 .detail = Detail("select.k_tokens"),
                 .figures = {Figure{"k_tokens", config.k}, Figure{"block", config.block_tokens}}});
  }
  if (config.iterations == 0 && config.cost.update_ps == 0) {
    return fail({.status = Status::invalid_config,
                 .hint = "0 iterations are as many as the box has time for, and nothing says what "
                         "they cost there: tarn calibrate -m MODEL -o FILE measures it, and "
                         "--config FILE takes it",
                 .detail = Detail("select.iterations")});
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
  if (!compares) config.method = SelectMethod::pq;
  config.n_subspaces = is_wide ? 4 : 2;
  config.code_bits = is_wide ? 8 : 6;
  config.parts = KeyParts::contiguous;
  config.context_divisor = 10;
  config.tokens_min = 256;
  config.n_sinks = 32;
  return config;
}

}  // namespace tarn
