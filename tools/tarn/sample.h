// tools/tarn/sample.h
//
// What `tarn run` does when it is given neither model nor prompt: a built-in model reads its sample
// document once and answers questions about it, each on a fork of the session that read it.
#pragma once

#include "tools/support/engine_options.h"
#include "tools/tarn/built_in.h"
#include "tools/tarn/kept_session.h"

namespace tarn::tools {

struct SampleOptions {
  BuiltIn which = BuiltIn::logbook;
  bool json = false;
  SessionOptions session;  // under which the reading is kept
};
// `options.model` is ignored. Throws Failure.
void run_sample(const EngineOptions& options, const SampleOptions& sample);

}  // namespace tarn::tools
