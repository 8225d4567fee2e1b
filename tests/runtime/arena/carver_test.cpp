// Goal    what a Carver counts over nothing is what it places in a region: the same bytes, each
//         piece aligned and inside, none over another; the formula names what was taken.
// Method  one function that carves, run both ways over a table of shapes; sizes that pass 64 bits.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/arena/carver.h"

namespace tarn::carver_test {
namespace {

struct Shape {
  const char* name;
  u64 n_rows, n_columns, n_keys;
  const char* formula;
};
constexpr Shape kShapes[] = {
    {"nothing", 0, 0, 0, "none"},
    {"a row", 1, 3, 5, "row 12 + side 3 + keys 40 B"},
    {"rows", 7, 16, 1, "7 x (row 64 + side 16) + keys 8 B"},
    {"rows alone", 2, 8, 0, "2 x (row 32 + side 8) B"},
    {"whole lines", 64, 64, 8, "64 x (row 256 + side 64) + keys 64 B"},
};

struct Parts {
  std::span<f32> row;
  std::span<u8> side;
  std::span<u64> keys;
};
Parts carve(Carver& carver, const Shape& shape) {
  return {.row = carver.rows<f32>("row", shape.n_rows, shape.n_columns),
          .side = carver.rows<u8>("side", shape.n_rows, shape.n_columns),
          .keys = carver.take<u64>("keys", shape.n_keys)};
}

u64 address_of(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

TEST_CASE("a carver places exactly what it counted") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.name);
    Carver counter;
    const Parts none = carve(counter, shape);
    CHECK(!counter.carves());
    CHECK(none.row.data() == nullptr);
    CHECK(none.row.empty());
    CHECK(std::string(counter.formula().view()) == shape.formula);

    std::vector<std::byte> memory(*counter.n_bytes().get() + Carver::kAlignment);
    const u64 skip =
        align_up(address_of(memory.data()), Carver::kAlignment) - address_of(memory.data());
    const auto region = std::span(memory).subspan(skip, *counter.n_bytes().get());
    Carver placer(region);
    const Parts parts = carve(placer, shape);
    CHECK(placer.n_bytes().get() == counter.n_bytes().get());
    CHECK(parts.row.size() == shape.n_rows * shape.n_columns);
    CHECK(parts.side.size() == shape.n_rows * shape.n_columns);
    CHECK(parts.keys.size() == shape.n_keys);
    u64 end = address_of(region.data());
    for (const auto piece :
         {std::as_bytes(parts.row), std::as_bytes(parts.side), std::as_bytes(parts.keys)}) {
      CHECK(address_of(piece.data()) % Carver::kAlignment == 0);
      CHECK(address_of(piece.data()) >= end);
      end = address_of(piece.data()) + piece.size();
    }
    CHECK(end == address_of(region.data()) + region.size());
  }
}

TEST_CASE("a size that passes 64 bits makes the count invalid") {
  Carver rows;
  rows.rows<u64>("rows", ~u64{0}, 2);
  CHECK(!rows.n_bytes().valid());
  Carver sum;
  sum.take<u8>("most", ~u64{0} - 64);
  CHECK(sum.n_bytes().valid());
  sum.take<u8>("more", 64);
  CHECK(!sum.n_bytes().valid());
}

TEST_CASE("a formula is not cut: what finds no room in it is summed up") {
  Carver carver;
  for (u32 i = 0; i < 40; ++i) carver.take<u8>("a_piece", 1000);
  const std::string text(carver.formula().view());
  CHECK(text.size() < sizeof(Region::formula) - 1);
  u64 n_named = 0;
  for (u64 at = text.find("a_piece"); at != text.npos; at = text.find("a_piece", at + 1)) ++n_named;
  CHECK(text.ends_with(" + others " + std::to_string((40 - n_named) * 1000) + " B"));
}

}  // namespace
}  // namespace tarn::carver_test
