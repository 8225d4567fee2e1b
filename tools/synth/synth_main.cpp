// `tarn synth`: the command line of synth.h.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string_view>

#include "tools/support/exit_code.h"
#include "tools/support/progress.h"
#include "tools/synth/synth.h"

namespace tarn::synth {
namespace {

constexpr const char* kHelp =
    "usage: tarn synth [--arch NAME] [--quant TYPE] [--layers N] [--seed S] OUT\n"
    "\n"
    "Writes a model without a download: random weights in a real model's shape (for\n"
    "speed, memory and correctness, not for sense), or the recall model, whose\n"
    "weights are computed so that it answers `... a 7 ... b 3 ... a` with `7` at any\n"
    "length.\n"
    "\n"
    "  --arch NAME    llama-2-7b llama-3.1-8b mistral-7b qwen2.5-7b qwen3-8b\n"
    "                 tiny-llama tiny-qwen2 tiny-qwen3 recall            (tiny-llama)\n"
    "  --quant TYPE   each type that `tarn quantize --help` lists\n"
    "                                          (q4_k_m; tiny ones: q8_0; recall: f16)\n"
    "  --layers N     fewer or more layers than the architecture has\n"
    "  --seed S       same seed, same file                                 (1)\n"
    "\n"
    "examples:\n"
    "  tarn synth /tmp/tiny.gguf\n"
    "  tarn synth --arch recall /tmp/recall.gguf\n"
    "  tarn synth --arch llama-3.1-8b /tmp/8b.gguf          4.9 GB, for tarn-bench\n";

u64 parse_number(std::string_view option, std::string_view text) {
  u64 value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw std::invalid_argument(std::string(option) + " needs a number, not " + std::string(text));
  }
  return value;
}

SynthOptions parse(std::span<char* const> arguments) {
  SynthOptions options;
  for (u64 i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    if (!name.starts_with("--")) {
      if (!options.path.empty()) throw std::invalid_argument("more than one OUT");
      options.path = name;
      continue;
    }
    if (i + 1 == arguments.size()) throw std::invalid_argument(std::string(name) + ": no value");
    const std::string_view value = arguments[++i];
    if (name == "--arch") {
      options.arch = value;
    } else if (name == "--quant") {
      options.quant = value;
    } else if (name == "--layers") {
      const u64 layers = parse_number(name, value);
      if (layers == 0 || layers > 512) throw std::invalid_argument("--layers: 1 to 512");
      options.layers = static_cast<u32>(layers);
    } else if (name == "--seed") {
      options.seed = parse_number(name, value);
    } else {
      throw std::invalid_argument("unknown option " + std::string(name));
    }
  }
  if (options.path.empty()) throw std::invalid_argument("OUT is missing");
  return options;
}

}  // namespace

int synth_main(int argc, char** argv) {
  const std::span<char* const> arguments(argv + 1, static_cast<u64>(std::max(argc, 1) - 1));
  for (const std::string_view argument : arguments) {
    if (argument == "--help" || argument == "-h") {
      std::fputs(kHelp, stdout);
      return tools::kExitOk;
    }
  }
  try {
    SynthOptions options = parse(arguments);
    tools::Progress progress;
    options.progress = [&](u64 done_bytes, u64 total_bytes) {
      progress.show_bytes("writing", done_bytes, total_bytes);
    };
    const auto start = std::chrono::steady_clock::now();
    const SynthReport report = synth_write(options);
    const std::chrono::duration<f64> elapsed = std::chrono::steady_clock::now() - start;
    progress.clear();
    const auto file_bytes = static_cast<f64>(report.file_bytes);
    std::printf("%s: %s, %.3f GB in %.2f s (%.2f GB/s)\n", options.path.c_str(),
                options.arch.c_str(), file_bytes / 1e9, elapsed.count(),
                file_bytes / 1e9 / elapsed.count());
    if (report.entropy_nats > 0) {
      std::printf("expected mean entropy of the output: %.2f nats, %.2f of ln V\n",
                  report.entropy_nats, report.entropy_nats / report.ln_vocab);
    }
    return tools::kExitOk;
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "tarn synth: %s (see tarn synth --help)\n", error.what());
    return tools::kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tarn synth: %s\n", error.what());
    return tools::kExitIo;
  }
}

}  // namespace tarn::synth
