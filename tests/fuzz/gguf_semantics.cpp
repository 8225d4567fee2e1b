// Fuzz target: a valid model file whose values were changed. The input is a list of changes to a
// tiny model: keys get other values or other types, tensors other names, shapes, types and places.
// So the checks behind the format are reached in every run.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "runtime/model/gguf.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/gguf_model.h"
#include "tests/support/tiny_model.h"

namespace tarn::test {
namespace {

constexpr u64 kFileBytesMax = 64 * kKiB;
constexpr u32 kChangesMax = 32;

const GgufImage& base(u32 choice) {
  static const std::vector<GgufImage> images = [] {
    std::vector<GgufImage> out;
    for (const char* arch : {"llama", "qwen2", "qwen3"}) {
      TinyModelArgs args{.arch = arch,
                         .n_layers = 2,
                         .d_model = 16,
                         .d_ff = 24,
                         .n_heads = 2,
                         .n_kv_heads = 1,
                         .n_vocab = 5};
      out.push_back(tiny_model(args));
      args = {.arch = arch,
              .n_layers = 1,
              .d_model = 32,
              .d_ff = 32,
              .n_heads = 4,
              .n_kv_heads = 2,
              .n_vocab = 17,
              .type = 8,
              .vector_type = 1,
              .tied = true,
              .rope_factors = true};
      out.push_back(tiny_model(args));
    }
    return out;
  }();
  return images[choice % images.size()];
}

// Keys that the description reads and a tiny model lacks.
constexpr std::array kOtherKeys = {
    ".rope.scaling.type", ".rope.scaling.factor", ".rope.scale_linear", ".vocab_size",
    ".expert_count",      ".attention.causal",    ".logit_scale",       ".attention.sliding_window",
    "general.alignment",  "general.type",         "split.count",        ".rope.scaling.attn_factor",
};

// Small numbers, the borders of the integer types, or anything.
u64 pick_number(FuzzInput& input) {
  switch (input.below(4)) {
    case 0:
      return input.number<u8>();
    case 1:
      return u64{1} << input.below(64);
    case 2:
      return (u64{1} << input.below(64)) + input.number<u8>() - 128;
    default:
      return input.number<u64>();
  }
}

void change_key(GgufImage& image, FuzzInput& input) {
  const u64 n_known = image.keys.size();
  const u64 pick = input.below(static_cast<u32>(n_known + kOtherKeys.size()));
  std::string name;
  if (pick < n_known) {
    name = image.keys[pick].name;
  } else {
    const std::string suffix = kOtherKeys[pick - n_known];
    static constexpr const char* kArchs[] = {"llama", "qwen2", "qwen3"};
    name = suffix[0] == '.' ? kArchs[input.below(3)] + suffix : suffix;
  }
  switch (input.below(10)) {
    case 0:
      image.set_u32(name, static_cast<u32>(pick_number(input)));
      break;
    case 1:
      image.set_u64(name, pick_number(input));
      break;
    case 2:
      image.set_i32(name, input.number<i32>());
      break;
    case 3:
      image.set_f32(name, input.number<f32>());
      break;
    case 4:
      image.set_f64(name, input.number<f64>());
      break;
    case 5:
      image.set_bool(name, input.below(2) != 0);
      break;
    case 6: {
      static constexpr const char* kTexts[] = {"llama", "qwen2", "qwen3", "linear", "none", "yarn"};
      const u32 text = input.below(7);
      image.set_string(name, text < 6 ? std::string_view(kTexts[text]) : input.text(20));
      break;
    }
    case 7: {
      std::vector<u32> values(input.below(4));
      for (u32& value : values) value = static_cast<u32>(pick_number(input));
      image.set_u32s(name, values);
      break;
    }
    case 8: {
      const u32 element = input.below(13);
      const u64 count = pick_number(input);
      const auto bytes = input.take(input.below(64));
      image.set_array(name, element, count, std::as_bytes(bytes));
      break;
    }
    default:
      image.erase_key(name);
  }
}

void change_tensor(GgufImage& image, FuzzInput& input) {
  if (image.tensors.empty()) return;
  const u64 idx = input.below(static_cast<u32>(image.tensors.size()));
  GgufTensorEntry& tensor = image.tensors[idx];
  switch (input.below(8)) {
    case 0:
      tensor.dims[input.below(static_cast<u32>(tensor.dims.size()))] = pick_number(input);
      break;
    case 1:
      tensor.dims.resize(1 + input.below(4), 1);
      break;
    case 2:
      tensor.type = input.below(45);
      break;
    case 3:
      tensor.offset = pick_number(input);
      break;
    case 4:
      tensor.data.resize(pick_number(input) % 4096);
      break;
    case 5:
      tensor.name = image.tensors[input.below(static_cast<u32>(image.tensors.size()))].name;
      break;
    case 6:
      image.tensors.erase(image.tensors.begin() + static_cast<std::ptrdiff_t>(idx));
      break;
    default: {
      const auto bytes = input.take(8);  // values: NaN, infinities, zeros where numbers were
      std::copy_n(std::as_bytes(bytes).begin(), std::min(bytes.size(), tensor.data.size()),
                  tensor.data.begin());
    }
  }
}

}  // namespace
}  // namespace tarn::test

extern "C" int LLVMFuzzerTestOneInput(const tarn::u8* data, size_t n_bytes) {
  using namespace tarn;
  test::FuzzInput input(data, n_bytes);
  test::GgufImage image = test::base(input.number<u8>());
  for (u32 i = 0; i < test::kChangesMax && !input.empty(); ++i) {
    if (input.below(2) == 0) {
      test::change_key(image, input);
    } else {
      test::change_tensor(image, input);
    }
  }
  const test::Bytes bytes = image.bytes();
  if (bytes.size() <= test::kFileBytesMax) test::use_gguf_file(bytes);
  return 0;
}
