#include "runtime/kv/mover_errors.h"

namespace tarn::kv {

Unexpected no_frame(const Stuck& why) {
  Error error{.status = Status::would_block,
              .reason = Reason::busy_kv,
              .hint =
                  "kv.memory_bytes holds too few groups of KV for this step: raise it, or "
                  "lower engine.batch_rows_max",
              .figures = {{{"frames", why.n_frames}, {"groups_in_memory_only", why.n_dirty}}}};
  if (why.refused == store::Begun::over_budget) {
    error.reason = Reason::store_full;
    error.hint =
        "the KV in memory is full and the store's write budget is used up: raise kv.memory_bytes "
        "or store.daily_write_bytes, or end a session";
  } else if (why.refused == store::Begun::no_room) {
    error.reason = Reason::store_full;
    error.hint =
        "the KV in memory is full, and so is the store: raise kv.memory_bytes or "
        "store.quota_bytes, or end a session";
  } else if (why.refused == store::Begun::not_now) {
    error.status = Status::io_failed;
    error.reason = Reason::none;
    error.hint =
        "the KV in memory is full and the store takes nothing any more: check the disk and open "
        "the engine again, or raise kv.memory_bytes";
  } else if (why.is_crowded_out) {
    error.hint =
        "all of the store's requests wait for records that sessions hold: raise "
        "store.requests_max, or end a session";
  }
  return fail(error);
}

Unexpected not_saved(store::Begun refused, const Error& why_store) {
  if (refused == store::Begun::over_budget) {
    return fail({.status = Status::would_block,
                 .reason = Reason::store_full,
                 .hint = "the session cannot be saved now, since the store's write budget is used "
                         "up: wait, or raise store.daily_write_bytes"});
  }
  if (refused == store::Begun::no_room || why_store.hint[0] == '\0') {
    return fail({.status = Status::would_block,
                 .reason = Reason::store_full,
                 .hint = "the session cannot be saved, since the store is full of what open "
                         "sessions hold: raise store.quota_bytes, or end a session"});
  }
  return fail(why_store);
}

Unexpected lost() {
  return fail(
      {.status = Status::io_failed,
       .hint = "a part of this session's KV could not be read back from the store: generate again, "
               "its tokens are kept and the KV is computed anew"});
}

}  // namespace tarn::kv
