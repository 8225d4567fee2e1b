// Goal    blocks of the file become the f32 values that ggml's reference makes of them, bit for
//         bit, whether they are read from the file's layout or from tiles; every ISA makes the same
//         tiles.
// Method  golden blocks (tests/golden/quant/make_golden.py); random rows, tiled and read back;
//         tiles compared byte by byte with the generic body's, canaries behind them.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>

#include "kernels/quant/dequant.h"
#include "tests/kernels/quant/random_rows.h"
#include "tests/kernels/quant/runnable_tables.h"
#include "tests/support/folders.h"
#include "tests/support/seed.h"

namespace tarn::kernels::dequant_test {
namespace {

std::vector<u8> bytes_of_hex(const std::string& hex) {
  std::vector<u8> bytes(hex.size() / 2);
  for (u64 i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<u8>(std::stoul(hex.substr(2 * i, 2), nullptr, 16));
  }
  return bytes;
}

u64 fnv1a(const void* data, u64 n_bytes) {
  u64 hash = 0xCBF29CE484222325u;
  for (u64 i = 0; i < n_bytes; ++i) {
    hash = (hash ^ static_cast<const u8*>(data)[i]) * 0x100000001B3u;
  }
  return hash;
}

// nullptr for a type of the golden file that this build lacks.
const TypeTraits* traits_named(const std::string& name) {
  for (const TypeTraits& traits : kTypeTraits) {
    if (name == traits.name) return &traits;
  }
  return nullptr;
}

// The golden file has one NaN; the sign and payload of ours depend on the processor.
void unify_nans(std::vector<f32>& values) {
  for (f32& value : values) {
    if (std::isnan(value)) value = std::numeric_limits<f32>::quiet_NaN();
  }
}

TEST_CASE("dequantisation equals ggml's reference on the golden blocks") {
  std::ifstream file(tarn::test::source_folder() + "/tests/golden/quant/dequant.txt");
  std::map<std::string, u32> n_blocks;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name, block_hex, hash, values_hex;
    fields >> name >> block_hex >> hash >> values_hex;
    CAPTURE(name);
    CAPTURE(block_hex);
    const TypeTraits* traits = traits_named(name);
    if (traits == nullptr) continue;
    ++n_blocks[name];
    const std::vector<u8> block = bytes_of_hex(block_hex);
    const u64 k = traits->block_elems;
    REQUIRE(block.size() == traits->block_bytes);

    std::vector<f32> values(k);
    dequantize_row(traits->type, block.data(), k, values.data());
    unify_nans(values);
    const std::vector<u8> want = bytes_of_hex(values_hex);
    for (u64 i = 0; i < want.size() / sizeof(f32); ++i) {
      CAPTURE(i);
      REQUIRE(std::memcmp(want.data() + i * sizeof(f32), &values[i], sizeof(f32)) == 0);
    }
    CHECK(fnv1a(values.data(), k * sizeof(f32)) == std::stoull(hash, nullptr, 16));
  }
  for (const TypeTraits& traits : kTypeTraits) {
    CAPTURE(traits.name);
    if (traits.block_elems > 1) CHECK(n_blocks[traits.name] >= 30);
  }
}

struct TileCase {
  const char* name;
  u32 n_rows, blocks;
};
constexpr TileCase kTileCases[] = {
    {"one row, one block", 1, 1},
    {"a full tile", 16, 2},
    {"a row short of a tile, odd blocks", 15, 3},
    {"three rows, many blocks", 3, 7},
};

TEST_CASE("a tile holds its rows' values, and every ISA makes the same bytes") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  for (const TypeTraits& traits : kTypeTraits) {
    for (const TileCase& c : kTileCases) {
      CAPTURE(traits.name);
      CAPTURE(c.name);
      CAPTURE(random.seed());
      // An odd number of elements for the float types: their rows need no block's multiple.
      const u64 k = traits.block_elems == 1 ? c.blocks * 43 : c.blocks * traits.block_elems;
      const u64 source_bytes = row_bytes(traits.type, k);
      // The rows lie unaligned, as they may in a file.
      std::vector<u8> rows = test::random_rows(random, traits.type, c.n_rows, k);
      rows.insert(rows.begin(), 0);
      const u64 tile_bytes = tiled_bytes(traits.type, kTileRows, k);
      test::AlignedBytes want = test::aligned_bytes(tile_bytes);
      tile_rows_generic({traits.type, rows.data() + 1, c.n_rows, k, want.get()});

      std::vector<f32> from_file(k), from_tile(k);
      for (u32 r = 0; r < c.n_rows; ++r) {
        dequantize_row(traits.type, rows.data() + 1 + r * source_bytes, k, from_file.data());
        dequantize_tiled_row(traits.type, want.get(), r, k, from_tile.data());
        REQUIRE(std::memcmp(from_file.data(), from_tile.data(), k * sizeof(f32)) == 0);
      }
      for (u32 r = c.n_rows; r < kTileRows; ++r) {
        dequantize_tiled_row(traits.type, want.get(), r, k, from_tile.data());
        for (f32 value : from_tile) REQUIRE(value == 0.0f);
      }

      for (const CpuTable& table : test::runnable_tables()) {
        CAPTURE(table.isa);
        test::AlignedBytes tile = test::aligned_bytes(tile_bytes + 1);
        std::memset(tile.get(), 0xA5, tile_bytes + 1);
        table.tile_rows({traits.type, rows.data() + 1, c.n_rows, k, tile.get()});
        REQUIRE(std::memcmp(tile.get(), want.get(), tile_bytes) == 0);
        REQUIRE(tile[tile_bytes] == 0xA5);
      }
    }
  }
}

TEST_CASE("row and tile sizes follow the block geometry") {
  CHECK(row_bytes(TensorType::q4_k, 4096) == 16 * 144);
  CHECK(row_bytes(TensorType::f16, 172) == 344);
  CHECK(tiled_bytes(TensorType::q6_k, 17, 256) == 32 * 210);
  CHECK(tiled_bytes(TensorType::f32, 0, 7) == 0);
  CHECK(type_traits(14u)->type == TensorType::q6_k);
  CHECK(type_traits(4u) == nullptr);
  CHECK(type_traits(31u) == nullptr);
}

}  // namespace
}  // namespace tarn::kernels::dequant_test
