#include "runtime/kv/extent_writes.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::kv {
namespace {

constexpr u64 kWaitNs = 10'000'000;  // of one look at the disk

}  // namespace

void ExtentWrites::init(const Args& args) {
  TARN_ASSERT(args.store != nullptr && args.mover != nullptr && args.stats != nullptr);
  *this = ExtentWrites();
  args_ = args;
}

bool ExtentWrites::affords(u64 n_bytes, u32 order) const {
  const u64 reserved_bytes = args_.daily_write_bytes / 4 * (2 + order);
  return args_.daily_write_bytes == 0 ||
         args_.store->stats().budget_left_bytes >= reserved_bytes + n_bytes;
}

bool ExtentWrites::put(store::PutArgs args, const Put& put) {
  const auto unused = [](const Put& p) { return !p.is_used; };
  while (n_puts_ > 0 && std::none_of(puts_.begin(), puts_.end(), unused)) {
    args_.mover->pump(kWaitNs);
  }
  const auto slot = std::find_if(puts_.begin(), puts_.end(), unused);
  if (slot == puts_.end()) return false;  // the disk keeps them all: the store is off
  args.tag = args_.first_tag + static_cast<u64>(slot - puts_.begin());
  store::Begun begun = args_.store->put(args);
  while (begun == store::Begun::busy) {
    args_.mover->pump(kWaitNs);
    begun = args_.store->put(args);
  }
  if (begun != store::Begun::begun) return false;
  *slot = put;
  slot->is_used = true;
  ++n_puts_;
  args_.stats->bytes_written += args.payload.size();
  return true;
}

void ExtentWrites::settle() {
  while (n_puts_ > 0) args_.mover->pump(kWaitNs);
}

void ExtentWrites::erase(store::RecordRef ref) {
  args_.store->unpin(ref);
  const store::RecordIndex& index = args_.store->index();
  if (index.is_current(ref) && index.entry(ref).holds > 0) return;
  const u64 tag = args_.first_tag + kExtentPutsMax;
  while (args_.store->erase(ref, tag) == store::Begun::busy) args_.mover->pump(kWaitNs);
}

std::optional<ExtentWrites::Ended> ExtentWrites::take(const store::Event& event) {
  if (event.tag - args_.first_tag >= kExtentPutsMax) return std::nullopt;
  Put& put = puts_[event.tag - args_.first_tag];
  const Put ended = put;
  put.is_used = event.lent;
  if (event.outcome == store::Outcome::returned) return std::nullopt;
  --n_puts_;
  // In a full store it may have given way to another already.
  const bool is_there =
      event.outcome == store::Outcome::ok && args_.store->index().is_current(event.ref);
  return Ended{ended, is_there};
}

}  // namespace tarn::kv
