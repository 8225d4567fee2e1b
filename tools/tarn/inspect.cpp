// tarn inspect: shows the content of a model file, validated.
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "kernels/quant/tensor_type.h"
#include "tools/builtin/built_in_model.h"
#include "tools/support/engine_options.h"
#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"
#include "tools/support/json.h"
#include "tools/support/model_file.h"
#include "tools/tarn/commands.h"

namespace tarn::tools {
namespace {

struct InspectCommand {
  std::string model;
  bool hash = false;
  std::string sha256;  // that the file must have; empty: any
  bool json = false;
};

std::string type_name(u32 type_id) {
  const kernels::TypeTraits* traits = kernels::type_traits(type_id);
  return traits != nullptr ? traits->name : "type " + std::to_string(type_id);
}

void write_hyper_parameters(const model::ModelSpec& spec, Json& json) {
  json.key("n_layers").number(spec.n_layers);
  json.key("d_model").number(spec.d_model);
  json.key("d_ff").number(spec.d_ff);
  json.key("n_heads").number(spec.n_heads);
  json.key("n_kv_heads").number(spec.n_kv_heads);
  json.key("head_dim").number(spec.head_dim);
  json.key("n_rot").number(spec.n_rot);
  json.key("n_vocab").number(spec.n_vocab);
  json.key("n_ctx_train").number(spec.n_ctx_train);
  json.key("rms_eps").real(spec.rms_eps);
  json.key("rope_base").real(spec.rope_base);
  json.key("rope_scale").real(spec.rope_scale);
  json.key("rope_pairs").text(spec.rope_halves ? "halves" : "adjacent");
  json.key("qkv_bias").boolean(spec.qkv_bias);
  json.key("qk_norm").boolean(spec.qk_norm);
  json.key("tied_output").boolean(spec.tied_output);
  json.key("n_params").number(spec.n_params);
  json.key("weights_bytes").number(spec.weights_file_bytes);
}

bool show_progress(void*, u64 done_bytes, u64 total_bytes) {
  std::fprintf(stderr, "\rhashing %3.0f %%%s",
               100.0 * static_cast<f64>(done_bytes) / static_cast<f64>(total_bytes),
               done_bytes == total_bytes ? "\r\033[K" : "");
  return true;
}

// The file's SHA-256; "" if the command asks for none. Throws if it is another than wanted.
std::string checked_sha256(const InspectCommand& command, ModelFile& file) {
  if (!command.hash && command.sha256.empty()) return "";
  const Sha256::Text found = file.sha256(isatty(STDERR_FILENO) != 0 ? show_progress : nullptr);
  if (!command.sha256.empty() && !is_same_sha256(command.sha256, found)) {
    throw Failure{kExitRefused, "the file is another, or damaged: get it again\n  its SHA-256  " +
                                    std::string(found.data()) + "\n  wanted       " +
                                    command.sha256};
  }
  return found.data();
}

void print_as_json(ModelFile& file, const std::string& arch, const std::string& sha256) {
  Json json;
  json.begin_object();
  json.key("gguf_version").number(file.gguf().version());
  json.key("file_bytes").number(file.gguf().file_bytes());
  if (!sha256.empty()) json.key("sha256").text(sha256);
  json.key("arch").text(as_utf8(arch));
  json.key("hyper_parameters");
  if (file.gguf().tensors().empty()) {
    json.null();
  } else {
    json.begin_object();
    write_hyper_parameters(file.description().spec, json);
    json.end_object();
  }
  json.key("tokenizer").begin_object();
  json.key("model").text(as_utf8(file.text_key("tokenizer.ggml.model", "")));
  json.key("pre").text(as_utf8(file.text_key("tokenizer.ggml.pre", "")));
  const model::GgufKey* tokens = file.gguf().find_key("tokenizer.ggml.tokens");
  json.key("n_tokens").number(tokens != nullptr ? tokens->count : 0);
  json.end_object();
  json.key("tensors").begin_array();
  for (const model::GgufTensor& tensor : file.gguf().tensors()) {
    json.begin_object();
    json.key("name").text(as_utf8(tensor.name));
    json.key("type").text(type_name(tensor.type_id));
    json.key("shape").begin_array();
    for (u32 d = 0; d < tensor.n_dims; ++d) json.number(tensor.dims[d]);
    json.end_array();
    json.key("bytes").number(tensor.bytes);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  print_json(json);
}

void print_as_text(ModelFile& file, const std::string& arch, const std::string& sha256) {
  std::printf("GGUF version %u, %s, %zu keys, %zu tensors\n", file.gguf().version(),
              format_bytes(file.gguf().file_bytes()).c_str(), file.gguf().keys().size(),
              file.gguf().tensors().size());
  if (!sha256.empty()) std::printf("SHA-256       %s\n", sha256.c_str());
  std::printf("architecture  %s\n", escaped(arch).c_str());
  std::printf("tokenizer     %s %s\n",
              escaped(file.text_key("tokenizer.ggml.model", "none")).c_str(),
              escaped(file.text_key("tokenizer.ggml.pre", "")).c_str());
  if (file.gguf().tensors().empty()) {
    std::printf("no tensors: a vocabulary alone\n");
    return;
  }
  const model::ModelSpec& spec = file.description().spec;
  std::printf("layers        %u of d_model %u, d_ff %u\n", spec.n_layers, spec.d_model, spec.d_ff);
  std::printf("heads         %u of %u, %u for KV\n", spec.n_heads, spec.head_dim, spec.n_kv_heads);
  std::printf("rope          base %g, scale %g, %u dims, %s pairs\n", spec.rope_base,
              spec.rope_scale, spec.n_rot, spec.rope_halves ? "halves" : "adjacent");
  std::printf("vocabulary    %u, output %s\n", spec.n_vocab, spec.tied_output ? "tied" : "its own");
  std::printf("context       %llu tokens trained\n",
              static_cast<unsigned long long>(spec.n_ctx_train));
  std::printf("parameters    %.3f billion in %s\n", static_cast<f64>(spec.n_params) * 1e-9,
              format_bytes(spec.weights_file_bytes).c_str());
  std::printf("%-36s %-8s %-28s %14s\n", "tensor", "type", "shape", "bytes");
  for (const model::GgufTensor& tensor : file.gguf().tensors()) {
    std::string shape;
    for (u32 d = 0; d < tensor.n_dims; ++d) {
      shape += (d > 0 ? " x " : "") + std::to_string(tensor.dims[d]);
    }
    std::printf("%-36s %-8s %-28s %14llu\n", escaped(tensor.name).c_str(),
                type_name(tensor.type_id).c_str(), shape.c_str(),
                static_cast<unsigned long long>(tensor.bytes));
  }
}

void run(InspectCommand& command) {
  const auto built_in = built_in_unless_named(command.model);
  ModelFile file(command.model);
  const std::string arch = file.text_key("general.architecture", "");
  // Checked before any output: a refused file prints only the reason.
  if (!file.gguf().tensors().empty()) static_cast<void>(file.description());
  const std::string sha256 = checked_sha256(command, file);
  if (command.json) {
    print_as_json(file, arch, sha256);
  } else {
    print_as_text(file, arch, sha256);
  }
}

}  // namespace

void add_inspect(const Command& app) {
  auto command = std::make_shared<InspectCommand>();
  const Command sub = app.add_subcommand("inspect", "show the content of a model file, validated");
  sub.footer(
      "\nExamples:\n"
      "  tarn inspect model.gguf\n"
      "  tarn inspect model.gguf --json\n"
      "  tarn inspect model.gguf --sha256 HEX   # of the page that the file comes from\n");
  sub.add_option("MODEL,-m,--model", command->model,
                 "a GGUF file, with or without tensors, or a name that toolchain/model has "
                 "(default: the built-in model)")
      .check(is_not_empty);
  sub.add_flag("--hash", command->hash, "read the whole file and show its SHA-256");
  sub.add_option("--sha256", command->sha256, "refuse a file with another SHA-256 (implies --hash)")
      .type_name("HEX")
      .check([](const std::string& value) {
        return is_sha256(value) ? std::string() : "a SHA-256 has 64 hexadecimal digits";
      });
  sub.add_flag("--json", command->json, "one JSON object on standard output");
  sub.callback([command] { run(*command); });
}

}  // namespace tarn::tools
