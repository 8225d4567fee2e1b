// What poll() does: hands requests to the disk, takes their ends, verifies, and ends operations.
#include <errno.h>

#include <algorithm>

#include "platform/base/assert.h"
#include "runtime/store/store.h"

namespace tarn::store {
namespace {

// Tags of requests: an operation's slot and which of its requests; the sync has its own.
constexpr u64 kRunsOfTag = 256;
constexpr u32 kHeadRun = 255;
constexpr u64 kSyncTag = ~u64{0} - 1;
constexpr u32 kWriteErrorsMax = 2;
constexpr u64 kCrcsAtOnce = 64;
constexpr const char* kReadsFail =
    "reads of the store's file fail: it is turned off; check the disk (dmesg), or name another "
    "folder as store.path";

// Whether sectors have these checksums.
bool sectors_hold(const Crc32c& crc, const std::byte* sectors, std::span<const u32> crcs) {
  std::array<u32, kCrcsAtOnce> found;
  for (u64 i = 0; i < crcs.size(); i += kCrcsAtOnce) {
    const u64 n_now = std::min(kCrcsAtOnce, crcs.size() - i);
    crc.sectors(sectors + i * kSectorBytes, n_now, found.data());
    if (!std::equal(found.begin(), found.begin() + n_now, crcs.data() + i)) return false;
  }
  return true;
}

// Why nothing is written any more, and what helps; always the same after it: open the store again.
const char* write_failure_hint(i64 result) {
  switch (-result) {
    case ENOSPC:
      return "the disk is full: nothing is written to the store until it is opened again; free "
             "some, or move the folder to another disk (store.path)";
    case EDQUOT:
      return "this user's disk quota is used up: nothing is written to the store until it is "
             "opened again; raise the quota, or move the folder to another disk (store.path)";
    case EROFS:
      return "the store's file system has become read-only, as it does after errors: nothing is "
             "written until it is opened again; check the disk, and mount it writable";
    default:
      return "writes to the store's file fail: nothing is written any more until it is opened "
             "again; check the disk (dmesg), or name another folder as store.path";
  }
}

}  // namespace

bool Store::submit(Slot& slot, u32 run, const IoRequest& request) {
  IoRequest tagged = request;
  tagged.file = file_;
  tagged.tag = slot_idx(slot) * kRunsOfTag + run;
  if (!io_->submit(tagged)) return false;
  ++slot.n_io;
  ++n_io_;
  ++stats_.n_requests;
  slot.deadline_ns = next_deadline();
  const u64 bytes = request.buffer.size();
  (request.op == IoOp::read ? stats_.bytes_read : stats_.bytes_written) += bytes;
  return true;
}

// Run 0 of a put is its payload, run 1 what of its head lies behind the head sector; the head
// sector itself is the last to be written, and publishes the record.
void Store::go_on_put(Slot& slot) {
  const u64 offset = offset_of(slot.ref.frame_idx);
  if (slot.stage == Stage::payload) {
    const auto meta = slot.head.subspan(kSectorBytes);
    while (slot.next_run < 2 && !slot.failed) {
      const auto buffer = slot.next_run == 0 ? slot.payload : meta;
      const u64 at = slot.next_run == 0 ? offset + slot.head.size() : offset + kSectorBytes;
      const IoRequest request{.op = IoOp::write, .offset = at, .buffer = buffer};
      if (!buffer.empty() && !submit(slot, slot.next_run, request)) return;
      ++slot.next_run;
    }
    if (slot.n_io == 0) take_put(slot);
  } else if (slot.stage == Stage::head && slot.next_run == 0) {
    const IoRequest request{
        .op = IoOp::write, .offset = offset, .buffer = slot.head.first(kSectorBytes)};
    if (submit(slot, 0, request)) ++slot.next_run;
  }
}

// All that was asked for in this stage has ended.
void Store::take_put(Slot& slot) {
  if (slot.failed) {
    // A manifest that was never reported as written must not be found at a later start, when the
    // one that counts has been deleted.
    const bool may_be_found = slot.stage == Stage::head && mode_ == Mode::on &&
                              index_.entry(slot.ref).kind == Kind::manifest;
    if (!may_be_found) return end(slot, Outcome::io_failed);
    slot.stage = Stage::burial_waits;
    go_on_burial(slot);
  } else if (slot.stage == Stage::payload) {
    // What the disk has taken is what the buffer held all the while, or somebody wrote to it.
    if (!put_still_holds(slot)) return end(slot, Outcome::corrupt);
    slot.stage = Stage::written;
    slot.written_at_ns = clock_->now_ns();
    slot.tell_written = slot.gives_back;
  } else if (slot.stage == Stage::head) {
    publish(slot);
  }
}

bool Store::put_still_holds(const Slot& slot) const {
  auto view = parse_head(*crc_, place_of(slot.ref.frame_idx), slot.head);
  TARN_ASSERT(view && parse_meta(*crc_, slot.head, *view));
  return sectors_hold(*crc_, slot.payload.data(), view->payload_crcs());
}

void Store::publish(Slot& slot) {
  index_.publish(slot.ref);
  slot.has_record = false;
  ++stats_.n_published;
  const RecordRef replaced = slot.replaced;
  slot.replaced = {};
  if (replaced.frame_idx != kNoFrame && index_.is_current(replaced)) {
    // The old one goes from the disk too, or a restart could find it when this one is evicted; but
    // not before a sync has kept the new one's head, or a power loss could leave neither.
    index_.retire(replaced);
    slot.erased = replaced;
    slot.stage = Stage::published;
    slot.written_at_ns = clock_->now_ns();
  } else {
    end(slot, Outcome::ok);
  }
  if (replaced.frame_idx != kNoFrame) let_go(replaced);  // erased or dropped by others, perhaps
}

// One sync for many: it waits for payloads that are on their way, but not for all for ever. Where
// none is, more may come as soon as the caller hears of those that are written: the next poll
// begins after that.
bool Store::sync_is_due(When when) const {
  u64 n_written = 0, n_on_their_way = 0, written_bytes = 0, first_at_ns = ~u64{0};
  for (const Slot& slot : slots_) {
    if (flush_is_due(slot)) return true;
    if (slot.op != Op::put) continue;
    if (slot.stage == Stage::payload) ++n_on_their_way;
    if (slot.stage != Stage::written && slot.stage != Stage::published) continue;
    ++n_written;
    if (slot.stage == Stage::written) written_bytes += index_.entry(slot.ref).payload_bytes;
    first_at_ns = std::min(first_at_ns, slot.written_at_ns);
  }
  if (n_written == 0) return false;
  const bool alone = n_on_their_way == 0 && when == When::poll_begins;
  return alone || n_written >= slots_.size() / 2 || written_bytes >= limits_.sync_bytes ||
         clock_->now_ns() - first_at_ns >= limits_.sync_wait_ns;
}

void Store::go_on_sync(When when) {
  if (sync_in_flight_ || !sync_is_due(when)) return;
  if (!io_->submit({.op = IoOp::sync_data, .file = file_, .tag = kSyncTag})) return;
  sync_in_flight_ = true;
  ++n_io_;
  ++stats_.n_syncs;
  sync_deadline_ns_ = next_deadline();
  for (Slot& slot : slots_) {
    const bool is_written = slot.op == Op::put && slot.stage == Stage::written;
    if (is_written || flush_is_due(slot)) slot.stage = Stage::syncing;
    if (slot.stage == Stage::published) slot.stage = Stage::syncing_head;
  }
}

bool Store::flush_is_due(const Slot& slot) const {
  if (slot.op != Op::flush || slot.stage != Stage::waiting) return false;
  return std::none_of(slots_.begin(), slots_.end(), [&](const Slot& other) {
    const bool writes = other.op == Op::put || other.op == Op::erase;
    const bool has_ended = other.stage == Stage::ended || other.stage == Stage::lent;
    return writes && !has_ended && other.sequence < slot.sequence;
  });
}

bool Store::will_go_on() const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    if (slot.n_io > 0 || slot.stage == Stage::ended) return true;
    if (slot.op == Op::none) return false;
    if (slot.stage == Stage::waiting) return mode_ != Mode::on || flush_is_due(slot);
    if (slot.stage != Stage::erase_waits) return true;
    return mode_ != Mode::on || index_.entry(slot.erased).life == Life::completed;
  });
}

