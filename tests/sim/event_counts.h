// tests/sim/event_counts.h
//
// How often random lives met what they are there to meet: printed, and at least n_min times each.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <span>
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

inline void check_faults(const std::array<u64, kSimFaults>& faults, u64 n_min) {
  for (u32 i = 0; i < kSimFaults; ++i) {
    const char* fault = sim_fault_name(static_cast<SimFault>(i));
    std::printf("fault %-17s %8llu\n", fault, static_cast<unsigned long long>(faults[i]));
    CAPTURE(fault);
    CHECK(faults[i] >= n_min);
  }
}

}  // namespace tarn::test
