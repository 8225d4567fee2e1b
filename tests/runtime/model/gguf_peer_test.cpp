// Goal    another program's GGUF files are read as that program reads them.
// Method  a file written by the gguf package and its reader's dump of it (tests/golden/gguf, remade
//         by make_golden.py); with TARN_GGUF_PEER_FOLDER every *.gguf of that folder that has its
//         .txt.
#include <doctest/doctest.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/model/gguf.h"
#include "tests/support/folders.h"
#include "tests/support/memory_io.h"

namespace tarn::model::gguf_peer_test {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

u64 fnv(const void* data, u64 n_bytes, u64 state = 0xCBF29CE484222325) {
  for (u64 i = 0; i < n_bytes; ++i) {
    state = (state ^ static_cast<const u8*>(data)[i]) * 0x100000001B3;
  }
  return state;
}

std::string hex(u64 value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string array_text(const GgufFile& file, const GgufKey& key) {
  if (key.count == 0) return "array 0";
  u64 sum = fnv(nullptr, 0);
  bool read = true;
  if (key.element == GgufType::string) {
    read = file.each_string(
                   key,
                   [](void* context, u64, std::string_view text) -> Result<void> {
                     auto* state = static_cast<u64*>(context);
                     const u64 n_bytes = text.size();
                     *state = fnv(text.data(), n_bytes, fnv(&n_bytes, sizeof n_bytes, *state));
                     return {};
                   },
                   &sum)
               .has_value();
  } else if (key.element == GgufType::f32 || key.element == GgufType::f64) {
    std::vector<f32> values(key.count);
    read = file.read_f32(key, values).has_value();
    sum = fnv(values.data(), values.size() * sizeof(f32));
  } else if (key.element != GgufType::boolean) {
    std::vector<i32> values(key.count);
    read = file.read_i32(key, values).has_value();
    sum = fnv(values.data(), values.size() * sizeof(i32));
  }
  return read ? "array " + std::to_string(key.count) + " " + hex(sum) : "unreadable array";
}

std::string value_text(const GgufFile& file, const GgufKey& key, Bump& memory) {
  static constexpr const char* kNames[] = {"u8", "i8", "u16", "i16", "u32", "i32", "",
                                           "",   "",   "",    "u64", "i64", ""};
  if (key.type == GgufType::array) return array_text(file, key);
  if (key.type == GgufType::string) {
    const u64 mark = memory.used_bytes();
    const auto text = file.get_string(key.name, memory, key.bytes);
    memory.rewind(mark);
    if (!text) return "unreadable string";
    return "string " + std::to_string((*text)->size()) + " " +
           hex(fnv((*text)->data(), (*text)->size()));
  }
  if (key.type == GgufType::boolean) {
    return std::string("bool ") + (**file.get_bool(key.name) ? "1" : "0");
  }
  if (key.type == GgufType::f32 || key.type == GgufType::f64) {
    return "float " + hex(std::bit_cast<u64>(**file.get_f64(key.name)));
  }
  const std::string prefix = std::string(kNames[static_cast<u32>(key.type)]) + " ";
  const auto value = file.get_u64(key.name);
  if (value) return prefix + std::to_string(**value);
  // Negative, as the accessor says: what is stored, extended by its sign.
  const u32 unused_bits = 64 - 8 * static_cast<u32>(key.bytes);
  return prefix + std::to_string(static_cast<i64>(key.bits << unused_bits) >> unused_bits);
}

std::string dump(const std::filesystem::path& path) {
  const std::string bytes = read_text(path);
  test::MemoryIo io;
  std::vector<std::byte> memory(kGgufMemoryBytesMax + kMiB + 1);
  Bump bump{memory};
  const auto file = GgufFile::read(io, io.add(std::as_bytes(std::span(bytes))), bump);
  if (!file) return std::string("refused: ") + file.error().hint;
  std::ostringstream out;
  out << "alignment " << file->alignment() << "\n";
  for (const GgufKey& key : file->keys()) {
    out << "key " << key.name << " " << value_text(*file, key, bump) << "\n";
  }
  for (const GgufTensor& tensor : file->tensors()) {
    out << "tensor " << tensor.name << " " << tensor.type_id << " [";
    for (u32 i = 0; i < tensor.n_dims; ++i) out << (i > 0 ? " " : "") << tensor.dims[i];
    out << "] " << tensor.offset << " " << tensor.bytes << " "
        << hex(fnv(bytes.data() + tensor.offset, tensor.bytes)) << "\n";
  }
  return out.str();
}

TEST_CASE("a file of the gguf package is read as its own reader reads it") {
  std::vector<std::filesystem::path> folders = {std::filesystem::path(test::source_folder()) /
                                                "tests/golden/gguf"};
  if (const char* more = std::getenv("TARN_GGUF_PEER_FOLDER")) folders.push_back(more);
  for (const std::filesystem::path& folder : folders) {
    CAPTURE(folder.string());
    u64 n = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::filesystem::path path = entry.path();
      if (path.extension() != ".gguf") continue;
      CAPTURE(path.string());
      std::filesystem::path text = path;
      const std::string want = read_text(text.replace_extension(".txt"));
      CHECK(want.size() > 100);
      CHECK(dump(path) == want);
      ++n;
    }
    CHECK(n > 0);
    MESSAGE(n << " files compared");
  }
}

}  // namespace
}  // namespace tarn::model::gguf_peer_test
