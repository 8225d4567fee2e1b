// Goal    `tarn eval` whose model file is cut while it reads ends with 74 and prints no figure:
//         not the perplexity of the part that it had read.
// Method  the embedding on disk, and the logits into a pipe that nobody reads on: the program has
//         computed some rows by the first bytes there, and not all of them before the rest is read.
//         In between the file is cut.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <string>

#include "tests/support/open_engine.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"

namespace tarn::eval_cut_native_test {
namespace {

constexpr u32 kTokens = 400;  // 4 KiB of logits each: far more than a pipe takes

// What `tarn eval` says; its file is cut on the way where `is_cut`.
test::Ended evaluated(bool is_cut) {
  const test::SmallModel model("llama", "q8_0");
  const test::TempFile ids("eval_cut.ids"), toml("eval_cut.toml"), pipe("eval_cut.pipe");
  std::string text;
  for (u32 i = 0; i < kTokens; ++i) text += std::to_string(i) + " ";
  tools::write_file(ids.path(), text.data(), text.size());
  const std::string settings = "model.embedding = \"disk\"\nengine.batch_rows_max = 16\n";
  tools::write_file(toml.path(), settings.data(), settings.size());
  REQUIRE(mkfifo(pipe.path().c_str(), 0600) == 0);
  const int logits = open(pipe.path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(logits >= 0);
  auto ended = std::async(std::launch::async, [&] {
    return test::run_tarn({"eval", "-m", model.path(), "--ids", ids.path(), "--config", toml.path(),
                           "--logits-out", pipe.path(), "--lock", "off", "-t", "1", "--json"});
  });
  pollfd watched{.fd = logits, .events = POLLIN, .revents = 0};
  constexpr int kWaitMs = 60'000;
  const bool has_rows = poll(&watched, 1, kWaitMs) == 1 && (watched.revents & POLLIN) != 0;
  if (has_rows && is_cut) std::filesystem::resize_file(model.path(), 1);
  char bytes[65536];
  while (poll(&watched, 1, kWaitMs) == 1 && read(logits, bytes, sizeof bytes) > 0) {
  }
  close(logits);
  CHECK(has_rows);
  return ended.get();
}

TEST_CASE("a model file that is cut while a text is evaluated leaves no figure") {
  const test::Ended whole = evaluated(false);
  CAPTURE(whole.err);
  CHECK(whole.exit_code == 0);
  CHECK(whole.out.find("\"perplexity\"") != std::string::npos);
  const test::Ended cut = evaluated(true);
  CAPTURE(cut.err);
  CHECK(cut.exit_code == 74);
  CHECK(cut.err.find("not read to its end") != std::string::npos);
  CHECK(cut.out.empty());
}

}  // namespace
}  // namespace tarn::eval_cut_native_test
