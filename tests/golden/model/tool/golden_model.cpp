// The part of make_golden.py that is our own: writes a case's model and prompt, and measures
// another engine's logits against the f64 reference.
//
//   golden_model list                                 ARCH TYPE SEED of every case
//   golden_model write ARCH TYPE SEED MODEL IDS       the model, and its prompt as text
//   golden_model compare MODEL IDS LOGITS             kl_mean rms_error relative_l2
//                                                     decided agreed near_ties
//   LOGITS: raw f32 [positions, vocab]; a position is decided where its margin exceeds 4 rms_error.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "tests/golden/model/cases.h"
#include "tests/support/logits.h"
#include "tests/support/reference_model.h"

namespace tarn::golden {
namespace {

void list_cases() {
  for (const auto arch : kArchs) {
    for (const auto type : kTypes) {
      for (u32 seed = 1; seed <= kSeeds; ++seed) {
        std::printf("%s %s %u\n", std::string(arch).c_str(), std::string(type).c_str(), seed);
      }
    }
  }
}

std::vector<f32> read_logits(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  std::vector<f32> logits(static_cast<u64>(file.tellg()) / sizeof(f32));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(logits.data()),
            static_cast<std::streamsize>(logits.size() * sizeof(f32)));
  return logits;
}

void compare(const std::string& model_path, const std::string& ids_path,
             const std::string& logits_path) {
  std::ifstream ids_file(ids_path);
  const std::vector<u32> ids(std::istream_iterator<u32>(ids_file), {});
  const test::ReferenceModel model(model_path);
  const auto reference = model.logits(ids);
  const auto logits = read_logits(logits_path);
  if (logits.size() != reference.size()) throw std::runtime_error("wrong number of logits");
  const f64 rms_error = test::logits_distance(reference, logits, model.n_vocab(), 0).rms_error;
  const auto d = test::logits_distance(reference, logits, model.n_vocab(), 4 * rms_error);
  std::printf("%.6e %.6e %.6e %llu %llu %llu\n", d.kl_mean, d.rms_error, d.relative_l2,
              static_cast<unsigned long long>(d.n_decided),
              static_cast<unsigned long long>(d.n_agreed),
              static_cast<unsigned long long>(d.n_near_ties));
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 1 && arguments[0] == "list") {
    list_cases();
  } else if (arguments.size() == 6 && arguments[0] == "write") {
    const u64 seed = std::strtoull(arguments[3].c_str(), nullptr, 10);
    write_model(arguments[1], arguments[2], seed, arguments[4]);
    std::ofstream ids(arguments[5]);
    for (const u32 id : prompt_of(arguments[1], seed)) ids << id << '\n';
  } else if (arguments.size() == 4 && arguments[0] == "compare") {
    compare(arguments[1], arguments[2], arguments[3]);
  } else {
    std::fputs("golden_model list | write ARCH TYPE SEED MODEL IDS | compare MODEL IDS LOGITS\n",
               stderr);
    return 64;
  }
  return 0;
}

}  // namespace
}  // namespace tarn::golden

int main(int argc, char** argv) {
  try {
    return tarn::golden::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "golden_model: %s\n", error.what());
    return 1;
  }
}
