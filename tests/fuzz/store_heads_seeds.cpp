// The seeds of store_heads: inputs whose frames hold what a start meets, alone and all together:
// whole records of each length, raw bytes, and each field wrong.
#include <fstream>
#include <string>
#include <vector>

#include "platform/base/types.h"

namespace {

struct Input {
  std::vector<char> bytes;
  template <class T>
  Input& put(T value) {
    const char* first = reinterpret_cast<const char*>(&value);
    bytes.insert(bytes.end(), first, first + sizeof value);
    return *this;
  }
  // A frame with a head: what is wrong, kind, generation, payload, key, tokens.
  Input& head(tarn::u8 wrong, tarn::u8 generation, tarn::u16 payload, tarn::u8 tokens) {
    put(tarn::u32{1}).put(wrong).put(tarn::u32{1}).put(generation);
    put(tarn::u32{1}).put(payload).put(tarn::u32{generation % 8u});
    put(tarn::u32{0}).put(tokens);
    return put(tarn::u32{0});  // no words
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  std::vector<Input> inputs;
  inputs.push_back(Input{}.put(tarn::u32{0}).head(0, 3, 6000, 0));
  for (tarn::u32 bit = 0; bit < 8; ++bit) {
    const auto wrong = static_cast<tarn::u8>(1u << bit);
    inputs.push_back(Input{}.put(tarn::u32{0}).head(wrong, 3, 6000, 0));
  }
  Input all;
  all.put(tarn::u32{1});
  for (tarn::u8 i = 0; i < 8; ++i) {
    all.head(0, static_cast<tarn::u8>(9 - i), static_cast<tarn::u16>(i * 9000u), 0);
    all.put(tarn::u32{2});
  }
  inputs.push_back(all);
  inputs.push_back(
      Input{}.put(tarn::u32{0}).put(tarn::u32{0}).put(tarn::u32{100}).put(~tarn::u64{}));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::ofstream out(std::string(argv[1]) + "/heads" + std::to_string(i), std::ios::binary);
    out.write(inputs[i].bytes.data(), static_cast<std::streamsize>(inputs[i].bytes.size()));
  }
  return 0;
}
