#include "runtime/kv/tier_store.h"

#include <cstring>
#include <utility>

#include "platform/base/assert.h"
#include "platform/cpu/crc32c.h"
#include "platform/io/private_folder.h"
#include "runtime/kv/group_io.h"

namespace tarn::kv {

StorePath store_path(std::string_view folder, std::string_view file) {
  StorePath path{};
  TARN_ASSERT(!folder.empty() && folder.size() + 1 + file.size() < path.size());
  std::memcpy(path.data(), folder.data(), folder.size());
  path[folder.size()] = '/';
  std::memcpy(path.data() + folder.size() + 1, file.data(), file.size());
  return path;
}

Result<void> TierStore::open(const TierStoreArgs& args) {
  TARN_ASSERT(!is_open_);
  log_ = args.log;
  is_abandoned_ = false;
  logged_mode_ = store::Mode::on;
  is_open_ = true;
  Result<void> opened = open_file(args);
  if (!opened) close();
  return opened;
}

Result<void> TierStore::open_file(const TierStoreArgs& args) {
  const StorePath path = store_path(args.folder, args.file);
  io_ = args.io;
  if (io_ == nullptr) {
    TARN_CHECK(make_private_folder(args.folder));
    TARN_TRY(const IoBackendHandle handle,
             io_backend_create({.kind = args.io_kind, .in_flight_max = args.io_in_flight},
                               args.memory.io));
    io_ = handle.backend;
    owns_io_ = true;
    if (handle.why_not != nullptr) log_.info("store io: threads (%s)", handle.why_not);
  }
  io_->register_buffers(args.buffers);  // a refusal costs speed alone
  store::StoreOpenArgs open{.io = io_,
                            .clock = args.clock,
                            .path = path.data(),
                            .limits = args.limits,
                            .memory = args.memory.store,
                            .crc = &crc32c_ways()[0]};
  TARN_CHECK(fill_random(open.entropy));
  return store_.open(open);
}

Result<void> TierStore::stay_off(const Error& why) {
  std::array<u8, 32> entropy{};
  TARN_CHECK(fill_random(entropy));
  store_.stay_off(why, entropy);
  is_open_ = true;
  return {};
}

void TierStore::close() {
  while (!store_.idle() && !store_.is_stuck()) store_.poll({}, kWaitNs);
  if (store_.is_stuck()) {  // and ending the backend would be stuck, too
    store_.abandon();
    is_abandoned_ = true;
    owns_io_ = false;
  }
  store_.close();
  if (owns_io_) io_backend_destroy(io_);
  owns_io_ = false;
  io_ = nullptr;
  is_open_ = false;
}

bool TierStore::take_abandoned() { return std::exchange(is_abandoned_, false); }

const char* TierStore::state_name() const {
  if (!is_open_) return "none";
  if (store_.mode() == store::Mode::on) return "on";
  return store_.mode() == store::Mode::read_only ? "read-only" : "off";
}

// Logs a change of the store's mode: what is in memory goes on, and a host that looks at answers
// alone learns of the change here.
void TierStore::log_state() {
  if (!is_open_ || std::exchange(logged_mode_, store_.mode()) == store_.mode()) return;
  std::array<char, 512> why{};
  format_error(store_.why(), why.data(), why.size());
  log_.warning("the store is %s from now on: %s", state_name(), why.data());
}

bool TierStore::has_lost_records() const {
  const store::StoreStats stats = store_.stats();
  return stats.labels_lost || stats.n_unread_at_start + stats.n_damaged_at_start > 0;
}

// Logs that records were lost. Their names are unknown: a session of theirs is not found, or
// computed anew in part.
void TierStore::log_lost_records() const {
  if (!has_lost_records()) return;
  const store::StoreStats stats = store_.stats();
  if (stats.labels_lost) {
    log_.warning(
        "the store's file had no readable label and begins anew: the sessions that it "
        "kept are lost");
    return;
  }
  log_.warning(
      "%u records of the store were unreadable when it was opened: saved sessions may be "
      "lost, or computed anew in part",
      stats.n_unread_at_start + stats.n_damaged_at_start);
}

}  // namespace tarn::kv
