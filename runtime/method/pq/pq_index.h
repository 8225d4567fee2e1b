// The product-quantisation index of one (layer, KV head): a codebook, and codes of the middle's
// keys as they lie in the cache, after RoPE. Rows of the index are slots from `slot_begin` on.
//
//   method   PQCache (arXiv:2407.12820): the k best by the approximate scores of codes. A token is
//            coded in the step that evicts it from the local window, and so is a candidate in it
//   life     start(slot), begin_codebook(rows), train() for each sub-space on any threads, then
//            code() for all of the rows, window by window where they are not all in memory,
//            end_codebook(); take_in() for tokens that leave the local window. A rebuild fills a
//            second index in the same way while this one serves, then takes its place
//   memory   a region of pq_layout().bytes, scratch of pq_train_scratch_bytes(); nothing else
//   thread   one at a time, but for train() and code(), which touch their own sub-space alone
//   errors   none: the caller keeps capacity_tokens, else it is our bug
//
// A key is cut into contiguous sub-spaces, as in PQCache, in the order of its authors' models: the
// two dims of a RoPE pair stand half of the rotary dims apart. Where a model has pairs side by side
// (GGUF's llama), dim i of n rotary dims takes place i % 2 * n / 2 + i / 2. So a model has the same
// codes in both layouts, and of two sub-spaces each has one dim of every pair.
//
// K-Means: Lloyd from 2^b distinct rows that a fixed seed draws, `iterations` updates or until the
// centroids went less than kTolerance, then one assignment of all rows. Of many rows a sample is
// clustered, kPqSampleRows a centroid, evenly spaced. Sums are exact integers, so the result is a
// function of rows, seed and iterations.
// Cost  (iterations * sample + rows) * 2^b * head_dim multiplications; take_in 2^b * head_dim a
// token.
#pragma once

#include <algorithm>
#include <span>

#include "runtime/method/method.h"

namespace tarn::method {

struct PqShape {
  u32 head_dim = 0;
  u32 adjacent_dims = 0;  // as in KeyDims
  u32 n_subspaces = 0;    // head_dim % n_subspaces == 0
  u32 code_bits = 0;      // 1..8
  kernels::PqCodeFormat format = kernels::PqCodeFormat::bytes;
  u32 capacity_tokens = 0;
  constexpr u32 dims() const { return head_dim / n_subspaces; }
  constexpr u32 n_centroids() const { return 1u << code_bits; }
  constexpr u32 n_padded() const { return kernels::pq_padded(n_centroids()); }
  // Counts the f32 of a query's head: its look-up tables, and itself, in the order of its dims.
  constexpr u32 lut_elems() const { return n_subspaces * n_padded() + head_dim; }
  // Returns whether a token's scores follow from a pair of codes; the pairs are counted
  // (kernels/pq/pq_pairs.h).
  constexpr bool has_pairs() const {
    return n_subspaces == 2 && n_padded() <= kernels::kPqPairSideMax;
  }
};

// Returns the shape of one KV head's index; head_dim must be a multiple of n_subspaces.
PqShape pq_shape(const SelectConfig& config, const KeyDims& keys, u32 capacity_tokens);

// Where the parts lie in a region, in bytes from its begin; the codebook begins there.
struct PqLayout {
  u64 half_norms = 0, codes = 0, counts = 0;
  u64 bytes = 0;
};
PqLayout pq_layout(const PqShape& shape);
u64 pq_train_scratch_bytes(const PqShape& shape);
// How many of n_rows are clustered: those that sample_row() says.
inline constexpr u32 kPqSampleRows = 128;  // of a centroid
inline u32 pq_n_sample(const PqShape& shape, u32 n_rows) {
  return std::min(n_rows, kPqSampleRows * shape.n_centroids());
}

class PqIndex {
 public:
  static constexpr u64 kSeed = 4321;       // as in PQCache's code
  static constexpr f64 kTolerance = 1e-4;  // sum of the squared ways of the centroids
  static constexpr u32 kTileTokens = 64;   // keys that are loaded at a time

