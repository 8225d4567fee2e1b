// runtime/model/loaded_model.h
//
// A model that is ready to compute: what it looks like, its weights, and where its embedding table
// stays in the file the way to the table's rows.
#pragma once

#include "runtime/model/embedding_file.h"
#include "runtime/model/model_spec.h"
#include "runtime/model/weights.h"

namespace tarn::model {

struct LoadedModel {
  ModelSpec spec{};
  Weights weights{};
  EmbeddingFile embedding{};  // open where the table is not in memory

  // After the weights. `staging` is what the loader has left.
  Result<void> open_embedding(const char* path, IoKind io_kind, std::span<std::byte> staging) {
    if (!weights.embedding_on_disk()) return {};
    return embedding.open({.path = path,
                           .io_kind = io_kind,
                           .table = weights.token_embd_on_disk,
                           .memory = staging});
  }
};

}  // namespace tarn::model
