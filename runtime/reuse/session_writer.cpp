#include "runtime/reuse/session_writer.h"

#include <cstring>
#include <utility>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/reuse/blocking_store.h"

namespace tarn::reuse {
namespace {

constexpr Error kLost{.status = Status::io_failed,
                      .hint =
                          "a part of this session's KV could not be read back from the store, "
                          "so it cannot be saved: generate, which computes it anew, and save "
                          "again"};
constexpr Error kNotWritten{.status = Status::io_failed,
                            .hint =
                                "the session could not be written to the store: check the disk "
                                "and open the engine again"};

// Clears what was in the frame before, so that equal tails have equal bytes.
void zero_behind(const kv::GroupShape& shape, u32 n_slots, std::span<std::byte> group) {
  const u64 used_bytes = u64{n_slots} * 2 * shape.vector_bytes;
  for (u32 head = 0; head < shape.n_kv_heads; ++head) {
    std::byte* page = group.data() + head * shape.page_bytes();
    std::memset(page + used_bytes, 0, shape.page_bytes() - used_bytes);
  }
  std::memset(group.data() + shape.payload_bytes(), 0, group.size() - shape.payload_bytes());
}

}  // namespace

void SessionWriter::init(const ArchiveArgs* args, PageKeys* keys) {
  *this = SessionWriter();
  args_ = args;
  keys_ = keys;
}

void SessionWriter::begin(const SessionView& session, u32 n_slots, bool flushes) {
  TARN_ASSERT(may_begin());
  TARN_ASSERT(n_slots <= session.sequence->n_slots() && n_slots <= session.ids.size());
  session_ = session;
  n_slots_ = n_slots;
  stage_ = Stage::groups;
  next_ = 0;
  begun_ = failed_ = false;
  flushes_ = flushes;
  last_ = {};
  SavedAs& saved = *session_.saved;
  ++saved.revision;
  is_cut_off_ = saved.restored ? saved.restored->is_cut_off : !session.is_idle;
  n_drawn_ = saved.restored ? saved.restored->n_drawn : session.n_drawn;
  if (!flushes_ && saved.saving_at == StoppedAt::input) is_cut_off_ = true;
  if (keys_->n_named_pages(*session.sequence) < n_pages()) {
    end(fail(
        {.status = Status::unsupported,
         .hint = "this session's KV was filled in without a forward pass: it cannot be saved"}));
    return;
  }
  if (has_tail()) copy_tail();
}

void SessionWriter::finish() {
  while (is_saving()) {
    pump();
    if (is_saving()) args_->tiers().mover.pump(kWaitNs);
  }
}

Result<void> SessionWriter::save(const SessionView& session, u32 n_slots) {
  TARN_CHECK(settle());  // another checkpoint, and what a save that was dropped had begun
  begin(session, n_slots, /*flushes=*/true);
  finish();
  return last_;
}

Result<void> SessionWriter::settle() {
  finish();
  while (n_asked_ > 0) args_->tiers().mover.pump(kWaitNs);
  if (n_lent_ == 0) return {};
  return fail(why_not_begun(
      args_->store(), store::Begun::not_now));  // the disk has the buffer, and does not answer
}

void SessionWriter::drop(const SavedAs& saved) {
  if (session_.saved == &saved) stage_ = Stage::none;
}

void SessionWriter::end(const Result<void>& how) {
  last_ = how;
  stage_ = Stage::none;
}

void SessionWriter::pump() {
  while (advance()) {
  }
}

// True where a stage has ended and another one began.
bool SessionWriter::advance() {
  if (!is_saving()) return false;
  if (!begun_) begun_ = begin_stage();
  if (!is_saving() || !begun_ || n_asked_ > 0) return false;
  if (failed_ && stage_ != Stage::old_tails) {
    end(fail(kNotWritten));
    return false;
  }
  if (stage_ == Stage::old_tails) {
    PrivateTails& tails = session_.saved->tails;
    tails.n = 0;
    if (has_private_tail()) tails.put(tail_, n_slots_);
  }
  stage_ = static_cast<Stage>(static_cast<u8>(stage_) + 1);
  next_ = 0;
  begun_ = failed_ = false;
  return is_saving();
}

// Begins operations of the stage; true when all have begun.
bool SessionWriter::begin_stage() {
  switch (stage_) {
    case Stage::groups:
      return begin_groups();
    case Stage::tail:
      return begin_tail();
    case Stage::manifest:
      return begin_manifest();
    case Stage::old_tails:
      return begin_erasures();
    case Stage::flush:
      return !flushes_ || has_begun(args_->store().flush(kWriterTag));
    case Stage::none:
      return false;
  }
  return false;
}

// Whether an operation is on its way. If it is refused for good, the save ends.
bool SessionWriter::has_begun(store::Begun begun) {
  if (begun == store::Begun::begun) {
    ++n_asked_;
    return true;
  }
  if (begun != store::Begun::busy) end(fail(why_not_begun(args_->store(), begun)));
  return false;
}

bool SessionWriter::begin_groups() {
  const u32 n_layers = args_->identity.n_cache_layers;
  const u32 n_groups = n_pages() * n_layers;
  kv::Mover& mover = args_->tiers().mover;
  u32 n_waiting = 0;
  for (u32 i = next_; i < n_groups && n_waiting < args_->spills_max; ++i) {
    const kv::Saved saved = mover.save(session_.sequence->group(i % n_layers, i / n_layers).idx);
    if (saved == kv::Saved::yes && i == next_) ++next_;
    if (saved == kv::Saved::later) ++n_waiting;
    if (saved == kv::Saved::refused) end(mover.why_refused());
    if (saved == kv::Saved::lost) end(fail(kLost));
    if (!is_saving()) return false;
  }
  return next_ == n_groups;
}

// All layers, with zeros behind the slots.
void SessionWriter::copy_tail() {
  kv::Residency& residency = args_->tiers().residency;
  const u64 n_bytes = residency.shape().group_bytes();
  for (u32 layer = 0; layer < args_->identity.n_cache_layers; ++layer) {
    const auto* live = residency.group(session_.sequence->group(layer, n_pages()).idx);
    const auto copy = args_->memory.groups.subspan(layer * n_bytes, n_bytes);
    std::memcpy(copy.data(), live, copy.size());
    zero_behind(residency.shape(), n_slots_ % page_tokens(), copy);
  }
}

bool SessionWriter::begin_tail() {
  if (!has_tail()) return true;
  PrivateTails& tails = session_.saved->tails;
  if (next_ == 0 && !is_approx()) {
    tail_ = keys_->tail(*session_.sequence, session_.root, n_pages(),
                        session_.ids.first(n_slots_).subspan(u64{n_pages()} * page_tokens()));
  } else if (next_ == 0 && tails.n > 0 && tails.n_slots == n_slots_) {
    tail_ = tails.keys[tails.n - 1];  // a private key serves again for the same slots
  } else if (next_ == 0) {
    tail_ = keys_->new_private();
    tails.put(tail_, n_slots_);
  }
  store::Store& store = args_->store();
  const u64 n_bytes = args_->tiers().residency.shape().group_bytes();
  for (; next_ < args_->identity.n_cache_layers; ++next_) {
    const store::Begun begun =
        store.put({.kind = store::Kind::group,
                   .key = store::layer_key(store.secret(), tail_, next_),
                   .token_ids = session_.ids.first(n_slots_).last(n_slots_ % page_tokens()),
                   .payload = args_->memory.groups.subspan(next_ * n_bytes, n_bytes),
                   .payload_bytes = n_bytes,
                   .tag = kWriterTag});
    if (begun != store::Begun::known && !has_begun(begun)) return false;
  }
  return true;
}

Manifest SessionWriter::manifest() const {
  const SavedAs& saved = *session_.saved;
  return {.identity = of_tenant(args_->identity, saved.tenant.key),
          .revision = saved.revision,
          .n_slots = n_slots_,
          .tail = has_tail() ? tail_ : store::Key{},
          .is_cut_off = is_cut_off_,
          .n_drawn = n_drawn_,
          .first_approx_slot = is_approx() ? session_.first_approx_slot : 0,
          .saved_at_s = args_->clock->unix_s(),
          .groups = args_->memory.keys.first(n_pages()),
          .token_ids = session_.ids,
          .turn_begin = std::min(session_.turn_begin, static_cast<u32>(session_.ids.size())),
          .name = saved.name(),
          .policy = session_.policy,
          .index = std::span(&session_.index, session_.policy.empty() ? 0 : 1),
          .answers = std::span(session_.answers).first(session_.n_answers),
          .n_fed = session_.n_fed,
          .tenant = saved.tenant.name(),
          .model = args_->model_name.view()};
}

bool SessionWriter::begin_manifest() {
  store::Store& store = args_->store();
  if (store.mode() == store::Mode::off) return has_begun(store::Begun::not_now);
  if (n_lent_ > 0) return false;  // the disk may still have the buffer of the one before
  TARN_ASSERT(n_pages() <= args_->memory.keys.size());
  for (u32 page = 0; page < n_pages(); ++page) {
    args_->memory.keys[page] = keys_->page(*session_.sequence, page);
  }
  const Manifest manifest = this->manifest();
  if (const char* part = manifest_fault(manifest)) {  // a state that was restored may be odd
    end(fail({.status = Status::unsupported,
              .hint = "this session's state cannot be written: begin a new one",
              .detail = Detail(part)}));
    return false;
  }
  const u64 n_bytes = manifest_bytes(manifest);
  const auto payload = args_->memory.manifest.first(align_up(n_bytes, store::kSectorBytes));
  encode_manifest(*args_->crc, manifest, payload.first(n_bytes));
  std::memset(payload.data() + n_bytes, 0, payload.size() - n_bytes);
  const store::Begun begun =
      store.put({.kind = store::Kind::manifest,
                 .key = store::named_key(store.secret(), manifest.identity.tenant, manifest.name),
                 .payload = payload,
                 .payload_bytes = n_bytes,
                 .known = store::PutArgs::If::replace,
                 .tag = kWriterTag});
  return begun != store::Begun::known && has_begun(begun);  // known: the one before is on its way
}

// No manifest names them any more. What cannot be erased gives way to others by and by.
bool SessionWriter::begin_erasures() {
  store::Store& store = args_->store();
  const u32 n_layers = args_->identity.n_cache_layers;
  const PrivateTails& tails = session_.saved->tails;
  for (; next_ < tails.n * n_layers; ++next_) {
    const store::Key& key = tails.keys[next_ / n_layers];
    if (has_private_tail() && key == tail_) continue;
    const auto found = store.find(store::layer_key(store.secret(), key, next_ % n_layers));
    if (!found || store.index().entry(*found).holds > 0) continue;
    const store::Begun begun = store.erase(*found, kWriterTag);
    if (begun == store::Begun::busy) return false;
    if (begun == store::Begun::begun) ++n_asked_;
  }
  return true;
}

void SessionWriter::take(const store::Event& event) {
  if (event.outcome == store::Outcome::returned) {
    TARN_ASSERT(n_lent_ > 0);
    --n_lent_;
    return;
  }
  TARN_ASSERT(n_asked_ > 0);
  --n_asked_;
  if (event.lent) ++n_lent_;
  if (event.outcome != store::Outcome::ok) failed_ = true;
}

}  // namespace tarn::reuse
