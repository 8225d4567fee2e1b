// The seeds of manifest: sessions from nothing said yet to several turns with codebooks, behind the
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
using tarn::reuse::ManifestBias;
using tarn::reuse::ManifestCodebook;
using tarn::reuse::ManifestIndex;
using tarn::store::Key;

struct Size {
  u32 n_tokens, n_slots, n_turns;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  u32 n = 0;
  for (const Size& size :
       {Size{0, 0, 0}, {9, 8, 0}, {64, 64, 1}, {101, 100, 3}, {2000, 1999, 30}}) {
    std::vector<u32> tokens(size.n_tokens, 5), turns;
    std::vector<Key> groups(size.n_slots / 16, Key{1, 2});
    std::vector<ManifestCodebook> codebooks;
    std::vector<ManifestBias> biases;
    for (u32 i = 0; i < size.n_turns; ++i) {
      turns.push_back(i * 20);
      codebooks.push_back({.key = {i, 5}, .first_slot = 16 + i * 10, .n_slots = 10});
      biases.push_back({.token = i, .bias = -1.5f});
    }
    // Those of several turns have selected.
    const ManifestIndex index{.life = {60, 40, 50, 0, 0, 0, 30, 1}};
    const std::vector<ManifestAnswer> answers{{20, 30}, {60, 70}};
    const bool is_approx = size.n_turns > 1;
    const Manifest manifest{.identity = {.page_tokens = 16},
                            .n_slots = size.n_slots,
                            .tail = size.n_slots % 16 != 0 ? Key{8, 9} : Key{},
                            .first_approx_slot = is_approx ? 52u : 0,
                            .groups = groups,
                            .codebooks = codebooks,
                            .token_ids = tokens,
                            .turn_begins = turns,
                            .biases = biases,
                            .name = "a session",
                            .policy = "select.method = 'pq'",
                            .index = std::span(&index, is_approx ? 1 : 0),
                            .answers = std::span(answers).first(is_approx ? answers.size() : 0),
                            .n_fed = is_approx ? 90u : 0};
    std::vector<u64> words(tarn::reuse::manifest_bytes(manifest) / 8);
    const auto bytes = std::as_writable_bytes(std::span(words));
    tarn::reuse::encode_manifest(tarn::crc32c_ways()[0], manifest, bytes);
    std::ofstream out(std::string(argv[1]) + "/manifest" + std::to_string(n++), std::ios::binary);
    out.put('\0').write(reinterpret_cast<const char*>(bytes.data()),
                        static_cast<std::streamsize>(bytes.size()));
  }
  return 0;
}
