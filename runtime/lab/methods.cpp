#include "runtime/lab/methods.h"

namespace tarn::lab {
namespace {

constexpr method::Method kMethods[] = {
    {.name = "every-second", .reader_bytes = 64, .make = make_every_second},
};

}  // namespace

std::span<const method::Method> methods() { return kMethods; }

const method::Method* method_named(std::string_view name) {
  for (const method::Method& row : kMethods) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

}  // namespace tarn::lab
