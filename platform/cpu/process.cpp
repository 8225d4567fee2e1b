#include "platform/cpu/process.h"

#include <unistd.h>

namespace tarn {

u64 process_id() { return static_cast<u64>(getpid()); }

}  // namespace tarn
