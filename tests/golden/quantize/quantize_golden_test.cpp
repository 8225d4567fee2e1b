// Goal    our quantised files are what llama.cpp's tool would have made: the same type for every
//         tensor, and no more rounding error.
// Method  the models and rows of cases.h, held against what llama-quantize chose and what ggml's
//         reference quantisers lost (make_golden.py). The types are those of the plan, which is
//         what is written: tests/tools/quantize/quantize_file_native_test.cpp.
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/quant/dequant.h"
#include "tests/golden/quantize/cases.h"
#include "tests/support/folders.h"
#include "tests/support/temp_file.h"
#include "tools/quantize/quantize_file.h"
#include "tools/quantize/quantizer.h"

namespace tarn::golden::quantize_golden_test {
namespace {

// Tensor to type, of the matrices that have not the type that was asked for.
using OddTypes = std::map<std::string, std::string>;

// types.txt by "MODEL TYPE".
std::map<std::string, OddTypes> read_types() {
  std::map<std::string, OddTypes> all;
  std::ifstream file(test::source_folder() + "/tests/golden/quantize/types.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string model, asked, tensor, type;
    fields >> model >> asked >> tensor >> type;
    OddTypes& odd = all[model + " " + asked];
    for (std::string layer; fields >> layer;) {
      odd[layer == "-" ? tensor : "blk." + layer + "." + tensor] = type;
    }
  }
  return all;
}

OddTypes odd_types_of(const tools::QuantizeReport& plan, const std::string& asked) {
  OddTypes odd;
  for (const auto& tensor : plan.tensors) {
    const std::string type = kernels::type_traits(tensor.to).name;
    if (tensor.dims.size() == 1) {
      CHECK(type == "f32");
    } else if (type != asked) {
      odd[tensor.name] = type;
    }
  }
  return odd;
}

TEST_CASE("every tensor gets the type that llama-quantize gives it") {
  const auto want = read_types();
  CHECK(want.size() == mix_cases().size() * std::size(kQuants));
  for (const MixCase& c : mix_cases()) {
    const test::TempFile source("mix_f16.gguf"), target("mix.gguf");
    write_mix_case(c.name, source.path());
    for (const auto quant : kQuants) {
      const std::string name = std::string(c.name) + " " + std::string(quant);
      CAPTURE(name);
      REQUIRE(want.count(name) == 1);
      const auto plan = tools::plan_quantize(
          {.in = source.path(), .out = target.path(), .quant = *tools::parse_quant(quant)});
      CHECK(odd_types_of(plan, quant == "q4_k_m" ? "q4_k" : std::string(quant)) == want.at(name));
    }
  }
}

f64 rmse_of(kernels::TensorType type, std::span<const f32> rows) {
  std::vector<u8> blocks(kernels::row_bytes(type, rows.size()));
  tools::quantize_blocks(type, rows, blocks);
  std::vector<f32> back(rows.size());
  kernels::dequantize_row(type, blocks.data(), rows.size(), back.data());
  f64 squares = 0;
  for (u64 i = 0; i < rows.size(); ++i) {
    const f64 error = f64{back[i]} - f64{rows[i]};
    squares += error * error;
  }
  return std::sqrt(squares / static_cast<f64>(rows.size()));
}

TEST_CASE("no type loses more than ggml's reference does") {
  std::ifstream file(test::source_folder() + "/tests/golden/quantize/rmse.txt");
  u32 n_lines = 0;
  std::map<std::string, std::vector<f32>> rows_by_kind;
  for (std::string kind, type; file >> kind >> type; ++n_lines) {
    f64 theirs = 0;
    file >> theirs;
    std::vector<f32>& rows = rows_by_kind[kind];
    if (rows.empty()) rows = rows_of(kind);
    const auto quant = tools::parse_quant(type);
    REQUIRE(quant);
    const f64 ours = rmse_of(quant->type, rows);
    MESSAGE(kind << " " << type << ": " << ours << ", " << ours / theirs << " of ggml's");
    CHECK(ours <= 1.0001 * theirs);  // the golden figure has seven digits
  }
  CHECK(n_lines == std::size(kRowKinds) * (std::size(kQuants) - 1));
}

}  // namespace
}  // namespace tarn::golden::quantize_golden_test
