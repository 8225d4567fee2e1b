// How fast the disk reads KV, from looks at it between other work. A look sees which reads have
// ended since the last one, and not when: reads took the time from look to look while some were
// under way, and no longer than until the look that found all of them ended.
//
//   thread   the engine's
#pragma once

#include "platform/base/types.h"

namespace tarn::kv {

struct ReadTimes {
  u64 n = 0, bytes = 0;
  u64 least_ns = 0, most_ns = 0;  // that they took
};

class ReadWatch {
 public:
  // Notes that a read begins, and that n were under way before.
  void begin(u64 now_ns, u32 n_under_way) {
    if (n_under_way == 0) since_ns_ = now_ns;
  }
  // Requests and bytes of reads that have ended since the last look, and reads under way now.
  void look(u64 now_ns, u64 n_ended, u64 bytes_ended, u32 n_under_way, ReadTimes* times) {
    if (since_ns_ == 0) return;
    const u64 ns = now_ns - since_ns_;
    times->n += n_ended;
    times->bytes += bytes_ended;
    times->least_ns += n_under_way > 0 ? ns : 0;
    times->most_ns += ns;
    since_ns_ = n_under_way > 0 ? now_ns : 0;
  }

 private:
  u64 since_ns_ = 0;  // of the last look, or of the first read since; 0: no read is under way
};

}  // namespace tarn::kv
