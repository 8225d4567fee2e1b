// The models that are built into our programs.
//
//   logbook   trained: reads a plant's log book and answers questions about it (tools/train)
//   recall    computed, not trained: finds the word that followed a word earlier, at any length
#pragma once

#include <memory>
#include <string>

#include "platform/base/types.h"

namespace tarn::tools {

enum class BuiltIn : u8 { logbook, recall };
inline constexpr const char* kBuiltInNames[] = {"logbook", "recall"};

// A built-in model as a file in memory, for the lifetime of the object.
class BuiltInModel {
 public:
  explicit BuiltInModel(BuiltIn which);  // throws Failure if the system gives no memory file
  BuiltInModel(const BuiltInModel&) = delete;
  BuiltInModel& operator=(const BuiltInModel&) = delete;
  ~BuiltInModel();
  const std::string& path() const { return path_; }

 private:
  int fd_ = -1;
  std::string path_;
};

// Sets `model`, the value of -m, to the path of the file to open. An empty one becomes that of a
// built-in model, which the caller holds while it is open; model_file() has the others. Every
// command with -m calls this first. Throws Failure.
[[nodiscard]] std::unique_ptr<BuiltInModel> built_in_unless_named(std::string& model,
                                                                  BuiltIn which = BuiltIn::logbook);
// The name of a model in reports: its path, or "built-in".
std::string model_name(const std::string& path);

}  // namespace tarn::tools
