#include "runtime/engine/kv_stream.h"

#include <bit>
#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "platform/cpu/crc32c.h"
#include "platform/io/private_folder.h"
#include "runtime/config/store_config.h"
#include "runtime/engine/take.h"

namespace tarn::engine {
namespace {

constexpr u64 kWaitNs = 10'000'000;
// What only spills may be cut anew at any time; what keeps sessions is another file.
constexpr char kSpillFile[] = "kv.tarn";

}  // namespace

StorePath::StorePath(const char* folder, bool keeps_sessions) {
  const std::string_view name = keeps_sessions ? kSessionsFile : kSpillFile;
  const u64 folder_bytes = std::strlen(folder);
  TARN_ASSERT(folder_bytes > 0 && folder_bytes + 1 + name.size() < text_.size());
  std::memcpy(text_.data(), folder, folder_bytes);
  text_[folder_bytes] = '/';
  std::memcpy(text_.data() + folder_bytes + 1, name.data(), name.size());
}

Result<void> KvStream::open(const KvStreamArgs& args) {
  TARN_ASSERT(!is_on_ && args.plan != nullptr && args.plan->tiers.is_on());
  const plan::TierShape& tiers = args.plan->tiers;
  n_cache_layers_ = args.n_cache_layers;
  page_tokens_ = args.plan->group_shape.page_tokens;
  failed_ = {};
  is_abandoned_ = false;
  extents_.init({.shape = tiers.extents,
                 .store = &store_,
                 .mover = &mover_,
                 .clock = args.clock,
                 .daily_write_bytes = tiers.store.write_bytes_per_day},
                args.extents);
  told_mode_ = store::Mode::on;
  if (const Result<void> opened = open_store(args); !opened) {
    close_store();
    // A step finds places for its rows, and a window beside them.
    const bool fits = tiers.n_frames >= args.plan->groups_max + tiers.window_groups;
    if (!fits || !store::is_disk_failure(opened.error())) return opened;
    std::array<u8, 32> entropy{};
    TARN_CHECK(fill_random(entropy));
    store_.stay_off(opened.error(), entropy);
  }
  std::array<u8, 8> random{};
  TARN_CHECK(fill_random(random));
  const u64 nonce = std::bit_cast<u64>(random);
  extents_.set_nonce(nonce);
  Bump bump(args.tables);
  const auto frame_tables = take<std::byte>(
      bump, kv::Residency::bookkeeping_bytes(args.plan->groups_max, tiers.n_frames));
  const auto mover_tables =
      take<std::byte>(bump, kv::Mover::bookkeeping_bytes(args.plan->group_shape,
                                                         args.plan->sessions_max, n_cache_layers_));
  const bool keeps = tiers.manifest_bytes > 0;
  if (keeps) place_sessions(args, nonce, bump);
  residency_.init(args.plan->group_shape, args.plan->groups_max, tiers.n_frames, args.frames,
                  frame_tables, &store_, &names_);
  mover_.init({.residency = &residency_,
               .store = &store_,
               .clock = args.clock,
               .n_cache_layers = n_cache_layers_,
               .window_groups = tiers.window_groups,
               .loads_max = plan::kTierMovesMax,
               .spills_max = plan::kTierMovesMax,
               .nonce = nonce,
               .names = &names_,
               .on_other = &KvStream::on_other,
               .other_context = this,
               .host = args.host},
              args.plan->sessions_max, mover_tables);
  is_on_ = true;
  return {};
}

void KvStream::on_other(void* context, const store::Event& event) {
  auto& self = *static_cast<KvStream*>(context);
  if (event.tag >= kv::Extents::kTag) return self.extents_.on_event(event);
  reuse::SessionStore::on_event(&self.sessions_, event);
}

void KvStream::place_sessions(const KvStreamArgs& args, u64 nonce, Bump& tables) {
  const plan::TierShape& tiers = args.plan->tiers;
  const u32 page_tokens = args.plan->group_shape.page_tokens;
  names_.init(
      tiers.n_names, page_tokens, &store_.secret(),
      take<std::byte>(tables, kv::PageNames::bookkeeping_bytes(tiers.n_names, page_tokens)));
  const auto keys = take<store::Key>(tables, args.plan->pages_max + 1);
  const auto manifest = args.store_memory.subspan(tiers.io_bytes, tiers.manifest_bytes);
  const auto copies =
      args.store_memory.subspan(tiers.io_bytes + tiers.manifest_bytes, tiers.copy_bytes);
  sessions_.init({.store = &store_,
                  .mover = &mover_,
                  .residency = &residency_,
                  .names = &names_,
                  .crc = &crc32c_ways()[0],
                  .n_cache_layers = n_cache_layers_,
                  .spills_max = plan::kTierMovesMax,
                  .manifest = manifest,
                  .other_manifest = copies.first(tiers.manifest_bytes),
                  .groups = copies.subspan(tiers.manifest_bytes),
                  .nonce = nonce,
                  .keys = keys});
  sessions_.set_identity(*args.identity);
}

u32 KvStream::first_lost_page(const kv::Sequence& sequence) {
  mover_.settle();
  u32 page = 0;
  for (; page < sequence.n_groups(); ++page) {
    for (u32 layer = 0; layer < n_cache_layers_; ++layer) {
      const u32 group_idx = sequence.group(layer, page).idx;
      if (residency_.where(group_idx) == kv::Where::lost) return page;
    }
  }
  return page;
}

Result<void> KvStream::open_store(const KvStreamArgs& args) {
  const plan::TierShape& tiers = args.plan->tiers;
  const StorePath path(args.folder, tiers.manifest_bytes > 0);
  const u64 io_bytes = tiers.io_bytes;
  TARN_ASSERT(args.store_memory.size() >= io_bytes + tiers.manifest_bytes + tiers.copy_bytes);
  io_ = args.io;
  if (io_ == nullptr) {
    TARN_CHECK(make_private_folder(args.folder));
    TARN_TRY(const IoBackendHandle handle,
             io_backend_create({.kind = args.io_kind, .in_flight_max = plan::kTierIoInFlight},
                               args.store_memory.first(io_bytes)));
    io_ = handle.backend;
    owns_io_ = true;
    if (handle.why_not != nullptr) args.log.info("store io: threads (%s)", handle.why_not);
  }
  const std::span<std::byte> buffers[] = {args.frames, extents_.landing()};
  const u64 n_buffers = extents_.is_on() ? 2 : 1;
  io_->register_buffers(std::span(buffers).first(n_buffers));  // a refusal costs speed alone
  store::StoreOpenArgs open{
      .io = io_,
      .clock = args.clock,
      .path = path.c_str(),
      .limits = tiers.store,
      .memory = args.store_memory.subspan(io_bytes + tiers.manifest_bytes + tiers.copy_bytes),
      .crc = &crc32c_ways()[0]};
  TARN_CHECK(fill_random(open.entropy));
  TARN_CHECK(store_.open(open));
  while (store_.mode() == store::Mode::opening) store_.poll({}, kWaitNs);
  if (store_.mode() != store::Mode::on) return fail(store_.why());
  return {};
}

void KvStream::close() {
  if (is_on_) mover_.stop();
  if (is_on_ && keeps_sessions()) extents_.forget_all();
  const auto is_over = [&] { return (mover_.idle() && store_.idle()) || store_.is_stuck(); };
  while (is_on_ && !is_over()) mover_.pump(kWaitNs);
  close_store();
  sessions_.close();
  names_ = {};
  is_on_ = false;
}

void KvStream::close_store() {
  while (!store_.idle() && !store_.is_stuck()) store_.poll({}, kWaitNs);
  if (store_.is_stuck()) {  // and so would be whoever ended the backend
    store_.abandon();
    is_abandoned_ = true;
    owns_io_ = false;
  }
  store_.close();
  if (owns_io_) io_backend_destroy(io_);
  owns_io_ = false;
  io_ = nullptr;
}

bool KvStream::may_have_lost_sessions() const {
  const store::StoreStats stats = store_.stats();
  const bool is_damaged = stats.n_unread_at_start + stats.n_damaged_at_start > 0;
  return keeps_sessions() && (is_damaged || stats.labels_lost);
}

const char* KvStream::store_name() const {
  if (!is_on_) return "none";
  if (store_.mode() == store::Mode::on) return "on";
  return store_.mode() == store::Mode::read_only ? "read-only" : "off";
}

bool KvStream::take_worse_store() {
  return is_on_ && std::exchange(told_mode_, store_.mode()) != store_.mode();
}

void KvStream::begin_step() { failed_ = {}; }

void KvStream::plan_step(const step::Batch& batch) {
  const auto n_groups = [&](const step::Run& run) {
    const u32 n_slots = batch.visible[run.row_begin + run.n_rows - 1];
    return static_cast<u32>(ceil_div(n_slots, page_tokens_));
  };
  mover_.uses().begin();
  for (const step::Run& run : batch.runs) {
    mover_.uses().add({run.sequence, n_groups(run), run.offloaded_begin, run.offloaded_end});
  }
  mover_.uses().end();
}

void KvStream::note_failure(u32 owner, const Error& error) {
  error_ = error;
  failed_[owner / 64] |= u64{1} << (owner % 64);
}

void KvStream::drop_plan() {
  mover_.uses().begin();
  mover_.uses().end();
}

Result<void> KvStream::prepare_cut(const kv::Sequence& sequence, u32 n) {
  if (n % page_tokens_ == 0 || n == sequence.n_slots()) return {};
  TARN_CHECK(mover_.hold(sequence, n / page_tokens_));
  Result<void> room = mover_.make_room(n_cache_layers_);
  if (!room) mover_.drop_hold();
  return room;
}

}  // namespace tarn::engine
