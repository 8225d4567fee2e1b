// Goal    as model_golden_test, on every instruction set that this machine has.
// Method  the same, with a few seeds each.
#include "kernels/cpu_table.h"
#include "tests/golden/model/model_check.h"

namespace tarn::golden {

constexpr u32 kSomeSeeds = 4;

TEST_CASE("every instruction set is no further from f64 than llama.cpp") {
  for (const kernels::CpuTable& table : kernels::cpu_tables()) {
    if (!table.runs_here()) continue;
    for (const auto arch : kArchs) {
      for (const auto type : kTypes) check_against_peer(arch, type, kSomeSeeds, table.isa);
    }
  }
}

}  // namespace tarn::golden
