// The seeds of manifest: sessions from nothing said yet to one that has selected, behind the
// byte that makes everything good.
#include <fstream>
#include <string>
#include <vector>

#include "runtime/reuse/manifest.h"

namespace {

using tarn::u32;
using tarn::u64;
using tarn::reuse::Manifest;
using tarn::reuse::ManifestAnswer;
using tarn::reuse::ManifestIndex;
using tarn::store::Key;

struct Size {
  u32 n_tokens, n_slots;
  bool selects;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  u32 n = 0;
  for (const Size& size :
       {Size{0, 0, false}, {9, 8, false}, {64, 64, false}, {101, 100, true}, {2000, 1999, true}}) {
    const std::vector<u32> tokens(size.n_tokens, 5);
    const std::vector<Key> groups(size.n_slots / 16, Key{1, 2});
    const ManifestIndex index{.key = {6, 5}, .life = {60, 40, 50, 0, 0, 1}, .n_rows = 40};
    const std::vector<ManifestAnswer> answers{{20, 30}, {60, 70}};
    const Manifest manifest{.identity = {.page_tokens = 16},
                            .n_slots = size.n_slots,
                            .tail = size.n_slots % 16 != 0 ? Key{8, 9} : Key{},
                            .first_approx_slot = size.selects ? 52u : 0,
                            .groups = groups,
                            .token_ids = tokens,
                            .turn_begin = size.n_tokens / 2,
                            .name = "a session",
                            .policy = "select.method = 'pq'",
                            .index = std::span(&index, size.selects ? 1 : 0),
                            .answers = std::span(answers).first(size.selects ? answers.size() : 0),
                            .n_fed = size.selects ? 90u : size.n_tokens};
    std::vector<u64> words(tarn::reuse::manifest_bytes(manifest) / 8);
    const auto bytes = std::as_writable_bytes(std::span(words));
    tarn::reuse::encode_manifest(tarn::crc32c_ways()[0], manifest, bytes);
    std::ofstream out(std::string(argv[1]) + "/manifest" + std::to_string(n++), std::ios::binary);
    out.put('\0').write(reinterpret_cast<const char*>(bytes.data()),
                        static_cast<std::streamsize>(bytes.size()));
  }
  return 0;
}
