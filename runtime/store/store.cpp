#include "runtime/store/store.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/store/store_scan.h"

namespace tarn::store {
namespace {

constexpr Error kReadAlone{.status = Status::invalid_request,
                           .hint = "the store was opened to be read: nothing is written to it"};

static_assert(kSectorBytes == tarn::kSectorBytes);

constexpr u64 kFramesMax = u64{1} << 30;

u64 frames_of(const StoreLimits& limits) {
  return (limits.file_bytes - kFramesBegin) / limits.frame_bytes;
}

Unexpected bad_limits(const char* hint, const StoreLimits& limits) {
  return fail({.status = Status::invalid_config,
               .reason = Reason::bad_setting,
               .hint = hint,
               .figures = {{{"file_bytes", limits.file_bytes},
                            {"frame_bytes", limits.frame_bytes},
                            {"head_bytes_max", limits.head_bytes_max},
                            {"ops_max", limits.ops_max}}}});
}

Result<void> check_limits(const StoreLimits& limits) {
  if (limits.frame_bytes < 2 * kSectorBytes || limits.frame_bytes % kSectorBytes != 0) {
    return bad_limits("store: frame_bytes must be a multiple of 4 KiB, and at least two", limits);
  }
  if (limits.file_bytes < kFramesBegin + limits.frame_bytes) {
    return bad_limits("store: file_bytes has no room for one record: raise it", limits);
  }
  if (frames_of(limits) > kFramesMax) {
    return bad_limits("store: file_bytes has too many frames: raise frame_bytes", limits);
  }
  if (limits.head_bytes_max < kSectorBytes || limits.head_bytes_max % kSectorBytes != 0 ||
      limits.head_bytes_max > (1 + kMetaSectorsMax) * kSectorBytes) {
    return bad_limits("store: head_bytes_max is out of range", limits);
  }
  if (limits.ops_max < 1 || limits.ops_max > kOpsMax) {
    return bad_limits("store: ops_max is out of range", limits);
  }
  return {};
}

// The completion's result of a request that succeeded.
u64 wanted_bytes(const Slot& slot, u32 run) {
  if (slot.op == Op::read) {
    return run == kHeadRun ? slot.head.size() : slot.runs[run].n_sectors * kSectorBytes;
  }
  if (slot.op != Op::put || slot.stage != Stage::payload) return kSectorBytes;
  return run == 0 ? slot.payload.size() : slot.head.size() - kSectorBytes;
}

}  // namespace

Result<u64> Store::bytes(const StoreLimits& limits) {
  if (limits.file_bytes == 0) return u64{0};
  TARN_CHECK(check_limits(limits));
  StoreParts parts;
  Carver counted;
  parts.carve(counted, limits);
  return *(counted.n_bytes() + kSectorBytes).get();  // the last: for alignment to a sector
}

void StoreParts::carve(Carver& carver, const StoreLimits& of) {
  limits = of;
  labels = carver.take<std::byte>("labels", kLabels * kSectorBytes, kSectorBytes);
  ops.init(limits, carver);
  index.init(static_cast<u32>(frames_of(limits)), carver);
}

Store::~Store() { close(); }

void Store::close() {
  parts_.file.close();
  writer_.stop();
}

void Store::stay_off(const Error& why, const std::array<u8, 32>& entropy) {
  TARN_ASSERT(mode() == Mode::off && !parts_.file.has_backend());
  parts_.file.set_mode(Mode::off, why);
  parts_.file.label().secret = make_secret(entropy);
  parts_.index = {};  // drops the index of an earlier opening
  parts_.stats = {};
}

bool Store::is_stuck() const { return mode() == Mode::off && parts_.file.is_stuck(); }

void Store::abandon() {
  TARN_ASSERT(is_stuck());
  parts_.file.abandon();
  parts_.ops.clear();
  writer_.stop();
}

Result<void> Store::open(const StoreOpenArgs& args) {
  TARN_ASSERT(mode() == Mode::off && !parts_.file.is_open());
  parts_.file.set_mode(Mode::off);
  if (args.path == nullptr || args.limits.file_bytes == 0) return {};
  TARN_TRY(const u64 bytes, store_bytes(args.limits));
  TARN_ASSERT(args.memory.size() >= bytes);
  TARN_ASSERT(args.io != nullptr && args.clock != nullptr && args.crc != nullptr);
  TARN_CHECK(parts_.file.init(args));
  parts_.clock = args.clock;
  parts_.crc = args.crc;
  parts_.stats = {};
  const u64 address = reinterpret_cast<std::uintptr_t>(args.memory.data());
  Carver carver(args.memory.subspan(align_up(address, kSectorBytes) - address));
  parts_.carve(carver, args.limits);
  const Result<Scanned> scanned = scan_store(parts_, args.entropy);
  if (!scanned) {
    Error why = scanned.error();
    if (why.detail.empty()) why.detail = Detail(args.path);
    parts_.file.set_mode(Mode::off, why);
    return fail(why);
  }
  writer_.start(scanned->youngest_generation + 1, scanned->budget_left_bytes);
  if (args.limits.reads_alone) {
    parts_.file.set_mode(Mode::read_only, kReadAlone);
  } else {
    parts_.file.set_mode(Mode::on);
  }
  return {};
}

StoreStats Store::stats() const {
  StoreStats stats = parts_.stats;
  stats.frame_bytes = parts_.file.label().frame_bytes;
  stats.budget_left_bytes = writer_.budget_left_bytes();
  return stats;
}

std::optional<RecordRef> Store::find(const Key& key) const {
  if (mode() == Mode::off) return std::nullopt;
  return parts_.index.find(key);
}

bool Store::holds(std::span<const std::byte> head, u32 first_sector,
                  std::span<const std::byte> sectors) const {
  const std::optional<HeadView> view = view_again(head);
  const u64 n_sectors = sectors.size() / kSectorBytes;
  if (!view || first_sector + n_sectors > view->payload_crcs().size()) return false;
  return sectors_hold(*parts_.crc, sectors.data(),
                      view->payload_crcs().subspan(first_sector, n_sectors));
}

bool Store::will_go_on() const {
  return std::ranges::any_of(parts_.ops.all(), [&](const Slot& slot) {
    if (slot.n_io > 0 || slot.stage == Stage::ended) return true;
    if (slot.op == Op::none) return false;
    if (slot.stage == Stage::waiting) return mode() != Mode::on || writer_.flush_is_due(slot);
    if (slot.stage != Stage::erase_waits) return true;
    return mode() != Mode::on || parts_.index.entry(slot.erased).is_completed();
  });
}

void Store::go_on(When when) {
  if (mode() == Mode::on) writer_.go_on_sync(when);  // before payloads fill the queue
  for (Slot& slot : parts_.ops.all()) {
    if (slot.has_ended()) continue;
    if (slot.op == Op::read) {
      reader_.go_on(slot);
      continue;
    }
    const bool syncs = slot.stage == Stage::syncing || slot.stage == Stage::syncing_head;
    if (slot.op != Op::none && mode() != Mode::on && slot.n_io == 0 && !syncs) {
      const bool waits = slot.stage == Stage::published || slot.stage == Stage::erase_waits;
      const bool is_published = slot.op == Op::put && waits;
      parts_.ops.end(slot, is_published ? Outcome::ok : Outcome::io_failed);
      continue;
    }
    writer_.go_on(slot);
  }
  if (mode() == Mode::on) writer_.go_on_sync(when);
}

void Store::take(const IoCompletion& completion) {
  if (completion.tag >= kOpeningTag) return;  // of an opening that has failed
  if (completion.tag == kSyncTag) return writer_.take_sync(completion.result);
  Slot* slot = parts_.ops.take(completion);
  if (slot == nullptr) return;
  const u32 run = static_cast<u32>(completion.tag % kRunsOfTag);
  if (completion.result != static_cast<i64>(wanted_bytes(*slot, run))) {
    slot->failed = true;
    if (slot->op == Op::read) parts_.file.note_read_error(completion.result);
    if (slot->op != Op::read) parts_.file.note_write_error(completion.result);
    if (mode() == Mode::off) return parts_.ops.end_all(Outcome::stalled);
  }
  if (slot->n_io == 0 && slot->op != Op::read) writer_.take(*slot);
}

// The first deadline of all requests in flight, of which there is at least one.
u64 Store::first_deadline_ns() const {
  return std::min(writer_.sync_deadline_ns(), parts_.ops.first_deadline_ns());
}

u64 Store::until_deadline_ns(u64 timeout_ns) const {
  if (mode() == Mode::off || parts_.file.n_io() == 0) return timeout_ns;
  const u64 first_ns = first_deadline_ns(), now_ns = parts_.file.watched_ns();
  return std::min(timeout_ns, first_ns >= now_ns ? first_ns - now_ns + 1 : 0);
}

u32 Store::poll(std::span<Event> events, u64 timeout_ns) {
  if (!parts_.file.has_backend()) return 0;  // no path, or closed
  parts_.file.watch(0);
  go_on(When::poll_begins);
  u32 n = parts_.ops.hand_out(events);
  std::array<IoCompletion, 64> completions;
  u64 wait_ns = n > 0 ? 0 : until_deadline_ns(timeout_ns);
  u32 n_done = 0;
  do {
    n_done = parts_.file.reap(completions, wait_ns);
    for (const IoCompletion& completion : std::span(completions).first(n_done)) take(completion);
    wait_ns = 0;
  } while (n_done == completions.size());
  const bool waits = mode() != Mode::off && parts_.file.n_io() > 0;
  if (waits && parts_.file.watched_ns() > first_deadline_ns()) {
    parts_.file.set_mode(Mode::off, parts_.file.silence());
    parts_.ops.end_all(Outcome::stalled);
  }
  go_on(When::poll_ends);
  n += parts_.ops.hand_out(events.subspan(n));
  return n;
}

}  // namespace tarn::store
