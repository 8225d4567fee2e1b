// How often random lives met what they are there to meet: printed, and at least n_min times each.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "tests/support/sim_disk.h"

namespace tarn::test {

using EventCount = std::pair<const char*, u64>;

inline void check_events(std::span<const EventCount> events, u64 n_min) {
  for (const auto& [name, n] : events) {
    std::printf("%-22s %9llu\n", name, static_cast<unsigned long long>(n));
    const char* event = name;
    CAPTURE(event);
    CHECK(n >= n_min);
  }
}

struct FaultCounts {
  std::array<u64, kSimFaults> by_kind{};
  std::map<int, u64> by_error;
  u64 sync_failures = 0;
  void add(const SimDisk& disk) {
    for (u32 i = 0; i < kSimFaults; ++i) by_kind[i] += disk.hits(static_cast<SimFault>(i));
    for (const int error : disk.script.errors) by_error[error] += disk.error_hits(error);
    sync_failures += disk.n_sync_failures();
  }
};

inline void check_faults(const FaultCounts& faults, u64 n_min) {
  for (u32 i = 0; i < kSimFaults; ++i) {
    const std::string fault = sim_fault_name(static_cast<SimFault>(i));
    std::printf("fault %-17s %8llu\n", fault.c_str(),
                static_cast<unsigned long long>(faults.by_kind[i]));
    CAPTURE(fault);
    CHECK(faults.by_kind[i] >= n_min);
  }
}

// Each errno that the disk draws from, and syncs.
inline void check_errors(const FaultCounts& faults, u64 n_min) {
  for (const auto& [error, n] : faults.by_error) {
    const std::string name = std::strerror(error);
    std::printf("error %-34s %8llu\n", name.c_str(), static_cast<unsigned long long>(n));
    CAPTURE(name);
    CHECK(n >= n_min);
  }
  const EventCount syncs[] = {{"failed sync", faults.sync_failures}};
  check_events(syncs, n_min);
}

}  // namespace tarn::test
