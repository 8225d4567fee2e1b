#include "runtime/config/store_config.h"

namespace tarn {
namespace {

Unexpected broken(const char* key, const char* hint, u64 value) {
  return fail({.status = Status::invalid_config,
               .reason = Reason::bad_setting,
               .key = key,
               .hint = hint,
               .detail = Detail(key),
               .figures = {Figure{"value", value}}});
}

}  // namespace

Result<void> store_config_validate(const StoreConfig& config) {
  constexpr u64 kSector = 4096;
  if (config.frame_bytes % kSector != 0 || config.frame_bytes == kSector) {
    return broken("store.frame_bytes",
                  "a frame is a multiple of 4 KiB, and at least 8 KiB for head and payload; 0: "
                  "what a group of KV needs",
                  config.frame_bytes);
  }
  if (!config.is_off() && config.quota_bytes == 0) {
    return broken("store.quota_bytes", "a store needs a size limit on the disk, such as \"16GiB\"",
                  0);
  }
  if (config.sessions && config.is_off()) {
    return broken("store.sessions", "sessions are kept in a folder: set store.path (--store DIR)",
                  1);
  }
  return {};
}

}  // namespace tarn
