// The seeds of session_file: packs of one session, from one without KV to one of several pages and
// a tail, one whose prefix the store has already, behind the byte that makes everything good; and
// one that goes by its own name, which the store has. Packs of several: two with a common
// beginning, and one that the store has with the same content.
#include <fstream>
#include <string>

#include "tests/fuzz/session_bytes.h"

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  tarn::u32 n = 0;
  for (const tarn::test::SessionSize& size : {tarn::test::SessionSize{.n_tokens = 1},
                                              {.n_tokens = 17, .n_slots = 16},
                                              {.n_tokens = 40, .n_slots = 39, .first_token = 500},
                                              {.n_tokens = 60, .n_slots = 60, .n_layers = 1},
                                              {.n_tokens = 50, .n_slots = 48}}) {
    const auto& crc = tarn::crc32c_ways()[0];
    const auto bytes =
        tarn::test::pack_bytes(crc, {tarn::test::session_bytes(crc, size, "a session")}, {0});
    std::ofstream out(std::string(argv[1]) + "/session" + std::to_string(n++), std::ios::binary);
    out.put('\0').write(reinterpret_cast<const char*>(bytes.data()),
                        static_cast<std::streamsize>(bytes.size()));
  }
  const auto& crc = tarn::crc32c_ways()[0];
  const auto put = [&](const char* name, const std::vector<std::byte>& pack) {
    std::ofstream file(std::string(argv[1]) + "/" + name, std::ios::binary);
    file.put('\b').write(reinterpret_cast<const char*>(pack.data()),
                         static_cast<std::streamsize>(pack.size()));
  };
  using tarn::test::session_bytes;
  const auto book = session_bytes(crc, {.n_tokens = 49, .n_slots = 48, .n_layers = 1}, "book");
  const auto fork = session_bytes(crc, {.n_tokens = 40, .n_slots = 39, .n_layers = 1}, "fork");
  const auto list = session_bytes(
      crc, {.n_tokens = 17, .n_slots = 16, .n_layers = 1, .first_token = 900}, "a list");
  const auto here = session_bytes(crc, {.n_tokens = 40, .n_slots = 39}, tarn::test::kSessionHere);
  put("pack_of_three", tarn::test::pack_bytes(crc, {book, fork, list}, {0, 2, 0}));
  const auto taken = session_bytes(crc, {.n_tokens = 33, .n_slots = 32, .first_token = 70},
                                   tarn::test::kSessionHere);
  put("same_name", tarn::test::pack_bytes(crc, {taken}, {0}));
  put("pack_of_one", tarn::test::pack_bytes(crc, {list}, {0}));
  put("pack_with_here", tarn::test::pack_bytes(crc, {list, here}, {0, 0}));
  return 0;
}
