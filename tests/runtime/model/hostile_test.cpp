// Goal    no file, whatever its bytes, gets further than a stated error, and the refusal is cheap.
// Method  the hostile corpus through the reader and the description of the model: status and text
//         as the table says, 16 MiB of memory at most, 100 ms of the processor at most (not under
//         sanitizers and emulators), and nothing of the memory kept. Every class of known faults
//         has its files. Asked for all reasons, the description begins with the same one.
#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/model/model_spec.h"
#include "tests/runtime/model/hostile_corpus.h"
#include "tests/support/slow_build.h"

namespace tarn::model::hostile_test {
namespace {

constexpr u64 kMemoryBytes = 16 * kMiB;
constexpr f64 kRefusalMsMax = 100.0;

struct Outcome {
  Status status = Status::ok;
  std::string error;
  f64 ms = 0;  // of the processor: the machine may be busy elsewhere
};

std::string sentence(const Error& error) {
  char line[512];
  format_error(error, line, sizeof line);
  return line;
}

// With all reasons wanted, the first is the one that ends a load.
void check_all_reasons(const GgufFile& file, const Error& first, Bump& bump) {
  std::vector<Error> all;
  Refusals refusals(
      [](void* context, const Error& why) {
        static_cast<std::vector<Error>*>(context)->push_back(why);
      },
      &all);
  const auto model = describe_model(file, bump, refusals);
  REQUIRE_FALSE(model.has_value());
  CHECK(sentence(model.error()) == sentence(first));
  if (!all.empty()) CHECK(sentence(all.front()) == sentence(first));
}

Outcome refuse(const test::HostileCase& hostile, std::span<std::byte> memory) {
  const test::Bytes bytes = hostile.make();
  test::MemoryIo io;
  io.script = hostile.script;
  const IoFile handle = io.add(bytes);
  Bump bump{memory};
  const std::clock_t begin = std::clock();
  Result<ModelDescription> model = fail({});
  auto file = GgufFile::read(io, handle, bump);
  const u64 kept_bytes = bump.used_bytes();
  if (file) model = describe_model(*file, bump);
  const f64 ms = static_cast<f64>(std::clock() - begin) * 1000.0 / CLOCKS_PER_SEC;
  if (file && !model) check_all_reasons(*file, model.error(), bump);
  if (!file) CHECK(kept_bytes == 0);
  CHECK(bump.used_bytes() == kept_bytes);
  if (file && model) return {};
  const Error& error = file ? model.error() : file.error();
  return {.status = error.status, .error = sentence(error), .ms = ms};
}

TEST_CASE("every file of the corpus is refused for its own reason, quickly") {
  const auto corpus = test::hostile_corpus();
  CHECK(corpus.size() >= 200);
  std::vector<std::byte> memory(kMemoryBytes);
  f64 slowest_ms = 0;
  for (const test::HostileCase& hostile : corpus) {
    CAPTURE(hostile.hazard);
    CAPTURE(hostile.name);
    const Outcome outcome = refuse(hostile, memory);
    CAPTURE(outcome.error);
    CHECK(std::string(status_name(outcome.status)) == status_name(hostile.status));
    CHECK_FALSE(hostile.error.empty());
    CHECK(outcome.error.find(hostile.error) != std::string::npos);
    if (!test::kSlowBuild) CHECK(outcome.ms <= kRefusalMsMax);
    slowest_ms = std::max(slowest_ms, outcome.ms);
  }
  MESSAGE(corpus.size() << " files refused, the slowest in " << slowest_ms << " ms");
}

TEST_CASE("the corpus has files of every class, and no two of one name") {
  std::map<std::string, u32> n_of_hazard;
  std::set<std::string> names;
  for (const test::HostileCase& hostile : test::hostile_corpus()) {
    ++n_of_hazard[hostile.hazard];
    CAPTURE(hostile.name);
    CHECK(names.insert(std::string(hostile.hazard) + hostile.name).second);
  }
  for (const char* hazard :
       {"G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "T4", "F", "S"}) {
    CAPTURE(hazard);
    CHECK(n_of_hazard[hazard] > 0);
  }
}

}  // namespace
}  // namespace tarn::model::hostile_test
