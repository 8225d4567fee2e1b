// An engine that a program drives itself, step by step, on the GPU if configuration and build have
// one. Its warnings go to standard error.
#pragma once

#include <cstdio>
#include <string>

#include "platform/mem/reserve.h"
#include "runtime/engine/engine.h"
#include "tools/support/model_file.h"
#include "tools/support/progress.h"

namespace tarn::tools {

class OwnEngine {
 public:
  // Throws Failure.
  OwnEngine(const std::string& model_path, const Config& config) {
    engine::OpenArgs args{.model_path = model_path.c_str(),
                          .config = config,
                          .reserve = &reserve_,
                          .clock = &clock_,
                          .log = Log(&print_warning, nullptr, LogLevel::warning),
                          .sink = &fatal_sink()};
    Progress progress;
    args.on_progress = [](void* shown, u64 done_bytes, u64 total_bytes) {
      static_cast<Progress*>(shown)->show_bytes("loading", done_bytes, total_bytes);
      return true;
    };
    args.progress_context = &progress;
    value_of(gpu_.open(&args));
    value_of_open(engine_.open(args), model_path);
    if (!engine_.status().on_gpu) gpu_.close();
  }
  OwnEngine(const OwnEngine&) = delete;
  OwnEngine& operator=(const OwnEngine&) = delete;

  engine::Engine& get() { return engine_; }

 private:
  static void print_warning(void*, LogLevel, const char* text) {
    std::fprintf(stderr, "tarn warning: %s\n", text);
  }

  SystemReserve reserve_;
  SystemClock clock_;
  engine::SystemGpu gpu_;  // the engine is destroyed first
  engine::Engine engine_;
};

}  // namespace tarn::tools
