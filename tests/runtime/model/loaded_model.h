// What a test of the loader lends it.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "platform/base/checked.h"
#include "runtime/model/weights.h"
#include "tests/support/memory_io.h"
#include "tests/support/tiny_model.h"

namespace tarn::test {

inline constexpr u64 kGuardBytes = 256;
inline constexpr std::byte kGuard{0xA5};

struct AlignedBytes {
  explicit AlignedBytes(u64 n_bytes)
      : n(n_bytes),
        data(static_cast<std::byte*>(std::aligned_alloc(4096, align_up(n_bytes, 4096)))) {
    std::memset(data.get(), 0, n_bytes);
  }
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::span<std::byte> span() { return {data.get(), n}; }
  u64 n;
  std::unique_ptr<std::byte, Free> data;
};

// The image as a file in memory, described, with the regions that load_weights() wants.
struct LoadedModel {
  static constexpr char kPath[] = "model.gguf";
  Bytes bytes;
  MemoryIo io;
  IoFile handle{};
  std::vector<std::byte> memory = std::vector<std::byte>(model::kModelMemoryBytesMax);
  Bump bump{memory};
  model::ModelDescription model{};
  u64 region_bytes = 0;
  std::unique_ptr<AlignedBytes> region;
  AlignedBytes staging{33 * kMiB};  // enough for every model: loader_staging_bytes()
  WorkerPool workers;
  model::LoadArgs args{};

  explicit LoadedModel(const GgufImage& image, bool embedding_on_disk = false)
      : bytes(image.bytes()) {
    handle = io.add(bytes, kPath);
    auto file = model::GgufFile::read(io, handle, bump);
    REQUIRE_MESSAGE(file.has_value(), file.error().hint);
    auto description = model::describe_model(*file, bump);
    REQUIRE_MESSAGE(description.has_value(), description.error().hint);
    model = *description;
    model.spec.embedding_on_disk = embedding_on_disk;
    region_bytes = *model::weights_region_bytes(model);
    region = std::make_unique<AlignedBytes>(region_bytes + kGuardBytes);
    std::memset(region->data.get() + region_bytes, static_cast<int>(kGuard), kGuardBytes);
    REQUIRE(workers.start({.n_workers = 2}).has_value());
    args = {.io = &io,
            .file = handle,
            .model = &model,
            .region = region->span().first(region_bytes),
            .staging = staging.span(),
            .tile_rows = kernels::tile_rows_generic,
            .workers = &workers};
  }
  bool guard_is_whole() {
    for (const std::byte byte : region->span().subspan(region_bytes)) {
      if (byte != kGuard) return false;
    }
    return true;
  }
};

}  // namespace tarn::test
