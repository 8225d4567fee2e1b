// Tokenizers for tests: built from GGUF bytes in regions of exactly the planned size, and called
// with buffers of exactly the promised sizes, so that a sanitizer sees every byte too many.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/model/gguf.h"
#include "runtime/text/tables.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/memory_io.h"

namespace tarn::text {

using Ids = std::vector<TokenId>;

// A file in memory, its directory, its tokenizer. Neither copied nor moved: the parts point at each
// other.
class VocabFile {
 public:
  explicit VocabFile(test::Bytes bytes) : bytes_(std::move(bytes)) {
    io_.script.direct = false;
    auto read = model::GgufFile::read(io_, io_.add(bytes_), bump_);
    if (!read) {
      tokenizer = fail(read.error());
      return;
    }
    file = *read;
    const auto region_bytes = Tokenizer::memory_bytes(file);
    if (!region_bytes) {
      tokenizer = fail(region_bytes.error());
      return;
    }
    region = std::vector<std::byte>(*region_bytes);
    tokenizer = Tokenizer::build(file, region);
  }
  explicit VocabFile(const test::GgufImage& image) : VocabFile(image.bytes()) {}
  VocabFile(const VocabFile&) = delete;
  VocabFile& operator=(const VocabFile&) = delete;

  model::GgufFile file{};
  std::vector<std::byte> region{};
  Result<Tokenizer> tokenizer = fail({});

 private:
  test::Bytes bytes_;
  test::MemoryIo io_;
  std::vector<std::byte> directory_ = std::vector<std::byte>(model::kGgufMemoryBytesMax);
  Bump bump_{directory_};
};

inline Result<Ids> encode(const Tokenizer& tokenizer, std::string_view text,
                          EncodeOptions options = {}) {
  std::vector<std::byte> scratch(Tokenizer::encode_scratch_bytes(text.size()));
  Ids ids(Tokenizer::encode_ids_max(text.size()));
  auto n = tokenizer.encode(text, options, scratch, ids);
  if (!n) return fail(n.error());
  ids.resize(*n);
  return ids;
}

// The bytes of all pieces, one behind the other.
inline std::string pieces(const Tokenizer& tokenizer, const Ids& ids, bool special = false) {
  std::string text;
  std::vector<char> piece(tokenizer.piece_bytes_max());
  for (const TokenId id : ids) text.append(piece.data(), tokenizer.piece(id, special, piece));
  return text;
}

// What a reader sees: the tokens one by one through a Detokenizer, without the space that the
// encoder put before the text.
inline std::string shown(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  Detokenizer detokenizer(tokenizer);
  std::vector<char> out(3 * (tokenizer.piece_bytes_max() + 4));
  for (const TokenId id : ids) text.append(out.data(), detokenizer.push(id, out));
  text.append(out.data(), detokenizer.finish(out));
  return tokenizer.tables().adds_space_prefix && text.starts_with(' ') ? text.substr(1) : text;
}

template <class T>
std::string hint_of(const Result<T>& result) {
  return result ? "no error" : result.error().hint;
}

}  // namespace tarn::text
