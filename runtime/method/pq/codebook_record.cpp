#include "runtime/method/pq/codebook_record.h"

#include <algorithm>
#include <cstring>

#include "platform/base/assert.h"

namespace tarn::method {
namespace {

u64 pairs_of(const PqShape& shape) { return u64{shape.n_padded()} * shape.n_padded(); }

}  // namespace

CodebookHead codebook_head(std::span<const std::byte> record) {
  CodebookHead head;
  std::memcpy(&head, record.data(), sizeof head);
  return head;
}

u64 codebook_record_bytes(const PqShape& shape, u32 n_rows, u32 n_orders) {
  return sizeof(CodebookHead) + PqIndex::codebook_bytes(shape, n_rows) +
         n_orders * pairs_of(shape) * sizeof(u32);
}

void write_codebook_record(const CodebookHead& head, const PqIndex& index,
                           std::span<const u32> firsts, std::span<std::byte> out) {
  const u64 codebook_bytes = PqIndex::codebook_bytes(index.shape(), head.n_rows);
  TARN_ASSERT(head.n_rows == index.n_clustered());
  write_record_orders(head, index.shape(), firsts, out);
  index.write_codebook(out.subspan(sizeof head, codebook_bytes));
}

void write_record_orders(const CodebookHead& head, const PqShape& shape,
                         std::span<const u32> firsts, std::span<std::byte> record) {
  const u64 codebook_bytes = PqIndex::codebook_bytes(shape, head.n_rows);
  TARN_ASSERT(shape.has_pairs() && head.n_pairs == pairs_of(shape));
  TARN_ASSERT(firsts.size() == head.n_orders * pairs_of(shape));
  TARN_ASSERT(record.size() >= codebook_record_bytes(shape, head.n_rows, head.n_orders));
  std::memcpy(record.data(), &head, sizeof head);
  std::ranges::copy(std::as_bytes(firsts), record.subspan(sizeof head + codebook_bytes).begin());
}

std::optional<CodebookHead> read_codebook_record(std::span<const std::byte> bytes, u32 n_rows,
                                                 PqIndex& index) {
  const PqShape& shape = index.shape();
  TARN_ASSERT(shape.has_pairs() && index.n_clustered() == 0);
  if (bytes.size() < codebook_record_bytes(shape, n_rows, 0)) return std::nullopt;
  const CodebookHead head = codebook_head(bytes);
  const bool is_ours =
      head.version == kCodebookVersion && head.n_rows == n_rows && head.n_pairs == pairs_of(shape);
  const bool has_slots = head.slot_begin >= index.slot_begin() &&
                         head.slot_begin <= head.slot_end &&
                         head.slot_end <= u64{index.slot_begin()} + n_rows;
  if (!is_ours || (head.n_orders > 0 && !has_slots)) return std::nullopt;
  if (bytes.size() != codebook_record_bytes(shape, n_rows, head.n_orders)) return std::nullopt;
  if (!index.read_codebook(n_rows, bytes.subspan(sizeof head))) return std::nullopt;
  return head;
}

bool read_places(std::span<const std::byte> bytes, u32 order, const PqIndex& index,
                 std::span<u64> ranges, std::span<u32> firsts) {
  const CodebookHead head = codebook_head(bytes);
  const u64 n_pairs = pairs_of(index.shape());
  TARN_ASSERT(order < head.n_orders && ranges.size() == n_pairs && firsts.size() == n_pairs);
  const u64 begin = codebook_record_bytes(index.shape(), head.n_rows, order);
  std::memcpy(firsts.data(), bytes.data() + begin, firsts.size_bytes());
  std::ranges::fill(ranges, 0u);
  const u32 n_tokens = head.slot_end - head.slot_begin;
  const u32 first_row = head.slot_begin - index.slot_begin();
  for (u32 row = first_row; row < first_row + n_tokens; ++row) ++ranges[pair_of(index, row)];
  for (u64 pair = 0; pair < n_pairs; ++pair) ranges[pair] |= u64{firsts[pair]} << 32;
  std::ranges::sort(ranges);
  u64 end = 0;
  for (const u64 range : ranges) {
    const u32 n = static_cast<u32>(range);
    if (n > 0 && range >> 32 != end) return false;
    end += n;
  }
  return end == n_tokens;
}

}  // namespace tarn::method
