// The part of make_golden.py that is our own: the inputs that llama.cpp quantises.
//
//   golden_quantize list               names of the models, types and kinds of rows, a line each
//   golden_quantize model NAME PATH    a model in f16
//   golden_quantize rows KIND PATH     raw f32 [512, 1024]
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "tests/golden/quantize/cases.h"

namespace tarn::golden {
namespace {

void list_all() {
  for (const auto& c : mix_cases()) std::printf("model %s\n", c.name);
  for (const auto name : kQuants) std::printf("type %s\n", std::string(name).c_str());
  for (const auto kind : kRowKinds) std::printf("rows %s\n", std::string(kind).c_str());
}

void write_rows(const std::string& kind, const std::string& path) {
  const std::vector<f32> rows = rows_of(kind);
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(rows.data()),
             static_cast<std::streamsize>(rows.size() * sizeof(f32)));
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 1 && arguments[0] == "list") {
    list_all();
  } else if (arguments.size() == 3 && arguments[0] == "model") {
    write_mix_case(arguments[1], arguments[2]);
  } else if (arguments.size() == 3 && arguments[0] == "rows") {
    write_rows(arguments[1], arguments[2]);
  } else {
    std::fputs("golden_quantize list | model NAME PATH | rows KIND PATH\n", stderr);
    return 64;
  }
  return 0;
}

}  // namespace
}  // namespace tarn::golden

int main(int argc, char** argv) {
  try {
    return tarn::golden::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "golden_quantize: %s\n", error.what());
    return 1;
  }
}
