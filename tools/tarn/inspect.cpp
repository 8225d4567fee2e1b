// tarn inspect: shows the content of a model file, validated.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "tools/builtin/built_in_model.h"
#include "tools/support/engine_options.h"
#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"
#include "tools/support/json.h"
#include "tools/tarn/commands.h"
#include "tools/tarn/model_facts.h"

namespace tarn::tools {
namespace {

struct InspectCommand {
  std::string model;
  bool hash = false;
  std::string sha256;  // that the file must have; empty: any
  bool json = false;
};

std::string type_name(u32 type_id) {
  const model::GgufTensorTypeInfo* info = model::gguf_tensor_type(type_id);
  return info != nullptr ? info->name : "type " + std::to_string(type_id);
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

// The file's SHA-256; "" if the command asks for none. Throws if it is another than wanted.
std::string checked_sha256(const InspectCommand& command, ModelFile& file) {
  if (!command.hash && command.sha256.empty()) return "";
  const Sha256::Text found = file.sha256();
  if (!command.sha256.empty() && !is_same_sha256(command.sha256, found)) {
    throw Failure{kExitRefused, "the file is another, or damaged: get it again\n  its SHA-256  " +
                                    std::string(found.data()) + "\n  wanted       " +
                                    command.sha256};
  }
  return found.data();
}

void write_text(Json& json, const char* key, const std::optional<std::string>& text) {
  json.key(key);
  text ? json.text(as_utf8(*text)) : json.null();
}

void write_shape(const ModelFacts& facts, Json& json) {
  json.key("shape").begin_object();
  for (const ShapeFact& fact : facts.shape) {
    json.key(fact.name);
    if (fact.values.empty()) {
      json.null();
    } else if (fact.values.size() == 1) {
      json.number(fact.values.front());
    } else {
      json.begin_array();
      for (const u64 value : fact.values) json.number(value);
      json.end_array();
    }
  }
  json.key("vocabulary").number(facts.n_tokens);
  json.end_object();
}

void write_types(const ModelFacts& facts, Json& json) {
  json.key("types").begin_array();
  for (const TypeFact& type : facts.types) {
    json.begin_object();
    json.key("id").number(type.id);
    json.key("name");
    type.info != nullptr ? json.text(type.info->name) : json.null();
    json.key("block_elems");
    type.info != nullptr ? json.number(type.info->block_elems) : json.null();
    json.key("block_bytes");
    type.info != nullptr ? json.number(type.info->block_bytes) : json.null();
    json.key("computes").boolean(type.computes);
    json.key("n_tensors").number(type.n_tensors);
    json.key("bytes");
    type.info != nullptr ? json.number(type.n_bytes) : json.null();
    json.end_object();
  }
  json.end_array();
}

void write_tokenizer(const ModelFacts& facts, Json& json) {
  json.key("tokenizer").begin_object();
  write_text(json, "model", facts.tokenizer_model);
  write_text(json, "pre", facts.tokenizer_pre);
  json.key("n_tokens").number(facts.n_tokens);
  json.key("special_tokens").begin_object();
  for (const auto& [name, token] : facts.special_tokens) {
    json.key(escaped(name)).begin_object();  // unlike as_utf8(), never two alike
    json.key("id").number(token.id);
    write_text(json, "text", token.text);
    json.end_object();
  }
  json.end_object();
  json.end_object();
}

void write_templates(const ModelFacts& facts, Json& json) {
  json.key("templates").begin_array();
  for (const TemplateFact& fact : facts.templates) {
    json.begin_object();
    json.key("key").text(as_utf8(fact.key));
    json.key("bytes").number(fact.n_bytes);
    json.key("compiles").boolean(fact.why_not.empty());
    json.key("why_not");
    fact.why_not.empty() ? json.null() : json.text(fact.why_not);
    json.end_object();
  }
  json.end_array();
}

void write_tensors(const model::GgufFile& file, Json& json) {
  json.key("tensors").begin_array();
  for (const model::GgufTensor& tensor : file.tensors()) {
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
}

void print_as_json(const model::GgufFile& file, const ModelFacts& facts,
                   const std::string& sha256) {
  Json json;
  json.begin_object();
  json.key("gguf_version").number(file.version());
  json.key("big_endian").boolean(file.is_big_endian());
  json.key("file_bytes").number(file.file_bytes());
  json.key("n_keys").number(file.keys().size());
  if (!sha256.empty()) json.key("sha256").text(sha256);
  json.key("runs_here").boolean(facts.reasons.empty());
  json.key("reasons").begin_array();
  for (const std::string& reason : facts.reasons) json.text(reason);
  json.end_array();
  write_text(json, "arch", facts.arch);
  write_text(json, "name", facts.name);
  write_text(json, "size", facts.size);
  write_text(json, "license", facts.license);
  write_shape(facts, json);
  json.key("hyper_parameters");
  if (!facts.spec) {
    json.null();
  } else {
    json.begin_object();
    write_hyper_parameters(*facts.spec, json);
    json.end_object();
  }
  json.key("n_elements").number(facts.n_elements());
  json.key("tensors_bytes").number(facts.tensors_bytes());
  write_types(facts, json);
  write_tokenizer(facts, json);
  write_templates(facts, json);
  json.key("split");
  if (!facts.split) {
    json.null();
  } else {
    json.begin_object();
    json.key("no").number(facts.split->idx);
    json.key("count").number(facts.split->count);
    json.end_object();
  }
  write_tensors(file, json);
  json.end_object();
  print_json(json);
}

// "32", or of layers that differ "8 to 16, by layer"; "?" where the file does not say it.
std::string shown(const std::vector<u64>& values) {
  if (values.empty()) return "?";
  const auto [least, most] = std::ranges::minmax(values);
  if (least == most) return std::to_string(least);
  return std::to_string(least) + " to " + std::to_string(most) + " (by layer)";
}

std::string shown(const std::optional<std::string>& text) {
  return text && !text->empty() ? escaped(*text) : "not named";
}

void print_line(const char* label, const std::string& text) {
  std::printf("%-13s %s\n", label, text.c_str());
}

void print_shape(const ModelFacts& facts) {
  print_line("layers", shown(facts.of("layers")) + " of width " + shown(facts.of("width")) +
                           ", feed-forward " + shown(facts.of("feed_forward")));
  const bool same_for_kv = facts.of("kv_heads").empty();
  const std::string& kv_heads = shown(facts.of(same_for_kv ? "heads" : "kv_heads"));
  print_line(
      "heads",
      shown(facts.of("heads")) + ", " + kv_heads + " for KV" +
          (facts.of("head_length").empty() ? "" : ", of length " + shown(facts.of("head_length"))));
  if (!facts.of("experts").empty()) {
    print_line("experts", shown(facts.of("experts")) + ", of which " +
                              shown(facts.of("experts_used")) + " are used");
  }
  print_line("context", shown(facts.of("context")) + " tokens trained");
  print_line("vocabulary", std::to_string(facts.n_tokens) + " tokens");
  if (facts.spec) {
    const model::ModelSpec& spec = *facts.spec;
    std::printf("rope          base %g, scale %g, %u dims, %s pairs\n", spec.rope_base,
                spec.rope_scale, spec.n_rot, spec.rope_halves ? "halves" : "adjacent");
    print_line("output", spec.tied_output ? "tied to the embedding" : "its own");
  }
}

void print_types(const ModelFacts& facts) {
  if (facts.types.empty()) {
    return print_line("tensors", facts.n_tokens > 0 ? "none: a vocabulary alone" : "none");
  }
  std::printf("parameters    %.3f billion in %s\n", static_cast<f64>(facts.n_elements()) * 1e-9,
              format_bytes(facts.tensors_bytes()).c_str());
  for (const TypeFact& type : facts.types) {
    std::string text = type_name(type.id) + ": " + std::to_string(type.n_tensors) +
                       (type.n_tensors == 1 ? " tensor, " : " tensors, ");
    if (type.info == nullptr) {
      text += "a type that ggml does not name";
    } else {
      text += format_bytes(type.n_bytes) + " (type " + std::to_string(type.id);
      if (type.info->block_elems > 1) {
        text += ": " + std::to_string(type.info->block_elems) + " elements in " +
                std::to_string(type.info->block_bytes) + " bytes";
      }
      text += ")";
    }
    print_line("type", text + (type.computes ? "" : ", not computed with here"));
  }
}

void print_vocabulary(const ModelFacts& facts) {
  print_line("tokenizer", shown(facts.tokenizer_model) +
                              (facts.tokenizer_pre ? ", pre " + shown(facts.tokenizer_pre) : ""));
  for (const auto& [name, token] : facts.special_tokens) {
    print_line("token", escaped(name) + ": " + std::to_string(token.id) + " " +
                            (token.text ? escaped(*token.text) : "(not in the vocabulary)"));
  }
  if (facts.templates.empty()) print_line("template", "none");
  for (const TemplateFact& fact : facts.templates) {
    print_line("template", escaped(fact.key) + ", " + std::to_string(fact.n_bytes) + " bytes, " +
                               (fact.why_not.empty() ? std::string("compiles")
                                                     : "does not compile: " + fact.why_not));
  }
}

// One line, with a number before each reason where there are several.
void print_verdict(const ModelFacts& facts) {
  std::string text = facts.reasons.empty() ? "runs here: yes" : "runs here: no: ";
  for (size_t i = 0; i < facts.reasons.size(); ++i) {
    if (facts.reasons.size() > 1) {
      text += (i > 0 ? "; (" : "(") + std::to_string(i + 1) + ") ";
    }
    text += facts.reasons[i];
  }
  std::printf("%s\n", text.c_str());
}

void print_tensors(const model::GgufFile& file) {
  if (file.tensors().empty()) return;
  std::printf("%-36s %-8s %-28s %14s\n", "tensor", "type", "shape", "bytes");
  for (const model::GgufTensor& tensor : file.tensors()) {
    std::string shape;
    for (u32 d = 0; d < tensor.n_dims; ++d) {
      shape += (d > 0 ? " x " : "") + std::to_string(tensor.dims[d]);
    }
    std::printf("%-36s %-8s %-28s %14llu\n", escaped(tensor.name).c_str(),
                type_name(tensor.type_id).c_str(), shape.c_str(),
                static_cast<unsigned long long>(tensor.bytes));
  }
}

// The long table first: a terminal's last lines are what a reader sees.
void print_as_text(const model::GgufFile& file, const ModelFacts& facts,
                   const std::string& sha256) {
  print_tensors(file);
  std::printf("GGUF version %u%s, %s, %zu keys, %zu tensors\n", file.version(),
              file.is_big_endian() ? ", big-endian" : "", format_bytes(file.file_bytes()).c_str(),
              file.keys().size(), file.tensors().size());
  if (!sha256.empty()) print_line("SHA-256", sha256);
  print_line("architecture", shown(facts.arch));
  if (facts.name) print_line("name", shown(facts.name));
  if (facts.size) print_line("size", shown(facts.size));
  print_line("licence", shown(facts.license));
  if (facts.split) {
    print_line("split", "file " + std::to_string(facts.split->idx + 1) + " of " +
                            std::to_string(facts.split->count));
  }
  print_shape(facts);
  print_types(facts);
  print_vocabulary(facts);
  print_verdict(facts);
}

void run(InspectCommand& command) {
  const auto built_in = built_in_unless_named(command.model);
  ModelFile file(command.model);
  // Read before any output: a file that is no GGUF prints only the reason.
  const ModelFacts facts = facts_of(file);
  const std::string sha256 = checked_sha256(command, file);
  if (command.json) {
    print_as_json(file.gguf(), facts, sha256);
  } else {
    print_as_text(file.gguf(), facts, sha256);
  }
}

constexpr const char* kInspectHelp =
    "\nExamples:\n"
    "  tarn inspect model.gguf\n"
    "  tarn inspect model.gguf --json\n"
    "  tarn inspect model.gguf --sha256 HEX   # of the page that the file comes from\n"
    "\nEvery GGUF file is shown, and the exit code is 0, whether it runs here or not. The last "
    "line is \"runs here: yes\", or \"runs here: no: \" and every reason. A file that is no GGUF "
    "file, damaged or of version 1 is refused with code 78.\n"
    "\nThe fields of --json; null: the file does not say it:\n"
    "  gguf_version, file_bytes, n_keys, n_elements, tensors_bytes    numbers\n"
    "  runs_here, big_endian    true or false\n"
    "  reasons           texts, why it does not run here\n"
    "  sha256            with --hash or --sha256\n"
    "  arch, name, size, license    texts\n"
    "  shape             layers, width, feed_forward, heads, kv_heads, head_length,\n"
    "                    context, experts, experts_used: numbers, or lists with one\n"
    "                    for each layer; vocabulary\n"
    "  hyper_parameters  what an engine takes from the file; null where it is refused\n"
    "  types             id, name, block_elems, block_bytes, computes, n_tensors,\n"
    "                    bytes\n"
    "  tokenizer         model, pre, n_tokens, special_tokens: id and text by name\n"
    "  templates         key, bytes, compiles, why_not\n"
    "  split             no (from 0) and count\n"
    "  tensors           name, type, shape, bytes\n";

}  // namespace

void add_inspect(const Command& app) {
  auto command = std::make_shared<InspectCommand>();
  const Command sub =
      app.add_subcommand("inspect", "show a model file of any kind, and whether it runs here");
  sub.footer(kInspectHelp);
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
