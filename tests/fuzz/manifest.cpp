// Goal    no bytes given as a saved session end the process or reach past their end; what is
//         accepted holds together and is written again as the same bytes.
// Method  libFuzzer; the first byte says which of magic, version, length and checksum are made
//         good, since random bytes never have them.
#include <cstring>
#include <vector>

#include "runtime/reuse/manifest.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/manifest_bytes.h"

namespace {

using tarn::u32;
using tarn::u64;
using tarn::u8;

using tarn::test::require;

const tarn::Crc32c& crc() { return tarn::crc32c_ways()[0]; }

void mend(u8 what, std::span<std::byte> bytes) {
  if (bytes.size() < tarn::test::kManifestHeadBytes) return;
  const u32 version = tarn::reuse::kManifestVersion;
  const u64 length = bytes.size();
  if ((what & 1) == 0) std::memcpy(bytes.data(), "TARNSESS", 8);
  if ((what & 2) == 0) std::memcpy(bytes.data() + 8, &version, sizeof version);
  if ((what & 4) == 0) std::memcpy(bytes.data() + 16, &length, sizeof length);
  if ((what & 8) == 0) tarn::test::mend_manifest(crc(), bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const u8* data, std::size_t n_bytes) {
  if (n_bytes == 0) return 0;
  const u64 n = n_bytes - 1;
  std::vector<u64> words(n / 8 + 1);
  const auto bytes = std::as_writable_bytes(std::span(words)).first(n);
  std::memcpy(bytes.data(), data + 1, n);
  mend(data[0], bytes);
  const auto manifest = tarn::reuse::decode_manifest(crc(), bytes);
  if (!manifest) {
    require(std::strlen(manifest.error().hint) > 0);
    return 0;
  }
  require(tarn::reuse::manifest_fault(*manifest) == nullptr);
  require(tarn::reuse::manifest_bytes(*manifest) == n);
  std::vector<u64> again_words(n / 8 + 1);
  const auto again = std::as_writable_bytes(std::span(again_words)).first(n);
  tarn::reuse::encode_manifest(crc(), *manifest, again);
  require(std::memcmp(again.data(), bytes.data(), n) == 0);
  return 0;
}
