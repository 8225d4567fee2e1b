// How many updates a clustering makes, where the configuration leaves it to what a box has time for
// (PQCache, arXiv:2407.12820, equations 1 to 3; METHODS 3.1). For one layer, s rows and T updates:
//
//   T_clus(s, T) = job + row * s + update * n(s) * T      n(s): rows of the sample, at most s
//   T_comp(s)    = layer + token * s + squared * s * s    its prefill
//   T_max(s)     = (share * T_comp(s) - job - row * s) / (update * n(s)), down, in [3, 300]
//
// The paper has share = 1, row = 0 and n(s) = s: a GPU computes a layer while a CPU clusters the
// one before, and every row is clustered. On a CPU engine the same cores do both, so what
// clustering takes is paid for, and a share of the prefill bounds it. The paper's layer i must be
// done when the second step reaches layer i; with a prompt read in slices, all layers' last rows
// come in the last one, and layers that are clustered one after the other share the time until
// each is due. Here a session's layers begin to serve together, index_delay_tokens after the
// trigger, so every layer's share of that time is the same, and T no function of the layer.
//
// A pure function of the configuration and a count of rows: no clock is in it. Longer prompts allow
// more updates, until a sample stands for the rest and prefill goes on growing.
#pragma once

#include "runtime/config/select_config.h"

namespace tarn::method {

inline constexpr u32 kIterationsMin = 3;

// T_max above; update_ps > 0.
u32 iterations_max(const LayerCost& cost, u32 n_rows, u32 n_sampled);

// Of a clustering of n_rows: the configuration's number, or T_max.
u32 iterations(const SelectConfig& config, u32 n_rows);

}  // namespace tarn::method
