// Goal    an engine that cannot see how the file with kept sessions is cut does not cut it anew.
// Method  a session at the end of a file, and an engine that wants fewer frames; the reads of its
//         look at the file fail, and no other.
#include <doctest/doctest.h>

#include "tests/runtime/engine/saved_life.h"

namespace tarn::engine::save_restore_cut_native_test {
namespace {

using test::SavedHow;
using test::SavedLife;

TEST_CASE("a look at the sessions that fails costs an error, and no session") {
  const test::SmallModel model("llama", "q8_0");
  test::SimDisk disk(1);
  std::vector<u32> said;
  {
    SavedLife life(model, {}, disk);
    const SessionIdx session = test::create(life);
    said = test::first_part(life, session, 100);
    REQUIRE(life.engine().sessions().save(session, "talk").has_value());
  }
  const auto image = disk.file_bytes(test::kSavedFile);
  const SavedHow small{.context_tokens = 256};
  {
    VirtualClock clock;
    test::SimIo io(disk, clock, 64);
    disk.script.faults = {
        {.fault = test::SimFault::error, .first_call = disk.n_calls(), .n_calls = 2}};
    SystemReserve reserve;
    Engine engine;
    const Result<void> opened = engine.open({.model_path = model.path().c_str(),
                                             .config = test::saved_config(small, /*keeps=*/true),
                                             .reserve = &reserve,
                                             .clock = &clock,
                                             .store_io = &io});
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().status == Status::io_failed);
    CHECK(disk.file_bytes(test::kSavedFile) == image);
  }
  SavedLife life(model, small, disk);
  CHECK(disk.file_bytes(test::kSavedFile).size() == image.size());
  life.restore();
}

}  // namespace
}  // namespace tarn::engine::save_restore_cut_native_test
