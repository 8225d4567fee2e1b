#include "tools/support/model_file.h"

#include "platform/base/checked.h"
#include "runtime/chat/chat_template.h"
#include "runtime/model/file_hash.h"
#include "tools/support/exit_code.h"

namespace tarn::tools {
namespace {

constexpr u64 kDirectoryBytesMax = 256 * kMiB;  // address space; only used pages are touched

std::span<std::byte> reserve_bytes(Reserve& reserve, const char* name, u64 bytes) {
  return value_of(
             reserve.reserve({.name = name, .bytes = bytes, .touch = false, .huge_pages = false}))
      .bytes;
}

}  // namespace

ModelFile::ModelFile(const std::string& path) {
  const u64 io_bytes = align_up(io_backend_bytes(), kSectorBytes);
  memory_ = reserve_bytes(reserve_, "model directory", io_bytes + kDirectoryBytesMax);
  // The thread pool starts faster than a ring with its self test, and a directory needs few reads.
  io_ = value_of(io_backend_create({.kind = IoKind::threads, .in_flight_max = 2},
                                   memory_.first(io_bytes)))
            .backend;
  file_ = value_of(io_->open({.path = path.c_str()}));
  bump_ = Bump(memory_.subspan(io_bytes));
  gguf_ = value_of(model::GgufFile::read(*io_, file_, bump_));
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
    description_ =
        std::make_unique<model::ModelDescription>(value_of(model::describe_model(gguf_, bump_)));
  }
  return *description_;
}

const text::Tokenizer& ModelFile::tokenizer() {
  if (tokenizer_memory_.empty()) {
    tokenizer_memory_ =
        reserve_bytes(reserve_, "tokenizer", value_of(text::Tokenizer::memory_bytes(gguf_)));
    tokenizer_ = value_of(text::Tokenizer::build(gguf_, tokenizer_memory_));
  }
  return tokenizer_;
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

Sha256::Text ModelFile::sha256(bool (*on_progress)(void*, u64, u64)) {
  const std::span<std::byte> window = reserve_bytes(reserve_, "hash", 8 * kMiB);
  const auto hash = model::file_sha256({.io = io_,
                                        .file = file_,
                                        .file_bytes = gguf_.file_bytes(),
                                        .window = window,
                                        .on_progress = on_progress});
  reserve_.release(window);
  return value_of(hash);
}

std::string ModelFile::chat_template() {
  const auto text =
      value_of(gguf_.get_string("tokenizer.chat_template", bump_, chat::kSourceBytesMax));
  return std::string(text.value_or(""));
}

std::string ModelFile::text_key(const char* key, const std::string& otherwise) {
  constexpr u64 kTextBytesMax = 64 * kKiB;
  const auto text = value_of(gguf_.get_string(key, bump_, kTextBytesMax));
  return text ? std::string(*text) : otherwise;
}

}  // namespace tarn::tools
