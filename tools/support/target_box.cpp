#include "tools/support/target_box.h"

#include <algorithm>
#include <string_view>

#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"

namespace tarn::tools {
namespace {

// As platform/gpu/cuda/discovery.cpp sets them.
constexpr u64 kSlabAlignmentBytes = 2 * kMiB, kSlabBytesShared = 256 * kMiB, kSlabBytesOwn = kGiB;
// The part of a board's memory that a system without a desktop takes.
constexpr u64 kSystemBytes = kGiB;
constexpr u64 kHostBytes = 16 * kGiB;  // of a box with a card

// `seen_bytes`: less than the name says, since the firmware keeps a part.
constexpr DeviceFacts board(u32 capability, u32 n_sms, u64 seen_bytes) {
  return {.kind = DeviceKind::cuda,
          .integrated = true,
          .host_register = true,
          .compute_capability = capability,
          .n_sms = n_sms,
          .memory_bytes = seen_bytes,
          .memory_free_bytes = seen_bytes - kSystemBytes,
          .headroom_bytes = std::max(u64{kGiB}, seen_bytes / 10),
          .slab_bytes_max = kSlabBytesShared,
          .slab_alignment_bytes = kSlabAlignmentBytes};
}

constexpr DeviceFacts card(u32 capability, u32 n_sms, u64 seen_bytes) {
  return {.kind = DeviceKind::cuda,
          .host_register = true,
          .compute_capability = capability,
          .n_sms = n_sms,
          .memory_bytes = seen_bytes,
          .slab_bytes_max = kSlabBytesOwn,
          .slab_alignment_bytes = kSlabAlignmentBytes};
}

constexpr u64 gib(f64 value) { return static_cast<u64>(value * static_cast<f64>(kGiB)); }

// clang-format off
constexpr TargetBox kBoxes[] = {
    {"orin-nano-8gb", "Jetson Orin Nano 8 GB, 6 cores, one memory of 7.4 GiB",
     board(87, 8, gib(7.4)), gib(7.4) - kSystemBytes, 6},
    {"orin-nx-16gb", "Jetson Orin NX 16 GB, 8 cores, one memory of 15.3 GiB",
     board(87, 8, gib(15.3)), gib(15.3) - kSystemBytes, 8},
    {"agx-orin-32gb", "Jetson AGX Orin 32 GB, 8 cores, one memory of 29.9 GiB",
     board(87, 14, gib(29.9)), gib(29.9) - kSystemBytes, 8},
    {"agx-orin-64gb", "Jetson AGX Orin 64 GB, 12 cores, one memory of 61.3 GiB",
     board(87, 16, gib(61.3)), gib(61.3) - kSystemBytes, 12},
    {"thor-128gb", "Jetson AGX Thor 128 GB, 14 cores, one memory of 122.8 GiB",
     board(110, 20, gib(122.8)), gib(122.8) - kSystemBytes, 14},
    {"rtx-8gb", "an RTX card with 8 GB, 8 cores, 16 GiB beside it",
     card(89, 24, gib(7.6)), kHostBytes - kSystemBytes, 8},
    {"rtx-12gb", "an RTX card with 12 GB, 8 cores, 16 GiB beside it",
     card(89, 46, gib(11.6)), kHostBytes - kSystemBytes, 8},
    {"rtx-16gb", "an RTX card with 16 GB, 8 cores, 16 GiB beside it",
     card(89, 34, gib(15.6)), kHostBytes - kSystemBytes, 8},
};
// clang-format on

}  // namespace

std::span<const TargetBox> target_boxes() { return kBoxes; }

std::string target_names() {
  std::string names;
  for (const TargetBox& box : kBoxes) names += (names.empty() ? "" : ", ") + std::string(box.name);
  return names;
}

const TargetBox& target_box(const std::string& name) {
  const auto* const found =
      std::ranges::find(kBoxes, std::string_view(name),
                        [](const TargetBox& box) { return std::string_view(box.name); });
  if (found != std::end(kBoxes)) return *found;
  throw Failure{kExitUsage,
                "--target " + name + ": there is none of this name, but " + target_names()};
}

void set_defaults(const TargetBox& box, Config* config) {
  config->n_threads = box.n_cores;
  config->budget_bytes = automatic_budget_bytes(box.available_bytes, box.gpu);
}

}  // namespace tarn::tools
