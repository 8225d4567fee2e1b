#include "runtime/store/store_reader.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::store {

// Plans disk requests for the requested sectors. If there are too many, the last request takes all
// remaining sectors and the gaps between them.
void StoreReader::plan_runs(Slot& slot, std::span<const u32> sectors, u64 n_sectors) const {
  if (sectors.empty()) {
    if (n_sectors > 0) slot.runs[slot.n_runs++] = {0, static_cast<u32>(n_sectors)};
    return;
  }
  for (const u32 sector : sectors) {
    TARN_ASSERT(sector < n_sectors);
    Run* last = slot.n_runs > 0 ? &slot.runs[slot.n_runs - 1] : nullptr;
    TARN_ASSERT(last == nullptr || sector >= last->first_sector + last->n_sectors);
    const bool is_near = last != nullptr && sector - (last->first_sector + last->n_sectors) <=
                                                parts_.limits.gap_sectors_max;
    if (last != nullptr && (is_near || slot.n_runs == kRunsMax)) {
      last->n_sectors = sector + 1 - last->first_sector;
    } else {
      slot.runs[slot.n_runs++] = {sector, 1};
    }
  }
}

Begun StoreReader::begin(const ReadArgs& args) {
  if (parts_.file.mode() == Mode::off) return Begun::not_now;
  if (!parts_.index.is_current(args.ref)) return Begun::gone;
  const RecordShape shape = parts_.shape_of(args.ref);
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
  Slot* free = parts_.ops.free_slot();
  if (free == nullptr) return Begun::busy;
  // A record of the file may be longer than those of this configuration.
  const bool has_own_head = args.head.empty();
  if (has_own_head && shape.head_bytes() > parts_.limits.head_bytes_max) return Begun::gone;
  Slot& slot = parts_.ops.begin(
      *free,
      {.op = Op::read,
       .stage = Stage::payload,
       .head_wanted = true,
       .head_is_known = args.head_is_known,
       .is_checked_later = args.is_checked_later,
       .has_record = true,
       .landing_sector = first_sector,
       .tag = args.tag,
       .ref = args.ref,
       .payload = args.payload,
       .head = has_own_head ? parts_.ops.own_head(*free).first(shape.head_bytes()) : args.head,
       .token_ids = args.token_ids});
  if (args.first_sector) {
    slot.runs[slot.n_runs++] = {first_sector, static_cast<u32>(n_sectors)};
  } else {
    plan_runs(slot, args.sectors, n_sectors);
  }
  if (args.head_is_known) {
    TARN_ASSERT(!args.head.empty());
    slot.head_wanted = false;
  } else if (!args.head.empty()) {
    auto view = parse_head(*parts_.crc, parts_.file.frame_ref(args.ref.frame_idx), args.head);
    slot.head_wanted = !view || view->head().generation != args.ref.generation ||
                       !parse_meta(*parts_.crc, args.head, *view);
  }
  parts_.index.hold(args.ref);
  ++parts_.stats.n_reads;
  go_on(slot);
  return Begun::begun;
}

void StoreReader::go_on(Slot& slot) {
  if (slot.stage != Stage::payload) return;
  const u64 offset = parts_.file.offset_of(slot.ref.frame_idx);
  if (slot.head_wanted && !slot.failed) {
    const IoRequest request{.op = IoOp::read, .offset = offset, .buffer = slot.head};
    if (!parts_.ops.submit(slot, kHeadRun, request)) return;
    slot.head_wanted = false;
  }
  while (slot.next_run < slot.n_runs && !slot.failed) {
    const Run& run = slot.runs[slot.next_run];
    const u64 landing = (run.first_sector - slot.landing_sector) * kSectorBytes;
    const IoRequest request{.op = IoOp::read,
                            .offset = offset + slot.head.size() + run.first_sector * kSectorBytes,
                            .buffer = slot.payload.subspan(landing, run.n_sectors * kSectorBytes)};
    if (!parts_.ops.submit(slot, slot.next_run, request)) return;
    ++slot.next_run;
  }
  if (slot.n_io > 0) return;
  const Outcome outcome = slot.failed ? Outcome::io_failed : verified(slot);
  if (outcome == Outcome::corrupt || outcome == Outcome::io_failed) parts_.ops.drop(slot.ref);
  parts_.ops.end(slot, outcome);
}

// Returns nothing if the head is not the requested record's.
std::optional<HeadView> StoreReader::head_of(const Slot& slot) const {
  const IndexEntry& entry = parts_.index.entry(slot.ref);
  std::optional<HeadView> view;
  if (slot.head_is_known) {
    view = view_again(slot.head);
  } else {
    view = parse_head(*parts_.crc, parts_.file.frame_ref(slot.ref.frame_idx), slot.head);
    // A lost write leaves another record's head there, which may be longer.
    if (view && view->shape().head_bytes() > slot.head.size()) return std::nullopt;
    if (view && !parse_meta(*parts_.crc, slot.head, *view)) return std::nullopt;
  }
  if (!view) return std::nullopt;
  const RecordHead& head = view->head();
  const bool is_its = head.generation == slot.ref.generation && head.key == entry.key &&
                      head.payload_bytes == entry.payload_bytes;
  return is_its ? view : std::nullopt;
}

Outcome StoreReader::verified(const Slot& slot) const {
  const std::optional<HeadView> view = head_of(slot);
  if (!view) return Outcome::corrupt;
  for (const Run& run : std::span(slot.runs).first(slot.is_checked_later ? 0 : slot.n_runs)) {
    const u64 landing = (run.first_sector - slot.landing_sector) * kSectorBytes;
    const auto crcs = view->payload_crcs().subspan(run.first_sector, run.n_sectors);
    if (!sectors_hold(*parts_.crc, slot.payload.data() + landing, crcs)) return Outcome::corrupt;
  }
  const auto tokens = view->token_ids();
  const u64 n = slot.token_ids.size();
  if (n > tokens.size() ||
      !std::equal(slot.token_ids.begin(), slot.token_ids.end(), tokens.begin())) {
    return Outcome::other_tokens;
  }
  return Outcome::ok;
}

}  // namespace tarn::store
