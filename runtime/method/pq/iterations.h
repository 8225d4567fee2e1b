// How many updates of its centroids a clustering makes, where the configuration leaves it to what a
// box has time for (PQCache, arXiv:2407.12820, equations 1 to 3). For one layer, s rows and T
// updates:
//
//   T_clus(s, T) = job + row * s + update * n(s) * T      n(s): rows of the sample, at most s
//   T_comp(s)    = layer + token * s + squared * s * s    its prefill
//   T_max(s)     = (share * T_comp(s) - job - row * s) / (update * n(s)), down, in [3, 300]
//
// The paper has share = 1, row = 0 and n(s) = s: a GPU computes a layer while a CPU clusters the
// one before. On a CPU engine the same cores do both, so a share of the prefill bounds what
// clustering takes. All layers of a session begin to serve together, so T depends on no layer.
#pragma once

#include "runtime/config/select_config.h"

namespace tarn::method {

inline constexpr u32 kIterationsMin = 3;
// T_max above; update_ps > 0. No clock is in it.
u32 iterations_max(const LayerCost& cost, u32 n_rows, u32 n_sampled);
// Returns the iterations of a clustering of n_rows: the configuration's number, or T_max.
u32 iterations(const SelectConfig& config, u32 n_rows);

}  // namespace tarn::method
