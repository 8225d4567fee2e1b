// tools/gpu_check/machine.h
//
// The state that a machine was in: figures of a Jetson cannot be repeated without its power mode,
// and those of a hot card not without its clocks. Looked at before and after the steps.
#pragma once

#include <rapidjson/document.h>

#include <filesystem>
#include <string>

namespace tarn::gpu_check {

// A program in PATH, or an empty path.
std::filesystem::path find_program(const std::string& name);

// An object of texts: "nvidia_smi" (driver, clocks, temperature, power), "nvpmodel", "l4t",
// "devfreq <device>" in Hz; only what this machine has.
rapidjson::Document look_at_machine();

}  // namespace tarn::gpu_check
