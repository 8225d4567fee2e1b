#include "runtime/exec/gpu/parts.h"

#include <algorithm>
#include <array>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/exec/gpu/memory.h"

namespace tarn::exec {
namespace {

constexpr u64 kNapNs = 20'000;

}  // namespace

// Writes, once, where the groups of a stripe and those of gathered slots lie.
Result<void> GpuParts::open() {
  TARN_TRY(host_part_, step_.device().create_event());
  const u64 group_bytes = sizes().group.group_bytes();
  u64* address = host().addresses.data();
  for (u32 i = 0; i < sizes().stripe_groups(); ++i) {
    *address++ = reinterpret_cast<u64>(mine().staged.data() + i * group_bytes);
  }
  for (u32 i = 0; i < sizes().gathered_pages(); ++i) {  // of the first head
    *address++ =
        reinterpret_cast<u64>(mine().gathered.data() + i * step_.sizes().group.page_bytes());
  }
  const model::ModelSpec& spec = step_.spec();
  for (u32 piece = 0; piece < sizes().n_stripes * spec.n_cache_layers; ++piece) {
    const u8* stripe = step_.args().memory->stripe(piece);
    for (u32 i = 0; i < sizes().stripe_groups(); ++i) {
      *address++ = reinterpret_cast<u64>(stripe + i * group_bytes);
    }
  }
  Carver carver(host().kept);
  kept_.init(carver, sizes().kept(spec));
  step_.send(mine().addresses.data(), host().addresses.data(), host().addresses.size());
  return {};
}

void GpuParts::close() {
  if (host_part_ != nullptr) step_.device().destroy_event(host_part_);
  host_part_ = nullptr;
}

// Sends the addresses of the frames of the host that the step's rows are written to.
void GpuParts::begin_step(const step::Batch& batch) {
  step_host_ = batch.host;
  kept_.begin_step();
  const u32 page_tokens = step_.sizes().group.page_tokens;
  for (const step::Run& run : batch.runs) {
    const u32 last_slot = batch.slots[run.row_begin + run.n_rows - 1];
    step_.send_groups(step_.sizes().table_of(run), *run.sequence,
                      batch.slots[run.row_begin] / page_tokens, last_slot / page_tokens + 1);
  }
}

// Counts what whole parts read; slots that the host chose are counted where they are chosen.
void GpuParts::count(const step::Batch& batch) {
  const kv::GroupShape& group = step_.sizes().group;
  const u64 token_bytes = group.page_bytes() * step_.spec().n_kv_heads / group.page_tokens;
  for (const step::Run& run : batch.runs) {
    if (run.selects) continue;
    for (u32 i = 0; i < run.n_rows; ++i)
      kv_bytes_ += step_.on_host().visible[run.row_begin + i] * token_bytes;
  }
}

void GpuParts::attend(const Attended& a) {
  count(a.batch);
  const model::ModelSpec& spec = step_.spec();
  const u64 row_bytes = u64{spec.n_heads} * spec.head_dim * sizeof(f32);
  for (step::Run& run : a.batch.runs) {
    if (run.state != step::RunState::failed) {
      run.selects ? attend_chosen(a, run) : attend_whole(a, run);
    }
    if (run.state != step::RunState::failed) continue;
    // No op uses these rows, and nothing in them may disturb the others.
    for (u32 row = run.row_begin; row < run.row_begin + run.n_rows; ++row) {
      step_.device().fill(DevicePtr<f32>(from_row(a.out, row).data).as<std::byte>(), 0, row_bytes,
                          step_.stream());
      step_.progress().note();
    }
  }
}

kernels::GpuQuantized GpuParts::acts(const Attended& a, u32 row) const {
  const model::ModelSpec& spec = step_.spec();
  const u64 d_out = u64{spec.n_heads} * spec.head_dim;
  return a.leaves_acts ? step_.acts_from(row, d_out) : kernels::GpuQuantized{};
}

// Attends all slots of a run's rows, a stripe at a time; the state between two is each row's.
void GpuParts::attend_whole(const Attended& a, step::Run& run) {
  const model::ModelSpec& spec = step_.spec();
  kv::PartSource& source = *step_.args().parts;
  const u32 page_tokens = step_.sizes().group.page_tokens;
  const u64 state_elems = u64{spec.n_heads} * (u64{spec.head_dim} + 2);
  const u32 n_slots = a.batch.visible[run.row_begin + run.n_rows - 1];
  const u32 n_groups = static_cast<u32>(ceil_div(n_slots, page_tokens));
  if (source.wants_query(run) && !bring_query(run, a.q)) return;
  source.begin({&run, 1}, a.cache_layer, host().query.data());
  for (u32 begin = 0; begin < n_groups; begin += sizes().stripe_groups()) {
    const Stripe stripe = stripe_of(run, a.cache_layer, begin, n_groups);
    const bool is_there = stripe.kept && kept_.has(*stripe.kept, *run.sequence);
    n_stripes_kept_ += is_there;
    if (!is_there && !stage(run, a.cache_layer, stripe)) return;
    const u32 n_here = std::min(n_slots - begin * page_tokens, kernels::kGpuMergeSlots);
    for (u32 at = 0; at < run.n_rows; at += kGpuAttnRowsMax) {
      const u32 row = run.row_begin + at;
      kernels::GpuPages staged = pages_at(stripe.table_at, a.cache_layer, row);
      staged.groups -= begin;  // the first of its entries is the stripe's first group
      attend_part(step_, {.pages = staged,
                          .q = from_row(a.q, row),
                          .out = from_row(a.out, row),
                          .visible = step_.on_device().visible.data() + row,
                          .quantized = acts(a, row),
                          .states = mine().states.data() + row * state_elems,
                          .n_rows = std::min(run.n_rows - at, kGpuAttnRowsMax),
                          .span_begin = begin * page_tokens / kernels::kGpuSpanSlots,
                          .n_spans = gpu_spans(n_here),
                          .one_sequence = true});
    }
  }
}

GpuParts::Stripe GpuParts::stripe_of(const step::Run& run, u32 cache_layer, u32 begin,
                                     u32 n_groups) {
  const u32 stripe_groups = sizes().stripe_groups();
  TARN_ASSERT(stripe_groups > 0);
  const u32 stripe_idx = begin / stripe_groups;
  Stripe stripe{.begin = begin,
                .end = std::min(begin + stripe_groups, n_groups),
                .memory = mine().staged.data(),
                .table_at = 0,
                .kept = std::nullopt};
  const bool is_own = run.part == step::RunPart::own;
  if (sizes().n_stripes == 0 || !is_own || !kept_.is_full(stripe_idx, *run.sequence)) return stripe;
  stripe.kept = kept_.piece(run.session, cache_layer, stripe_idx);
  if (!stripe.kept) return stripe;
  stripe.memory = step_.args().memory->stripe(*stripe.kept);
  stripe.table_at = sizes().kept_at() + u64{*stripe.kept} * stripe_groups;
  return stripe;
}

u32 GpuParts::n_kept_groups(const step::Run& run) const {
  const bool keeps = sizes().n_stripes > 0 && run.part == step::RunPart::own;
  return keeps ? kept_.n_kept_groups(run.session, *run.sequence) : 0;
}

// Copies a stripe's groups to where attention takes them. False where the run has failed, or the
// device is lost.
bool GpuParts::stage(step::Run& run, u32 cache_layer, const Stripe& stripe) {
  kv::PartSource& source = *step_.args().parts;
  const u64 payload_bytes = step_.sizes().group.page_bytes() * step_.spec().n_kv_heads;
  if (stripe.kept) kept_.forget(*stripe.kept);  // until all of it has come
  step::KvPart part{.group_begin = stripe.begin, .group_end = stripe.begin};
  while (part.group_end < stripe.end) {
    if (!source.next({&run, 1}, cache_layer, stripe.end, part)) return false;
    for (u32 group = part.group_begin; group < part.group_end; ++group) {
      const auto* from =
          reinterpret_cast<const std::byte*>(run.sequence->group_address(cache_layer, group));
      auto* to = reinterpret_cast<std::byte*>(stripe.memory +
                                              (group - stripe.begin) * sizes().group.group_bytes());
      step_.send(to, from, payload_bytes);
    }
    const bool has_come = wait_for_host_part();
    source.give_back({&run, 1}, cache_layer, part);
    if (!has_come) return false;
  }
  if (stripe.kept) kept_.put(*stripe.kept, *run.sequence);
  return true;
}

// Brings the query of the run's last row.
bool GpuParts::bring_query(const step::Run& run, step::Rows q) {
  const u32 row = run.row_begin + run.n_rows - 1;
  const u64 n = u64{step_.spec().n_heads} * step_.spec().head_dim;
  step_.device().copy_out(std::as_writable_bytes(std::span(host().query.data(), n)),
                          DevicePtr<f32>(from_row(q, row).data).as<std::byte>(), step_.stream());
  return wait_for_host_part();
}

// Attends chosen slots. The host chooses by its copy of the query and gathers; K and V of a head's
// slots come to pages of its own, one head behind the other.
void GpuParts::attend_chosen(const Attended& a, step::Run& run) {
  const GpuBackendArgs& args = step_.args();
  if (!bring_query(run, a.q)) return;  // and what was copied before may be overwritten
  kv::PartSource& source = *args.parts;
  const u64 d_group = u64{args.spec->n_heads} / args.spec->n_kv_heads * args.spec->head_dim;
  const u64 slot_bytes = sizes().group.page_bytes() / sizes().group.page_tokens;
  const u64 head_bytes = sizes().gathered_pages() * sizes().group.page_bytes();
  source.begin({&run, 1}, a.cache_layer, host().query.data());
  for (step::KvPart part{}; source.next({&run, 1}, a.cache_layer, 0, part);) {
    std::array<step::ChosenSlots, kWorkersMax> chosen{};
    for (u32 begin = part.head_begin; begin < part.head_end; begin += kWorkersMax) {
      const u32 n = std::min(part.head_end - begin, kWorkersMax);
      args.workers->run(n, [&](u32 i, u32 worker_idx) {
        chosen[i] = source.choose(
            {run, a.cache_layer, begin + i, host().query.data() + (begin + i) * d_group},
            worker_idx);
      });
      for (u32 i = 0; i < n; ++i) {
        if (chosen[i].slots.empty()) continue;  // it comes with a later part
        const u64 n_bytes = chosen[i].slots.size() * slot_bytes;
        TARN_ASSERT(n_bytes <= head_bytes);
        host().n_chosen[begin + i] = static_cast<u32>(chosen[i].slots.size());
        step_.send(mine().gathered.data() + (begin + i) * head_bytes, chosen[i].pages[0], n_bytes);
      }
    }
    source.give_back({&run, 1}, a.cache_layer, part);
  }
  if (run.state != step::RunState::failed) attend_gathered(a, run);
}

void GpuParts::attend_gathered(const Attended& a, const step::Run& run) {
  const std::span<const u32> n_slots = host().n_chosen;
  const u32 n = std::ranges::max(n_slots);
  step_.send(mine().n_chosen.data(), n_slots.data(), n_slots.size());

  const u32 row = run.row_begin;
  kernels::GpuPages gathered = pages_at(sizes().stripe_groups(), a.cache_layer, row);
  gathered.page_stride = sizes().gathered_pages() * step_.sizes().group.page_bytes();
  for (u32 span = 0; span * kernels::kGpuSpanSlots < n; span += kernels::kGpuMergeSpans) {
    attend_part(step_, {.pages = gathered,
                        .q = from_row(a.q, row),
                        .out = from_row(a.out, row),
                        .visible = mine().n_chosen.data(),
                        .visible_stride = 1,
                        .quantized = acts(a, row),
                        .states = mine().states.data(),
                        .n_rows = 1,
                        .span_begin = span,
                        .n_spans = std::min(gpu_spans(n) - span, kernels::kGpuMergeSpans)});
  }
}

// Groups whose addresses stand in the stream's own table, whatever the row's session.
kernels::GpuPages GpuParts::pages_at(u64 table_at, u32 cache_layer, u32 row) const {
  kernels::GpuPages listed = step_.pages(cache_layer, row);
  listed.groups = reinterpret_cast<u8* const*>(mine().addresses.data()) + table_at;
  listed.table_stride = 0;
  listed.group_stride = 1;
  return listed;
}

// Until the GPU has come to where the host goes on; meanwhile the disk's work goes on, too.
bool GpuParts::wait_for_host_part() {
  Device& device = step_.device();
  Clock& clock = *step_.args().clock;
  device.record(host_part_, step_.stream());
  u64 moved_ns = clock.now_ns();
  while (true) {
    const u64 now_ns = clock.now_ns();  // what the host's part below takes is none of it
    const Result<bool> is_done = device.is_done(host_part_);
    if (is_done && *is_done) return true;
    if (step_.progress().advance()) moved_ns = now_ns;
    if (!is_done || now_ns - moved_ns > kGpuWaitNsMax) {
      device.give_up();  // finish() tells
      return false;
    }
    if (step_host_ != nullptr) (void)step_host_->tick(step::Pause::between_ops);
    clock.nap_ns(kNapNs);
  }
}

}  // namespace tarn::exec
