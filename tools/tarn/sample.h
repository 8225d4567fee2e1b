// `tarn run` without model and prompt: a built-in model reads its sample document once. It answers
// each question about it on a fork of that session.
#pragma once

#include "tools/support/engine_options.h"
#include "tools/tarn/built_in.h"
#include "tools/tarn/kept_session.h"

namespace tarn::tools {

struct SampleOptions {
  BuiltIn which = BuiltIn::logbook;
  bool json = false;
  SessionOptions session;  // keeps the session of the document
};
// `options.model` is ignored. Throws Failure.
void run_sample(const EngineOptions& options, const SampleOptions& sample);

}  // namespace tarn::tools
