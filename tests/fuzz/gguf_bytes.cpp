// Fuzz target: any bytes as a model file.
#include "tests/fuzz/gguf_model.h"

extern "C" int LLVMFuzzerTestOneInput(const tarn::u8* data, size_t n_bytes) {
  tarn::test::use_gguf_file(std::as_bytes(std::span(data, n_bytes)));
  return 0;
}
