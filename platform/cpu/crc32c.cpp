// The instructions are enabled for single functions, which are never inlined elsewhere. The rest of
// this file runs on every machine of its architecture.
#include "platform/cpu/crc32c.h"

#include <array>
#include <cstring>

#include "platform/cpu/topology.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#define TARN_CRC32C_TARGET __attribute__((target("sse4.2")))
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("+crc")
#include <arm_acle.h>
#pragma GCC pop_options
#define TARN_CRC32C_TARGET __attribute__((target("+crc")))
#endif

namespace tarn {
namespace {

constexpr u32 kPolynomial = 0x82F63B78u;  // in reflected form

using Tables = std::array<std::array<u32, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (u32 i = 0; i < 256; ++i) {
    u32 crc = i;
    for (u32 bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][i] = crc;
  }
  for (u32 k = 1; k < 8; ++k) {
    for (u32 i = 0; i < 256; ++i) {
      tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 255];
    }
  }
  return tables;
}
constexpr Tables kTables = make_tables();

u64 load_u64(const std::byte* data) {
  u64 word = 0;
  std::memcpy(&word, data, sizeof word);
  return word;
}

// Eight bytes a step, each through its own table (Kounavis and Berry, 2005: "slicing by 8").
u32 portable_bytes(const std::byte* data, u64 n_bytes) {
  u32 crc = ~u32{0};
  for (; n_bytes >= 8; data += 8, n_bytes -= 8) {
    const u64 word = load_u64(data) ^ crc;
    crc = 0;
    for (u32 k = 0; k < 8; ++k) crc ^= kTables[7 - k][word >> (8 * k) & 255];
  }
  for (; n_bytes > 0; ++data, --n_bytes) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<u32>(*data)) & 255];
  }
  return ~crc;
}

void portable_sectors(const std::byte* data, u64 n_sectors, u32* crcs) {
  for (u64 i = 0; i < n_sectors; ++i) {
    crcs[i] = portable_bytes(data + i * kCrcSectorBytes, kCrcSectorBytes);
  }
}

#ifdef TARN_CRC32C_TARGET

#if defined(__x86_64__)
TARN_CRC32C_TARGET u32 step_8(u32 crc, u64 word) {
  return static_cast<u32>(_mm_crc32_u64(crc, word));
}
TARN_CRC32C_TARGET u32 step_1(u32 crc, u8 byte) { return _mm_crc32_u8(crc, byte); }
#else
TARN_CRC32C_TARGET u32 step_8(u32 crc, u64 word) { return __crc32cd(crc, word); }
TARN_CRC32C_TARGET u32 step_1(u32 crc, u8 byte) { return __crc32cb(crc, byte); }
#endif

TARN_CRC32C_TARGET u32 native_bytes(const std::byte* data, u64 n_bytes) {
  u32 crc = ~u32{0};
  for (; n_bytes >= 8; data += 8, n_bytes -= 8) crc = step_8(crc, load_u64(data));
  for (; n_bytes > 0; ++data, --n_bytes) crc = step_1(crc, static_cast<u8>(*data));
  return ~crc;
}

TARN_CRC32C_TARGET void native_sectors(const std::byte* data, u64 n_sectors, u32* crcs) {
  constexpr u64 kChains = 4;
  u64 sector = 0;
  for (; sector + kChains <= n_sectors; sector += kChains, data += kChains * kCrcSectorBytes) {
    u32 a = ~u32{0}, b = a, c = a, d = a;
    for (u64 i = 0; i < kCrcSectorBytes; i += 8) {
      a = step_8(a, load_u64(data + i));
      b = step_8(b, load_u64(data + kCrcSectorBytes + i));
      c = step_8(c, load_u64(data + 2 * kCrcSectorBytes + i));
      d = step_8(d, load_u64(data + 3 * kCrcSectorBytes + i));
    }
    crcs[sector] = ~a;
    crcs[sector + 1] = ~b;
    crcs[sector + 2] = ~c;
    crcs[sector + 3] = ~d;
  }
  for (; sector < n_sectors; ++sector, data += kCrcSectorBytes) {
    crcs[sector] = native_bytes(data, kCrcSectorBytes);
  }
}

#endif

constexpr Crc32c kWays[] = {
#ifdef TARN_CRC32C_TARGET
    {.name = "instructions", .bytes = native_bytes, .sectors = native_sectors},
#endif
    {.name = "portable", .bytes = portable_bytes, .sectors = portable_sectors},
};

}  // namespace

std::span<const Crc32c> crc32c_ways() {
  const std::span<const Crc32c> all(kWays);
  return cpu_features().crc32c ? all : all.last(1);
}

}  // namespace tarn
