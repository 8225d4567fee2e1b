// Keys of one KV head in pages as the cache holds them, and an index over them with its memory.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/rope/rope.h"
#include "runtime/method/pq/pq_index.h"
#include "tests/support/seed.h"

namespace tarn::method::test {

using tarn::test::Random;

// 64-byte aligned memory that knows when somebody wrote behind it.
class Region {
 public:
  explicit Region(u64 n_bytes) : bytes_(n_bytes + 128, kCanary), n_bytes_(n_bytes) {}
  std::span<std::byte> span() {
    const u64 base = reinterpret_cast<u64>(bytes_.data());
    return {bytes_.data() + ((base + 63) / 64 * 64 - base), n_bytes_};
  }
  bool intact() { return *(span().data() + n_bytes_) == kCanary; }

 private:
  static constexpr std::byte kCanary{0xa5};
  std::vector<std::byte> bytes_;
  u64 n_bytes_;
};

class Keys {
 public:
  Keys(const std::vector<f32>& rows, u32 head_dim, kernels::KvType type = kernels::KvType::f16)
      : n_(static_cast<u32>(rows.size() / head_dim)), d_(head_dim), type_(type) {
    const u64 slot_bytes = 2 * kernels::kv_vector_bytes(type, d_);
    const u32 n_pages = (n_ + kPage - 1) / kPage;
    bytes_.resize(n_pages * kPage * slot_bytes);
    const std::vector<f32> v(d_);
    for (u32 t = 0; t < n_; ++t) {
      u8* slot = bytes_.data() + t * slot_bytes;
      kernels::kv_store_generic({type, rows.data() + u64{t} * d_, v.data(), slot, d_});
    }
    for (u32 p = 0; p < n_pages; ++p) pages_.push_back(bytes_.data() + p * kPage * slot_bytes);
  }
  KeyPages view() const { return {type_, pages_.data(), kPage, d_}; }
  // Slots one by one: the sample of n_rows rows from `first_slot` on.
  std::vector<const u8*> sample(const PqShape& shape, u32 first_slot, u32 n_rows) const {
    std::vector<const u8*> slots(pq_n_sample(shape, n_rows));
    const u64 slot_bytes = 2 * kernels::kv_vector_bytes(type_, d_);
    const u32 n = static_cast<u32>(slots.size());
    for (u32 i = 0; i < n; ++i) {
      slots[i] = bytes_.data() + (first_slot + sample_row(i, n, n_rows)) * slot_bytes;
    }
    return slots;
  }
  KeyPages view_of(const std::vector<const u8*>& slots) const {
    return {type_, slots.data(), 1, d_};
  }
  u32 n() const { return n_; }
  // As they are stored, all of them.
  std::vector<f32> stored() const {
    std::vector<f32> rows(u64{n_} * d_);
    view().load(kernels::cpu_tables().back(), 0, n_, rows.data());
    return rows;
  }

