// A GGUF file read without an engine: its directory, and on request its description and its
// tokenizer. It owns all its memory, and throws Failure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "platform/cpu/sha256.h"
#include "platform/io/io_backend.h"
#include "platform/mem/reserve.h"
#include "runtime/model/gguf.h"
#include "runtime/model/model_spec.h"
#include "runtime/text/tokenizer.h"
#include "tools/support/exit_code.h"

namespace tarn::tools {

class ModelFile {
 public:
  explicit ModelFile(const std::string& path);
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;
  ~ModelFile();

  const model::GgufFile& gguf() const { return gguf_; }
  // Checks the hyper-parameters and the tensors.
  const model::ModelDescription& description();
  // Why no engine would run the file: by the checks that refuse it, all of them. Empty: it runs.
  // Throws where the disk or the memory fails.
  std::vector<Error> refusals();
  // nullptr before description() or refusals(), and where these refuse it.
  const model::ModelDescription* described() const { return description_.get(); }
  // Builds the vocabulary on first use.
  const text::Tokenizer& tokenizer();
  std::vector<text::TokenId> encode(const std::string& text, text::EncodeOptions options);
  // The bytes of one token; a control token as it is written.
  std::string piece(text::TokenId id);
  // The SHA-256 of the whole file, with progress.
  Sha256::Text sha256();
  // The model's own chat template, or "".
  std::string chat_template();
  // A text value of the directory, or `otherwise`.
  std::string text_key(const char* key, const std::string& otherwise);

 private:
  Result<void> build_tokenizer();
  Result<void> check_rope_factors() const;

  std::string path_;
  SystemReserve reserve_;
  std::span<std::byte> memory_{};
  std::span<std::byte> tokenizer_memory_{};
  IoBackend* io_ = nullptr;
  IoFile file_{};
  Bump bump_{};
  model::GgufFile gguf_{};
  std::unique_ptr<model::ModelDescription> description_;
  text::Tokenizer tokenizer_{};
};

// The end of the sentence for a model that could not be opened: the command that shows all reasons
// of its file; "" where there are none, or the file is no GGUF file.
std::string where_all_reasons_are(Status status, const std::string& model_path);
// Throws with that sentence.
[[noreturn]] void throw_open_failure(const Error& error, const std::string& model_path);
// The same for a status of the C API.
void check_open(int status, const std::string& model_path);
template <class T>
T value_of_open(Result<T> result, const std::string& model_path) {
  if (!result) throw_open_failure(result.error(), model_path);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace tarn::tools
