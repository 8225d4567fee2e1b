// The methods that tests of selection run over, of configuration and of lab: a new one has its row
// here.
#pragma once

#include <doctest/doctest.h>

#include "runtime/lab/methods.h"

namespace tarn::test {

struct MethodRow {
  const char* name;
  bool trains = false;   // by a training of its own, which sessions keep
  bool streams = false;  // over memory and disk
  u32 n_lives = 1;       // of the random lives by trained methods, or of the others: its share
};
// clang-format off
inline constexpr MethodRow kMethodRows[] = {
    {.name = "pq", .trains = true, .streams = true, .n_lives = 3},
    {.name = "oracle"},
    {.name = "quest", .streams = true},
    {.name = "window", .streams = true},
    {.name = "random"},
    {.name = "shuffled-codes"},
    {.name = "sum-codes", .trains = true, .streams = true},
};
// clang-format on

// Calls fn(name) for each row that is so.
template <class Fn>
void each_method(bool MethodRow::*is_so, Fn&& fn) {
  for (const MethodRow& row : kMethodRows) {
    CAPTURE(std::string(row.name));
    if (row.*is_so) fn(row.name);
  }
}

}  // namespace tarn::test
