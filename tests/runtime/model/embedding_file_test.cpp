// Goal    rows of an embedding table that stays in the file are the same bits as in memory; the
//         region is smaller by the table; a read that fails, comes short or brings other bytes than
//         those that were loaded is refused, with nothing in flight, and the next one goes on.
// Method  tiny models of every type through an in-memory backend that completes in random order;
//         rows against the file's, dequantised; each read failed in turn; every byte of a row
//         flipped.
#include "runtime/model/embedding_file.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "tests/runtime/model/loaded_model.h"
#include "tests/support/seed.h"
#include "tests/support/tiny_model.h"

namespace tarn::model::embedding_file_test {
namespace {

using test::LoadedModel;
using test::TinyModelArgs;

constexpr u64 kExtraStride = 3;
constexpr f32 kUntouched = -7777.0f;

struct OpenTable : LoadedModel {
  explicit OpenTable(const TinyModelArgs& shape, u32 depth = 8)
      : LoadedModel(test::tiny_model(shape), /*embedding_on_disk=*/true) {
    io.script.in_flight_max = depth;
    const auto weights = load_weights(args);
    REQUIRE_MESSAGE(weights.has_value(), weights.error().hint);
    CHECK(guard_is_whole());
    REQUIRE(weights->embedding_on_disk());
    CHECK(weights->token_embd.tiled == nullptr);
    table = weights->token_embd_on_disk;
    REQUIRE(file.open({.path = kPath, .io = &io, .table = table, .memory = staging.span()})
                .has_value());
  }
  Result<void> read(const std::vector<u32>& tokens) {
    const u64 stride = table.k + kExtraStride;
    out.assign(tokens.size() * stride, kUntouched);
    return file.read(tokens, out.data(), stride);
  }
  // Whether every row that was read is the file's, and nothing lies between them.
  bool holds(const std::vector<u32>& tokens) {
    const u64 row_bytes = kernels::row_bytes(table.type, table.k);
    std::vector<f32> want(table.k + kExtraStride, kUntouched);
    for (u64 i = 0; i < tokens.size(); ++i) {
      kernels::dequantize_row(table.type, bytes.data() + table.file_offset + tokens[i] * row_bytes,
                              table.k, want.data());
      if (std::memcmp(want.data(), out.data() + i * want.size(), want.size() * sizeof(f32)) != 0) {
        return false;
      }
    }
    return true;
  }
  bool nothing_in_flight() {
    IoCompletion completion;
    return io.reap({&completion, 1}, 1, 0) == 0;
  }
  MatrixOnDisk table{};
  EmbeddingFile file;
  std::vector<f32> out;
};

TEST_CASE("rows are the file's, whatever the type, the order and the depth") {
  std::vector<TinyModelArgs> cases = {
      {.arch = "qwen2", .d_ff = 172, .type = 1},
      {.arch = "qwen3", .d_model = 256, .d_ff = 512, .head_dim = 64, .n_vocab = 300, .type = 13},
      {.d_model = 8192, .d_ff = 32, .n_vocab = 5, .type = 0},  // rows of eight sectors
  };
  for (const auto& traits : kernels::kTypeTraits) {
    cases.push_back(test::tiny_shape_of(static_cast<u32>(traits.type)));
  }
  const u64 seed = test::seed_from_environment();
  for (const TinyModelArgs& args : cases) {
    for (const u32 depth : {1u, 3u, 64u}) {
      CAPTURE(args.type);
      CAPTURE(depth);
      OpenTable open(args, depth);
      open.io.script.order_seed = seed + depth;
      test::Random random(seed);
      std::vector<u32> tokens(100);
      for (u32& token : tokens) token = static_cast<u32>(random.below(args.n_vocab));
      tokens[0] = 0;
      tokens[1] = args.n_vocab - 1;
      REQUIRE(open.read(tokens).has_value());
      CHECK(open.holds(tokens));
      CHECK(open.nothing_in_flight());
    }
  }
}

TEST_CASE("the region holds a checksum for each row that it does not hold") {
  const auto image = test::tiny_model({.d_model = 256, .d_ff = 256, .head_dim = 64, .type = 12});
  const LoadedModel in_memory(image), on_disk(image, true);
  const TensorRef& table = in_memory.model.tensors.of(ModelTensor::token_embd);
  const u64 table_bytes = kernels::tiled_bytes(table.type, table.n_rows, table.k);
  const u64 checksum_bytes = align_up(align_up(table.n_rows, kernels::kTileRows) * 4, 64);
  CHECK(in_memory.region_bytes - on_disk.region_bytes == table_bytes - checksum_bytes);
}

TEST_CASE("a read that fails once is repeated; one that goes on failing is an error") {
  const TinyModelArgs args{.d_model = 1024, .n_vocab = 64};  // of 4 KiB a row
  std::vector<u32> tokens(20);
  for (u32 i = 0; i < tokens.size(); ++i) tokens[i] = (i * 37) % 64;
  for (u64 i = 0; i < tokens.size(); ++i) {
    CAPTURE(i);
    OpenTable open(args);
    open.io.script.fail_at_read = open.io.n_reads() + i;
    REQUIRE(open.read(tokens).has_value());
    CHECK(open.holds(tokens));
    open.io.script.fail_at_read = open.io.n_reads() + i;
    open.io.script.n_failed_reads = 1000;
    const Result<void> read = open.read(tokens);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().status == Status::io_failed);
    CHECK(open.nothing_in_flight());
    open.io.script.fail_at_read = ~u64{0};
    REQUIRE(open.read(tokens).has_value());
    CHECK(open.holds(tokens));
  }
  OpenTable open(args);
  open.io.script.shrink_at_read = open.io.n_reads() + 3;
  open.io.script.shrink_to_bytes = open.table.file_offset + 100;
  CHECK(open.read(tokens).error().status == Status::io_failed);
  CHECK(open.nothing_in_flight());
}

TEST_CASE("bytes that are not those that were loaded are never believed") {
  OpenTable open({.d_ff = 96, .n_vocab = 33, .type = 8});
  const u64 row_bytes = kernels::row_bytes(open.table.type, open.table.k);
  constexpr u32 kRow = 17;
  for (u64 i = 0; i < row_bytes; ++i) {
    CAPTURE(i);
    std::byte& byte = open.bytes[open.table.file_offset + kRow * row_bytes + i];
    byte ^= std::byte{1};
    const Result<void> read = open.read({3, kRow, 5});
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().status == Status::io_failed);
    CHECK(read.error().figures[1].value == kRow);
    CHECK(open.read({kRow - 1, kRow + 1}).has_value());
    byte ^= std::byte{1};
  }
  REQUIRE(open.read({kRow}).has_value());
  CHECK(open.holds({kRow}));
}

}  // namespace
}  // namespace tarn::model::embedding_file_test
