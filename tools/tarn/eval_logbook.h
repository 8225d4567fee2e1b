// tools/tarn/eval_logbook.h
//
// tarn eval logbook FILE: a model answers the questions of log books, greedily; an answer is right
// if it is the expected text, token for token. Questions about one document share its KV.
#pragma once

#include <string>

#include "tools/support/engine_options.h"

namespace tarn::tools {

struct LogbookCommand {
  std::string file;          // of tools/train/make-logbook
  std::string answers_file;  // where every answer goes, a JSON object a line; empty: nowhere
  std::string control;       // of code_controls.h; empty: none
  u32 control_position = 0;  // where it has a document begin
  bool json = false;
};

void run_logbook(const EngineOptions& options, const LogbookCommand& command);

}  // namespace tarn::tools
