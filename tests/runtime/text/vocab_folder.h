// llama.cpp's vocabularies: ggml-vocab-NAME.gguf, some with texts (.gguf.inp) and their ids
// (.gguf.out). They are large and not ours. TARN_VOCAB_DIR names their folder, or
// tools/compare-peers has unpacked them.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/folders.h"
#include "tests/support/gguf_writer.h"

namespace tarn::text {

inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline test::Bytes file_bytes(const std::filesystem::path& path) {
  const std::string text = file_text(path);
  test::Bytes out(text.size());
  std::memcpy(out.data(), text.data(), text.size());
  return out;
}

// Empty if there is none.
inline std::filesystem::path vocab_folder() {
  namespace fs = std::filesystem;
  if (const char* named = std::getenv("TARN_VOCAB_DIR")) return named;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(test::source_folder() + "/build/peers", none)) {
    const fs::path models = entry.path() / "vendor/llama.cpp/models";
    if (fs::is_directory(models, none)) return models;
  }
  return {};
}

inline std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder,
                                                   const std::string& extension) {
  std::vector<std::filesystem::path> found;
  if (folder.empty()) return found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == extension) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace tarn::text
