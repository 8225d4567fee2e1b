// One fixed scenario of the store, and everything that can happen to it, one after the other: power
// loss at every moment (ROBUSTNESS R9), every call failed in every way (R8), every bit flipped
// and every sector another one (R11). The fast slice takes every `stride`-th of each.
#pragma once

#include "platform/base/types.h"

namespace tarn::test {

u64 try_power_losses(u64 stride);  // images that were opened
// Where nothing was evicted, whatever is found after a power loss is whole: no head came before its
// payload's sync.
u64 try_publication_order(u64 stride);  // images
// Power lost while a manifest is replaced: a start has one version or the other, and neither comes
// back once the session is deleted.
u64 try_replacements();                                  // images
u64 try_failing_calls(u64 stride, u64 n_latency_seeds);  // runs
// Each bit of 1 MiB of records, of every second one at a time; and each bit of the file's labels.
u64 try_flipped_bits(u64 stride);        // flips
u64 try_flipped_label_bits(u64 stride);  // flips
// Each sector of each record zeroed, as it was before, swapped with each other one, overwritten by
// each other one, and the file cut there.
u64 try_damaged_blocks();  // images

}  // namespace tarn::test
