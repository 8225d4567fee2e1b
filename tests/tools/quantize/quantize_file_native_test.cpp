// Goal    a quantised file is the input with other matrices: every key and every other tensor is
//         untouched, each matrix within its type's bound, the file readable, the same whatever the
//         number of threads; and where that cannot be had, there is a sentence that says why and no
//         file.
// Method  images of the tests' own writer and models of tarn synth, read back with the tests' own
//         reader; every type; inputs with values, types and keys that ask for trouble.
#include "tools/quantize/quantize_file.h"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "tests/support/gguf_reader.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_file.h"
#include "tests/support/tiny_model.h"
#include "tests/tools/quantize/error_bound.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/model_file.h"
#include "tools/synth/synth.h"

namespace tarn::tools::quantize_file_native_test {
namespace {

using kernels::TensorType;
using tarn::test::GgufImage;
using tarn::test::GgufReader;
using tarn::test::TempFile;

void write_image(const GgufImage& image, const std::string& path) {
  const tarn::test::Bytes bytes = image.bytes();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

QuantizeReport quantized(const TempFile& in, const TempFile& out, const char* type,
                         Requantize requantize = Requantize::refuse, u32 n_threads = 1) {
  return quantize_file({.in = in.path(),
                        .out = out.path(),
                        .quant = *parse_quant(type),
                        .requantize = requantize,
                        .n_threads = n_threads});
}

// The text of the refusal; empty where there was none.
std::string refusal(const TempFile& in, const TempFile& out, const char* type) {
  try {
    quantized(in, out, type);
  } catch (const Failure& failure) {
    CHECK(failure.code == kExitRefused);
    return failure.text;
  }
  return "";
}

bool mentions(const std::string& text, const char* piece) {
  return text.find(piece) != std::string::npos;
}

// The plan is what was written: names, types and shapes in the file's order, and its length.
void check_plan(const QuantizeReport& plan, const QuantizeReport& report, const std::string& path) {
  CHECK(plan.out_bytes == std::filesystem::file_size(path));
  CHECK(plan.in_bytes == report.in_bytes);
  CHECK(plan.bits_per_weight == report.bits_per_weight);
  CHECK(plan.n_replaced == report.n_replaced);
  CHECK(plan.quantized_in == report.quantized_in);
  const ModelFile made(path);
  REQUIRE(plan.tensors.size() == made.gguf().tensors().size());
  for (u64 t = 0; t < plan.tensors.size(); ++t) {
    const auto& planned = plan.tensors[t];
    const auto& tensor = made.gguf().tensors()[t];
    CAPTURE(planned.name);
    CHECK(planned.name == tensor.name);
    CHECK(planned.dims == std::vector<u64>(tensor.dims, tensor.dims + tensor.n_dims));
    CHECK(static_cast<u32>(planned.to) == tensor.type_id);
    CHECK(planned.bytes == tensor.bytes);
  }
}

TEST_CASE("a plan says of every type what is written, and writes nothing") {
  const TempFile in("plan_in.gguf"), out("plan_out.gguf");
  // Rows of 172 and of 320 do not fit every type.
  synth::synth_write({.n_layers = 1, .d_model = 320, .d_ff = 172, .n_vocab = 1024},
                     *parse_quant("f16"), 1, in.path(), 1);
  std::vector<const char*> types = {"q4_k_m"};
  for (const auto& traits : kernels::kTypeTraits) types.push_back(traits.name);
  for (const char* type : types) {
    CAPTURE(type);
    const QuantizeReport plan =
        plan_quantize({.in = in.path(), .out = out.path(), .quant = *parse_quant(type)});
    CHECK_FALSE(std::filesystem::exists(out.path()));
    CHECK_FALSE(std::filesystem::exists(out.path() + ".0.part"));
    check_plan(plan, quantized(in, out, type), out.path());
    std::filesystem::remove(out.path());
  }
}

TEST_CASE("every type: the file loads, and each matrix keeps its bound") {
  const TempFile in("quantize_in.gguf"), out("quantize_out.gguf");
  synth::synth_write({.n_layers = 2, .d_ff = 768, .n_vocab = 1024}, *parse_quant("f32"), 5,
                     in.path(), 1);
  const GgufReader source(in.path());
  std::vector<const char*> types = {"q4_k_m"};
  for (const auto& traits : kernels::kTypeTraits) types.push_back(traits.name);
  for (const char* type : types) {
    CAPTURE(type);
    const QuantizeReport report = quantized(in, out, type);
    CHECK(report.n_replaced == 0);
    CHECK(report.quantized_in.empty());
    CHECK(report.out_bytes == std::filesystem::file_size(out.path()));
    ModelFile model(out.path());
    CHECK(model.description().spec.n_layers == 2);
    CHECK(model.text_key("general.name", "") == "synthetic synthetic, seed 5");
    const GgufReader target(out.path());
    CHECK(target.number("general.file_type") == file_type(*parse_quant(type)));
    CHECK(target.number("general.quantization_version") == 2);
    for (const auto& entry : source.tensors()) {
      const std::string& name = entry.first;
      const tarn::test::GgufTensorData& tensor = entry.second;
      CAPTURE(name);
      const auto& made = target.tensor(name);
      REQUIRE(made.dims == tensor.dims);
      const auto made_type = static_cast<TensorType>(made.type);
      if (tensor.dims.size() == 1) REQUIRE(made_type == TensorType::f32);
      test::check_error(made_type, source.f32s(name), made.bytes);
    }
  }
}

TEST_CASE("keys are copied as they are, whatever they hold") {
  GgufImage image = tarn::test::tiny_model({});
  image.set_u8("a.u8", 200);
  image.set_i8("a.i8", -3);
  image.set_i16("a.i16", -300);
  image.set_u64("a.u64", u64{1} << 60);
  image.set_f64("a.f64", -1.5e300);
  image.set_bool("a.bool", true);
  image.set_string("a.text", "tab\t, \xC3\xA4, and no more");
  image.set_string("a.empty", "");
  image.set_f32s("a.floats", {1.5f, -2.5f});
  image.set_i32s("a.none", {});
  image.set_strings("a.texts", {"", "one", std::string("zero\0byte", 9)});
  image.set_u32("general.file_type", 0);
  image.set_u32("general.alignment", 64);
  image.alignment = 64;
  const TempFile in("keys_in.gguf"), out("keys_out.gguf");
  write_image(image, in.path());
  quantized(in, out, "q8_0");
  const GgufReader target(out.path());
  // As it lies in the file: length and text of the name, type, value.
  const std::string bytes = read_file(out.path());
  std::set<std::string> replaced = {"general.file_type", "general.alignment"};
  for (const auto& key : image.keys) {
    CAPTURE(key.name);
    if (replaced.count(key.name) != 0) continue;
    tarn::test::Bytes entry;
    tarn::test::put_string(entry, key.name);
    tarn::test::put_u32(entry, key.type);
    tarn::test::put_bytes(entry, key.value.data(), key.value.size());
    CHECK(bytes.find(std::string(reinterpret_cast<const char*>(entry.data()), entry.size())) !=
          std::string::npos);
  }
  CHECK(target.number("general.file_type") == 7);
  CHECK(target.number("general.quantization_version") == 2);
  CHECK_FALSE(target.has_key("general.alignment"));  // the data is laid out by GGUF's default
}

TEST_CASE("vectors stay as they are, in their type, and tensors in their order") {
  const TempFile in("vectors_in.gguf"), out("vectors_out.gguf");
  const GgufImage image =
      tarn::test::tiny_model({.arch = "qwen2", .type = 1, .vector_type = 30, .rope_factors = true});
  write_image(image, in.path());
  quantized(in, out, "q5_0");
  const GgufReader target(out.path());
  ModelFile model(out.path());
  u64 t = 0;
  for (const auto& tensor : image.tensors) {
    CAPTURE(tensor.name);
    CHECK(model.gguf().tensors()[t++].name == tensor.name);
    const auto& made = target.tensor(tensor.name);
    if (tensor.dims.size() > 1) continue;
    REQUIRE(made.type == 30);
    CHECK(std::memcmp(made.bytes.data(), tensor.data.data(), made.bytes.size()) == 0);
  }
  CHECK(t == model.gguf().tensors().size());
}

TEST_CASE("rows that the type does not fit are counted, and the rest is as asked") {
  const TempFile in("odd_in.gguf"), out("odd_out.gguf");
  synth::synth_write({.n_layers = 2, .d_ff = 172, .n_vocab = 1024}, *parse_quant("f16"), 1,
                     in.path(), 1);
  const QuantizeReport report = quantized(in, out, "q8_0");
  CHECK(report.n_replaced == 2);
  const GgufReader target(out.path());
  CHECK(target.tensor("blk.1.ffn_down.weight").type == static_cast<u32>(TensorType::f16));
  CHECK(target.tensor("blk.1.ffn_up.weight").type == static_cast<u32>(TensorType::q8_0));
  ModelFile(out.path()).description();
}

TEST_CASE("the file is the same whatever the number of threads") {
  const TempFile in("threads_in.gguf"), out("threads_out.gguf");
  synth::SynthShape shape{.n_layers = 1, .n_vocab = 13000};  // three pieces a tensor
  synth::synth_write(shape, *parse_quant("q4_k"), 1, in.path(), 1);
  // Pieces of q5_0 begin within blocks of q4_k.
  quantized(in, out, "q5_0", Requantize::accept, 1);
  const std::string one = read_file(out.path());
  const GgufReader source(in.path()), target(out.path());
  for (const char* name : {"token_embd.weight", "output.weight", "blk.0.ffn_down.weight"}) {
    test::check_error(TensorType::q5_0, source.f32s(name), target.tensor(name).bytes);
  }
  for (const u32 n_threads : {2u, 3u}) {
    quantized(in, out, "q5_0", Requantize::accept, n_threads);
    CHECK(read_file(out.path()) == one);
  }
}

TEST_CASE("what is quantised already is rounded again only on request") {
  const TempFile in("again_in.gguf"), out("again_out.gguf");
  synth::synth_write({.n_layers = 1, .n_vocab = 1024}, *parse_quant("q6_k"), 1, in.path(), 1);
  const std::string text = refusal(in, out, "q4_k");
  CHECK(mentions(text, "already quantised"));
  CHECK(mentions(text, "--requantize"));
  CHECK_FALSE(std::filesystem::exists(out.path()));
  CHECK(quantized(in, out, "q4_k", Requantize::accept).quantized_in == "q6_k");
  // To floats, and where nothing changes, there is no second rounding.
  const GgufReader source(in.path());
  quantized(in, out, "f32");
  CHECK(GgufReader(out.path()).f32s("output.weight") == source.f32s("output.weight"));
  quantized(in, out, "q6_k");
  const GgufReader same(out.path());
  const auto had = source.tensor("output.weight").bytes, has = same.tensor("output.weight").bytes;
  CHECK(std::memcmp(had.data(), has.data(), had.size()) == 0);
}

TEST_CASE("values that a type cannot hold are refused by the tensor's name") {
  struct Case {
    const char* name;
    f32 value;
    const char* type;
    const char* text;  // empty: accepted
  };
  const Case kCases[] = {
      {"a NaN", std::numeric_limits<f32>::quiet_NaN(), "q8_0", "not a number"},
      {"a NaN to bf16", std::numeric_limits<f32>::quiet_NaN(), "bf16", "not a number"},
      {"an infinity", -std::numeric_limits<f32>::infinity(), "q4_0", "not a number"},
      {"beyond f16", 65536.0f, "f16", "choose bf16 or f32"},
      {"beyond f16's scales", -1e30f, "q4_k_m", "choose bf16 or f32"},
      {"the largest of f16", 65504.0f, "f16", ""},
      {"beyond f16, to bf16", 1e30f, "bf16", ""},
  };
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    const TempFile in("value_in.gguf"), out("value_out.gguf");
    GgufImage image = tarn::test::tiny_model({});
    std::memcpy(image.tensor("blk.1.ffn_up.weight").data.data() + 400, &c.value, sizeof c.value);
    write_image(image, in.path());
    const std::string text = refusal(in, out, c.type);
    if (c.text[0] == '\0') {
      CHECK(text.empty());
    } else {
      CHECK(mentions(text, c.text));
      CHECK(mentions(text, "blk.1.ffn_up.weight"));
      CHECK_FALSE(std::filesystem::exists(out.path()));
    }
    CHECK_FALSE(std::filesystem::exists(out.path() + ".part"));
  }
}

TEST_CASE("a file that was there is replaced by a whole one or not at all") {
  const TempFile in("there_in.gguf"), out("there_out.gguf");
  GgufImage image = tarn::test::tiny_model({});
  write_image(image, in.path());
  std::ofstream(out.path()) << "what was there";
  quantized(in, out, "f16");
  const std::string whole = read_file(out.path());
  ModelFile(out.path()).description();
  const f32 nan = std::numeric_limits<f32>::quiet_NaN();
  std::memcpy(image.tensor("output.weight").data.data(), &nan, sizeof nan);
  write_image(image, in.path());
  CHECK_FALSE(refusal(in, out, "f16").empty());
  CHECK(read_file(out.path()) == whole);
}

}  // namespace
}  // namespace tarn::tools::quantize_file_native_test
