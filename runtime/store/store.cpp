#include "runtime/store/store.h"

#include <algorithm>
#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::store {
namespace {

static_assert(kSectorBytes == tarn::kSectorBytes);

constexpr u64 kBudgetSpanNs = u64{24} * 3600 * 1'000'000'000;
constexpr u64 kFramesMax = u64{1} << 30;

u64 frames_of(const StoreLimits& limits) {
  return (limits.file_bytes - kFramesBegin) / limits.frame_bytes;
}

Unexpected bad_limits(const char* hint, const StoreLimits& limits) {
  return fail({.status = Status::invalid_config,
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

}  // namespace

Result<u64> Store::bytes(const StoreLimits& limits) {
  if (limits.file_bytes == 0) return u64{0};
  TARN_CHECK(check_limits(limits));
  const u32 n_frames = static_cast<u32>(frames_of(limits));
  static_assert(sizeof(IndexEntry) == 64);
  const u64 heads = limits.ops_max * limits.head_bytes_max;
  return RecordIndex::bytes(n_frames) + heads + kLabels * kSectorBytes +
         limits.ops_max * sizeof(Slot) + kSectorBytes;  // the last: to begin at a sector
}

Store::~Store() { close(); }

void Store::close() {
  TARN_ASSERT(n_io_ == 0);
  if (file_is_open_) io_->close(file_);
  file_is_open_ = false;
  io_ = nullptr;
  mode_ = Mode::off;
}

void Store::stay_off(const Error& why, const std::array<u8, 32>& entropy) {
  TARN_ASSERT(mode_ == Mode::off && io_ == nullptr);
  why_ = why;
  label_.secret = make_secret(entropy);
  index_ = {};  // of an earlier opening
  stats_ = {};
}

bool Store::is_stuck() const {
  return mode_ == Mode::off && n_io_ > 0 && watched_ns_ > last_deadline_ns_;
}

void Store::abandon() {
  TARN_ASSERT(is_stuck());
  io_ = nullptr;
  n_io_ = n_ops_ = 0;
  file_is_open_ = false;
}

Result<void> Store::open(const StoreOpenArgs& args) {
  TARN_ASSERT(mode_ == Mode::off && n_io_ == 0 && !file_is_open_);
  why_ = {.status = Status::ok, .hint = ""};
  if (args.path == nullptr || args.limits.file_bytes == 0) return {};
  TARN_TRY(const u64 bytes, store_bytes(args.limits));
  TARN_ASSERT(args.memory.size() >= bytes);
  TARN_ASSERT(args.io != nullptr && args.clock != nullptr && args.crc != nullptr);
  const u64 path_bytes = std::strlen(args.path);
  if (path_bytes == 0 || path_bytes >= path_.size()) {
    return fail({.status = Status::invalid_config,
                 .hint = "store: the path is empty or too long",
                 .detail = Detail(args.path),
                 .figures = {{{"bytes", path_bytes}, {"bytes_max", path_.size() - 1}}}});
  }
  std::memcpy(path_.data(), args.path, path_bytes + 1);
  io_ = args.io;
  clock_ = args.clock;
  crc_ = args.crc;
  limits_ = args.limits;
  entropy_ = args.entropy;
  Bump memory(args.memory);
  heads_ = *memory.alloc_bytes(limits_.ops_max * limits_.head_bytes_max, kSectorBytes);
  labels_ = *memory.alloc_bytes(kLabels * kSectorBytes, kSectorBytes);
  slots_ = *memory.alloc<Slot>(limits_.ops_max);
  std::fill(slots_.begin(), slots_.end(), Slot{});
  index_.init(static_cast<u32>(frames_of(limits_)), memory);
  n_ops_ = 0;
  next_sequence_ = next_generation_ = 1;
  sync_in_flight_ = false;
  watched_ns_ = last_deadline_ns_ = 0;
  seen_at_ns_ = clock_->now_ns();
  stats_ = {};
  budget_bytes_ = limits_.write_bytes_per_day;
  budget_at_ns_ = opened_at_ns_ = clock_->now_ns();
  written_before_bytes_ = 0;
  label_is_read_ = {};
  n_unread_in_a_row_ = 0;
  scan_next_ = scan_in_flight_ = weigh_next_ = cursor_frame_ = 0;
  youngest_generation_ = cursor_generation_ = 0;
  opening_ = Opening::locking;
  file_is_new_ = false;
  mode_ = Mode::opening;
  return {};
}

StoreStats Store::stats() const {
  StoreStats stats = stats_;
  stats.budget_left_bytes = std::min(limits_.write_bytes_per_day, budget_bytes_ + filled_bytes());
  stats.n_evicted = index_.n_evicted();
  stats.n_manifests_evicted = index_.n_manifests_evicted();
  stats.bytes_written_ever = written_before_bytes_ + stats_.bytes_written;
  return stats;
}

u64 Store::offset_of(u32 frame_idx) const { return kFramesBegin + frame_idx * limits_.frame_bytes; }

Place Store::place_of(u32 frame_idx) const {
  return {.store_id = label_.store_id,
          .frame_bytes = limits_.frame_bytes,
          .n_frames = index_.n_frames(),
          .frame_idx = frame_idx};
}

RecordShape Store::shape_of(RecordRef ref) const {
  const IndexEntry& entry = index_.entry(ref);
  return {entry.payload_bytes, entry.n_tokens};
}

std::optional<RecordRef> Store::find(const Key& key) const {
  if (mode_ != Mode::on && mode_ != Mode::read_only) return std::nullopt;
  return index_.find(key);
}

u64 Store::head_bytes(RecordRef ref) const { return shape_of(ref).head_bytes(); }

void Store::unpin(RecordRef ref) { let_go(ref); }

Store::Slot* Store::free_slot() {
  for (Slot& slot : slots_) {
    if (slot.op == Op::none) return &slot;
  }
  return nullptr;
}

u64 Store::slot_idx(const Slot& slot) const { return static_cast<u64>(&slot - slots_.data()); }

std::span<std::byte> Store::own_head(const Slot& slot) const {
  return heads_.subspan(slot_idx(slot) * limits_.head_bytes_max, limits_.head_bytes_max);
}

// What has flowed into the bucket since budget_at_ns_.
u64 Store::filled_bytes() const {
  if (limits_.write_bytes_per_day == 0 || mode_ == Mode::opening || !file_is_open_) return 0;
  const u64 passed_ns = std::min(clock_->now_ns() - budget_at_ns_, kBudgetSpanNs);
  return static_cast<u64>(static_cast<f64>(limits_.write_bytes_per_day) *
                          static_cast<f64>(passed_ns) / f64{kBudgetSpanNs});
}

void Store::refill_budget() {
  const u64 filled = filled_bytes();
  if (filled == 0) return;  // less than a byte yet: the time is kept
  budget_at_ns_ = clock_->now_ns();
  budget_bytes_ = std::min(limits_.write_bytes_per_day, budget_bytes_ + filled);
}

bool Store::affords(u64 n_bytes) const {
  return limits_.write_bytes_per_day == 0 || stats().budget_left_bytes >= n_bytes;
}

u64 Store::level_for_head() const {
  return limits_.write_bytes_per_day > 0 ? budget_bytes_ : ~u64{0};
}

Begun Store::put(const PutArgs& args) {
  if (mode_ != Mode::on) return Begun::not_now;
  const RecordShape shape{.payload_bytes = args.payload_bytes,
                          .n_tokens = static_cast<u32>(args.token_ids.size())};
  TARN_ASSERT(args.token_ids.size() <= kTokensMax);
  TARN_ASSERT(shape.within_limits() && shape.head_bytes() <= limits_.head_bytes_max);
  TARN_ASSERT(args.payload.size() == shape.payload_sectors() * kSectorBytes);
  TARN_ASSERT(reinterpret_cast<std::uintptr_t>(args.payload.data()) % kSectorBytes == 0);
  RecordRef replaced{};
  if (index_.is_on_its_way(args.key)) return Begun::known;
  const auto found = index_.find(args.key);
  if (found) {
    if (args.known == PutArgs::If::absent) return Begun::known;
    replaced = *found;
  }
  Slot* slot = free_slot();
  if (slot == nullptr) return Begun::busy;
  refill_budget();
  const bool is_budgeted = limits_.write_bytes_per_day > 0;
  if (is_budgeted && budget_bytes_ < shape.record_bytes()) return Begun::over_budget;
  const bool replaces = replaced.frame_idx != kNoFrame;
  if (replaces) index_.hold(replaced);  // until the new one is published
  const auto ref = index_.reserve({.key = args.key,
                                   .shape = shape,
                                   .n_frames = shape.frames(limits_.frame_bytes),
                                   .kind = args.kind,
                                   .generation = next_generation_});
  if (!ref) {
    if (replaces) let_go(replaced);
    return Begun::no_room;
  }
  ++next_generation_;
  if (is_budgeted) budget_bytes_ -= shape.record_bytes();
  *slot = {.op = Op::put,
           .stage = Stage::payload,
           .has_record = true,
           .gives_back = args.kept == PutArgs::Payload::until_written,
           .tag = args.tag,
           .sequence = next_sequence_++,
           .ref = *ref,
           .replaced = replaced,
           .payload = args.payload,
           .head = own_head(*slot).first(shape.head_bytes())};
  encode_head(*crc_, place_of(ref->frame_idx),
              {.kind = args.kind,
               .key = args.key,
               .token_ids = args.token_ids,
               .payload = args.payload,
               .payload_bytes = args.payload_bytes,
               .generation = ref->generation,
               .budget_left_bytes = level_for_head(),
               .written_bytes = stats().bytes_written_ever},
              slot->head);
  index_.step(*ref, Life::reserved, Life::writing);
  ++n_ops_;
  ++stats_.n_puts;
  go_on_put(*slot);
  return Begun::begun;
}

// Wanted sectors become requests; where there would be too many, the last one takes all that is
// left, with what lies in between.
void Store::plan_runs(Slot& slot, std::span<const u32> sectors, u64 n_sectors) const {
  if (sectors.empty()) {
    if (n_sectors > 0) slot.runs[slot.n_runs++] = {0, static_cast<u32>(n_sectors)};
    return;
  }
  for (const u32 sector : sectors) {
    TARN_ASSERT(sector < n_sectors);
    Run* last = slot.n_runs > 0 ? &slot.runs[slot.n_runs - 1] : nullptr;
    TARN_ASSERT(last == nullptr || sector >= last->first_sector + last->n_sectors);
    const bool is_near = last != nullptr &&
                         sector - (last->first_sector + last->n_sectors) <= limits_.gap_sectors_max;
    if (last != nullptr && (is_near || slot.n_runs == kRunsMax)) {
      last->n_sectors = sector + 1 - last->first_sector;
    } else {
      slot.runs[slot.n_runs++] = {sector, 1};
    }
  }
}

Begun Store::read(const ReadArgs& args) {
  if (mode_ != Mode::on && mode_ != Mode::read_only) return Begun::not_now;
  if (!index_.is_current(args.ref)) return Begun::gone;
  const RecordShape shape = shape_of(args.ref);
  const u32 first_sector = args.first_sector.value_or(0);
  const u64 n_sectors = args.payload.size() / kSectorBytes;
  if (args.first_sector) {
    TARN_ASSERT(args.sectors.empty() && n_sectors > 0);
    TARN_ASSERT(first_sector + n_sectors <= shape.payload_sectors());
  } else {
    TARN_ASSERT(n_sectors == shape.payload_sectors());
  }
  TARN_ASSERT(args.payload.size() % kSectorBytes == 0);
  TARN_ASSERT(reinterpret_cast<std::uintptr_t>(args.payload.data()) % kSectorBytes == 0);
  TARN_ASSERT(args.head.empty() || args.head.size() == shape.head_bytes());
  TARN_ASSERT(reinterpret_cast<std::uintptr_t>(args.head.data()) % kSectorBytes == 0);
  Slot* slot = free_slot();
  if (slot == nullptr) return Begun::busy;
  // A record of the file may be longer than what this configuration would write.
  if (args.head.empty() && shape.head_bytes() > limits_.head_bytes_max) return Begun::gone;
  *slot = {.op = Op::read,
           .stage = Stage::payload,
           .head_wanted = true,
           .has_record = true,
           .landing_sector = first_sector,
           .tag = args.tag,
           .sequence = next_sequence_++,
           .ref = args.ref,
           .payload = args.payload,
           .head = args.head.empty() ? own_head(*slot).first(shape.head_bytes()) : args.head,
           .token_ids = args.token_ids};
  if (args.first_sector) {
    slot->runs[slot->n_runs++] = {first_sector, static_cast<u32>(n_sectors)};
  } else {
    plan_runs(*slot, args.sectors, n_sectors);
  }
  slot->head_is_known = args.head_is_known;
  slot->is_checked_later = args.is_checked_later;
  if (args.head_is_known) {
    TARN_ASSERT(!args.head.empty());
    slot->head_wanted = false;
  } else if (!args.head.empty()) {
    auto view = parse_head(*crc_, place_of(args.ref.frame_idx), args.head);
    slot->head_wanted = !view || view->head().generation != args.ref.generation ||
                        !parse_meta(*crc_, args.head, *view);
  }
  index_.hold(args.ref);
  ++n_ops_;
  ++stats_.n_reads;
  go_on_read(*slot);
  return Begun::begun;
}

Begun Store::erase(RecordRef ref, u64 tag) {
  if (mode_ != Mode::on) return Begun::not_now;
  if (!index_.is_current(ref)) return Begun::gone;
  Slot* slot = free_slot();
  if (slot == nullptr) return Begun::busy;
  *slot = {.op = Op::erase,
           .stage = Stage::erase_waits,
           .tag = tag,
           .sequence = next_sequence_++,
           .ref = ref,
           .erased = ref};
  index_.retire(ref);
  ++n_ops_;
  go_on_erase(*slot);
  return Begun::begun;
}

Begun Store::flush(u64 tag) {
  if (mode_ != Mode::on) return Begun::not_now;
  Slot* slot = free_slot();
  if (slot == nullptr) return Begun::busy;
  *slot = {.op = Op::flush, .stage = Stage::waiting, .tag = tag, .sequence = next_sequence_++};
  ++n_ops_;
  return Begun::begun;
}

}  // namespace tarn::store
