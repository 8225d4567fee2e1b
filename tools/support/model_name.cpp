#include "tools/support/model_name.h"

#include <filesystem>
#include <system_error>

#include "tools/support/exit_code.h"

namespace tarn::tools {
namespace {

namespace fs = std::filesystem;

// Returns false for a path that cannot be looked at, too.
bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

}  // namespace

std::string models_folder() {
  std::error_code ignored;  // without /proc: a relative path
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  return (program.parent_path().parent_path() / "models").string();
}

std::string model_file(const std::string& model, const std::string& folder) {
  const bool is_name = !model.empty() && model.find('/') == std::string::npos &&
                       !model.ends_with(".gguf") && !is_file(model);
  if (!is_name) return model;
  std::string fetched = (fs::path(folder) / (model + ".gguf")).string();
  if (is_file(fetched)) return fetched;
  throw Failure{kExitIo, "'" + model + "' is neither a file here nor a model in " + folder +
                             ": check the path, or fetch the model by `toolchain/model " + model +
                             "`"};
}

}  // namespace tarn::tools
