// Boxes that `tarn plan --target` plans for without having them. Their figures come from data
// sheets: nothing was measured on them.
#pragma once

#include <span>
#include <string>

#include "platform/gpu/device.h"
#include "runtime/config/config.h"

namespace tarn::tools {

struct TargetBox {
  const char* name;
  const char* what;     // in words, with the cores and memory
  DeviceFacts gpu;      // memory_bytes: what the system or the card has
  u64 available_bytes;  // of the host's memory, with the desktop off
  u32 n_cores;
};

std::span<const TargetBox> target_boxes();
// "orin-nano-8gb, orin-nx-16gb, ..."
std::string target_names();
// Throws Failure, which names all.
const TargetBox& target_box(const std::string& name);

// Sets the values that neither a file nor an option gives.
void set_defaults(const TargetBox& box, Config* config);

}  // namespace tarn::tools
