// Opens the store's file, and waits for the disk. It locks the file, and reads its label or writes
// a new one. Then it reads the first sector of every frame, compares the records found, and erases
// old versions of manifests. No content of the file can stop it, only a failing disk.
//
// An unreadable sector costs only its own content: one of two labels is written again, a record
// with a lost head is absent. kUnreadInARowMax consecutive unreadable heads count as a failed disk.
// After an error requests may still be in flight.
#pragma once

#include "runtime/store/store_parts.h"

namespace tarn::store {

inline constexpr u32 kUnreadInARowMax = 64;

// The facts that the youngest head tells.
struct Scanned {
  u64 youngest_generation = 0;
  u64 budget_left_bytes = ~u64{0};
};
// `entropy`: for the secret of a new file. Uses the operations' memory for heads.
Result<Scanned> scan_store(StoreParts& parts, const std::array<u8, 32>& entropy);

}  // namespace tarn::store
