// Goal    the whole forward pass computes the model: no further from an f64 evaluation of the same
//         weights than llama.cpp is, in any architecture and tensor type.
// Method  random models of cases.h, some seeds (all: model_slow_test); KL from the f64 reference,
//         held against llama.cpp's, which was measured once (llama_cpp.txt); planted_bugs.py of
//         tests/ shows that a mistake turns this red. Some types are tried in one architecture
//         each, for time: types differ in their products alone, which tests/kernels compares.
#include <initializer_list>

#include "tests/golden/model/model_check.h"

namespace tarn::golden::model_golden_test {

namespace {

void check_types(std::string_view arch, std::initializer_list<std::string_view> more) {
  for (const auto type : {"f32", "f16", "q8_0", "q4_0", "q5_0", "q4_k", "q5_k", "q6_k"}) {
    check_against_peer(arch, type, kSomeSeeds);
  }
  for (const auto type : more) check_against_peer(arch, type, kSomeSeeds);
}

}  // namespace

TEST_CASE("llama is no further from f64 than llama.cpp") {
  check_types("llama", {"q4_1", "q2_k", "mxfp4"});
}

TEST_CASE("qwen2 is no further from f64 than llama.cpp") {
  check_types("qwen2", {"q5_1", "iq4_nl"});
}

TEST_CASE("qwen3 is no further from f64 than llama.cpp") {
  check_types("qwen3", {"q3_k", "iq4_xs"});
}

}  // namespace tarn::golden::model_golden_test
