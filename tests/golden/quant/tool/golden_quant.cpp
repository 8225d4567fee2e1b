// Our values of blocks, for compare_peer.py.
//
//   golden_quant list         NAME GGUF-ID BLOCK-ELEMS BLOCK-BYTES of every quantised type
//   golden_quant TYPE         reads whole blocks from standard input, writes f32 values
#include <cstdio>
#include <string_view>
#include <vector>

#include "kernels/quant/dequant.h"

namespace tarn::golden {
namespace {

constexpr u64 kBlocks = 4096;  // at a time

int list_types() {
  for (const auto& traits : kernels::kTypeTraits) {
    if (traits.block_elems == 1) continue;
    std::printf("%s %u %u %u\n", traits.name, static_cast<u32>(traits.type), traits.block_elems,
                traits.block_bytes);
  }
  return 0;
}

int dequantize(const kernels::TypeTraits& traits) {
  std::vector<u8> blocks(kBlocks * traits.block_bytes);
  std::vector<f32> values(kBlocks * traits.block_elems);
  while (const u64 n = std::fread(blocks.data(), traits.block_bytes, kBlocks, stdin)) {
    const u64 n_values = n * traits.block_elems;
    kernels::dequantize_row(traits.type, blocks.data(), n_values, values.data());
    if (std::fwrite(values.data(), sizeof(f32), n_values, stdout) != n_values) return 74;
  }
  return 0;
}

int run(int argc, char** argv) {
  const std::string_view word = argc == 2 ? argv[1] : "";
  if (word == "list") return list_types();
  for (const auto& traits : kernels::kTypeTraits) {
    if (traits.block_elems > 1 && word == traits.name) return dequantize(traits);
  }
  std::fputs("golden_quant list | TYPE\n", stderr);
  return 64;
}

}  // namespace
}  // namespace tarn::golden

int main(int argc, char** argv) { return tarn::golden::run(argc, argv); }
