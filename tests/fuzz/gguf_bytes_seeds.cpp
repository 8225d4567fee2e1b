// The seeds of gguf_bytes: the hostile corpus, and whole tiny models of every architecture. Only
// what a fuzz input can hold.
#include <fstream>
#include <string>

#include "tests/runtime/model/hostile_corpus.h"
#include "tests/support/tiny_model.h"

namespace {

constexpr tarn::u64 kInputBytesMax = 64 * tarn::kKiB;

void write_seed(const std::string& path, const tarn::test::Bytes& bytes) {
  if (bytes.size() > kInputBytesMax) return;
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  const std::string folder = std::string(argv[1]) + "/";
  tarn::u64 n = 0;
  for (const auto& hostile : tarn::test::hostile_corpus()) {
    write_seed(folder + "hostile_" + std::to_string(n++), hostile.make());
  }
  for (const char* arch : {"llama", "qwen2", "qwen3"}) {
    for (const tarn::u32 type : {0u, 1u, 30u}) {
      const auto image = tarn::test::tiny_model({.arch = arch,
                                                 .n_layers = 1,
                                                 .d_model = 8,
                                                 .d_ff = 8,
                                                 .n_heads = 2,
                                                 .n_kv_heads = 1,
                                                 .n_vocab = 4,
                                                 .type = type,
                                                 .rope_factors = true});
      write_seed(folder + arch + std::to_string(type), image.bytes());
    }
  }
  return 0;
}
