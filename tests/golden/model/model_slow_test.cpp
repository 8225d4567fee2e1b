// Goal    as model_golden_test, with all seeds, and on every instruction set that this machine has.
// Method  the same; a few seeds for each set.
#include "kernels/cpu_table.h"
#include "tests/golden/model/model_check.h"

namespace tarn::golden::model_slow_test {

TEST_CASE("all seeds: no further from f64 than llama.cpp") {
  for (const auto arch : kArchs) {
    for (const auto type : kTypes) check_against_peer(arch, type, kSeeds);
  }
}

TEST_CASE("every instruction set is no further from f64 than llama.cpp") {
  for (const kernels::CpuTable& table : kernels::cpu_tables()) {
    if (!table.runs_here()) continue;
    for (const auto arch : kArchs) {
      for (const auto type : kTypes) check_against_peer(arch, type, kSomeSeeds, table.isa);
    }
  }
}

}  // namespace tarn::golden::model_slow_test
