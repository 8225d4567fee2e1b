// The board's power mode, clocks, heat and throttling, as Linux shows them. Speeds mean little
// without them: a Jetson's mode sets the clocks of CPU, GPU and memory.
//
//   source   /var/lib/nvpmodel/status and /etc/nvpmodel.conf (Jetson), else cpufreq's governor;
//            /sys/devices/system/cpu/*/cpufreq, /sys/class/devfreq, /sys/class/thermal
//   absent   a file that is not there leaves its figures unknown: "" or 0
//   cost     some hundred small reads at most; no state, any thread
#pragma once

#include <array>

#include "platform/base/types.h"

namespace tarn {

struct PowerState {
  std::array<char, 32> mode{};          // "MAXN", "15W"; "mode 3" if it has no name; "performance"
  u32 cpu_mhz = 0, cpu_mhz_max = 0;     // of the slowest CPU now, and the highest that one has
  u32 gpu_mhz = 0, gpu_mhz_max = 0;     // of a Jetson's GPU, now and in this mode
  bool has_temperature = false;         // the next two are known
  i32 hottest_millidegrees = 0;         // Celsius, of the hottest zone
  std::array<char, 32> hottest_zone{};  // its name: "gpu-thermal"
  u32 n_throttling = 0;                 // cooling devices that slow down CPU, GPU or memory now
  std::array<char, 32> throttling_first{};  // the name of the first of them
};
PowerState power_state();
// Reads the mode, a GPU's clocks and what is throttling alone: some ten reads, none of a CPU's
// clock.
PowerState power_limits();

// Below another root than "": a test can describe other machines.
PowerState power_state_under(const char* root);

}  // namespace tarn
