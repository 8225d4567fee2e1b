// tools/tarn/sample.h
//
// What `tarn run` does when it is given no model: the built-in recall model reads a generated
// document once and answers three questions about it, each on a fork of the session that read it.
#pragma once

#include "tools/support/engine_options.h"

namespace tarn::tools {

struct SampleOptions {
  bool json = false;
  std::string select = "full";
};
// `options.model` is ignored. Throws Failure.
void run_sample(const EngineOptions& options, const SampleOptions& sample);

// The built-in model as a file that lives in memory only, for as long as the object does.
class BuiltInModel {
 public:
  BuiltInModel();
  BuiltInModel(const BuiltInModel&) = delete;
  BuiltInModel& operator=(const BuiltInModel&) = delete;
  ~BuiltInModel();
  const std::string& path() const { return path_; }

 private:
  int fd_ = -1;
  std::string path_;
};

}  // namespace tarn::tools
