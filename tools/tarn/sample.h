// tools/tarn/sample.h
//
// What `tarn run` does when it is given neither model nor prompt: a built-in model reads its sample
// document once and answers questions about it, each on a fork of the session that read it.
#pragma once

#include "tools/support/engine_options.h"
#include "tools/tarn/built_in.h"

namespace tarn::tools {

struct SampleOptions {
  BuiltIn which = BuiltIn::logbook;
  bool json = false;
  std::string session;  // the name under which the reading is kept; empty: it is not
};
// `options.model` is ignored. Throws Failure.
void run_sample(const EngineOptions& options, const SampleOptions& sample);

}  // namespace tarn::tools
