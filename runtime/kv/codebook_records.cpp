#include "runtime/kv/codebook_records.h"

#include <algorithm>

#include "platform/base/checked.h"

namespace tarn::kv {

using store::kSectorBytes;

void CodebookRecords::init(store::Store* store, ExtentReads* reads, ExtentWrites* writes,
                           ExtentStats* stats) {
  store_ = store;
  reads_ = reads;
  writes_ = writes;
  stats_ = stats;
}

store::Key CodebookRecords::key(const store::Key& owner, u32 head) const {
  return store::part_key(store_->secret(), owner, {0, u64{head} << 32, 0});
}

// Whatever else lies under such a key is somebody else's making.
std::optional<store::RecordRef> CodebookRecords::pinned(const store::Key& owner, u32 head) {
  const auto found = store_->find(key(owner, head));
  if (!found || store_->index().entry(*found).kind != store::Kind::codebook) return std::nullopt;
  store_->pin(*found);
  return found;
}

void CodebookRecords::put(const store::Key& owner, u32 head, std::span<std::byte> bytes,
                          u64 n_bytes) {
  if (n_bytes > store::kPayloadBytesMax) return;
  const std::span<std::byte> payload = bytes.first(align_up(n_bytes, kSectorBytes));
  std::ranges::fill(payload.subspan(n_bytes), std::byte{0});
  if (!writes_->affords(payload.size(), 0)) return;
  (void)writes_->put({.kind = store::Kind::codebook,
                      .key = key(owner, head),
                      .payload = payload,
                      .payload_bytes = n_bytes,
                      .known = store::PutArgs::If::replace},
                     {.is_codebook = true});
}

u64 CodebookRecords::read(const store::Key& owner, u32 head, std::span<std::byte> out) {
  const auto ref = pinned(owner, head);
  if (!ref) return 0;
  const u64 n_bytes = store_->index().entry(*ref).payload_bytes;
  const u64 n_sectors = ceil_div(n_bytes, kSectorBytes);
  const bool is_read =
      n_sectors * kSectorBytes <= out.size() && reads_->read(*ref, n_sectors, out.data());
  store_->unpin(*ref);
  if (!is_read) return 0;
  ++stats_->n_codebooks_read;
  return n_bytes;
}

void CodebookRecords::erase(const store::Key& owner, u32 head) {
  if (const auto ref = pinned(owner, head)) writes_->erase(*ref);
}

void CodebookRecords::touch(const store::Key& owner, u32 head) {
  if (const auto ref = pinned(owner, head)) store_->unpin(*ref);
}

}  // namespace tarn::kv
