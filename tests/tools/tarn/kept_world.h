// Two folders with kept sessions, and the program as a shell starts it, on a tiny model.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/temp_dir.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/synth/synth.h"

namespace tarn::test {

struct KeptWorld {
  KeptWorld() {
    synth::SynthOptions options;
    options.path = model.path();
    synth::synth_write(options);
    options.path = other_model.path();
    options.seed = 77;
    synth::synth_write(options);
  }
  // The next part of a conversation; what it says.
  std::string say(const TempDir& store, const std::string& name, const std::string& text) {
    const Ended ended = run_tarn({"run", "-m", model.path(), "-p", text, "-n", "12", "-c", "512",
                                  "--ignore-eos", "--session", name, "--store", store.path()});
    CAPTURE(ended.err);
    REQUIRE(ended.exit_code == 0);
    return ended.out;
  }
  // A command on a folder.
  Ended call(const TempDir& store, const std::string& command, std::vector<std::string> words) {
    words.insert(words.begin(), command);
    words.insert(words.end(), {"--store", store.path()});
    return run_tarn(words);
  }
  Ended store(const TempDir& store, const std::vector<std::string>& words) {
    return call(store, "store", words);
  }
  std::string listed(const TempDir& store) {
    const Ended ended = this->store(store, {});
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
    return ended.out;
  }
  const TempFile model{"model.gguf"}, other_model{"other.gguf"}, file{"talk.session"};
  const TempDir here{"sessions_here"}, there{"sessions_there"};
};

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace tarn::test
