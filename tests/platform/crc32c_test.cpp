// Goal    every way to compute CRC32C gives the standard's values, of any length and alignment.
// Method  RFC 3720's examples; a bit by bit oracle over sizes around the step; one sector and many.
#include "platform/cpu/crc32c.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "platform/cpu/topology.h"
#include "tests/support/seed.h"

namespace tarn::crc32c_test {
namespace {

u32 oracle(const std::byte* data, u64 n_bytes) {
  u32 crc = ~u32{0};
  for (u64 i = 0; i < n_bytes; ++i) {
    crc ^= static_cast<u32>(data[i]);
    for (u32 bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
  }
  return ~crc;
}

TEST_CASE("CRC32C has the values of RFC 3720 and of the definition") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  std::vector<std::byte> bytes(9 * kCrcSectorBytes + 64);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  REQUIRE(crc32c_ways().size() == (cpu_features().crc32c ? 2u : 1u));
  for (const Crc32c& way : crc32c_ways()) {
    CAPTURE(way.name);
    std::byte sample[32];
    const auto at = [&](auto value_of) {
      for (u32 i = 0; i < 32; ++i) sample[i] = static_cast<std::byte>(value_of(i));
      return way.bytes(sample, sizeof sample);
    };
    CHECK(at([](u32) { return 0; }) == 0x8A9136AAu);
    CHECK(at([](u32) { return 255; }) == 0x62A8AB43u);
    CHECK(at([](u32 i) { return i; }) == 0x46DD794Eu);
    CHECK(at([](u32 i) { return 31 - i; }) == 0x113FDB5Cu);
    CHECK(way.bytes(reinterpret_cast<const std::byte*>("123456789"), 9) == 0xE3069283u);
    for (const u64 n_bytes : {0u, 1u, 7u, 8u, 9u, 15u, 16u, 17u, 255u, 4096u}) {
      for (u64 misaligned = 0; misaligned < 9; ++misaligned) {
        CAPTURE(n_bytes);
        CHECK(way.bytes(bytes.data() + misaligned, n_bytes) ==
              oracle(bytes.data() + misaligned, n_bytes));
      }
    }
    for (const u64 n_sectors : {0u, 1u, 3u, 4u, 5u, 8u, 9u}) {
      CAPTURE(n_sectors);
      std::vector<u32> crcs(n_sectors + 1, 0xC0FFEEu);
      way.sectors(bytes.data() + 3, n_sectors, crcs.data());
      for (u64 i = 0; i < n_sectors; ++i) {
        CHECK(crcs[i] == oracle(bytes.data() + 3 + i * kCrcSectorBytes, kCrcSectorBytes));
      }
      CHECK(crcs[n_sectors] == 0xC0FFEEu);
    }
  }
}

}  // namespace
}  // namespace tarn::crc32c_test
