// Parts of tarn calibrate. Each measures one kind of work on this box and fits its cost.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "tools/support/disk_speed.h"
#include "tools/support/progress.h"

namespace tarn::tools {

inline u64 rounded(f64 x) { return static_cast<u64>(std::llround(x)); }

// One line of the table of what was measured, beside what the fit says.
void print_fitted(const char* what, f64 measured_s, f64 fitted_s);

// Tokens at the lengths that KV is filled to, without a prefill: all KV read, and by selection.
struct TokenTime {
  u32 n_tokens = 0;
  f64 all_s = 0;
  f64 selected_s = 0;
};
// At three lengths of the context that `config` has; nothing where it is too short for selection.
// Throws Failure.
std::vector<TokenTime> measure_tokens(const std::string& model, Config config, Progress& progress);
void fit_tokens(const std::vector<TokenTime>& times, BoxConfig* box);
void print_tokens(const std::vector<TokenTime>& times, const BoxConfig& box);

void fit_disk(const std::vector<DiskReads>& reads, BoxConfig* box);
// How KV is read: n_layers groups of so many bytes for each page.
struct KvGroups {
  u32 n_layers = 0, page_tokens = 0;
  u64 group_bytes = 0;
};
void print_disk(const std::vector<DiskReads>& reads, const BoxConfig& box, const KvGroups& kv);

}  // namespace tarn::tools
