#include "tools/tarn/session_folder.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "platform/base/checked.h"
#include "platform/cpu/crc32c.h"
#include "platform/io/private_folder.h"
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

SessionFolder::SessionFolder(const std::string& folder, const char* file)
    : folder_(folder), path_((fs::path(folder) / file).string()) {
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
  close();
  std::error_code ignored;
  if (is_new_) fs::remove(path_, ignored);
  if (io_ == nullptr) return;
  io_backend_destroy(io_);
  reserve_.release(buffers_);
  reserve_.release(io_memory_);
}

void SessionFolder::pump(u64 timeout_ns) {
  std::array<store::Event, 16> events;
  if (on_wait_) on_wait_();
  const u32 n = store_.poll(events, timeout_ns);
  for (u32 i = 0; i < n; ++i) copy_.take(events[i]);
}

void SessionFolder::open_as(const store::Cut& cut, Use use) {
  require_io();
  const store::StoreLimits limits{.file_bytes = file_bytes_of(cut),
                                  .frame_bytes = cut.frame_bytes,
                                  .head_bytes_max = (1 + store::kMetaSectorsMax) * kSectorBytes,
                                  .ops_max = kOpsMax,  // and no write budget: the user waits for it
                                  .read_errors_max = ~u32{0},  // bad sectors are counted, not fatal
                                  .keeps = true,
                                  .clears_damage = use == Use::clears,
                                  .reads_alone = use == Use::reads};
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
  const Result<void> opened = store_.open(args);
  if (opened) return;
  is_new_ = is_new_ && store_.has_file();  // created, and then the disk was full
  const Figure& figure = opened.error().figures[0];
  const bool is_held = figure.name != nullptr && std::strcmp(figure.name, "errno") == 0 &&
                       figure.value == EWOULDBLOCK;
  if (!is_held) throw_failure(opened.error());
  throw Failure{kExitIo, path_ +
                             " is open in another program. If that is tarnd, ask it: tarn store "
                             "--socket ADDRESS lists, and rm deletes; for the rest stop it. "
                             "Otherwise wait for the program's end"};
}

void SessionFolder::require_io() const {
  if (io_ == nullptr) throw Failure{kExitIo, "the disk of " + path_ + " no longer answers"};
}

bool SessionFolder::open(Use use) {
  require_io();
  std::array<std::byte, 3 * kSectorBytes> memory;
  void* at = memory.data();
  size_t n = memory.size();
  std::align(kSectorBytes, store::kFramesBegin, at, n);
  cut_ = value_of(store::read_cut(*io_, crc32c_ways()[0], path_.c_str(),
                                  {static_cast<std::byte*>(at), store::kFramesBegin}));
  if (cut_.n_frames > 0) {
    open_as(cut_, use);
    return true;
  }
  std::error_code absent;
  const u64 n_bytes = fs::file_size(path_, absent);
  if (absent || n_bytes == 0) return false;  // or created, but empty
  throw Failure{kExitRefused, path_ +
                                  " is not a store's file of this version of Tarn: name another "
                                  "folder with --store DIR"};
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

SessionFolder::FileFacts SessionFolder::make_room(const std::string& file,
                                                  const std::optional<std::string>& tenant,
                                                  const std::string& as) {
  const bool is_there = open(Use::writes);
  struct Needs {
    SessionFolder& folder;
    const std::optional<std::string>& tenant;
    const std::string& as;
    FileFacts facts{};
    store::RecordShape group{};  // of the first session
    store::RecordShape longest_manifest{};
    std::vector<std::pair<store::RecordShape, u64>> records{};  // and how many of them
  } needs{*this, tenant, as};
  value_of(copy_.look_at(
      file.c_str(),
      [](void* context, const reuse::SessionCopy::FileFacts& facts) {
        Needs& sum = *static_cast<Needs*>(context);
        const reuse::Manifest& session = facts.manifest;
        const std::string name = sum.as.empty() ? std::string(session.name) : sum.as;
        // look_at() has checked that there is a size.
        const store::RecordShape group{*reuse::group_bytes(session.identity),
                                       session.identity.page_tokens};
        const store::RecordShape manifest{facts.head.manifest_bytes + kSectorBytes};
        if (sum.facts.n_sessions++ == 0) sum.group = group, sum.facts.name = session.name;
        sum.facts.n_tokens_max = std::max<u64>(sum.facts.n_tokens_max, session.token_ids.size());
        const store::Key whose =
            sum.folder.copy_.tenant_key(sum.tenant ? *sum.tenant : std::string(session.tenant));
        if (sum.folder.copy_.find_record(name, whose)) return;  // it is there, or refused
        if (manifest.payload_bytes > sum.longest_manifest.payload_bytes)
          sum.longest_manifest = manifest;
        sum.records.push_back({group, u64{facts.head.n_pages} * facts.head.n_layers});
        sum.records.push_back({manifest, 1});
      },
      &needs));
  store::Cut cut = cut_;
  if (!is_there) {
    value_of(make_private_folder(folder_.c_str()));
    cut = {.frame_bytes = needs.group.record_bytes(), .n_frames = 0};
  }
  if (!store::frames_suit(cut.frame_bytes, needs.group.record_bytes())) {
    throw Failure{kExitRefused,
                  "the sessions in this folder belong to a model with KV of another size: unpack "
                  "into another folder (--store DIR)"};
  }
  u64 n_wanted = 0;
  for (const auto& [shape, n] : needs.records) n_wanted += n * shape.frames(cut.frame_bytes);
  const u64 n_free = is_there ? store_.index().n_free() : 0;
  const bool is_scattered = n_free < store_.index().n_frames();  // records need consecutive frames
  if (is_scattered && !needs.records.empty())
    n_wanted += needs.longest_manifest.frames(cut.frame_bytes);
  if (is_there && n_free >= n_wanted) return needs.facts;
  cut.n_frames += static_cast<u32>(std::max<u64>(n_wanted, n_free + 1) - n_free);
  close();
  is_new_ = !is_there;
  open_as(cut, Use::writes);
  has_grown_ = is_there;
  return needs.facts;
}

}  // namespace tarn::tools
