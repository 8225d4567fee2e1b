// tools/builtin/built_in_model.h
//
// The models that are inside of our programs.
//
//   logbook   trained: reads a plant's log book and answers questions about it (tools/train)
//   recall    computed, not trained: finds what stood behind a word before, at any length
#pragma once

#include <memory>
#include <string>

#include "platform/base/types.h"

namespace tarn::tools {

enum class BuiltIn : u8 { logbook, recall };
inline constexpr const char* kBuiltInNames[] = {"logbook", "recall"};

// A built-in model as a file that lives in memory only, for as long as the object does.
class BuiltInModel {
 public:
  explicit BuiltInModel(BuiltIn which);  // throws Failure where the system gives no memory file
  BuiltInModel(const BuiltInModel&) = delete;
  BuiltInModel& operator=(const BuiltInModel&) = delete;
  ~BuiltInModel();
  const std::string& path() const { return path_; }

 private:
  int fd_ = -1;
  std::string path_;
};

// Where no model is named, `model` names a built-in one, which the caller holds as long as it is
// opened. Every command with -m begins with this.
[[nodiscard]] std::unique_ptr<BuiltInModel> built_in_unless_named(std::string& model,
                                                                  BuiltIn which = BuiltIn::logbook);
// A model as reports call it: its path, or "built-in".
std::string model_name(const std::string& path);

}  // namespace tarn::tools
