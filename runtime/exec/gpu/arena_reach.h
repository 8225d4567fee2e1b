// How a GPU reaches the arena: as the system's memory, which its driver registers, or as the
// driver's own, where the driver registers none.
#pragma once

#include <span>

#include "runtime/arena/pinned_reserve.h"

namespace tarn::exec {

struct ArenaReach {
  bool is_pinned = false;  // the arena is the driver's own
  const char* note = "";   // what the log says of it
  Reserve* (*reserve)(Reserve* system, Reserve* pinned) = nullptr;
  Result<DeviceBytes> (*reach)(Device& device, std::span<std::byte> bytes) = nullptr;
  void (*leave)(Device& device, std::span<std::byte> bytes) = nullptr;
  // How much of the arena Device::driver_bytes() has to be told of.
  u64 (*told_bytes)(u64 host_bytes) = nullptr;
};

inline constexpr ArenaReach kRegisteredArena = {
    .reserve = [](Reserve* system, Reserve*) { return system; },
    .reach = [](Device& device, std::span<std::byte> bytes) { return device.register_host(bytes); },
    .leave = [](Device& device, std::span<std::byte> bytes) { device.unregister_host(bytes); },
    .told_bytes = [](u64 host_bytes) { return host_bytes; }};

inline constexpr ArenaReach kPinnedArena = {
    .is_pinned = true,
    .note = " (it registers none)",
    .reserve = [](Reserve*, Reserve* pinned) { return pinned; },
    .reach = [](Device& device,
                std::span<std::byte> bytes) { return device.pinned_address(bytes); },
    .leave = [](Device&, std::span<std::byte>) {},
    .told_bytes = [](u64) -> u64 { return 0; }};  // the device knows its pinned memory itself

}  // namespace tarn::exec
