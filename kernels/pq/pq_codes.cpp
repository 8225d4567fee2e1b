#include "kernels/pq/pq_codes.h"

namespace tarn::kernels {
namespace {

// `bits` of `byte` from bit `shift` on become `value`.
void set_bits(u8& byte, u32 shift, u32 bits, u32 value) {
  const u32 mask = ((1u << bits) - 1u) << shift;
  byte = static_cast<u8>((byte & ~mask) | ((value << shift) & mask));
}

}  // namespace

void pq_code_put(PqCodeFormat format, u8* row, u64 token, u8 code) {
  if (format == PqCodeFormat::bytes) {
    row[token] = code;
    return;
  }
  u8* block = row + token / kPqBlockTokens * pq_block_bytes(format);
  const u32 t = static_cast<u32>(token % kPqBlockTokens);
  set_bits(block[t % 32], t / 32 * 4, 4, code);
  if (format == PqCodeFormat::packed6) set_bits(block[32 + t % 16], t / 16 * 2, 2, code >> 4u);
}

u8 pq_code_get(PqCodeFormat format, const u8* row, u64 token) {
  if (format == PqCodeFormat::bytes) return row[token];
  const u8* block = row + token / kPqBlockTokens * pq_block_bytes(format);
  const u32 t = static_cast<u32>(token % kPqBlockTokens);
  u32 code = (block[t % 32] >> (t / 32 * 4)) & 15u;
  if (format == PqCodeFormat::packed6) {
    code |= ((block[32 + t % 16] >> (t / 16 * 2)) & 3u) << 4u;
  }
  return static_cast<u8>(code);
}

}  // namespace tarn::kernels