void Store::take_sync(i64 result) {
  sync_in_flight_ = false;
  if (result < 0) {
    ++stats_.n_write_errors;
    if (mode_ == Mode::on) fall_to(Mode::read_only, write_failure_hint(result), result);
  }
  for (Slot& slot : slots_) {
    if (slot.stage == Stage::syncing_head) {
      slot.stage = Stage::erase_waits;  // go_on() ends it where nothing may be written any more
      continue;
    }
    if (slot.stage != Stage::syncing) continue;
    if (result < 0) {
      end(slot, Outcome::io_failed);
    } else if (slot.op == Op::flush) {
      end(slot, Outcome::ok);
    } else {
      index_.step(slot.ref, Life::writing, Life::verified);
      slot.stage = Stage::head;
      slot.next_run = 0;
    }
  }
}

void Store::go_on_read(Slot& slot) {
  if (slot.stage != Stage::payload) return;
  const u64 offset = offset_of(slot.ref.frame_idx);
  if (slot.head_wanted && !slot.failed) {
    const IoRequest request{.op = IoOp::read, .offset = offset, .buffer = slot.head};
    if (!submit(slot, kHeadRun, request)) return;
    slot.head_wanted = false;
  }
  while (slot.next_run < slot.n_runs && !slot.failed) {
    const Run& run = slot.runs[slot.next_run];
    const u64 landing = (run.first_sector - slot.landing_sector) * kSectorBytes;
    const IoRequest request{.op = IoOp::read,
                            .offset = offset + slot.head.size() + run.first_sector * kSectorBytes,
                            .buffer = slot.payload.subspan(landing, run.n_sectors * kSectorBytes)};
    if (!submit(slot, slot.next_run, request)) return;
    ++slot.next_run;
  }
  if (slot.n_io > 0) return;
  const Outcome outcome = slot.failed ? Outcome::io_failed : verified_read(slot);
  if (outcome == Outcome::ok) ++stats_.n_reads_ok;
  if (outcome == Outcome::corrupt || outcome == Outcome::io_failed) drop(slot.ref);
  end(slot, outcome);
}

