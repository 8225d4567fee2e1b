// Goal    R24 at the daemon: once the GPU is lost every request that runs is told 503 with the
//         reason, or, in a stream, by an error event; so are later ones, and /health; a second
//         later the process has ended with 75. Lost before the model is in: 75, too.
// Method  A daemon in a child process, on an engine whose fake GPU fails at a call of a script.
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "platform/gpu/gpu_errors.h"
#include "runtime/api/border.h"
#include "tests/support/fake_device.h"
#include "tests/support/forked.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/tarnd/raw_http.h"
#include "tools/builtin/built_in_model.h"
#include "tools/support/exit_code.h"
#include "tools/tarnd/daemon.h"
#include "tools/tarnd/network_memory.h"

namespace tarn::daemon::gpu_lost_native_test {
namespace {

using namespace test;
using tarn::test::FakeDevice;

FakeDevice* device = nullptr;  // of the child

int32_t open_on_fake_gpu(const tarn_options* options, tarn_engine** engine_out) {
  const Result<api::Instance*> opened = api::Instance::open(*options, {.device = device});
  if (!opened) return api::report(opened.error());
  *engine_out = reinterpret_cast<tarn_engine*>(*opened);
  return TARN_OK;
}

// The child: returns the exit code, unless it ends first.
int serve(const std::string& path, u64 fails_at_call) {
  FakeDevice own;
  own.fail_at({.call = fails_at_call, .code = kGpuIllegalAddress});
  device = &own;
  DaemonSource source;
  source.settings.listen = {"unix://" + path};
  source.model.name = "built-in";
  const auto model = tools::built_in_unless_named(source.engine.model_path);
  source.engine.config_toml =
      "kv.context_tokens = 2048\nengine.sessions_max = 4\ncpu.threads = 1\n"
      "memory.budget_bytes = \"1GiB\"\n";
  source.engine.chat_template = "plain";
  source.engine.open = open_on_fake_gpu;
  NetworkMemory::install(source.settings.memory_bytes);
  return Daemon(std::move(source)).run();
}

class Child {
 public:
  Child(const std::string& path, u64 fails_at_call)
      : thread_([this, path, fails_at_call] {
          code_ = tarn::test::in_child([&] { return serve(path, fails_at_call); });
          ended_at_ = std::chrono::steady_clock::now();
        }) {}
  ~Child() {
    if (thread_.joinable()) thread_.join();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  int code() {
    thread_.join();
    return code_;
  }
  std::chrono::steady_clock::time_point ended_at() const { return ended_at_; }

 private:
  int code_ = -1;
  std::chrono::steady_clock::time_point ended_at_;
  std::thread thread_;
};

std::string ask(const std::string& path, const std::string& bytes) {
  const int fd = try_connect_unix(path);
  if (fd < 0) return "";
  send_all(fd, bytes);
  return rest_of(fd);
}

bool is_ready_within(const std::string& path, int seconds) {
  for (int i = 0; i < seconds * 50; ++i) {
    if (status_of(ask(path, get("/health"))) == 200) return true;
    usleep(20'000);
  }
  return false;
}

bool tells_of_gpu(const std::string& reply) {
  CAPTURE(reply);
  const bool tells = reply.find("unavailable_error") != std::string::npos &&
                     reply.find("GPU") != std::string::npos &&
                     reply.find("restart") != std::string::npos;
  CHECK(tells);
  return tells;
}

constexpr const char* kRequest = R"({"prompt":"Log","max_tokens":1500,"ignore_eos":true)";

TEST_CASE("a GPU that is lost ends every request with the reason, and the process with 75") {
  const tarn::test::TempDir folder("tarnd_gpu_lost");
  std::filesystem::create_directory(folder.path());
  const std::string path = folder.path() + "/s";
  Child child(path, 400);  // two calls a token
  REQUIRE(is_ready_within(path, 30));
  const int whole = connected_unix(path), stream = connected_unix(path);
  send_all(whole, post("/v1/completions", std::string(kRequest) + "}"));
  send_all(stream, post("/v1/completions", std::string(kRequest) + ",\"stream\":true}"));
  const std::string refused = rest_of(whole);
  const auto told_at = std::chrono::steady_clock::now();
  CHECK(status_of(refused) == 503);
  CHECK(refused.find("Retry-After: ") != std::string::npos);
  tells_of_gpu(refused);
  for (const std::string& later :
       {get("/health"), get("/v1/models"), post("/v1/completions", std::string(kRequest) + "}")}) {
    const std::string reply = ask(path, later);
    CHECK(status_of(reply) == 503);
    tells_of_gpu(reply);
  }
  const std::string events = rest_of(stream);
  CHECK(status_of(events) == 200);  // it had begun
  CHECK(events.find("[DONE]") == std::string::npos);
  tells_of_gpu(events.substr(events.rfind("data: ")));
  CHECK(child.code() == tools::kExitGpuLost);
  CHECK(std::chrono::duration<f64>(child.ended_at() - told_at).count() < 5);
}

TEST_CASE("a GPU that is lost before the model is in ends the process with 75") {
  const tarn::test::TempDir folder("tarnd_gpu_lost_early");
  std::filesystem::create_directory(folder.path());
  Child child(folder.path() + "/s", 1);
  CHECK(child.code() == tools::kExitGpuLost);
}

}  // namespace
}  // namespace tarn::daemon::gpu_lost_native_test
