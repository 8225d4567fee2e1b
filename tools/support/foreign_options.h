// Options of llama.cpp's programs that change nothing here. Scripts and habits pass them, so they
// are taken, and one that asks for something else than is done anyway is named on standard error.
#pragma once

#include <string>

#include "tools/support/command_line.h"

namespace tarn::tools {

class ForeignOptions {
 public:
  // llama_bench: all, with lists of values; a program that answers takes -ngl alone.
  enum class Of : u8 { answers, llama_bench };
  // `speaker`: what a line begins with, "tarn-bench: ". This object must outlive the parsing.
  void add_to(const Command& command, Of of, const std::string& speaker);
  // -ngl 0: no layer on a GPU.
  bool wants_cpu() const { return wants_cpu_; }

 private:
  bool wants_cpu_ = false;
};

}  // namespace tarn::tools
