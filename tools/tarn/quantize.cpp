// tarn quantize: converts a model file to another tensor type.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "tools/quantize/quantize_file.h"
#include "tools/support/engine_options.h"
#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"
#include "tools/support/model_name.h"
#include "tools/support/progress.h"
#include "tools/tarn/commands.h"

namespace tarn::tools {
namespace {

std::string footer() {
  return "\nEvery weight matrix gets the type; q4_k_m is llama.cpp's mix of q4_k and q6_k. Vectors "
         "stay as they are. Rows that are not a whole number of a type's blocks get llama.cpp's "
         "replacement: " +
         replacement_names() +
         ", f16 if 32 does not divide them. OUT appears when it is whole; a file of that name is "
         "replaced. --dry-run shows each tensor's type, and OUT's size, and writes nothing; it "
         "reads "
         "no values, so only the conversion refuses those that are not numbers.\n"
         "\nExamples:\n"
         "  tarn quantize m-f16.gguf m-q8.gguf q8_0       half the size, nearly no loss\n"
         "  tarn quantize m-f16.gguf m-q4.gguf q4_k_m     less than a third\n"
         "  tarn quantize m-q8.gguf m-f32.gguf f32        dequantise, for a comparison\n"
         "  tarn quantize m-f16.gguf m-q4.gguf q4_k_m --dry-run    which types, and how large\n";
}

struct QuantizeCommand {
  QuantizeOptions options{.in = {}, .out = {}};
  std::string type;
  bool requantize = false;
  bool dry_run = false;
};

void print_tensors(const QuantizeReport& report) {
  for (const auto& tensor : report.tensors) {
    std::string shape;
    for (const u64 dim : tensor.dims) {
      shape += (shape.empty() ? "" : " x ") + std::to_string(dim);
    }
    std::printf("%-36s %-20s %6s to %-6s %12s\n", escaped(tensor.name).c_str(), shape.c_str(),
                kernels::type_traits(tensor.from).name, kernels::type_traits(tensor.to).name,
                format_bytes(tensor.bytes).c_str());
  }
}

// `how_made` ends the line of the whole file.
void print_report(const QuantizeOptions& options, const QuantizeReport& report,
                  const char* how_made) {
  if (!report.quantized_in.empty()) {
    std::fprintf(stderr,
                 "note: %s is already quantised (%s); its rounding errors stay in the new file\n",
                 options.in.c_str(), report.quantized_in.c_str());
  }
  if (report.n_replaced > 0) {
    std::fprintf(stderr,
                 "note: the rows of %u matrices are not a whole number of the chosen type's "
                 "blocks; they got the replacement type\n",
                 report.n_replaced);
  }
  std::printf("%s: %s, %s from %s, %.2f bits a weight, %s\n", options.out.c_str(),
              std::string(quant_name(options.quant)).c_str(),
              format_bytes(report.out_bytes).c_str(), format_bytes(report.in_bytes).c_str(),
              report.bits_per_weight, how_made);
  for (const auto& per_type : report.types) {
    std::printf("  %-6s %5u tensors %12s\n", kernels::type_traits(per_type.type).name,
                per_type.n_tensors, format_bytes(per_type.bytes).c_str());
  }
}

void run(QuantizeCommand& command) {
  QuantizeOptions& options = command.options;
  options.in = model_file(options.in);
  const auto quant = parse_quant(command.type);
  if (!quant) {
    throw Failure{kExitUsage, "unknown TYPE " + command.type + "; one of " + quant_names()};
  }
  options.quant = *quant;
  if (command.requantize) options.requantize = Requantize::accept;
  if (command.dry_run) {
    const QuantizeReport report = plan_quantize(options);
    print_tensors(report);
    return print_report(options, report, "not written (dry run)");
  }
  Progress progress;
  options.progress = [&](u64 done_bytes, u64 total_bytes) {
    progress.show_bytes("writing", done_bytes, total_bytes);
  };
  const auto start = std::chrono::steady_clock::now();
  const QuantizeReport report = quantize_file(options);
  const std::chrono::duration<f64> elapsed = std::chrono::steady_clock::now() - start;
  progress.clear();
  char how_made[32];
  std::snprintf(how_made, sizeof how_made, "in %.1f s", elapsed.count());
  print_report(options, report, how_made);
}

}  // namespace

void add_quantize(const Command& app) {
  auto command = std::make_shared<QuantizeCommand>();
  command->options.n_threads = std::max(1u, std::thread::hardware_concurrency());
  const Command sub = app.add_subcommand("quantize", "convert a model to another tensor type");
  sub.add_option("IN", command->options.in, "a GGUF file, best in f32, f16 or bf16").required();
  sub.add_option("OUT", command->options.out, "the file to write").required();
  sub.add_option("TYPE", command->type, quant_names()).required();
  sub.add_flag("--requantize", command->requantize,
               "round again a quantised input: worse than starting from the original");
  sub.add_flag("--dry-run", command->dry_run,
               "show each tensor's type and the file's size, and write nothing");
  sub.add_option("-t,--threads", command->options.n_threads, "threads that round and write")
      .between(1u, 256u)
      .capture_default_str();
  sub.footer(footer());
  sub.callback([command] { run(*command); });
}

}  // namespace tarn::tools