 private:
  static constexpr u32 kPage = 64;
  u32 n_, d_;
  kernels::KvType type_;
  std::vector<u8> bytes_;
  std::vector<const u8*> pages_;
};

// The key's dim that is dim i of a sub-space.
constexpr u32 dim_of(const PqShape& shape, u32 subspace, u32 i) {
  const u32 place = subspace * shape.dims() + i, half = shape.adjacent_dims / 2;
  if (place >= shape.adjacent_dims) return place;
  return place < half ? 2 * place : 2 * (place - half) + 1;
}
// [n_subspaces, dims, n_padded]
inline std::span<const f32> codebook_of(const PqIndex& index) {
  return {reinterpret_cast<const f32*>(index.region()),
          u64{index.shape().head_dim} * index.shape().n_padded()};
}
// The key that a row's codes stand for.
inline void reconstruct(const PqIndex& index, u32 row, f32* out) {
  const PqShape& shape = index.shape();
  const f32* column = codebook_of(index).data();
  for (u32 m = 0; m < shape.n_subspaces; ++m) {
    for (u32 i = 0; i < shape.dims(); ++i, column += shape.n_padded()) {
      out[dim_of(shape, m, i)] = column[index.code(m, row)];
    }
  }
}

struct Index {
  PqShape shape;
  Region region, scratch;
  PqIndex pq;
  explicit Index(const PqShape& of)
      : shape(of), region(pq_layout(of).bytes), scratch(pq_train_scratch_bytes(of)) {
    pq.init(shape, region.span());
  }
  // One sub-space of a codebook over the first n_rows slots, which was begun.
  u32 train_subspace(const kernels::CpuTable& table, const Keys& keys, u32 n_rows, u32 subspace,
                     u32 iterations) {
    const u32 first = pq.slot_begin();
    const std::vector<const u8*> sample = keys.sample(shape, first, n_rows);
    const u32 n_updates =
        pq.train({table, keys.view_of(sample), 0, subspace, iterations, scratch.span()});
    pq.code({table, keys.view(), subspace, first, first + n_rows, scratch.span()});
    return n_updates;
  }
  void train(const kernels::CpuTable& table, const Keys& keys, u32 n_rows, u32 iterations) {
    pq.begin_codebook(n_rows);
    for (u32 m = 0; m < shape.n_subspaces; ++m) {
      train_subspace(table, keys, n_rows, m, iterations);
    }
    pq.end_codebook();
  }
};

// METHODS 14.2's rows: runs of `run` tokens, each around one of n_means means of N(0, 1).
struct Clusters {
  std::vector<f32> means, rows;
  u32 d;
  Clusters(Random& random, u32 n_rows, u32 head_dim, u32 n_means, u32 run, f32 sd)
      : means(u64{n_means} * head_dim), rows(u64{n_rows} * head_dim), d(head_dim) {
    for (f32& mean : means) mean = random.normal();
    u64 mean = 0;
    for (u32 r = 0; r < n_rows; ++r) {
      if (r % run == 0) mean = random.below(n_means);
      for (u32 i = 0; i < d; ++i) rows[u64{r} * d + i] = means[mean * d + i] + sd * random.normal();
    }
  }
  // A query near one of the means.
  std::vector<f32> query(Random& random) const {
    const u64 mean = random.below(means.size() / d);
    std::vector<f32> q(d);
    for (u32 i = 0; i < d; ++i) q[i] = means[mean * d + i] + random.normal();
    return q;
  }
};

// Rows turned by RoPE to the positions from `begin` on.
inline void rotate(std::vector<f32>& rows, u32 head_dim, f64 base, u32 begin) {
  const u32 n = static_cast<u32>(rows.size() / head_dim);
  std::vector<f64> inv_freq(head_dim / 2);
  kernels::rope_frequencies(base, 1.0, head_dim, nullptr, inv_freq.data());
  std::vector<f32> cos(u64{n} * head_dim / 2), sin(cos.size());
  std::vector<u32> positions(n);
  for (u32 i = 0; i < n; ++i) positions[i] = begin + i;
  kernels::rope_table({positions.data(), n, head_dim, inv_freq.data(), cos.data(), sin.data()});
  kernels::rope_generic({rows.data(), head_dim, cos.data(), sin.data(), n, 1, head_dim, head_dim,
                         kernels::RopePairs::adjacent});
}

// Runs one of selection.h's functions with memory of exactly the size that it asks for.
template <class Select>
std::vector<u32> run_selection(const kernels::CpuTable& table, const Query& query,
                               const TokenRanges& ranges, u32 k, const SelectionShape& shape,
                               Select select) {
  Region scratch(selection_scratch_bytes(shape));
  std::vector<u32> slots(u64{ranges.n_tokens});
  const u32 n = select(SelectionArgs{table, query, ranges, k, scratch.span(), slots});
  if (!scratch.intact()) return {};
  slots.resize(n);
  return slots;
}

}  // namespace tarn::method::test
