#include "tools/tarn/session_folder.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "platform/base/checked.h"
#include "platform/cpu/crc32c.h"
#include "platform/io/private_folder.h"
#include "runtime/config/store_config.h"
#include "tools/support/exit_code.h"

namespace tarn::tools {
namespace {

namespace fs = std::filesystem;

constexpr u64 kWaitNs = 10'000'000;
constexpr u32 kOpsMax = 64;
constexpr u64 kGroupsBytes = 2 * store::kPayloadBytesMax;  // at least two of the largest groups
constexpr u64 kKeysBytes = align_up((reuse::kManifestGroupsMax + 1) * sizeof(store::Key), 4096);

u64 file_bytes_of(const store::Cut& cut) {
  return store::kFramesBegin + cut.n_frames * cut.frame_bytes;
}

std::span<std::byte> reserve_bytes(Reserve& reserve, const char* name, u64 bytes) {
  return value_of(
             reserve.reserve({.name = name, .bytes = bytes, .touch = false, .huge_pages = false}))
      .bytes;
}

}  // namespace

SessionFolder::SessionFolder(const std::string& folder)
    : folder_(folder), path_((fs::path(folder) / kSessionsFile).string()) {
  io_memory_ = reserve_bytes(reserve_, "store io", align_up(io_backend_bytes(), kSectorBytes));
  io_ = value_of(io_backend_create({}, io_memory_)).backend;
  buffers_ =
      reserve_bytes(reserve_, "sessions", 2 * store::kPayloadBytesMax + kGroupsBytes + kKeysBytes);
  const auto keys = buffers_.last(kKeysBytes);
  copy_.init({.store = &store_,
              .crc = &crc32c_ways()[0],
              .manifest = buffers_.first(store::kPayloadBytesMax),
              .other_manifest = buffers_.subspan(store::kPayloadBytesMax, store::kPayloadBytesMax),
              .groups = buffers_.subspan(2 * store::kPayloadBytesMax, kGroupsBytes),
              .keys = {reinterpret_cast<store::Key*>(keys.data()), kKeysBytes / sizeof(store::Key)},
              .pump = [](void* self) { static_cast<SessionFolder*>(self)->pump(kWaitNs); },
              .context = this});
}

SessionFolder::~SessionFolder() {
  try {
    if (restores_) restore();
  } catch (const Failure&) {  // then the file is only longer than needed
  }
  close();
  if (io_ == nullptr) return;
  io_backend_destroy(io_);
  reserve_.release(buffers_);
  reserve_.release(io_memory_);
}

void SessionFolder::pump(u64 timeout_ns) {
  std::array<store::Event, 16> events;
  const u32 n = store_.poll(events, timeout_ns);
  for (u32 i = 0; i < n; ++i) copy_.take(events[i]);
}

void SessionFolder::open_as(const store::Cut& cut, Change change) {
  require_io();
  const store::StoreLimits limits{.file_bytes = file_bytes_of(cut),
                                  .frame_bytes = cut.frame_bytes,
                                  .head_bytes_max = (1 + store::kMetaSectorsMax) * kSectorBytes,
                                  .ops_max = kOpsMax,  // and no write budget: the user waits for it
                                  .keeps = change == Change::none_or_longer};
  const u64 bytes = value_of(store::store_bytes(limits));
  store_memory_ = reserve_bytes(reserve_, "store", bytes);
  store::StoreOpenArgs args{.io = io_,
                            .clock = &clock_,
                            .path = path_.c_str(),
                            .limits = limits,
                            .memory = store_memory_,
                            .crc = &crc32c_ways()[0]};
  value_of(fill_random(args.entropy));
  is_open_ = true;
  value_of(store_.open(args));
}

void SessionFolder::require_io() const {
  if (io_ == nullptr) throw Failure{kExitIo, "the disk of " + path_ + " no longer answers"};
}

bool SessionFolder::open() {
  require_io();
  std::array<std::byte, 3 * kSectorBytes> memory;
  void* at = memory.data();
  size_t n = memory.size();
  std::align(kSectorBytes, store::kFramesBegin, at, n);
  before_ = value_of(store::read_cut(*io_, crc32c_ways()[0], path_.c_str(),
                                     {static_cast<std::byte*>(at), store::kFramesBegin}));
  if (before_.n_frames > 0) {
    open_as(before_, Change::none_or_longer);
    return true;
  }
  std::error_code absent;
  const u64 n_bytes = fs::file_size(path_, absent);
  if (absent || n_bytes == 0) return false;  // or created, but empty
  throw Failure{kExitRefused, path_ +
                                  " is not a file with sessions of this version of Tarn: name "
                                  "another folder with --store DIR"};
}

void SessionFolder::close() {
  if (!is_open_) return;
  while (!store_.idle() && !store_.is_stuck()) pump(kWaitNs);
  is_open_ = false;
  if (store_.is_stuck()) {
    store_.abandon();
    io_ = nullptr;
  }
  store_.close();
  if (io_ != nullptr) reserve_.release(store_memory_);
}

void SessionFolder::make_room(const reuse::SessionCopy::FileFacts& facts) {
  // look_at() has checked that there is a size.
  const store::RecordShape group{.payload_bytes = *reuse::group_bytes(facts.manifest.identity),
                                 .n_tokens = facts.manifest.identity.page_tokens};
  const store::RecordShape manifest{.payload_bytes = facts.head.manifest_bytes + kSectorBytes};
  const u64 n_groups = u64{facts.head.n_pages} * facts.head.n_layers;
  const bool is_there = open();
  store::Cut cut = before_;
  if (!is_there) {
    value_of(make_private_folder(folder_.c_str()));
    cut = {.frame_bytes = group.record_bytes(), .n_frames = 0};
  }
  if (!store::frames_suit(cut.frame_bytes, group.record_bytes())) {
    throw Failure{kExitRefused,
                  "the sessions in this folder belong to a model with KV of another size: import "
                  "this one into another folder (--store DIR)"};
  }
  const u64 n_needed = n_groups * group.frames(cut.frame_bytes) + manifest.frames(cut.frame_bytes);
  const u64 n_free = is_there ? store_.index().n_free() : 0;
  const bool is_scattered = n_free < store_.index().n_frames();  // records need consecutive frames
  const u64 n_wanted = n_needed + (is_scattered ? manifest.frames(cut.frame_bytes) : 0);
  if (is_there && n_free >= n_wanted) return;
  close();
  cut.n_frames += static_cast<u32>(n_wanted - n_free);
  try {
    open_as(cut, Change::none_or_longer);
  } catch (const Failure&) {
    restores_ = store_.has_file();  // created or extended, and then the disk was full
    throw;
  }
  restores_ = true;  // from here on it may be restored
}

void SessionFolder::restore() {
  if (before_.n_frames > 0) {
    close();
    if (io_ != nullptr) open_as(before_, Change::shorter);
    return;
  }
  std::error_code ignored;
  fs::remove(path_, ignored);
}

}  // namespace tarn::tools
