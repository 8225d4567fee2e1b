#include "tools/builtin/built_in_model.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>

#include "tools/builtin/files.h"
#include "tools/support/exit_code.h"
#include "tools/support/model_name.h"
#include "tools/synth/recall.h"

namespace tarn::tools {
namespace {

constexpr const char* kFileName = "tarn-built-in-model";

void write_all(int fd, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      throw Failure{kExitIo, std::string("there is no memory for the built-in model: ") +
                                 std::strerror(errno)};
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

}  // namespace

BuiltInModel::BuiltInModel(BuiltIn which) {
  fd_ = memfd_create(kFileName, MFD_CLOEXEC);
  if (fd_ < 0) {
    throw Failure{kExitIo,
                  "the system gives no memory file (memfd_create) for the built-in model: "
                  "name a model with -m"};
  }
  path_ = "/proc/self/fd/" + std::to_string(fd_);
  if (which == BuiltIn::recall) {
    synth::recall_write({.type = kernels::TensorType::q4_0}, path_);
  } else {
    write_all(fd_, builtin::model_bytes());
  }
}

BuiltInModel::~BuiltInModel() { close(fd_); }

std::unique_ptr<BuiltInModel> built_in_unless_named(std::string& model, BuiltIn which) {
  if (!model.empty()) {
    model = model_file(model);
    return nullptr;
  }
  auto built_in = std::make_unique<BuiltInModel>(which);
  model = built_in->path();
  return built_in;
}

std::string model_name(const std::string& path) {
  std::error_code ignored;  // not a link
  const std::string target = std::filesystem::read_symlink(path, ignored).string();
  return target.starts_with(std::string("/memfd:") + kFileName) ? "built-in" : path;
}

}  // namespace tarn::tools
