// Goal    a synthetic model's output is neither flat nor frozen: every comparison of logits that is
//         made on one means something. And the oracle itself computes what the file says.
// Method  the f64 reference on tiny models of each architecture, own and tied output: mean entropy
//         within 0.2..0.7 of ln V; no token predicts itself.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/support/logits.h"
#include "tests/support/reference_model.h"
#include "tests/support/seed.h"
#include "tests/support/temp_file.h"
#include "tools/synth/synth.h"

namespace tarn::synth::entropy_test {
namespace {

TEST_CASE("the output's mean entropy is 0.2 to 0.7 of ln V in every architecture") {
  for (const Arch arch : {Arch::llama, Arch::qwen2, Arch::qwen3}) {
    for (const Output output : {Output::own, Output::tied}) {
      for (const char* quant : {"f32", "q8_0", "q4_0", "q5_0", "q4_k_m", "q5_k"}) {
        CAPTURE(static_cast<u32>(arch));
        CAPTURE(static_cast<u32>(output));
        CAPTURE(quant);
        const SynthShape shape{.arch = arch, .n_layers = 3, .n_vocab = 4096, .output = output};
        const test::TempFile file("entropy.gguf");
        const auto report = synth_write(shape, *parse_quant(quant), 3, file.path());
        const test::ReferenceModel model(file.path());
        test::Random random(test::seed_from_environment());
        CAPTURE(random.seed());
        std::vector<u32> ids(24);
        for (u32& id : ids) id = static_cast<u32>(random.below(shape.n_vocab));
        const auto logits = model.logits(ids);
        const f64 share = test::mean_entropy(logits, shape.n_vocab) / report.ln_vocab;
        CHECK(share > 0.2);
        CHECK(share < 0.7);
        u32 n_self = 0;
        for (u64 t = 0; t < ids.size(); ++t) {
          const auto row = std::span(logits).subspan(t * shape.n_vocab, shape.n_vocab);
          n_self += std::ranges::max_element(row) - row.begin() == static_cast<i64>(ids[t]);
        }
        CHECK(n_self <= 2);
      }
    }
  }
}

}  // namespace
}  // namespace tarn::synth::entropy_test
