// tools/tarn/commands.h
//
// The subcommands of `tarn`. Each adds its options to the command line and leaves behind what is to
// be run; failures are thrown as tools::Failure, main() turns them into an exit code.
#pragma once

namespace CLI {
class App;
}

namespace tarn::tools {

void add_run(CLI::App& app);  // run.cpp; without a model it runs sample.cpp
void add_plan(CLI::App& app);
void add_inspect(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_eval(CLI::App& app);
void add_verify(CLI::App& app);
void add_calibrate(CLI::App& app);
void add_demo(CLI::App& app);
void add_sessions(CLI::App& app);
void add_quantize(CLI::App& app);

}  // namespace tarn::tools
