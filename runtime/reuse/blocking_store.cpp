#include "runtime/reuse/blocking_store.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::reuse {

Error why_not_begun(const store::Store& store, store::Begun begun) {
  if (begun == store::Begun::over_budget) {
    return {.status = Status::would_block,
            .hint =
                "the session cannot be written now, since the store's write budget is used up: "
                "wait, or raise store.daily_write_bytes"};
  }
  if (begun == store::Begun::no_room) {
    return {.status = Status::would_block,
            .hint =
                "the session cannot be written, since the store is full of what open sessions "
                "hold: raise store.quota_bytes, or end a session"};
  }
  if (store.why().status != Status::ok) return store.why();
  return {.status = Status::io_failed,
          .hint =
              "the session could not be written to the store: check the disk and open the "
              "store again"};
}

void BlockingStore::init(store::Store* store, std::span<std::byte> groups, u64 first_tag,
                         void (*on_pump)(void* context), void* context) {
  *this = BlockingStore();
  store_ = store;
  groups_ = groups;
  first_tag_ = first_tag;
  pump_ = on_pump;
  context_ = context;
}

void BlockingStore::take(const store::Event& event) {
  TARN_ASSERT(n_open_ > 0);
  const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                 [&](const Slot& s) { return s.busy && s.tag == event.tag; });
  const bool has_buffer = slot != slots_.end();
  if (event.outcome == store::Outcome::written || event.outcome == store::Outcome::returned) {
    if (has_buffer) slot->busy = false;
    if (event.outcome == store::Outcome::returned) --n_open_, --n_lent_;
    return;
  }
  if (event.outcome != store::Outcome::ok) failed_ = true;
  if (has_buffer) {
    slot->outcome = event.outcome;
    slot->busy = event.lent;
    slot->lent = event.lent;
  }
  const bool is_new = event.op == store::Op::put && event.outcome == store::Outcome::ok && holds_;
  if (is_new && store_->index().is_current(event.ref)) {
    store_->pin(event.ref);
    ++n_held_;
  }
  if (event.lent) {
    ++n_lent_;
  } else {
    --n_open_;
  }
}

void BlockingStore::wait_for(const Slot& slot) {
  while (slot.busy && !slot.lent) pump();
}

void BlockingStore::wait_for_all() {
  while (n_open_ > n_lent_) pump();
}

std::span<std::byte> BlockingStore::buffer(const Slot& slot) const {
  const u64 idx = static_cast<u64>(&slot - slots_.data());
  return groups_.subspan(idx * group_bytes_, group_bytes_);
}

Result<void> BlockingStore::begin_groups(u64 group_bytes) {
  if (!is_idle()) {
    return fail({.status = Status::io_failed,
                 .hint = "the disk does not answer: check it, and open the store again"});
  }
  failed_ = false;
  group_bytes_ = group_bytes;
  n_slots_ = static_cast<u32>(
      std::min<u64>(group_bytes > 0 ? groups_.size() / group_bytes : 0, kCopyBuffersMax));
  if (group_bytes == 0 || n_slots_ > 0) return {};
  return fail({.status = Status::invalid_request,
               .reason = Reason::saved_otherwise,
               .hint = "the session's groups of KV are larger than this model's: it is of another "
                       "one, or of other settings",
               .figures = {{{"group_bytes", group_bytes}, {"room", groups_.size()}}}});
}

bool BlockingStore::read(store::RecordRef ref, std::span<std::byte> payload) {
  forgive();
  const store::Begun begun =
      begin([&](u64 tag) { return store_->read({.ref = ref, .payload = payload, .tag = tag}); });
  if (begun != store::Begun::begun) return false;
  wait_for_all();
  return !failed_;
}

Result<void> BlockingStore::flush() {
  const store::Begun begun = begin([&](u64 tag) { return store_->flush(tag); });
  if (begun != store::Begun::begun) return fail(why_not_begun(*store_, begun));
  wait_for_all();
  if (failed_) return fail(why_not_begun(*store_, store::Begun::not_now));
  return {};
}

bool BlockingStore::erase(store::RecordRef ref) {
  if (!store_->index().is_current(ref) || store_->index().entry(ref).holds > 0) return false;
  return begin([&](u64 tag) { return store_->erase(ref, tag); }) == store::Begun::begun;
}

void BlockingStore::begin_holding() {
  holds_ = true;
  n_held_ = 0;
}

u64 BlockingStore::end_holding() {
  holds_ = false;
  return n_held_;
}

}  // namespace tarn::reuse