// Nothing where it is not that of the record that was asked for.
std::optional<HeadView> Store::head_of(const Slot& slot) const {
  const IndexEntry& entry = index_.entry(slot.ref);
  std::optional<HeadView> view;
  if (slot.head_is_known) {
    view = view_again(slot.head);
  } else {
    view = parse_head(*crc_, place_of(slot.ref.frame_idx), slot.head);
    // Another record's head, as a lost write leaves it there, may be a longer one.
    if (view && view->shape().head_bytes() > slot.head.size()) return std::nullopt;
    if (view && !parse_meta(*crc_, slot.head, *view)) return std::nullopt;
  }
  if (!view) return std::nullopt;
  const RecordHead& head = view->head();
  const bool is_its = head.generation == slot.ref.generation && head.key == entry.key &&
                      head.payload_bytes == entry.payload_bytes;
  return is_its ? view : std::nullopt;
}

Outcome Store::verified_read(const Slot& slot) const {
  const std::optional<HeadView> view = head_of(slot);
  if (!view) return Outcome::corrupt;
  for (const Run& run : std::span(slot.runs).first(slot.is_checked_later ? 0 : slot.n_runs)) {
    const u64 landing = (run.first_sector - slot.landing_sector) * kSectorBytes;
    const auto crcs = view->payload_crcs().subspan(run.first_sector, run.n_sectors);
    if (!sectors_hold(*crc_, slot.payload.data() + landing, crcs)) return Outcome::corrupt;
  }
  const auto tokens = view->token_ids();
  const u64 n = slot.token_ids.size();
  if (n > tokens.size() ||
      !std::equal(slot.token_ids.begin(), slot.token_ids.end(), tokens.begin())) {
    return Outcome::other_tokens;
  }
  return Outcome::ok;
}

