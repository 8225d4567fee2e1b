// Goal    a model has the same PQ codes whichever way its file holds RoPE's pairs: side by side
//         (arch llama) or half a head apart (arch qwen2), for the paper's presets and without one.
// Method  a random qwen2 model of one layer, and a llama file of the same weights, with the rows
//         and biases of q and k put into its layout; codes of one input's rows compared, head by
//         head. The layer's keys are the same numbers in another order: no sum ran over them.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

#include "runtime/lab/probe.h"
#include "runtime/method/pq/pq_reader.h"
#include "tests/runtime/method/synthetic_keys.h"
#include "tests/support/gguf_reader.h"
#include "tests/support/open_engine.h"

namespace tarn::engine::rope_layout_test {
namespace {

using test::GgufReader;
using test::OpenEngine;
using test::SmallModel;

constexpr u32 kPrompt = 2300;  // 4 x 8 bits want 2,048 rows between sinks and local tokens

// The rows of a head with halves, as a model with adjacent pairs has them.
std::string adjacent(std::string_view rows, u64 head_bytes, u32 head_dim) {
  const u64 row_bytes = head_bytes / head_dim;
  std::string out;
  for (u64 head = 0; head < rows.size(); head += head_bytes) {
    for (u32 dim = 0; dim < head_dim; ++dim) {
      const u32 place = dim % 2 * (head_dim / 2) + dim / 2;
      out += rows.substr(head + place * row_bytes, row_bytes);
    }
  }
  return out;
}

// A qwen2 file's twin of arch llama, whose name is as long.
std::string twin_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string file{std::istreambuf_iterator<char>(in), {}};
  const GgufReader reader(path);
  const u64 n_heads = static_cast<u64>(reader.number("qwen2.attention.head_count"));
  const u64 n_kv_heads = static_cast<u64>(reader.number("qwen2.attention.head_count_kv"));
  for (const auto& [name, tensor] : reader.tensors()) {
    const bool is_q = name.find("attn_q.") != std::string::npos;
    if (!is_q && name.find("attn_k.") == std::string::npos) continue;
    const u64 head_dim = tensor.dims.back() / (is_q ? n_heads : n_kv_heads);
    const u64 head_bytes = tensor.bytes.size() / (is_q ? n_heads : n_kv_heads);
    const std::string_view rows(reinterpret_cast<const char*>(tensor.bytes.data()),
                                tensor.bytes.size());
    const u64 at = file.find(rows);
    REQUIRE(at != std::string::npos);
    file.replace(at, rows.size(), adjacent(rows, head_bytes, static_cast<u32>(head_dim)));
  }
  const std::string_view from = "qwen2", to = "llama";
  file.replace(file.find(from, file.find("general.architecture")), to.size(), to);
  for (u64 at = 0; (at = file.find("qwen2.", at)) != std::string::npos;) {
    file.replace(at, to.size(), to);
  }
  return file;
}

// Codes of all heads of the prompt, and centroids in the order of the sub-spaces.
struct Codes {
  std::vector<u8> codes;
  std::vector<f32> centroids;
};

Codes codes_of(const std::string& path, const SelectConfig& select) {
  Config config = test::small_config();
  config.context_tokens = 2 * kPrompt;
  config.select = select;
  OpenEngine open(path, config);
  const SessionIdx session = open.session_with(test::random_ids(3, kPrompt));
  REQUIRE(
      open.engine.sessions().generate(session, {.max_tokens = 4, .ignore_end = true}).has_value());
  test::read_all(open.engine, session);
  Codes codes;
  for (u32 head = 0; head < open.engine.spec().n_kv_heads; ++head) {
    const method::PqIndex& index =
        method::pq_of(&lab::Probe::selector(open.engine).reader(session, head));
    REQUIRE(index.n_clustered() > 0);
    const std::span<const f32> centroids = method::test::codebook_of(index);
    codes.centroids.insert(codes.centroids.end(), centroids.begin(), centroids.end());
    for (u32 m = 0; m < index.shape().n_subspaces; ++m) {
      for (u32 row = 0; row < index.n_clustered(); ++row) {
        codes.codes.push_back(index.code(m, row));
      }
    }
  }
  return codes;
}

TEST_CASE("codes of both layouts of a model are equal") {
  const SmallModel model("qwen2", "f16", 1, 1);
  const test::TempFile twin("twin.gguf");
  std::ofstream(twin.path(), std::ios::binary) << twin_of(model.path());
  std::vector<SelectConfig> settings;
  for (const u32 n_subspaces : {1u, 2u, 4u, 8u}) {
    SelectConfig select;
    select.method = SelectMethod::pq;
    select.n_subspaces = n_subspaces;
    select.context_divisor = 10;
    settings.push_back(select);
  }
  settings.push_back(with_preset({}, SelectPreset::pqcache_longbench));
  settings.push_back(with_preset({}, SelectPreset::pqcache_infinitebench));
  for (SelectConfig& select : settings) {
    CAPTURE(static_cast<u32>(select.preset));
    CAPTURE(select.n_subspaces);
    select.index_delay_tokens = 1;
    select.iterations = 2;
    const Codes halves = codes_of(model.path(), select);
    const Codes adjacent = codes_of(twin.path(), select);
    REQUIRE(adjacent.codes.size() >= u64{select.n_subspaces} * 2048);
    CHECK(adjacent.codes == halves.codes);
    CHECK(adjacent.centroids == halves.centroids);
  }
}

}  // namespace
}  // namespace tarn::engine::rope_layout_test
