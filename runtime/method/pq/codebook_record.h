// The result of clustering one (layer, KV head), as bytes for a later start: centroids and
// codes of the rows that were clustered, and where in an extent (kv/extents.h) each pair's tokens
// begin. It is the payload of a record of kind codebook.
//
// Format version 2, little-endian: CodebookHead (48 bytes), PqIndex::write_codebook()'s bytes, then
// of each order the places of the pairs' first tokens, [n_pairs] u32.
//
//   errors   bytes are checked, never believed: what does not hold is absent, and made again
#pragma once

#include <optional>
#include <span>

#include "runtime/method/pq/pq_index.h"

namespace tarn::method {

inline constexpr u32 kCodebookVersion = 2;

struct CodebookHead {
  u32 version = kCodebookVersion;
  u32 n_rows = 0;                    // clustered, from the index's first one on
  u32 n_pairs = 0;                   // of codes
  u32 n_orders = 0;                  // of the extent; 0: there is none
  u32 slot_begin = 0, slot_end = 0;  // in the extent
  u32 record_tokens = 0;             // of one of its records
  u32 slot_bytes = 0;
  u64 extent_version = 0;  // in the keys of its records
  u64 reserved = 0;
  friend bool operator==(const CodebookHead&, const CodebookHead&) = default;
};
static_assert(sizeof(CodebookHead) == 48);

// Counts the bytes of an index with one codebook and pairs of codes.
u64 codebook_record_bytes(const PqShape& shape, u32 n_rows, u32 n_orders);
// `firsts` [n_orders, n_pairs]. `out` has codebook_record_bytes() of the index's n_clustered().
void write_codebook_record(const CodebookHead& head, const PqIndex& index,
                           std::span<const u32> firsts, std::span<std::byte> out);
// Writes the head and the indexes alone, into a record that was written without orders.
void write_record_orders(const CodebookHead& head, const PqShape& shape,
                         std::span<const u32> firsts, std::span<std::byte> record);
// Gives the index the codebook, which has just been started, if it is of n_rows. Nothing if it is
// not, or does not hold; the index is as it was then.
std::optional<CodebookHead> read_codebook_record(std::span<const std::byte> bytes, u32 n_rows,
                                                 PqIndex& index);
// Returns the head of a record that was read.
CodebookHead codebook_head(std::span<const std::byte> record);
// Reads where the pairs of an order begin, out of a record that was read. `ranges` [n_pairs] is
// scratch. False where they are not those of all tokens of the extent, each at an index of its own.
bool read_places(std::span<const std::byte> bytes, u32 order, const PqIndex& index,
                 std::span<u64> ranges, std::span<u32> firsts);

// Returns a row's pair, as extents count them.
inline u32 pair_of(const PqIndex& index, u32 row) {
  return u32{index.code(0, row)} * index.shape().n_padded() + index.code(1, row);
}

}  // namespace tarn::method