bool Store::holds(std::span<const std::byte> head, u32 first_sector,
                  std::span<const std::byte> sectors) const {
  const std::optional<HeadView> view = view_again(head);
  const u64 n_sectors = sectors.size() / kSectorBytes;
  if (!view || first_sector + n_sectors > view->payload_crcs().size()) return false;
  return sectors_hold(*crc_, sectors.data(), view->payload_crcs().subspan(first_sector, n_sectors));
}

// A grave over a head. It is younger than all heads there are, and so it is what says at the next
// start how full the bucket of the write budget was: zeros over the youngest head would give back
// what has been written since the one before it. It uses the budget up, but waits for none: what
// was deleted must go.
bool Store::submit_grave(Slot& slot, u32 frame_idx) {
  refill_budget();  // it is the youngest, so the next start's level is this one's
  const u64 charged_bytes = std::min(budget_bytes_, kSectorBytes);
  budget_bytes_ -= charged_bytes;
  const auto head = own_head(slot).first(kSectorBytes);
  encode_head(*crc_, place_of(frame_idx),
              {.kind = Kind::erased,
               .generation = next_generation_,
               .budget_left_bytes = level_for_head(),
               .written_bytes = stats().bytes_written_ever},
              head);
  const IoRequest request{.op = IoOp::write, .offset = offset_of(frame_idx), .buffer = head};
  if (!submit(slot, 0, request)) {
    budget_bytes_ += charged_bytes;
    return false;
  }
  ++next_generation_;
  return true;
}

// Once nobody reads the record any more.
void Store::go_on_erase(Slot& slot) {
  if (slot.stage != Stage::erase_waits) return;
  if (index_.entry(slot.erased).life != Life::completed) return;
  if (submit_grave(slot, slot.erased.frame_idx)) slot.stage = Stage::erasing;
}

void Store::go_on_burial(Slot& slot) {
  if (slot.stage != Stage::burial_waits) return;
  if (submit_grave(slot, slot.ref.frame_idx)) slot.stage = Stage::burying;
}

void Store::go_on(When when) {
  if (mode_ == Mode::on) go_on_sync(when);  // before payloads take the last place in the queue
  for (Slot& slot : slots_) {
    if (slot.stage == Stage::ended || slot.stage == Stage::lent) continue;
    const bool writes = slot.op == Op::put || slot.op == Op::erase || slot.op == Op::flush;
    const bool syncs = slot.stage == Stage::syncing || slot.stage == Stage::syncing_head;
    if (writes && mode_ != Mode::on && slot.n_io == 0 && !syncs) {
      const bool waits = slot.stage == Stage::published || slot.stage == Stage::erase_waits;
      const bool is_published = slot.op == Op::put && waits;
      end(slot, is_published ? Outcome::ok : Outcome::io_failed);
      continue;
    }
    if (slot.op == Op::put) go_on_put(slot);
    if (slot.op == Op::read) go_on_read(slot);
    go_on_erase(slot);
    go_on_burial(slot);
  }
  if (mode_ == Mode::on) go_on_sync(when);
}

