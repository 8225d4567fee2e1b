// Goal    a check of a store reads every byte: whatever is damaged is found once, whether records
//         pass through the buffers whole or in pieces; without `removes` the disk stays as it is,
//         with it the next look finds no damage; a record that somebody holds stays.
// Method  a store over a real file, of which one byte of each sector is flipped in turn.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/copy_bench.h"
#include "tests/support/folders.h"
#include "tools/support/input.h"

namespace tarn::reuse::check_test {
namespace {

using test::CopyBench;
using test::TestRecord;

constexpr u32 kFrames = 40;

struct Opened {
  explicit Opened(const char* path)
      : io({.kind = test::io_kinds_here().front()}), bench(*io, clock, path, kFrames) {}
  test::OwnedIo io;
  SystemClock clock;
  CopyBench bench;
};

// One store's file with two sessions; the manifest of one takes several pieces.
struct Checked {
  Checked() {
    Opened made(file.path());
    made.bench.save({"book", 49});
    made.bench.save({"many tokens", 2500, 900, ~u32{0}, 1});
  }
  void flip(u64 at) const {
    const int fd = open(file.path(), O_RDWR | O_CLOEXEC);
    REQUIRE(fd >= 0);
    char byte = 0;
    REQUIRE(pread(fd, &byte, 1, static_cast<off_t>(at)) == 1);
    byte = static_cast<char>(byte ^ 4);
    REQUIRE(pwrite(fd, &byte, 1, static_cast<off_t>(at)) == 1);
    close(fd);
  }
  const test::ScratchFile file{"check_store"};
};

// The bytes of the store's file at which records begin, and how many bytes each has.
std::vector<std::pair<u64, u64>> places_of(CopyBench& bench) {
  std::vector<std::pair<u64, u64>> places;
  each_record(bench.store(), [&](store::RecordRef ref, const store::IndexEntry& entry) {
    const store::RecordShape shape{entry.payload_bytes, entry.n_tokens};
    places.push_back(
        {store::kFramesBegin + ref.frame_idx * CopyBench::kFrameBytes, shape.record_bytes()});
  });
  return places;
}

CheckDone check(CopyBench& bench, const CheckArgs& args = {}) {
  const auto done = bench.copy().check(args);
  REQUIRE(done.has_value());
  CHECK(bench.holds_nothing());
  return *done;
}

TEST_CASE("a flipped byte of any sector is found once, and removed when asked") {
  const Checked store;
  std::vector<std::pair<u64, u64>> places;
  u64 n_bytes = 0;
  {
    Opened clean(store.file.path());
    places = places_of(clean.bench);
    const CheckDone done = check(clean.bench);
    CHECK(done.n_records == places.size());
    CHECK(done.n_damaged == 0);
    for (const auto& [at, n] : places) n_bytes += n;
    CHECK(done.n_bytes >= n_bytes);
  }
  const std::string whole = tools::read_file(store.file.path());
  u32 n_heads = 0, n_pieces = 0;
  for (const auto& [begin, n] : places) {
    for (u64 at = begin; at < begin + n; at += kSectorBytes) {
      CAPTURE(at);
      store.flip(at + 77);
      for (const bool removes : {false, true}) {
        Opened damaged(store.file.path());
        std::vector<Damage> seen;
        const CheckDone done =
            check(damaged.bench, {.removes = removes,
                                  .on_damage =
                                      [](void* all, const Damage& damage) {
                                        static_cast<std::vector<Damage>*>(all)->push_back(damage);
                                      },
                                  .context = &seen});
        // Without its head a record is not found at all.
        const bool is_head = at == begin;
        n_heads += is_head;
        n_pieces += !is_head;
        CHECK(damaged.bench.store().stats().n_damaged_at_start == is_head);
        CHECK(done.n_damaged == !is_head);
        CHECK(seen.size() == done.n_damaged);
        CHECK(done.n_removed == (removes && !is_head));
      }
      const u32 n_left = Opened(store.file.path()).bench.n_records();
      CHECK(n_left == places.size() - 1);
      tools::write_file(store.file.path(), whole.data(), whole.size());
    }
  }
  CHECK(n_heads == 2 * places.size());
  CHECK(n_pieces > n_heads);
}

TEST_CASE("a group with other tokens than its session's is damage") {
  const Checked store;
  Opened opened(store.file.path());
  std::optional<store::RecordRef> group;
  store::Key key;
  each_record(opened.bench.store(), [&](store::RecordRef ref, const store::IndexEntry& entry) {
    if (group || entry.kind != store::Kind::group || entry.n_tokens != CopyBench::kPage) return;
    group = ref;
    key = entry.key;
  });
  REQUIRE(group.has_value());
  TestRecord other = test::record_of(5, {.payload_bytes = kSectorBytes});
  other.key = key;
  REQUIRE(opened.bench.bench().put(other, store::PutArgs::If::replace));
  CHECK(check(opened.bench).n_damaged == 1);
  const CheckDone done = check(opened.bench, {.removes = true});
  CHECK(done.n_removed == 1);
  CHECK(check(opened.bench).n_damaged == 0);
}

TEST_CASE("a damaged record that an open session holds stays until it is let go") {
  const Checked store;
  u64 at = 0;
  {
    Opened clean(store.file.path());
    at = places_of(clean.bench)[0].first;
  }
  store.flip(at + kSectorBytes);
  Opened opened(store.file.path());
  const store::RecordRef held{0, opened.bench.store().index().frame(0).generation};
  opened.bench.store().pin(held);
  const auto done = opened.bench.copy().check({.removes = true});
  REQUIRE(done.has_value());
  CHECK(done->n_damaged == 1);
  CHECK(done->n_removed == 0);
  opened.bench.store().unpin(held);
  CHECK(check(opened.bench).n_damaged == 0);  // nobody finds it any more
}

TEST_CASE("heads that are damaged go at the next start, if the opening is told to") {
  const Checked store;
  store.flip(store::kFramesBegin + 100);
  test::OwnedIo io({.kind = test::io_kinds_here().front()});
  SystemClock clock;
  store::StoreLimits limits{.file_bytes = store::kFramesBegin + kFrames * CopyBench::kFrameBytes,
                            .frame_bytes = CopyBench::kFrameBytes,
                            .head_bytes_max = 4 * kSectorBytes,
                            .ops_max = 8};
  for (const auto& [clears, n_damaged] : {std::pair{false, 1u}, {true, 1u}, {false, 0u}}) {
    limits.clears_damage = clears;
    test::StoreHarness bench(*io, clock, store.file.path(), limits);
    REQUIRE(bench.open() == store::Mode::on);
    CHECK(bench.store.stats().n_damaged_at_start == n_damaged);
    bench.close();
  }
}

}  // namespace
}  // namespace tarn::reuse::check_test
