// The one bound on the network's memory (daemon.memory_bytes). libevent's allocator is replaced by
// one that counts and refuses; request bodies, and what is made of them, are charged to the same
// count by leases. So a process has one of it, and the network's thread alone uses it.
#pragma once

#include "platform/base/types.h"

namespace tarn::daemon {

class NetworkMemory {
 public:
  // Before the first call of libevent. Later calls change the limit.
  static void install(u64 limit_bytes);
  static u64 limit_bytes();
  static u64 used_bytes();
  static u64 peak_bytes();
};

// Bytes that a request holds beside libevent.
class Lease {
 public:
  Lease() = default;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { grow_to(0); }
  // Returns false, and changes nothing, if that many are not left.
  bool grow_to(u64 bytes);
  u64 bytes() const { return bytes_; }

 private:
  u64 bytes_ = 0;
};

}  // namespace tarn::daemon
