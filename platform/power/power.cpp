#include "platform/power/power.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <span>
#include <string_view>

#include "platform/base/system_text.h"

namespace tarn {
namespace {

constexpr u32 kCpusMax = 256, kThermalMax = 64;  // that are looked at

template <u64 N>
void put(std::string_view text, std::array<char, N>* to) {
  text = text.substr(0, text.find('\n'));
  const u64 n = std::min<u64>(text.size(), N - 1);
  std::copy_n(text.data(), n, to->data());
  (*to)[n] = '\0';
}

// The text behind `key`, up to a blank or the line's end.
std::string_view word_after(std::string_view text, std::string_view key) {
  const u64 at = text.find(key);
  if (at == text.npos) return {};
  text.remove_prefix(at + key.size());
  return text.substr(0, text.find_first_of(" >\t\n"));
}

// The name of a mode, of a line such as "< POWER_MODEL ID=2 NAME=15W >".
void name_nvpmodel(const char* root, u64 id, std::array<char, 32>* mode) {
  std::snprintf(mode->data(), mode->size(), "mode %u", static_cast<u32>(id));
  SystemText conf;
  if (!conf.read(root, "/etc/nvpmodel.conf")) return;
  std::string_view rest = conf.view();
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (!line.starts_with("< POWER_MODEL ") || leading_number(word_after(line, " ID=")) != id) {
      continue;
    }
    if (const std::string_view name = word_after(line, " NAME="); !name.empty()) put(name, mode);
    return;
  }
}

void read_mode(const char* root, std::array<char, 32>* mode) {
  SystemText text;
  if (text.read(root, "/var/lib/nvpmodel/status")) {  // "pmode:0002 fmode:quiet"
    if (const auto id = leading_number(word_after(text.view(), "pmode:"))) {
      return name_nvpmodel(root, *id, mode);
    }
  }
  if (text.read(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")) {
    put(text.view(), mode);
  }
}

bool has_any(std::string_view text, std::span<const std::string_view> parts) {
  return std::ranges::any_of(parts,
                             [&](std::string_view part) { return text.find(part) != text.npos; });
}

u32 in_mhz(u64 hz) { return static_cast<u32>(std::min<u64>(hz / 1'000'000, ~u32{0})); }

// CPUs that are offline have no cpufreq.
void read_cpu_clocks(const char* root, PowerState* state) {
  for (u32 cpu = 0; cpu < kCpusMax; ++cpu) {
    constexpr const char* kFile = "/sys/devices/system/cpu/cpu%u/cpufreq/%s";
    SystemText text;
    if (!text.read(root, kFile, cpu, "scaling_cur_freq")) continue;
    const u32 mhz = in_mhz(1000 * text.number().value_or(0));
    state->cpu_mhz = state->cpu_mhz == 0 ? mhz : std::min(state->cpu_mhz, mhz);
    if (!text.read(root, kFile, cpu, "cpuinfo_max_freq")) continue;
    state->cpu_mhz_max = std::max(state->cpu_mhz_max, in_mhz(1000 * text.number().value_or(0)));
  }
}

// A Jetson's GPU, as the kernels of JetPack 5 to 7 call it. (Listing a folder takes heap memory.)
constexpr const char* kGpus[] = {"17000000.gpu", "17000000.ga10b", "gpu-gpc-0", "17000000.gv11b"};
// Cooling devices that slow down what computes: thermal-cpufreq-0, thermal-devfreq-1, Processor,
// gpu-throttle-alert, intel_powerclamp. Others are fans, radios, settings.
constexpr std::string_view kSlowing[] = {"cpu",      "gpu",        "devfreq", "Processor",
                                         "throttle", "powerclamp", "idle",    "hot-surface"};

void read_gpu_clock(const char* root, PowerState* state) {
  for (const char* gpu : kGpus) {
    SystemText text;
    if (!text.read(root, "/sys/class/devfreq/%s/cur_freq", gpu)) continue;
    state->gpu_mhz = in_mhz(text.number().value_or(0));
    if (!text.read(root, "/sys/class/devfreq/%s/max_freq", gpu)) return;
    state->gpu_mhz_max = in_mhz(text.number().value_or(0));
    return;
  }
}

// A zone without a sensor at work cannot be read.
void read_heat(const char* root, PowerState* state) {
  for (u32 zone = 0; zone < kThermalMax; ++zone) {
    SystemText text;
    if (!text.read(root, "/sys/class/thermal/thermal_zone%u/temp", zone)) continue;
    const bool is_negative = text.view().starts_with('-');
    const auto size = leading_number(text.view().substr(is_negative ? 1 : 0));
    constexpr u64 kMillidegreesMax = 1'000'000;
    if (!size || *size > kMillidegreesMax) continue;
    const i32 millidegrees = static_cast<i32>(*size) * (is_negative ? -1 : 1);
    if (state->has_temperature && millidegrees <= state->hottest_millidegrees) continue;
    state->has_temperature = true;
    state->hottest_millidegrees = millidegrees;
    state->hottest_zone = {};
    if (text.read(root, "/sys/class/thermal/thermal_zone%u/type", zone)) {
      put(text.view(), &state->hottest_zone);
    }
  }
}

void read_throttling(const char* root, PowerState* state) {
  for (u32 device = 0; device < kThermalMax; ++device) {
    SystemText text;
    if (!text.read(root, "/sys/class/thermal/cooling_device%u/cur_state", device)) continue;
    if (text.number().value_or(0) == 0) continue;  // at rest
    if (!text.read(root, "/sys/class/thermal/cooling_device%u/type", device)) continue;
    if (!has_any(text.view(), kSlowing)) continue;
    if (state->n_throttling++ == 0) put(text.view(), &state->throttling_first);
  }
}

}  // namespace

PowerState power_state_under(const char* root) {
  PowerState state;
  read_mode(root, &state.mode);
  read_cpu_clocks(root, &state);
  read_gpu_clock(root, &state);
  read_heat(root, &state);
  read_throttling(root, &state);
  return state;
}

PowerState power_state() { return power_state_under(""); }

PowerState power_limits() {
  PowerState state;
  read_mode("", &state.mode);
  read_gpu_clock("", &state);
  read_throttling("", &state);
  return state;
}

}  // namespace tarn
