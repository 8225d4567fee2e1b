// A model that is ready to compute: its description, its weights, and a reader of embedding rows if
// the table stays in the file.
#pragma once

#include "runtime/model/embedding_file.h"
#include "runtime/model/model_spec.h"
#include "runtime/model/weights.h"

namespace tarn::model {

struct LoadedModel {
  ModelSpec spec{};
  Weights weights{};
  EmbeddingFile embedding{};  // open if the table is not in memory

  // Call after loading the weights. `staging` is the memory that the loader no longer uses.
  Result<void> open_embedding(const char* path, IoKind io_kind, std::span<std::byte> staging) {
    if (!weights.embedding_on_disk()) return {};
    return embedding.open(
        {.path = path, .io_kind = io_kind, .table = weights.token_embd_on_disk, .memory = staging});
  }
};

}  // namespace tarn::model
