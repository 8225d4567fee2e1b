// Goal    a pack that was made to do harm is refused, ends no process and leaves
//         no file behind: figures that are whole, but that no engine would write.
// Method  files made here byte by byte, with good checksums and keys; the program as a shell starts
//         it. A sound one beside them is taken.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "platform/base/checked.h"
#include "runtime/reuse/manifest.h"
#include "runtime/reuse/session_file.h"
#include "tests/support/manifest_bytes.h"
#include "tests/support/pack_of_one.h"
#include "tests/support/temp_dir.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"

namespace tarn::sessions_hostile_native_test {
namespace {

using store::kSectorBytes;

constexpr u64 kPageTokensAt = 76, kTailAt = 112, kSlotsAt = 144;  // of the manifest
constexpr u64 kGroupBytes = 8192;

struct Made {
  u32 page_tokens = 16;
  u32 n_tokens = 20;
  u32 n_slots = 16;
  u32 kv_type = 0;
  u64 group_bytes = kGroupBytes;
  u32 n_pages = 1;
};

void put_u32(std::span<std::byte> bytes, u64 at, u32 value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// One layer; more slots than a page has are one page's here, whatever their number.
std::string session_file(const Made& made) {
  const Crc32c& crc = crc32c_ways()[0];
  const store::Key chain{3, 4};
  const bool has_group = made.n_slots == made.page_tokens;
  const std::vector<u32> tokens(made.n_tokens, 5);
  const std::vector<store::Key> groups(has_group ? 1 : 0, chain);
  const reuse::Manifest manifest{.identity = {.n_cache_layers = 1,
                                              .n_kv_heads = 2,
                                              .head_dim = 64,
                                              .page_tokens = 16,
                                              .kv_type = made.kv_type,
                                              .layout = reuse::kPageLayout},
                                 .n_slots = has_group ? made.n_slots : 0,
                                 .groups = groups,
                                 .token_ids = tokens,
                                 .name = "made",
                                 .n_fed = made.n_tokens};
  const u64 n_bytes = reuse::manifest_bytes(manifest);
  std::vector<u64> words(align_up(n_bytes, kSectorBytes) / 8);
  const auto padded = std::as_writable_bytes(std::span(words));
  const auto bytes = padded.first(n_bytes);
  reuse::encode_manifest(crc, manifest, bytes);
  put_u32(bytes, kPageTokensAt, made.page_tokens);
  put_u32(bytes, kSlotsAt, made.n_slots);
  if (!has_group && made.n_slots > 0) std::memcpy(bytes.data() + kTailAt, &chain, sizeof chain);
  test::mend_manifest(crc, bytes);
  const reuse::SessionFileHead head{.manifest_bytes = n_bytes,
                                    .group_bytes = made.group_bytes,
                                    .n_layers = 1,
                                    .n_pages = made.n_pages,
                                    .manifest_crc = crc.bytes(bytes.data(), n_bytes)};
  std::string file(reuse::session_file_bytes(head), '\0');
  const auto out = std::as_writable_bytes(std::span(file));
  alignas(8) std::array<std::byte, kSectorBytes> sector;
  reuse::encode_session_head(crc, head, sector);
  std::copy(sector.begin(), sector.end(), out.begin());
  std::copy(padded.begin(), padded.end(), out.begin() + kSectorBytes);
  if (made.n_pages == 0) return file;
  const auto group = out.subspan(reuse::session_groups_begin(head));
  const auto payload = group.subspan(sizeof(reuse::SessionGroupHead));
  const auto sealed =
      reuse::sealed_group_head(crc, {.chain = chain, .manifest_crc = head.manifest_crc}, payload);
  std::memcpy(group.data(), &sealed, sizeof sealed);
  return file;
}

TEST_CASE("a pack that was made to do harm is refused, and leaves no file") {
  const test::TempFile file("made.pack");
  const auto import = [&](const Made& made, const test::TempDir& folder) {
    const std::string bytes = test::pack_of_one(session_file(made));
    tools::write_file(file.path(), bytes.data(), bytes.size());
    return test::run_tarn({"store", "unpack", file.path(), "--store", folder.path()});
  };
  struct Case {
    Made made;
    int exit_code;
    const char* says;
  };
  const Case cases[] = {
      {{.page_tokens = 70'000, .n_tokens = 66'000, .n_slots = 66'000, .group_bytes = 4096},
       74,
       "kv.page_tokens"},
      {{.page_tokens = 60'000'000, .n_slots = 0, .n_pages = 0}, 74, "kv.page_tokens"},
      {{.group_bytes = kGroupBytes / 2}, 74, "group_bytes"},
      {{.group_bytes = kGroupBytes * 2}, 74, "group_bytes"},
      {{.kv_type = 9}, 78, "of a type"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.says);
    const test::TempDir folder("sessions_hostile");
    const test::Ended ended = import(c.made, folder);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == c.exit_code);
    CHECK(ended.err.find(c.says) != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/sessions.tarn"));
  }
  for (const Made& sound :
       {Made{}, Made{.n_slots = 0, .group_bytes = kSectorBytes, .n_pages = 0}}) {
    const test::TempDir folder("sessions_sound");
    const test::Ended ended = import(sound, folder);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
    // The file is cut for groups of this size, also where it has none yet.
    const u64 n_bytes = std::filesystem::file_size(folder.path() + "/sessions.tarn");
    CHECK((n_bytes - store::kFramesBegin) % (kGroupBytes + kSectorBytes) == 0);
  }
}

}  // namespace
}  // namespace tarn::sessions_hostile_native_test