void Store::take(const IoCompletion& completion) {
  TARN_ASSERT(n_io_ > 0);
  --n_io_;
  if (completion.tag == kSyncTag) return take_sync(completion.result);
  const u64 idx = completion.tag / kRunsOfTag;
  const u32 run = static_cast<u32>(completion.tag % kRunsOfTag);
  TARN_ASSERT(idx < slots_.size() && slots_[idx].n_io > 0);
  Slot& slot = slots_[idx];
  --slot.n_io;
  if (slot.stage == Stage::ended || slot.stage == Stage::lent) {
    if (slot.n_io > 0) return;
    release(slot);
    if (slot.stage == Stage::lent) {
      slot.outcome = Outcome::returned;
      slot.stage = Stage::ended;
    }
    return;
  }
  u64 want_bytes = kSectorBytes;
  if (slot.op == Op::put && slot.stage == Stage::payload) {
    want_bytes = run == 0 ? slot.payload.size() : slot.head.size() - kSectorBytes;
  }
  if (slot.op == Op::read) {
    want_bytes = run == kHeadRun ? slot.head.size() : slot.runs[run].n_sectors * kSectorBytes;
  }
  if (completion.result != static_cast<i64>(want_bytes)) {
    slot.failed = true;
    if (slot.op == Op::read) note_read_error(completion.result);
    if (slot.op != Op::read) note_write_error(completion.result);
  }
  if (slot.stage == Stage::ended) return;  // the store was turned off by this
  if (slot.n_io > 0) return;
  if (slot.stage == Stage::erasing) {
    if (!slot.failed) ++stats_.n_erased;
    end(slot, slot.failed && slot.op == Op::erase ? Outcome::io_failed : Outcome::ok);
  } else if (slot.stage == Stage::burying) {
    end(slot, Outcome::io_failed);  // however that went
  } else if (slot.op == Op::put && (slot.stage == Stage::head || slot.failed)) {
    take_put(slot);
  }
}

void Store::end(Slot& slot, Outcome outcome) {
  TARN_ASSERT(slot.op != Op::none && slot.stage != Stage::ended && slot.stage != Stage::lent);
  slot.outcome = outcome;
  slot.stage = Stage::ended;
  slot.tell_written = false;  // this event says as much
  if (slot.n_io == 0) release(slot);
}

// The index may have back what this operation kept from it.
void Store::release(Slot& slot) {
  TARN_ASSERT(slot.n_io == 0);
  if (slot.has_record && slot.op == Op::read) let_go(slot.ref);
  if (slot.has_record && slot.op == Op::put) {
    ++stats_.n_put_failures;
    index_.fail(slot.ref);
    if (slot.replaced.frame_idx != kNoFrame) let_go(slot.replaced);
  }
  slot.has_record = false;
  if (slot.erased.frame_idx == kNoFrame) return;
  const RecordRef erased = slot.erased;
  slot.erased = {};
  // Where somebody still reads it, the last reader frees it.
  if (index_.entry(erased).life == Life::completed) index_.free_completed(erased);
}

void Store::let_go(RecordRef ref) {
  if (!index_.let_go(ref)) return;
  const bool will_be_erased = std::any_of(slots_.begin(), slots_.end(),
                                          [&](const Slot& slot) { return slot.erased == ref; });
  if (!will_be_erased) index_.free_completed(ref);
}

void Store::drop(RecordRef ref) {
  if (!index_.is_current(ref)) return;
  ++stats_.n_dropped;
  const bool completed = index_.retire(ref);
  TARN_ASSERT(!completed);  // whoever drops it holds it
}

void Store::note_write_error(i64 result) {
  if (++stats_.n_write_errors < kWriteErrorsMax || mode_ != Mode::on) return;
  fall_to(Mode::read_only, write_failure_hint(result), result);
}

void Store::note_read_error(i64 result) {
  if (++stats_.n_read_errors < limits_.read_errors_max) return;
  fall_to(Mode::off, kReadsFail, result);
}

// A few sectors that a disk has lost must not keep the rest from being read, at every start anew.
void Store::note_unread_head(i64 result) {
  ++stats_.n_unread_at_start;
  if (++n_unread_in_a_row_ >= kUnreadInARowMax) fall_to(Mode::off, kReadsFail, result);
}

void Store::fall_to(Mode mode, const char* hint, i64 result) {
  if (mode_ == Mode::off) return;
  mode_ = mode;
  why_ = {.status = Status::io_failed,
          .hint = hint,
          .detail = Detail(path_.data()),
          .figures = {{{"errno", result < 0 ? static_cast<u64>(-result) : 0}}}};
  if (mode != Mode::off) return;
  for (Slot& slot : slots_) {
    if (slot.op == Op::none || slot.stage == Stage::ended || slot.stage == Stage::lent) continue;
    end(slot, Outcome::stalled);
  }
}

