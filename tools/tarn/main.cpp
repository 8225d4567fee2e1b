// tools/tarn/main.cpp: the command line. Exit codes: tools/support/exit_code.h.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include "tools/support/exit_code.h"
#include "tools/support/standard_descriptors.h"
#include "tools/synth/synth.h"
#include "tools/tarn/commands.h"
#include "tools/tarn/input_mark.h"

namespace {

// Printed after each command's own examples.
constexpr const char* kFooter =
    "\nExamples:\n"
    "  tarn run                    the built-in model answers from a fixed budget\n"
    "  tarn run -m model.gguf -p \"Once upon a time\" -n 64\n"
    "  tarn run --help             a command's options and examples\n"
    "\nA text file named - is standard input.\n"
    "\nExit codes: 0 ok, 64 usage, 70 internal error, 74 I/O failed, 75 GPU lost (start again), 78 "
    "model, configuration, budget or request refused; 128 + n: ended by signal n (130 is ^C); a "
    "run with --session saves first.\n";

[[noreturn]] void end_by_signal(int signal) {
  std::fflush(nullptr);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  _exit(128 + signal);
}

int run_command_line(int argc, char** argv) {
  // `synth` has a parser of its own; it shares the programs' exit codes.
  if (argc > 1 && std::strcmp(argv[1], "synth") == 0) {
    return tarn::synth::synth_main(argc - 1, argv + 1);
  }
  tarn::tools::CommandLine app(
      "Tarn runs a quantised language model inside one fixed memory budget.", "tarn");
  app.footer(kFooter);
  app.set_version_flag("tarn " TARN_VERSION);
  app.require_subcommand(1, 1);
  tarn::tools::add_run(app);
  tarn::tools::add_chat(app);
  tarn::tools::add_ask(app);
  tarn::tools::add_top(app);
  tarn::tools::add_explain(app);
  tarn::tools::add_ingest(app);
  tarn::tools::add_plan(app);
  tarn::tools::add_inspect(app);
  tarn::tools::add_tokenize(app);
  tarn::tools::add_template(app);
  tarn::tools::add_eval(app);
  tarn::tools::add_verify(app);
  tarn::tools::add_calibrate(app);
  tarn::tools::add_store(app);
  tarn::tools::add_demo(app);
  tarn::tools::add_quantize(app);
  app.add_subcommand("synth", "write a random model of a real shape (tarn synth --help)");
  if (argc > 1 && argv[1][0] != '-' && !app.has_subcommand(argv[1])) {
    std::fprintf(stderr, "tarn: no command '%s'; tarn --help lists them\n", argv[1]);
    return tarn::tools::kExitUsage;
  }
  const char* const help[] = {"tarn", "--help"};
  const auto code = argc > 1 ? app.parse(argc, argv) : app.parse(2, help);
  return code.value_or(tarn::tools::kExitOk);
}

int code_of(int argc, char** argv) {
  try {
    return run_command_line(argc, argv);
  } catch (const tarn::tools::Stopped& stopped) {
    end_by_signal(stopped.signal);
  } catch (const tarn::tools::Failure& failure) {
    tarn::tools::print_failure("tarn", failure.text);
    return failure.code;
  } catch (const std::exception& error) {
    tarn::tools::print_failure("tarn", error.what());
    return tarn::tools::kExitRefused;
  }
}

}  // namespace

int main(int argc, char** argv) {
  tarn::tools::fill_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // a file at the limit (ulimit -f) is an error of a write
  tarn::set_thread_fatal_sink(&tarn::tools::fatal_sink());
  // A static buffer, so that the first line printed allocates nothing after READY.
  static char output_buffer[1 << 16];
  std::setvbuf(stdout, output_buffer, _IOFBF, sizeof output_buffer);
  const int code = tarn::tools::code_after_output("tarn", code_of(argc, argv));
  if (code == tarn::tools::kExitOk) tarn::tools::end_marked_run(code);
  return code;
}
