#include "kernels/cpu_table.h"

#include "platform/cpu/topology.h"

namespace tarn::kernels {
namespace {

constexpr CpuTable kTables[] = {
// Where an ISA lists another one's body, that body is bound by memory.
#ifdef TARN_HAVE_AVX512
    {.isa = "avx512",
     .runs_here = [] { return cpu_features().avx512; },
     .tile_rows = tile_rows_avx2,
     .quantize_activations = quantize_activations_avx2,
     .matmul = matmul_avx512,
     .rms_norm = rms_norm_avx512,
     .rope = rope_avx512,
     .swiglu = swiglu_avx512,
     .add = add_avx512,
     .exp = exp_avx512,
     .attn = attn_avx512,
     .kv_store = kv_store_avx512,
     .pq_load = pq_load_avx512,
     .pq_assign = pq_assign_avx512,
     .pq_accumulate = pq_accumulate_avx512,
     .pq_lut = pq_lut_avx512,
     .pq_score = pq_score_avx512,
     .pq_weigh = pq_weigh_avx512,
     .pq_pairs = pq_pairs_avx512,
     .top_k = top_k_avx512},
#endif
#ifdef TARN_HAVE_AVX2
    {.isa = "avx2",
     .runs_here = [] { return cpu_features().avx2; },
     .tile_rows = tile_rows_avx2,
     .quantize_activations = quantize_activations_avx2,
     .matmul = matmul_avx2,
     .rms_norm = rms_norm_avx2,
     .rope = rope_avx2,
     .swiglu = swiglu_avx2,
     .add = add_avx2,
     .exp = exp_avx2,
     .attn = attn_avx2,
     .kv_store = kv_store_avx2,
     .pq_load = pq_load_avx2,
     .pq_assign = pq_assign_avx2,
     .pq_accumulate = pq_accumulate_avx2,
     .pq_lut = pq_lut_avx2,
     .pq_score = pq_score_avx2,
     .pq_weigh = pq_weigh_avx2,
     .pq_pairs = pq_pairs_avx2,
     .top_k = top_k_avx2},
#endif
    {.isa = "generic",
     .runs_here = [] { return true; },
     .tile_rows = tile_rows_generic,
     .quantize_activations = quantize_activations_generic,
     .matmul = matmul_generic,
     .rms_norm = rms_norm_generic,
     .rope = rope_generic,
     .swiglu = swiglu_generic,
     .add = add_generic,
     .exp = exp_generic,
     .attn = attn_generic,
     .kv_store = kv_store_generic,
     .pq_load = pq_load_generic,
     .pq_assign = pq_assign_generic,
     .pq_accumulate = pq_accumulate_generic,
     .pq_lut = pq_lut_generic,
     .pq_score = pq_score_generic,
     .pq_weigh = pq_weigh_generic,
     .pq_pairs = pq_pairs_generic,
     .top_k = top_k_generic},
};

}  // namespace

std::span<const CpuTable> cpu_tables() { return kTables; }

Result<const CpuTable*> cpu_table_select(std::string_view wanted) {
  for (const CpuTable& table : kTables) {
    if (wanted == "auto" && table.runs_here()) return &table;
    if (wanted != table.isa) continue;
    if (table.runs_here()) return &table;
    return fail({.status = Status::unsupported,
                 .hint =
                     "this CPU or its operating system lacks the instruction set asked for; use "
                     "cpu.isa = \"auto\"",
                 .detail = Detail(wanted)});
  }
  return fail(
      {.status = Status::invalid_config,
       .hint = "no kernels of that name in this build; cpu.isa is auto, generic, avx2 or avx512",
       .detail = Detail(wanted)});
}

}  // namespace tarn::kernels
