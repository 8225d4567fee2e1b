// -m may be a path, or the name of a model that toolchain/model has fetched.
#pragma once

#include <string>

namespace tarn::tools {

// Returns the folder of such models: `models` beside the folder of this program. For
// build/release/tarn that is build/models.
std::string models_folder();

// Returns the file that `model` means. A path, an existing file and a name that ends with ".gguf"
// stay as they are; another name is that of NAME.gguf in `folder`. Throws Failure if that file is
// missing.
std::string model_file(const std::string& model, const std::string& folder = models_folder());

}  // namespace tarn::tools
