// Goal    model.sha256 lets a file open that has it, and refuses every other one; the status makes
//         no claim without the key; progress and cancel work meanwhile.
// Method  a small model with its hash, in either case of letters; a byte of each part of the file
//         flipped; progress that refuses.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

#include "platform/cpu/sha256.h"
#include "tests/support/open_engine.h"
#include "tools/support/model_file.h"

namespace tarn::engine::model_sha256_test {
namespace {

using test::SmallModel;

std::string file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string sha256_of(const std::string& bytes) {
  Sha256 hash;
  hash.add(std::as_bytes(std::span(bytes)));
  return hash.finish().data();
}

struct Opened {
  Result<void> result;
  bool verified = false;
  std::string log;
};

Opened open_with(const std::string& path, const std::string& sha256, OpenArgs args = {}) {
  Opened opened;
  SystemReserve reserve;
  SystemClock clock;
  Engine engine;
  args.model_path = path.c_str();
  args.config = test::small_config();
  test::set_text(args.config.model_sha256, sha256);
  args.reserve = &reserve;
  args.clock = &clock;
  const LogFn keep = [](void* context, LogLevel, const char* text) {
    *static_cast<std::string*>(context) += text;
  };
  args.log = Log(keep, &opened.log, LogLevel::error);
  opened.result = engine.open(args);
  opened.verified = engine.status().model_verified;
  engine.close();
  return opened;
}

TEST_CASE("a file with the key's SHA-256 is verified, without the key there is no claim") {
  const SmallModel model("llama", "q8_0");
  std::string digits = sha256_of(file_bytes(model.path()));
  CHECK(open_with(model.path(), digits).verified);
  for (char& c : digits) {
    if (c >= 'a') c = static_cast<char>(c - 32);
  }
  CHECK(open_with(model.path(), digits).verified);
  const Opened unchecked = open_with(model.path(), "");
  CHECK(unchecked.result.has_value());
  CHECK_FALSE(unchecked.verified);
}

TEST_CASE("a flipped bit is refused with both values, in padding too") {
  const SmallModel model("llama", "q8_0");
  const std::string bytes = file_bytes(model.path());
  const std::string wanted = sha256_of(bytes);
  struct Case {
    const char* name;
    u64 offset;
  };
  const u64 data_begin = tools::ModelFile(model.path()).gguf().tensors()[0].offset;
  const Case kCases[] = {{"the padding before the tensors", data_begin - 1},
                         {"the middle", bytes.size() / 2},
                         {"the last byte", bytes.size() - 1}};
  REQUIRE(bytes[data_begin - 1] == 0);
  const test::TempFile other("model_sha256.gguf");
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    std::string damaged = bytes;
    damaged[c.offset] = static_cast<char>(damaged[c.offset] ^ 1);
    std::ofstream(other.path(), std::ios::binary) << damaged;
    const Opened opened = open_with(other.path(), wanted);
    REQUIRE_FALSE(opened.result.has_value());
    CHECK(opened.result.error().status == Status::invalid_model);
    CHECK_FALSE(opened.verified);
    const std::string found = sha256_of(damaged);
    CHECK(std::string(opened.result.error().detail.c_str()) ==
          "file " + found.substr(0, 16) + "..., key " + wanted.substr(0, 16) + "...");
    CHECK(opened.log.find(found) != std::string::npos);
    CHECK(opened.log.find(wanted) != std::string::npos);
  }
}

TEST_CASE("progress is told of the whole file, and cancels") {
  const SmallModel model("llama", "q8_0");
  const std::string bytes = file_bytes(model.path());
  u64 total_bytes = 0;
  OpenArgs args;
  args.progress_context = &total_bytes;
  args.on_progress = [](void* context, u64, u64 total) {
    *static_cast<u64*>(context) = total;
    return false;
  };
  const Opened opened = open_with(model.path(), sha256_of(bytes), args);
  REQUIRE_FALSE(opened.result.has_value());
  CHECK(opened.result.error().status == Status::cancelled);
  CHECK(total_bytes == bytes.size());
}

}  // namespace
}  // namespace tarn::engine::model_sha256_test
