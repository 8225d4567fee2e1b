// tools/gpu_check/steps.h
//
// What gpu-check runs, in the order of what it is worth when time ends early: is there a GPU, are
// its bits the emulator's, what each kernel reads a second, tokens a second of an 8B beside
// llama.cpp's, logits beside the CPU's, all GPU tests, compute-sanitizer, batches and depths, of
// which the deepest also by selection.
//
// Every step is a program of the bundle in a process of its own. A step that crashes, hangs or does
// not fit is written down, and the next one runs; only what needs its result (a model, a GPU) is
// then absent.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "tools/gpu_check/report.h"

namespace tarn::gpu_check {

struct Setup {
  std::filesystem::path bundle;     // tarn, tarn-bench, gpu-bench, the tests, tests.list
  std::filesystem::path peer;       // llama-bench of a build with CUDA; empty: absent
  std::filesystem::path work;       // where the model and logits may lie, for the time of the run
  std::filesystem::path model;      // empty: `tarn synth` makes the 8B in `work`
  std::filesystem::path sanitizer;  // compute-sanitizer; empty: absent
  std::string cublas_dir;           // where libcublas lies, if the loader does not find it alone
  std::string cublas;               // what was found; empty: absent
  f64 minutes = 8;
  f64 step_seconds_max = 1e9;  // no step gets more, whatever its own limit says
};

// Runs everything into `report`; `after_step` is called whenever one has been added.
void run_steps(const Setup& setup, Report& report, const std::function<void()>& after_step);

// compute-sanitizer in PATH or in CUDA's usual place; empty where there is none.
std::filesystem::path find_sanitizer();
// Sets cublas and cublas_dir: by the loader, else in Python's nvidia-cublas.
void find_cublas(Setup& setup);

}  // namespace tarn::gpu_check
