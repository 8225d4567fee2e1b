// Goal    R24 at the C interface: after the GPU's first error no token and no KV of that step or of
//         any later one is accepted; every waiting and every later call answers TARN_DEVICE_LOST,
//         the first within a second; what was said before is whole and can be read; the engine
//         closes, and another one opens. tarn would end with 75.
// Method  an engine on a fake GPU whose check fails, at each step of a generation in turn and with
//         each kind of error; what it said is compared with the answer of a whole one.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include "runtime/api/instance.h"
#include "runtime/api/tarn.h"
#include "tests/runtime/api/host.h"
#include "tests/support/fake_device.h"
#include "tests/support/open_engine.h"
#include "tools/support/exit_code.h"

namespace tarn::device_lost_test {
namespace {

using api::Instance;
using test::FakeDevice;
using test::SmallModel;

constexpr u32 kTokens = 6;
constexpr const char* kToml = "kv.context_tokens = 256\ncpu.threads = 1\n";

tarn_options options_of(const SmallModel& model) {
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = model.path().c_str();
  options.config_toml = kToml;
  options.budget_bytes = kGiB;
  return options;
}

tarn_engine* open_on(const SmallModel& model, Device* device) {
  const Result<Instance*> opened = Instance::open(options_of(model), {.device = device});
  if (!opened) FAIL(std::string(opened.error().hint));
  return reinterpret_cast<tarn_engine*>(*opened);
}

struct Outcome {
  std::vector<u32> tokens;
  int32_t last = TARN_OK;  // what ended the reading
  f64 seconds = 0;
};

// Feeds, generates and reads until the end or an error.
Outcome converse(tarn_engine* engine) {
  Outcome out;
  const auto begin = std::chrono::steady_clock::now();
  tarn_session* session = nullptr;
  REQUIRE(tarn_session_create(engine, nullptr, &session) == TARN_OK);
  const std::vector<u32> ids = test::random_ids(7, 20);
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  options.max_tokens = kTokens;
  options.ignore_end = 1;
  out.last = tarn_session_feed(session, ids.data(), ids.size());
  // The prefill is a step of its own then, whatever the two threads' pace.
  if (out.last == TARN_OK) out.last = tarn_session_wait(session, -1);
  if (out.last == TARN_OK) out.last = tarn_session_generate(session, &options);
  while (out.last == TARN_OK) {
    tarn_event event = TARN_INIT(tarn_event);
    out.last = tarn_session_poll(session, 10'000, &event);
    if (out.last != TARN_OK || event.type == TARN_EVENT_DONE) break;
    if (event.type == TARN_EVENT_TOKEN) out.tokens.push_back(event.token);
  }
  out.seconds = std::chrono::duration<f64>(std::chrono::steady_clock::now() - begin).count();
  return out;
}

void check_every_call_is_refused(tarn_engine* engine) {
  tarn_session* session = nullptr;
  CHECK(tarn_session_create(engine, nullptr, &session) == TARN_DEVICE_LOST);
  CHECK(session == nullptr);
  CHECK(std::string(tarn_error_text()).find("restart") != std::string::npos);
  tarn_engine_status status = TARN_INIT(tarn_engine_status);
  CHECK(tarn_engine_status_get(engine, &status) == TARN_DEVICE_LOST);
  CHECK(status.dead == 1);
  uint32_t ids[8];
  uint64_t n = 0;
  CHECK(tarn_tokenize(engine, "a", 1, 0, ids, 8, &n) == TARN_DEVICE_LOST);
}

TEST_CASE("whichever step the GPU is lost in, nothing of it is accepted and everybody hears") {
  const SmallModel model("llama", "q8_0");
  FakeDevice whole;
  tarn_engine* engine = open_on(model, &whole);
  const Outcome wanted = converse(engine);
  const u64 n_calls = whole.n_calls();
  tarn_close(engine);
  REQUIRE(wanted.last == TARN_OK);
  REQUIRE(wanted.tokens.size() == kTokens);
  REQUIRE(n_calls == 2 + 2 * kTokens);  // bind_thread, the prefill, two for each token

  constexpr i32 kCodes[] = {kGpuIllegalAddress, kGpuEccUncorrectable, kGpuOutOfMemory};
  for (u64 call = 2; call <= n_calls; ++call) {
    for (const i32 code : kCodes) {
      CAPTURE(call);
      CAPTURE(code);
      FakeDevice device;
      device.fail_at({.call = call, .code = code});
      engine = open_on(model, &device);
      const Outcome out = converse(engine);
      CHECK(out.last == TARN_DEVICE_LOST);
      CHECK(out.seconds < 1.0);
      CHECK(device.is_lost());
      // Call 2 is the prefill's; each token's step asks twice, after its layers and its logits.
      const u64 n_before = call <= 2 ? 0 : (call - 3) / 2;
      REQUIRE(out.tokens.size() == n_before);
      CHECK(std::equal(out.tokens.begin(), out.tokens.end(), wanted.tokens.begin()));
      check_every_call_is_refused(engine);
      tarn_close(engine);
      CHECK(device.leaks().empty());
    }
  }
  CHECK(tools::exit_code(Status::device_lost) == 75);

  FakeDevice another;
  engine = open_on(model, &another);
  CHECK(converse(engine).tokens == wanted.tokens);
  tarn_close(engine);
}

TEST_CASE("a GPU that is lost before the engine is open is an error of tarn_open") {
  const SmallModel model("llama", "q8_0");
  FakeDevice device;
  device.fail_at({.call = 1, .code = kGpuUnknown});
  const Result<Instance*> opened = Instance::open(options_of(model), {.device = &device});
  REQUIRE_FALSE(opened.has_value());
  CHECK(opened.error().status == Status::device_lost);
}

}  // namespace
}  // namespace tarn::device_lost_test
