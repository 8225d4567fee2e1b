// tarn eval logbook FILE: a model answers the questions of log books greedily. An answer is right
// if it equals the expected text token by token. Questions about one document share its KV.
#pragma once

#include <string>

#include "tools/support/engine_options.h"

namespace tarn::tools {

struct LogbookCommand {
  std::string file;          // of tools/train/make-logbook
  std::string answers_file;  // for every answer, a JSON object per line; empty: none
  bool json = false;
};

void run_logbook(const EngineOptions& options, const LogbookCommand& command);

}  // namespace tarn::tools
