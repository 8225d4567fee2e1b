// The subcommands of `tarn`. Each adds its options to the command line and sets the function to
// run. They throw tools::Failure, which main() converts to an exit code.
#pragma once

#include "tools/support/command_line.h"

namespace tarn::tools {

void add_run(const Command& app);  // run.cpp; without a model it runs sample.cpp
void add_chat(const Command& app);
void add_ask(const Command& app);
void add_explain(const Command& app);
void add_top(const Command& app);
void add_ingest(const Command& app);
void add_plan(const Command& app);
void add_inspect(const Command& app);
void add_tokenize(const Command& app);
void add_template(const Command& app);
void add_eval(const Command& app);
void add_verify(const Command& app);
void add_calibrate(const Command& app);
void add_demo(const Command& app);
void add_store(const Command& app);
void add_quantize(const Command& app);

}  // namespace tarn::tools
