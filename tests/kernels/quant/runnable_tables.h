// The tables of every ISA that this build has and this machine runs, best first.
#pragma once

#include <vector>

#include "kernels/cpu_table.h"

namespace tarn::kernels::test {

inline std::vector<CpuTable> runnable_tables() {
  std::vector<CpuTable> tables;
  for (const CpuTable& table : cpu_tables()) {
    if (table.runs_here()) tables.push_back(table);
  }
  return tables;
}

}  // namespace tarn::kernels::test
