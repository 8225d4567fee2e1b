#include "tools/builtin/built_in_model.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "tools/builtin/files.h"
#include "tools/support/exit_code.h"
#include "tools/synth/recall.h"

namespace tarn::tools {
namespace {

void write_all(int fd, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      throw Failure{kExitIo, std::string("the built-in model finds no room in memory: ") +
                                 std::strerror(errno)};
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

}  // namespace

BuiltInModel::BuiltInModel(BuiltIn which) {
  fd_ = memfd_create("tarn-built-in-model", MFD_CLOEXEC);
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

}  // namespace tarn::tools