  // Borrows the region, 64-byte aligned, until the index is not used any more.
  void init(const PqShape& shape, std::span<std::byte> region);
  // Forgets everything; row 0 is slot_begin.
  void start(u32 slot_begin);
  // Forgets likewise, but nothing may be read of it before start().
  void forget() { slot_begin_ = n_tokens_ = n_training_ = n_clustered_ = 0; }

  // Begins a codebook from the first n_rows slots. 2^b rows at least.
  void begin_codebook(u32 n_rows);
  struct Training {
    const kernels::CpuTable& table;
    KeyPages keys;   // of the sample, one behind the other
    u32 first_slot;  // of its first key in them
    u32 subspace;
    u32 iterations;
    std::span<std::byte> scratch;  // 64-byte aligned
  };
  // Centroids of one sub-space. Returns the updates that were made.
  u32 train(const Training& training);
  struct Coding {
    const kernels::CpuTable& table;
    KeyPages keys;
    u32 subspace;
    u32 slot_begin, slot_end;  // of the codebook's rows
    std::span<std::byte> scratch;
  };
  // Codes of some of the rows, in any order, when the sub-space is trained.
  void code(const Coding& coding) const;
  void end_codebook();  // all rows have codes, and are searched from now on

  // Codes of the slots up to slot_end, which have none yet, by the nearest centroids.
  void take_in(const kernels::CpuTable& table, const KeyPages& keys, u32 slot_end,
               std::span<std::byte> scratch);

  // Counts the bytes that begin_codebook(n_rows), train(), code() and end_codebook() have made.
  static u64 codebook_bytes(const PqShape& shape, u32 n_rows);
  void write_codebook(std::span<std::byte> out) const;  // of its n_clustered()
  // In place of these calls. False, and nothing is changed, where no codebook can be so.
  bool read_codebook(u32 n_rows, std::span<const std::byte> bytes);

  // Forgets the rows from that slot on; those that were clustered stay.
  void truncate(u32 middle_end);
  // Becomes a copy of an index of the same shape; of its rows and codebook, not of its training.
  void copy_from(const PqIndex& source);

  // lut [n_heads, n_subspaces, n_padded]; it has room for [n_heads, lut_elems()].
  void fill_lut(const kernels::CpuTable& table, const Query& query, f32* lut) const;
  // scores [n_heads, stride] of all rows; lut is scratch, [n_heads, lut_elems()].
  void score(const kernels::CpuTable& table, const Query& query, f32* lut, f32* scores,
             u64 stride) const;

  // Chooses the k best rows by the softmax of their scores, summed over the group's heads,
  // ascending; where the shape has pairs. scratch of kPqPairScratchBytes; out has room for k.
  u32 choose_by_pairs(const kernels::CpuTable& table, const Query& query, u32 k, f32* lut,
                      void* scratch, u32* out) const;
  u32 choose(const SelectionArgs& args) const;

  const PqShape& shape() const { return shape_; }
  u32 n_tokens() const { return n_tokens_; }
  u32 slot_begin() const { return slot_begin_; }
  u32 n_clustered() const { return n_clustered_; }  // rows; 0: there is no codebook yet
  u8 code(u32 subspace, u32 row) const;
  // Returns the region, which begins with the codebook [n_subspaces, dims, n_padded].
  const std::byte* region() const { return reinterpret_cast<const std::byte*>(centroids_); }

 private:
  std::span<f32> centroids(u32 subspace) const;
  u8* row(u32 subspace) const { return codes_ + subspace * row_bytes_; }
  void count_pairs(u32 begin, u32 end, i32 step) const;
  void assign(const kernels::CpuTable& table, u32 subspace, const f32* keys, u32 n,
              u8* codes) const;

  PqShape shape_{};
  f32* centroids_ = nullptr;   // [n_subspaces, dims, n_padded]
  f32* half_norms_ = nullptr;  // [n_subspaces, n_padded]
  u8* codes_ = nullptr;        // [n_subspaces, row_bytes_]
  u32* counts_ = nullptr;      // [n_padded, n_padded], rows of each pair of codes; or none
  u64 row_bytes_ = 0;
  u32 slot_begin_ = 0;
  u32 n_tokens_ = 0;
  u32 n_clustered_ = 0;
  u32 n_training_ = 0;  // rows, while the codebook is being trained
};

}  // namespace tarn::method
