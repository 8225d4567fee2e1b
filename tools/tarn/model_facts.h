// The facts that `tarn inspect` shows of a model's file, of any architecture: those that it states,
// and why no engine would run it. Text is as the file has it: its bytes are not checked.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/support/model_file.h"

namespace tarn::tools {

// An integer of the architecture; one for each layer where the layers differ. Empty: not stated.
struct ShapeFact {
  const char* name;    // in JSON
  const char* suffix;  // of the key, behind the architecture
  std::vector<u64> values{};
};

struct TypeFact {
  u32 id = 0;
  const model::GgufTensorTypeInfo* info = nullptr;  // nullptr: ggml's table has no such type
  bool computes = false;                            // this build has kernels for it
  u64 n_tensors = 0;
  u64 n_elements = 0;
  u64 n_bytes = 0;  // 0 where the type is not in the table
};

struct TokenFact {
  u64 id = 0;
  std::optional<std::string> text{};  // the vocabulary has no such token
};

struct TemplateFact {
  std::string key;
  u64 n_bytes = 0;
  std::string why_not{};  // empty: it compiles
};

struct SplitFact {
  u64 idx = 0, count = 0;
};

struct ModelFacts {
  // general.*; missing where the file has no such text.
  std::optional<std::string> arch, name, size, license;
  std::vector<ShapeFact> shape;
  std::vector<TypeFact> types;  // by their bytes, the most first
  std::optional<std::string> tokenizer_model, tokenizer_pre;
  u64 n_tokens = 0;
  std::map<std::string, TokenFact> special_tokens;  // by "bos", "eos", ...
  std::vector<TemplateFact> templates;
  std::optional<SplitFact> split;
  std::optional<model::ModelSpec> spec;  // of a file whose hyper-parameters and tensors are right
  std::vector<std::string> reasons;      // why it does not run here; empty: it runs

  const std::vector<u64>& of(const char* shape_name) const;
  u64 n_elements() const;
  u64 tensors_bytes() const;
};

ModelFacts facts_of(ModelFile& file);

}  // namespace tarn::tools
