// How fast the disk reads KV, from looks at it between other work. A look sees which reads have
// ended since the last one, and not when.
//
//   busy     reads were under way from one look to the next: what ended took that time
//   bound    all had ended when it was looked: what ended took that time at most
//   thread   the engine's
#pragma once

#include "platform/base/types.h"

namespace tarn::kv {

struct ReadTimes {
  u64 n_busy = 0, bytes_busy = 0, busy_ns = 0;
  u64 n_bound = 0, bytes_bound = 0, bound_ns = 0;
};

class ReadWatch {
 public:
  // A read begins, and n were under way before.
  void begin(u64 now_ns, u32 n_under_way) {
    if (n_under_way == 0) since_ns_ = now_ns;
  }
  // Requests and bytes of reads that have ended since the last look, and reads under way now.
  void look(u64 now_ns, u64 n_ended, u64 bytes_ended, u32 n_under_way, ReadTimes* times) {
    if (since_ns_ == 0) return;
    const u64 ns = now_ns - since_ns_;
    const bool is_busy = n_under_way > 0;
    (is_busy ? times->n_busy : times->n_bound) += n_ended;
    (is_busy ? times->bytes_busy : times->bytes_bound) += bytes_ended;
    (is_busy ? times->busy_ns : times->bound_ns) += ns;
    since_ns_ = is_busy ? now_ns : 0;
  }

 private:
  u64 since_ns_ = 0;  // of the last look, or of the first read since; 0: no read is under way
};

}  // namespace tarn::kv
