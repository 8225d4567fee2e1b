#include "tools/support/model_file.h"

#include "kernels/quant/dequant.h"
#include "platform/base/checked.h"
#include "runtime/api/tarn.h"
#include "runtime/chat/chat_template.h"
#include "runtime/model/file_hash.h"
#include "runtime/model/weights.h"
#include "tools/support/progress.h"

namespace tarn::tools {
namespace {

constexpr u64 kDirectoryBytesMax = 256 * kMiB;  // address space; only used pages are touched

std::span<std::byte> reserve_bytes(Reserve& reserve, const char* name, u64 bytes) {
  return value_of(
             reserve.reserve({.name = name, .bytes = bytes, .touch = false, .huge_pages = false}))
      .bytes;
}

bool is_of_file(Status status) {
  return status == Status::invalid_model || status == Status::unsupported;
}

}  // namespace

std::string where_all_reasons_are(Status status, const std::string& model_path) {
  if (!is_of_file(status)) return "";
  try {
    if (ModelFile(model_path).refusals().empty()) return "";
  } catch (const Failure&) {
    return "";
  }
  return "; tarn inspect " + model_path + " shows every reason";
}

ModelFile::ModelFile(const std::string& path) : path_(path) {
  const u64 io_bytes = align_up(io_backend_bytes(), kSectorBytes);
  memory_ = reserve_bytes(reserve_, "model directory", io_bytes + kDirectoryBytesMax);
  // The thread pool starts faster than a ring with its self test, and a directory needs few reads.
  io_ = value_of(io_backend_create({.kind = IoKind::threads, .in_flight_max = 2},
                                   memory_.first(io_bytes)))
            .backend;
  file_ = value_of(io_->open({.path = path.c_str()}));
  bump_ = Bump(memory_.subspan(io_bytes));
  // The description refuses what inspect alone can show.
  gguf_ = value_of(model::GgufFile::read(*io_, file_, bump_, model::GgufData::of_any_order));
}

ModelFile::~ModelFile() {
  if (io_ != nullptr) {
    if (file_.index >= 0) io_->close(file_);
    io_backend_destroy(io_);
  }
  if (!tokenizer_memory_.empty()) reserve_.release(tokenizer_memory_);
  if (!memory_.empty()) reserve_.release(memory_);
}

const model::ModelDescription& ModelFile::description() {
  if (description_ == nullptr) {
    description_ = std::make_unique<model::ModelDescription>(
        value_of_open(model::describe_model(gguf_, bump_), path_));
  }
  return *description_;
}

Result<void> ModelFile::build_tokenizer() {
  if (!tokenizer_memory_.empty()) return {};
  TARN_TRY(const u64 n_bytes, text::Tokenizer::memory_bytes(gguf_));
  const std::span<std::byte> memory = reserve_bytes(reserve_, "tokenizer", n_bytes);
  const Result<text::Tokenizer> built = text::Tokenizer::build(gguf_, memory);
  if (!built) {
    reserve_.release(memory);
    return fail(built.error());
  }
  tokenizer_memory_ = memory;
  tokenizer_ = *built;
  return {};
}

const text::Tokenizer& ModelFile::tokenizer() {
  value_of_open(build_tokenizer(), path_);
  return tokenizer_;
}

// The loader checks the same factors, when it has read them.
Result<void> ModelFile::check_rope_factors() const {
  const model::TensorRef& tensor = description_->tensors.of(model::ModelTensor::rope_freqs);
  if (!tensor.present()) return {};
  TARN_TRY(const std::byte* bytes, gguf_.read_data(tensor.file_offset, tensor.file_bytes));
  std::vector<f32> factors(tensor.k);
  kernels::dequantize_row(tensor.type, bytes, tensor.k, factors.data());
  return model::check_rope_factors(factors);
}

std::vector<Error> ModelFile::refusals() {
  std::vector<Error> all;
  model::Refusals refusals(
      [](void* context, const Error& why) {
        static_cast<std::vector<Error>*>(context)->push_back(why);
      },
      &all);
  auto described = model::describe_model(gguf_, bump_, refusals);
  if (!described && !is_of_file(described.error().status)) throw_failure(described.error());
  if (described) {
    description_ = std::make_unique<model::ModelDescription>(*described);
    value_of(refusals.note(check_rope_factors()));
  }
  // Another file of a split model has the vocabulary.
  const auto n_splits = gguf_.get_u64("split.count");
  const bool is_part = n_splits && n_splits->value_or(1) > 1;
  if (is_part && gguf_.find_key("tokenizer.ggml.model") == nullptr) return all;
  const size_t n_before = all.size();
  value_of(text::Tokenizer::check_keys(gguf_, refusals));
  if (all.size() == n_before) value_of(refusals.note(build_tokenizer()));
  return all;
}

std::vector<text::TokenId> ModelFile::encode(const std::string& text, text::EncodeOptions options) {
  std::vector<std::byte> scratch(text::Tokenizer::encode_scratch_bytes(text.size()));
  std::vector<text::TokenId> ids(text::Tokenizer::encode_ids_max(text.size()));
  ids.resize(value_of(tokenizer().encode(text, options, scratch, ids)));
  return ids;
}

std::string ModelFile::piece(text::TokenId id) {
  std::string bytes(tokenizer().piece_bytes_max(), '\0');
  bytes.resize(tokenizer().piece(id, /*special=*/true, bytes));
  return bytes;
}

Sha256::Text ModelFile::sha256() {
  Progress progress;
  const std::span<std::byte> window = reserve_bytes(reserve_, "hash", 8 * kMiB);
  const auto hash = model::file_sha256({.io = io_,
                                        .file = file_,
                                        .file_bytes = gguf_.file_bytes(),
                                        .window = window,
                                        .on_progress =
                                            [](void* shown, u64 done_bytes, u64 total_bytes) {
                                              static_cast<Progress*>(shown)->show_bytes(
                                                  "hashing", done_bytes, total_bytes);
                                              return true;
                                            },
                                        .progress_context = &progress});
  reserve_.release(window);
  return value_of(hash);
}

std::string ModelFile::chat_template() {
  const auto text =
      value_of(gguf_.get_string("tokenizer.chat_template", bump_, chat::kSourceBytesMax));
  return std::string(text.value_or(""));
}

std::string ModelFile::text_key(const char* key, const std::string& otherwise) {
  constexpr u64 kKeyBytesMax = 64 * kKiB;
  const auto text = value_of(gguf_.get_string(key, bump_, kKeyBytesMax));
  return text ? std::string(*text) : otherwise;
}

void throw_open_failure(const Error& error, const std::string& model_path) {
  char text[512];
  format_error(error, text, sizeof text);
  throw Failure{exit_code(error.status), text + where_all_reasons_are(error.status, model_path)};
}

void check_open(int status, const std::string& model_path) {
  if (status == TARN_OK) return;
  const std::string text = tarn_error_text();
  const auto known = static_cast<Status>(status);
  throw Failure{exit_code(known), text + where_all_reasons_are(known, model_path)};
}

}  // namespace tarn::tools