// Of the time since the last call, waited_ns were given to the disk on purpose.
u64 Store::watched_now(u64 waited_ns) {
  const u64 now_ns = clock_->now_ns();
  const u64 count_max_ns = std::min(waited_ns, limits_.io_deadline_ns) + kUnwatchedMaxNs;
  watched_ns_ += std::min(now_ns - seen_at_ns_, count_max_ns);
  seen_at_ns_ = now_ns;
  return watched_ns_;
}

// Of a request that begins now.
u64 Store::next_deadline() {
  last_deadline_ns_ = watched_now(0) + limits_.io_deadline_ns;
  return last_deadline_ns_;
}

void Store::check_deadlines() {
  if (mode_ == Mode::off || n_io_ == 0) return;
  const u64 now_ns = watched_ns_;
  bool late = sync_in_flight_ && now_ns > sync_deadline_ns_;
  late = late || (mode_ == Mode::opening && now_ns > opening_deadline_ns_);
  for (const Slot& slot : slots_) late = late || (slot.n_io > 0 && now_ns > slot.deadline_ns);
  if (!late) return;
  fall_to(Mode::off, "the disk did not answer in time: the store is turned off", 0);
}

u64 Store::until_deadline_ns(u64 timeout_ns) {
  if (mode_ == Mode::off || n_io_ == 0) return timeout_ns;
  u64 first_ns = mode_ == Mode::opening ? opening_deadline_ns_ : ~u64{0};
  if (sync_in_flight_) first_ns = std::min(first_ns, sync_deadline_ns_);
  for (const Slot& slot : slots_) {
    if (slot.n_io > 0) first_ns = std::min(first_ns, slot.deadline_ns);
  }
  return std::min(timeout_ns, first_ns >= watched_ns_ ? first_ns - watched_ns_ + 1 : 0);
}

u32 Store::hand_out(std::span<Event> events) {
  u32 n = 0;
  for (Slot& slot : slots_) {
    if (n == events.size()) break;
    if (slot.tell_written) {
      events[n++] = {.op = slot.op, .outcome = Outcome::written, .tag = slot.tag, .ref = slot.ref};
      slot.tell_written = false;
      slot.payload = {};
      continue;  // its own event will follow
    }
    if (slot.op == Op::none || slot.stage != Stage::ended) continue;
    const bool lent = slot.n_io > 0;
    events[n++] = {
        .op = slot.op, .outcome = slot.outcome, .lent = lent, .tag = slot.tag, .ref = slot.ref};
    if (lent) {
      slot.stage = Stage::lent;
    } else {
      slot = Slot{};
      --n_ops_;
    }
  }
  return n;
}

u32 Store::poll(std::span<Event> events, u64 timeout_ns) {
  if (io_ == nullptr) return 0;  // has no path, or is closed
  watched_now(0);
  if (mode_ == Mode::opening) {
    go_on_opening();
  } else {
    go_on(When::poll_begins);
  }
  u32 n = hand_out(events);
  std::array<IoCompletion, 64> completions;
  u64 wait_ns = n > 0 ? 0 : until_deadline_ns(timeout_ns);
  u32 n_done = 0;
  do {
    n_done = io_->reap(completions, wait_ns > 0 ? 1 : 0, wait_ns);
    watched_now(wait_ns);
    for (const IoCompletion& completion : std::span(completions).first(n_done)) {
      if (opening_ != Opening::done) {
        take_opening(completion);
      } else {
        take(completion);
      }
    }
    wait_ns = 0;
  } while (n_done == completions.size());
  check_deadlines();
  if (mode_ == Mode::opening) {
    go_on_opening();
  } else {
    go_on(When::poll_ends);
  }
  n += hand_out(events.subspan(n));
  return n;
}

}  // namespace tarn::store
