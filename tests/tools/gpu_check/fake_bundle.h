// tests/tools/gpu_check/fake_bundle.h
//
// A bundle whose programs are shell scripts that print what the real ones would, in a folder of its
// own that goes with the object. A test replaces the one that is to misbehave.
#pragma once

#include <rapidjson/document.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tarn::test {

class FakeBundle {
 public:
  FakeBundle();
  ~FakeBundle();
  FakeBundle(const FakeBundle&) = delete;
  FakeBundle& operator=(const FakeBundle&) = delete;

  // `lines` of sh; "$*" has the arguments.
  void set_program(const std::string& name, const std::string& lines);
  std::filesystem::path dir() const { return dir_; }
  std::string json_path() const { return (dir_ / "out.json").string(); }
  std::string table_path() const { return (dir_ / "out.md").string(); }

  // The command line of a run over this bundle.
  std::vector<std::string> command(const std::vector<std::string>& more = {}) const;
  // Runs it to its end; the exit code, or -1 where a signal ended it.
  int run(const std::vector<std::string>& more = {}) const;

  rapidjson::Document json() const;  // fails the test where it is none
  std::string table() const;

 private:
  std::filesystem::path dir_;
};

}  // namespace tarn::test
