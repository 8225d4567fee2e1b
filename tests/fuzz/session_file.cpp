// Goal    no bytes given as a pack end the process, or harm a session that is there; what is taken
//         in is whole, and can be deleted again.
// Method  libFuzzer; the first byte says which checksums are made good, since random bytes never
//         have them. Imported into a store over a simulated disk that has a session already, and is
//         opened anew at the end.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "runtime/reuse/session_copy.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/session_bytes.h"
#include "tests/support/sim_disk.h"
#include "tests/support/store_invariants.h"

namespace {

using tarn::u32;
using tarn::u64;
using tarn::u8;
namespace reuse = tarn::reuse;
namespace store = tarn::store;

constexpr u64 kFrames = 64;
using tarn::test::kSessionHere;

using tarn::test::require;

const tarn::Crc32c& crc() { return tarn::crc32c_ways()[0]; }

struct alignas(store::kSectorBytes) Sector {
  std::byte bytes[store::kSectorBytes];
};

// A plain file without a place in any folder.
class NamelessFile {
 public:
  NamelessFile() : fd_(memfd_create("session", MFD_CLOEXEC)) { require(fd_ >= 0); }
  ~NamelessFile() { close(fd_); }
  void fill(std::span<const std::byte> bytes) {
    require(ftruncate(fd_, 0) == 0);
    require(pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

NamelessFile& file() {
  static NamelessFile file;
  return file;
}

struct Kept {
  u32 n = 0;
  bool has_here = false, has_name = false;
};

// A store as `tarn store` opens it, without an engine.
class OpenStore {
 public:
  explicit OpenStore(tarn::test::SimDisk& disk) : io_(disk, clock_, 16) {
    const store::StoreLimits limits{.file_bytes = store::kFramesBegin + kFrames * kFrameBytes,
                                    .frame_bytes = kFrameBytes,
                                    .head_bytes_max = 3 * store::kSectorBytes,
                                    .ops_max = 8};
    const auto n_bytes = store::store_bytes(limits);
    require(n_bytes.has_value());
    memory_.resize(*n_bytes / sizeof(Sector) + 1);
    store::StoreOpenArgs args{.io = &io_,
                              .clock = &clock_,
                              .path = "store",
                              .limits = limits,
                              .memory = std::as_writable_bytes(std::span(memory_)),
                              .crc = &crc()};
    args.entropy.fill(7);
    require(store_.open(args).has_value());
    const auto buffers = std::as_writable_bytes(std::span(buffers_));
    copy_.init({.store = &store_,
                .crc = &crc(),
                .manifest = buffers.first(kManifestBytes),
                .other_manifest = buffers.subspan(kManifestBytes, kManifestBytes),
                .groups = buffers.subspan(2 * kManifestBytes),
                .keys = keys_,
                .pump = [](void* context) { static_cast<OpenStore*>(context)->pump(); },
                .context = this});
  }
  ~OpenStore() {
    while (!store_.idle()) pump();
    store_.close();
  }
  reuse::SessionCopy& copy() { return copy_; }

  Kept sessions() {
    Kept kept;
    copy_.list(
        [](void* context, const reuse::KeptSession& session) {
          auto& found = *static_cast<Kept*>(context);
          ++found.n;
          const bool is_whole = session.n_pages_there == session.n_pages;
          if (session.manifest.name == kSessionHere) {
            found.has_here = is_whole;
          } else {
            found.has_name = true;
          }
        },
        &kept);
    return kept;
  }
  void check() { tarn::test::check_invariants(store_.index()); }

 private:
  static constexpr u64 kFrameBytes = 2 * store::kSectorBytes;
  static constexpr u64 kManifestBytes = 16 * store::kSectorBytes;
  static constexpr u64 kWaitNs = 1'000'000'000;

  void pump() {
    std::array<store::Event, 8> events;
    const u32 n = store_.poll(events, kWaitNs);
    for (u32 i = 0; i < n; ++i) copy_.take(events[i]);
  }

  tarn::VirtualClock clock_;
  tarn::test::SimIo io_;
  std::vector<Sector> memory_;
  std::vector<Sector> buffers_ = std::vector<Sector>(2 * 16 + 32);
  std::vector<store::Key> keys_ = std::vector<store::Key>(64);
  store::Store store_;
  reuse::SessionCopy copy_;
};

// With one session, whose first pages others may share.
const tarn::test::SimDisk& disk_with_session() {
  static const tarn::test::SimDisk disk = [] {
    tarn::test::SimDisk made(1);
    const auto here =
        tarn::test::session_bytes(crc(), {.n_tokens = 40, .n_slots = 39}, kSessionHere);
    file().fill(tarn::test::pack_bytes(crc(), {here}, {0}));
    OpenStore open(made);
    const auto path = file().path();
    require(open.copy().read({.path = path.c_str()}).has_value());
    return made;
  }();
  return disk;
}

void check_still_here(OpenStore& open, u32 n_sessions) {
  const Kept kept = open.sessions();
  require(kept.n == n_sessions && kept.has_here);
  open.check();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const u8* data, std::size_t n_bytes) {
  if (n_bytes == 0) return 0;
  tarn::test::SimDisk disk = disk_with_session();
  std::vector<std::byte> bytes(n_bytes - 1);
  std::memcpy(bytes.data(), data + 1, bytes.size());
  const u8 wrong = data[0];
  tarn::test::mend_pack(
      crc(), {.manifest = (wrong & 1) == 0, .groups = (wrong & 2) == 0, .head = (wrong & 4) == 0},
      bytes);
  file().fill(bytes);
  const std::string path = file().path();
  {
    OpenStore open(disk);
    const std::string_view name = (wrong & 8) == 0 ? "taken in" : "";
    const auto done = open.copy().read({.path = path.c_str(), .name = name});
    // The first of two sessions that give one name stays.
    check_still_here(open, done ? 1 + done->n_sessions - done->n_there : open.sessions().n);
    if (!done) require(std::strlen(done.error().hint) > 0);
    if (done && name.size() > 0 && done->n_there == 0) {
      require(open.sessions().has_name);
      if ((wrong & 16) == 0) {
        require(open.copy().erase(name).has_value());
        check_still_here(open, 1);
      }
    }
  }
  OpenStore again(disk);
  require(again.sessions().has_here);
  again.check();
  return 0;
}
