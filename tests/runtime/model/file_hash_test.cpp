// Goal    file_sha256() is the hash of all of a file's bytes, whatever the window and the order of
//         completions; a failed read or a cancel leaves nothing in flight.
// Method  files in memory of sizes around a part, against the hash of their bytes; each read
//         failed, each call of the progress refused; every byte of a small file flipped.
#include "runtime/model/file_hash.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/runtime/model/loaded_model.h"

namespace tarn::model::file_hash_test {
namespace {

constexpr u64 kPart = 2 * kSectorBytes;

struct File {
  std::vector<std::byte> bytes;
  test::MemoryIo io{};
  test::AlignedBytes window{2 * kPart};
  FileHashArgs args{};

  explicit File(u64 n_bytes) : bytes(n_bytes) {
    test::Random random(test::seed_from_environment());
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
    args = {.io = &io, .file = io.add(bytes), .file_bytes = n_bytes, .window = window.span()};
  }
  std::string of_bytes() const {
    Sha256 hash;
    hash.add(bytes);
    return hash.finish().data();
  }
  bool nothing_in_flight() {
    IoCompletion none{};
    return io.reap({&none, 1}, 0, 0) == 0;
  }
};

TEST_CASE("all bytes of a file count, whatever the window") {
  for (const u64 n_bytes : {u64{0}, u64{1}, kSectorBytes, kPart - 1, kPart, kPart + 1, 2 * kPart,
                            2 * kPart + 1, 7 * kPart + 123}) {
    for (const u64 window_bytes : {2 * kSectorBytes, 3 * kSectorBytes, 2 * kPart}) {
      CAPTURE(n_bytes);
      CAPTURE(window_bytes);
      File file(n_bytes);
      file.args.window = file.window.span().first(window_bytes);
      const auto hash = file_sha256(file.args);
      REQUIRE(hash.has_value());
      CHECK(std::string(hash->data()) == file.of_bytes());
      CHECK(file.io.n_reads() == ceil_div(n_bytes, window_bytes / 2 / kSectorBytes * kSectorBytes));
      CHECK(file.nothing_in_flight());
    }
  }
}

TEST_CASE("each byte of a model's file counts, padding included") {
  const test::GgufImage image = test::tiny_model({.n_layers = 1, .n_vocab = 1});
  test::LoadedModel loaded(image);
  const auto hash_now = [&] {
    return std::string(file_sha256({.io = &loaded.io,
                                    .file = loaded.handle,
                                    .file_bytes = loaded.bytes.size(),
                                    .window = loaded.staging.span().first(2 * kPart)})
                           ->data());
  };
  const std::string whole = hash_now();
  u64 n_unseen = 0;
  for (u64 i = 0; i < loaded.bytes.size(); i += 1 + loaded.bytes.size() / 2000) {
    loaded.bytes[i] ^= std::byte{1};
    n_unseen += hash_now() == whole ? 1u : 0u;
    loaded.bytes[i] ^= std::byte{1};
  }
  CHECK(n_unseen == 0);
  CHECK(hash_now() == whole);
}

TEST_CASE("a failed read, a shorter file and a cancel end it, with nothing in flight") {
  constexpr u64 kReads = 5;
  for (u64 i = 0; i < kReads; ++i) {
    CAPTURE(i);
    File failing(kReads * kPart - 7);
    failing.io.script.fail_at_read = i;
    CHECK(file_sha256(failing.args).error().status == Status::io_failed);
    CHECK(failing.nothing_in_flight());

    File shrinking(kReads * kPart - 7);
    shrinking.io.script.shrink_at_read = i;
    shrinking.io.script.shrink_to_bytes = i * kPart + 1;
    CHECK(file_sha256(shrinking.args).error().status == Status::io_failed);
    CHECK(shrinking.nothing_in_flight());

    File cancelled(kReads * kPart - 7);
    struct Calls {
      u64 left, done_bytes, total_bytes;
    } calls{i, 0, 0};
    cancelled.args.progress_context = &calls;
    cancelled.args.on_progress = [](void* context, u64 done_bytes, u64 total_bytes) {
      auto& c = *static_cast<Calls*>(context);
      CHECK(done_bytes > c.done_bytes);
      c.done_bytes = done_bytes;
      c.total_bytes = total_bytes;
      return c.left-- > 0;
    };
    CHECK(file_sha256(cancelled.args).error().status == Status::cancelled);
    CHECK(cancelled.nothing_in_flight());
    CHECK(calls.total_bytes == kReads * kPart - 7);
  }
}

}  // namespace
}  // namespace tarn::model::file_hash_test
