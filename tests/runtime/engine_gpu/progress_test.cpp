// Goal    a GPU that gets no further for the window is lost, wherever in a step it stopped, and the
//         host waits for nothing else; one that does get further is not, however slow it is. No
//         step enqueues more than a stream takes.
// Method  the fake device, which runs a piece of work so often as a virtual clock says and takes as
//         many as a real stream does; its kernels do nothing, so that 512 rows cost little.
#include <algorithm>

#include "platform/gpu/stream_progress.h"
#include "tests/runtime/engine_gpu/gpu_engine.h"
#include "tests/support/slack_clock.h"

namespace tarn::test::progress_test {
namespace {

using engine::SessionIdx;

constexpr u32 kRows = 512;
constexpr u64 kSecond = 1'000'000'000;

// Virtual time in which a device runs a piece of work every `piece_ns` until it has run `n_pieces`.
class PacedClock final : public Clock {
 public:
  explicit PacedClock(FakeDevice& device) : device_(device) {}
  void pace(u64 piece_ns, u64 n_pieces = FakeDevice::kNoEnd) {
    piece_ns_ = piece_ns;
    n_pieces_ = n_pieces;
    device_.work_left = 0;
    paid_ns_ = now_ns_;
  }
  u64 now_ns() override {
    now_ns_ += 1'000;
    if (piece_ns_ == 0) return now_ns_;
    const u64 n = std::min((now_ns_ - paid_ns_) / piece_ns_, n_pieces_);
    device_.work_left += n;
    n_pieces_ -= n;
    paid_ns_ += n * piece_ns_;
    return now_ns_;
  }
  void nap_ns(u64 ns) override { now_ns_ += ns + SlackClock::kSlackNs; }

 private:
  FakeDevice& device_;
  u64 now_ns_ = 0, paid_ns_ = 0;
  u64 piece_ns_ = 0, n_pieces_ = 0;
};

// Ready for a slice of kRows rows. Each of 16 layers has 64 launches of attention.
struct PacedEngine {
  PacedEngine() {
    Config config = small_config();
    config.context_tokens = 2 * kRows;
    config.page_tokens = 32;
    config.batch_rows_max = kRows;
    gpu.lent_clock = &clock;
    const Result<void> opened = gpu.open(model().path(), config);
    if (!opened) FAIL(std::string(opened.error().hint));
    gpu.device.computes = false;
    session = *gpu.engine.sessions().create();
  }
  static const SmallModel& model() {
    static const SmallModel model("llama", "q8_0", 1, 16);
    return model;
  }
  // Feeds a slice, and steps. How long that took, and how much was enqueued.
  struct Slice {
    u64 took_ns, n_pieces;
  };
  Slice feed() {
    REQUIRE(gpu.engine.sessions().feed(session, random_ids(3, kRows, 1024)).has_value());
    const u64 begin_ns = clock.now_ns(), n_before = gpu.device.n_enqueued();
    gpu.run();
    return {clock.now_ns() - begin_ns, gpu.device.n_enqueued() - n_before};
  }

  GpuEngine gpu;
  PacedClock clock{gpu.device};
  SessionIdx session{};
};

TEST_CASE("no slice keeps the host within a call; hung anywhere, a GPU is lost one window later") {
  constexpr u64 kPieceNs = 10'000;
  u64 n_pieces = 0;
  {
    PacedEngine whole;
    whole.clock.pace(kPieceNs);
    n_pieces = whole.feed().n_pieces;
    CHECK(!whole.gpu.engine.device_lost());
    CHECK(whole.gpu.device.n_kept() == 0);
  }
  REQUIRE(n_pieces > kStreamLaunchesMax);
  for (const u64 n_run : {u64{0}, n_pieces / 2, n_pieces - 1}) {
    CAPTURE(n_run);
    PacedEngine paced;
    paced.clock.pace(kPieceNs, n_run);
    const u64 took_ns = paced.feed().took_ns;
    CHECK(paced.gpu.engine.device_lost());
    CHECK(paced.gpu.device.n_kept() == 0);
    CHECK(paced.gpu.device.n_kept_for_ever() == 0);
    CHECK(took_ns > exec::kGpuWaitNsMax);
    CHECK(took_ns < exec::kGpuWaitNsMax * 101 / 100 + n_run * kPieceNs);
    paced.gpu.engine.close();
    CHECK(paced.gpu.device.leaks() == "");
  }
}

TEST_CASE("a GPU that becomes slow is not lost as long as it gets further") {
  // So slow that the calls between two events take half of the window.
  constexpr u64 kSlowNs = exec::kGpuWaitNsMax / 2 / (kStreamMarkCalls * kStreamCallLaunches + 1);
  PacedEngine paced;
  paced.clock.pace(kSlowNs / 100);
  paced.feed();
  paced.clock.pace(kSlowNs);
  CHECK(paced.feed().took_ns > 5 * exec::kGpuWaitNsMax);
  CHECK(!paced.gpu.engine.device_lost());
}

TEST_CASE("a step that is a graph has the window, whatever its kind took before") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  GpuEngine gpu;
  SlackClock clock(gpu.device);
  gpu.lent_clock = &clock;
  Config config = small_config();
  config.page_tokens = 32;
  REQUIRE(gpu.open(model.path(), config).has_value());
  const SessionIdx session = *gpu.engine.sessions().create();
  REQUIRE(gpu.engine.sessions().feed(session, random_ids(3, 1, GpuModel::kVocab)).has_value());
  REQUIRE(
      gpu.engine.sessions().generate(session, {.max_tokens = 8, .ignore_end = true}).has_value());
  const auto step = [&](u64 takes_ns) {
    const u64 begin_ns = clock.now_ns();
    clock.takes(takes_ns);
    gpu.engine.step();
    return clock.now_ns() - begin_ns;
  };
  step(kSecond / 50);
  for (const u64 takes_ns : {kSecond / 50, kSecond * 10, exec::kGpuWaitNsMax / 10 * 9}) {
    CAPTURE(takes_ns);
    CHECK(step(takes_ns) >= takes_ns);
    CHECK(!gpu.engine.device_lost());
  }
  const u64 hung_ns = step(SlackClock::kForEver);
  CHECK(gpu.engine.device_lost());
  CHECK(hung_ns > exec::kGpuWaitNsMax);
  CHECK(hung_ns < exec::kGpuWaitNsMax * 101 / 100);
}

TEST_CASE("a GPU that hangs in an opening is lost one window later") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  GpuEngine gpu;
  SlackClock clock(gpu.device);
  gpu.lent_clock = &clock;
  clock.takes(SlackClock::kForEver);
  const u64 begin_ns = clock.now_ns();
  Config config = small_config();
  config.page_tokens = 32;
  CHECK(!gpu.open(model.path(), config).has_value());
  CHECK(gpu.device.is_lost());
  CHECK(clock.now_ns() - begin_ns > exec::kGpuWaitNsMax);
  CHECK(clock.now_ns() - begin_ns < exec::kGpuWaitNsMax * 101 / 100);
}

}  // namespace
}  // namespace tarn::test::progress_test
