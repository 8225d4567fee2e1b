// Goal    -m takes the name of a fetched model beside paths, and a path is never taken for a name;
//         a name without a model is refused with the command that fetches it.
// Method  a table of values of -m, with files, a folder of that name and models that are there.
#include "tools/support/model_name.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_dir.h"
#include "tools/support/exit_code.h"

namespace tarn::tools::model_name_test {
namespace {

namespace fs = std::filesystem;

// Files are looked up in the current folder, which is the test's while this lives.
class InFolder {
 public:
  explicit InFolder(const std::string& path) : before_(fs::current_path()) {
    fs::current_path(path);
  }
  ~InFolder() { fs::current_path(before_); }
  InFolder(const InFolder&) = delete;
  InFolder& operator=(const InFolder&) = delete;

 private:
  fs::path before_;
};

struct Case {
  const char* name;
  std::string model;
  std::string file;  // empty: refused
};

TEST_CASE("what -m names") {
  const test::TempDir dir("model_name");
  const std::string models = dir.path() + "/models";
  for (const char* folder : {"", "/models", "/folder", "/models/nested.gguf"}) {
    fs::create_directory(dir.path() + folder);
  }
  for (const char* file : {"/here", "/models/here.gguf", "/models/fetched.gguf",
                           "/models/folder.gguf", "/models/a.b.gguf"}) {
    std::ofstream(dir.path() + file) << "x";
  }
  const InFolder in_folder(dir.path());
  const Case kCases[] = {
      {"a fetched model", "fetched", models + "/fetched.gguf"},
      {"with a dot in its name", "a.b", models + "/a.b.gguf"},
      {"a file of that name goes first", "here", "here"},
      {"a folder of that name is no model", "folder", models + "/folder.gguf"},
      {"a path", "./fetched", "./fetched"},
      {"a path of a missing file", "/no/such", "/no/such"},
      {"a missing GGUF file", "fetched.gguf", "fetched.gguf"},
      {"the built-in model", "/proc/self/fd/3", "/proc/self/fd/3"},
      {"none", "", "-"},
      {"a name without a model", "absent", ""},
      {"a folder in place of the model", "nested", ""},
      {"dots", "..", ""},
  };
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    if (!c.file.empty()) {
      CHECK(model_file(c.model, models) == (c.file == "-" ? "" : c.file));
      continue;
    }
    try {
      FAIL_CHECK("taken for ", model_file(c.model, models));
    } catch (const Failure& failure) {
      CHECK(failure.code == kExitIo);
      for (const std::string& said : {models, "toolchain/model " + c.model}) {
        CHECK(failure.text.find(said) != std::string::npos);
      }
    }
  }
}

TEST_CASE("the folder lies beside the program's own") {
  const fs::path program = fs::read_symlink("/proc/self/exe");
  CHECK(models_folder() == program.parent_path().parent_path() / "models");
}

}  // namespace
}  // namespace tarn::tools::model_name_test
