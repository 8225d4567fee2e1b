// The cost of work on this box, in seconds, by its profile, and what follows from costs alone: a
// function of model, length, configuration and profile, whatever the box does now.
//
//   Prefill(s)       layers * (layer * steps + token * s + squared * s * s)
//   T_load           requests * request + bytes * byte + decode time of what lies encoded
//   T_recompute(r)   r * Prefill
//   r_eq             T_load / Prefill: more is recomputed for free while KV is loaded
//   T_blend(r)       the larger of T_load and: check layers of all up to the last chunk's end, then
//                    the rows of chunks that are chosen and the prompt's other ones in all layers
//   sources          CacheBlend, arXiv:2405.16444, section 5.1; PQCache, arXiv:2407.12820,
//                    equations 1 to 3 (method/index_jobs.h has the third)
//   thread           any
#pragma once

#include <cmath>
#include <span>

#include "runtime/config/select_config.h"

namespace tarn::control {

struct Costs {
  u32 n_layers = 0;
  u32 rows_max = ~u32{0};                       // of a step
  f64 layer_s = 0, token_s = 0, squared_s = 0;  // prefill of one layer; the first of each step
  f64 request_s = 0, byte_s = 0;                // reads of the disk

  bool has_prefill() const { return token_s + squared_s > 0; }
  bool has_disk() const { return request_s + byte_s > 0; }
  // Returns the seconds of tokens [from, to) of a prompt, all layers.
  f64 prefill_s(f64 from, f64 to) const {
    const f64 steps = std::ceil((to - from) / rows_max);
    return n_layers *
           (layer_s * steps + token_s * (to - from) + squared_s * (to * to - from * from));
  }
  f64 load_s(f64 n_requests, f64 n_bytes, f64 decode_s = 0) const {
    return n_requests * request_s + n_bytes * byte_s + decode_s;
  }
};
Costs costs_of(const BoxConfig& box, u32 n_layers, u32 rows_max);

// The share of chunks that is computed anew: r_eq, but `least` at least, and 1 at most.
f64 recompute_share(f64 least, f64 load_s, f64 prefill_s);

// Where KV of chunks may lie, and what it costs to keep it there.
struct StorageDevice {
  f64 load_s = 0;
  f64 cost = 0;
};
// The cheapest one that loads within limit_s, else the fastest. There is one at least.
u32 choose_device(std::span<const StorageDevice> devices, f64 limit_s);

// From how many tokens on a step by selection takes less time than one that reads everything;
// kNever: at no length. 0: the profile does not know.
inline constexpr u32 kNever = ~u32{0};
u32 selection_pays_from(const BoxConfig& box);

// The configuration of selection, with what it leaves to the box.
SelectConfig resolved(SelectConfig config, const BoxConfig& box);

}  // namespace tarn::control
