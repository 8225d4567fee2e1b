#include "tools/tarn/context.h"

#include <algorithm>
#include <cstdio>

#include "runtime/config/config.h"
#include "tools/support/model_file.h"

namespace tarn::tools {

u64 context_for(const std::string& model, u64 n_prompt, u64 n_answer) {
  ModelFile file(model);
  const u64 n_trained = file.description().spec.n_ctx_train;
  return std::min(n_prompt + n_answer, n_prompt < n_trained ? n_trained : kContextTokensMax);
}

void warn_beyond_training(const std::string& model, u64 context_tokens) {
  if (context_tokens == 0) return;  // the model's own
  ModelFile file(model);
  const u64 n_trained = file.description().spec.n_ctx_train;
  if (context_tokens <= n_trained) return;
  std::fprintf(stderr,
               "tarn warning: the context is %llu tokens, but the model was trained for %llu: its "
               "answers beyond that may make no sense\n",
               static_cast<unsigned long long>(context_tokens),
               static_cast<unsigned long long>(n_trained));
}

}  // namespace tarn::tools
