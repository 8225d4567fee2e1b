// kernels/attn/gather_slots_cuda.cu: a warp a slot, a CTA 32 ranks of a KV head.
#include "kernels/attn/gather_slots_gpu.h"
#include "kernels/attn/pages_cta.h"
#include "kernels/common/cta.h"

namespace tarn::kernels::TARN_GPU {
namespace {

struct GatherSlots {
  static constexpr u32 kThreads = 128;
  static constexpr u32 kWarps = kThreads / kWarpLanes;
  static constexpr u32 kRanks = 32;
  using Args = GpuGatherSlotsArgs;

  TARN_DEVICE static u32 slot_of(const GpuSegments& s, const u32* places, u32 rank) {
    if (rank < s.n_sinks) return rank;
    rank -= s.n_sinks;
    if (rank < s.n_places) return s.n_sinks + load<u32>(places + rank);
    return s.local_begin + rank - s.n_places;
  }

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const GpuPages& pages = args.pages;
    const u32 kv_head = cta.block_y();
    const GpuSegments segments = *args.segments;
    const u32* places = args.places + kv_head * args.places_stride;
    const u32 slot_bytes = 2 * vector_bytes(pages.type, pages.head_dim);
    const u64 group_bytes = pages.n_kv_heads * pages.page_stride;
    const u32 begin = cta.block() * kRanks;
    for (u32 rank = begin + cta.warp(); rank < begin + kRanks; rank += kWarps) {
      if (rank >= segments.n_slots) return;
      const u32 slot = slot_of(segments, places, rank);
      const u8* from = slot_address(pages, args.row, kv_head, slot);
      u8* to = args.out + rank / pages.page_tokens * group_bytes + kv_head * pages.page_stride +
               u64{rank % pages.page_tokens} * slot_bytes;
      for (u32 at = cta.lane() * 4; at < slot_bytes; at += kWarpLanes * 4) {
        store(to + at, load<u32>(from + at));
      }
    }
  }
};

}  // namespace

void gather_slots_gpu(const GpuGatherSlotsArgs& args, GpuStream* stream) {
  launch<GatherSlots>({.n_ctas = (args.slots_max + GatherSlots::kRanks - 1) / GatherSlots::kRanks,
                       .n_ctas_y = args.pages.n_kv_heads},
                      stream, args);
}

void gather_slots_kernels(const KernelSink& sink) { tell<GatherSlots>(sink); }

}  // namespace tarn::kernels::TARN_GPU
