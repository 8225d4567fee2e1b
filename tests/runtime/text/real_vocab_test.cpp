// Goal    on real vocabularies, ids, ends of generation and pieces are llama.cpp's; the planned
//         memory is enough and not much more; building is fast; what was encoded reads as it was
//         written.
// Method  llama.cpp's vocabularies (vocab_folder.h); compares with the answers in TARN_TEXT_CASES,
//         which tests/golden/tokenizer/compare_peer.py writes.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "platform/clock/clock.h"
#include "runtime/text/tables.h"
#include "tests/runtime/text/vocab_folder.h"
#include "tests/runtime/text/vocabs.h"
#include "tests/support/skip.h"

namespace tarn::text::real_vocab_test {
namespace {

namespace fs = std::filesystem;

// The answers' file, as peer_ids.cpp describes it.
class Answers {
 public:
  explicit Answers(test::Bytes bytes) : bytes_(std::move(bytes)) {}
  u32 number() {
    u32 value = 0;
    std::memcpy(&value, &bytes_.at(at_ + 3) - 3, sizeof value);
    at_ += sizeof value;
    return value;
  }
  bool flag() { return bytes_.at(at_++) != std::byte{0}; }
  std::string text() {
    const u32 n_bytes = number();
    const std::string out(reinterpret_cast<const char*>(bytes_.data()) + at_, n_bytes);
    at_ += n_bytes;
    return out;
  }
  Ids ids(u32 n) {
    Ids out(n);
    for (TokenId& id : out) id = number();
    return out;
  }

 private:
  test::Bytes bytes_;
  u64 at_ = 0;
};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 60)) {
    char hex[8];
    std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned>(static_cast<u8>(c)));
    out += c >= 0x20 && c < 0x7F ? std::string(1, c) : hex;
  }
  return out;
}

void compare_texts(const Tokenizer& tokenizer, Answers& answers) {
  constexpr u32 kThrew = ~u32{0};
  const u32 n = answers.number();
  u32 n_different = 0, n_threw = 0;
  for (u32 i = 0; i < n; ++i) {
    const u32 flags = answers.number();
    const std::string text = answers.text();
    const u32 n_ids = answers.number();
    if (n_ids == kThrew) {
      n_threw += 1;
      continue;
    }
    const Ids want = answers.ids(n_ids);
    const auto got = encode(tokenizer, text,
                            {.add_special = (flags & 1) != 0, .parse_special = (flags & 2) != 0});
    if (got && *got == want) continue;
    n_different += 1;
    if (n_different > 10) continue;
    MESSAGE("flags " << flags << " text of " << text.size() << " bytes: " << escaped(text) << " -> "
                     << hint_of(got) << ", " << (got ? got->size() : 0) << " ids, want " << n_ids);
  }
  MESSAGE(n << " requests, " << n_threw << " that llama.cpp could not answer");
  CHECK(n > 0);
  CHECK(n_different == 0);
}

void compare_tokens(const Tokenizer& tokenizer, Answers& answers) {
  REQUIRE(answers.number() == tokenizer.n_vocab());
  u32 n_different = 0;
  for (TokenId id = 0; id < tokenizer.n_vocab(); ++id) {
    const bool ends = answers.flag();
    const bool control = answers.flag();
    const std::string piece = answers.text();
    const bool same = ends == tokenizer.is_end(id) &&
                      control == (tokenizer.tables().kind_of(id) == TokenKind::control) &&
                      piece == pieces(tokenizer, {id}, true);
    if (same) continue;
    n_different += 1;
    if (n_different < 10) MESSAGE("token " << id << " " << tokenizer.tables().texts.at(id));
  }
  CHECK(n_different == 0);
}

TEST_CASE("ids, ends and pieces are llama.cpp's on real vocabularies") {
  const char* folder = std::getenv("TARN_TEXT_CASES");
  const auto cases = files_in(folder == nullptr ? "" : folder, ".cases");
  const fs::path vocabs = vocab_folder();
  if (cases.empty() || vocabs.empty()) TARN_SKIP("TARN_TEXT_CASES and TARN_VOCAB_DIR not set");
  for (const fs::path& path : cases) {
    CAPTURE(path.stem().string());
    MESSAGE(path.stem().string());
    const fs::path vocab = vocabs / ("ggml-vocab-" + path.stem().string() + ".gguf");
    const VocabFile built(file_bytes(vocab));
    REQUIRE(hint_of(built.tokenizer) == "no error");
    Answers answers(file_bytes(path));
    compare_texts(*built.tokenizer, answers);
    compare_tokens(*built.tokenizer, answers);
  }
}

TEST_CASE("real vocabularies fit the planned memory tightly and are built fast") {
  const auto vocabs = files_in(vocab_folder(), ".gguf");
  if (vocabs.empty()) TARN_SKIP("no vocabularies of llama.cpp");
  u32 n_built = 0;
  for (const fs::path& path : vocabs) {
    CAPTURE(path.filename().string());
    VocabFile built(file_bytes(path));
    if (!built.tokenizer) {
      CHECK(built.tokenizer.error().status == Status::unsupported);
      continue;
    }
    n_built += 1;
    SystemClock clock;
    const u64 begin_ns = clock.now_ns();
    REQUIRE(Tokenizer::build(built.file, built.region).has_value());
    const u64 took_us = (clock.now_ns() - begin_ns) / 1000;
    MESSAGE(path.filename().string() << ": " << built.tokenizer->n_vocab() << " tokens, "
                                     << built.region.size() << " bytes, " << took_us << " us");
    CHECK(built.region.size() < 26'000'000);  // Gemma 4's 262,144 tokens and 514,906 merges
    // Texts, starts, kinds, tables: nothing that is not there. One byte less is refused.
    CHECK_FALSE(Tokenizer::build(built.file, std::span(built.region).first(built.region.size() - 1))
                    .has_value());
    for (const char* text :
         {"Hello world", "  a  b\n\n c", "naïve 中文 👩🏿‍🚀 1234567", "x"}) {
      const auto ids = encode(*built.tokenizer, text);
      REQUIRE(ids.has_value());
      CHECK(shown(*built.tokenizer, *ids) == text);
    }
  }
  CHECK(n_built >= 4);
}

}  // namespace
}  // namespace tarn::text::real_vocab_test
