// Goal    the whole forward pass computes the model: no further from an f64 evaluation of the same
//         weights than llama.cpp is, in any architecture and tensor type.
// Method  random models of cases.h, some seeds (all: model_slow_test); KL from the f64 reference,
//         held against llama.cpp's, which was measured once (llama_cpp.txt); planted_bugs.py shows
//         that a mistake turns this red.
#include "tests/golden/model/model_check.h"

namespace tarn::golden::model_golden_test {

TEST_CASE("llama is no further from f64 than llama.cpp") {
  for (const auto type : kTypes) check_against_peer("llama", type, kSomeSeeds);
}

TEST_CASE("qwen2 is no further from f64 than llama.cpp") {
  for (const auto type : kTypes) check_against_peer("qwen2", type, kSomeSeeds);
}

TEST_CASE("qwen3 is no further from f64 than llama.cpp") {
  for (const auto type : kTypes) check_against_peer("qwen3", type, kSomeSeeds);
}

}  // namespace tarn::golden::model_golden_test
