// A second copy of a session's middle on the disk, in an order that suits a method's choices
// (kv/extents.h). Here stands the interface. The class itself is that of a method without an order:
// nothing is laid out, and each slot is read from its group.
//
//   extent   of a (session, cache layer, KV head); it follows the index whose choices it serves
//   memory   to write from: that of the session's caches
//   thread   the engine's; names and orders of a head: any worker
#pragma once

#include <span>

#include "platform/base/result.h"
#include "runtime/kv/extents.h"
#include "runtime/kv/slot_cache.h"

namespace tarn::method {

struct IndexSession;

inline constexpr u32 kForeign = u32{1} << 31;  // in a name of a slot: the rest is the slot
inline constexpr u64 kDiskOrderBytes = 32;     // of one, at most

class DiskOrder {
 public:
  virtual ~DiskOrder() = default;

  virtual void forget(const IndexSession& /*s*/) {}
  virtual void truncate(const IndexSession& /*s*/, u32 /*n_tokens*/) {}
  // Keeps those names of a head's cached slots that hold for its first n_tokens.
  virtual void truncate_cache(const IndexSession& /*s*/, u32 /*head*/, u32 n_tokens,
                              kv::SlotCache& cache) {
    cache.truncate(kForeign | n_tokens);
  }
  // Notes what a layer's heads asked last, [n_heads, head_dim] after RoPE: extents follow it.
  virtual void note_query(u32 /*session*/, u32 /*cache_layer*/, const f32* /*q*/) {}

  // Lays out a layer of what the session's job has trained.
  virtual Result<void> lay_out(IndexSession& /*s*/, u32 /*cache_layer*/) { return {}; }
  // Returns whether the layer's extents are there, or there is nothing to lay out.
  virtual bool has_extents(const IndexSession& /*s*/, u32 /*cache_layer*/) const { return true; }

  // Bytes behind Reader::save()'s by which a later start finds a head's extent.
  virtual u64 saved_bytes(const IndexSession& /*s*/, u32 /*head*/) const { return 0; }
  // Adds them to a record that begins with these.
  virtual void save(const IndexSession& /*s*/, u32 /*head*/, std::span<std::byte> /*record*/) {}
  // Takes the extent that such a record names; the reader has loaded it.
  virtual void adopt(const IndexSession& /*s*/, u32 /*head*/,
                     std::span<const std::byte> /*record*/) {}

  struct NameArgs {
    u32 session, head, worker_idx;
    u32 first_rank;  // of the chosen slots among all
  };
  // Names of the far slots of a head, which were chosen in ascending order: a slot's place in the
  // head's extent, or, behind these, kForeign and the slot. Names ascend.
  virtual void name_slots(const NameArgs& args, std::span<const u32> chosen,
                          std::span<kv::WantedSlot> named) {
    u32 rank = args.first_rank;
    for (u64 i = 0; i < chosen.size(); ++i) named[i] = {kForeign | chosen[i], rank++};
  }
  // Places in an extent, to those from which reading is cheaper.
  virtual void choose_orders(const NameArgs& /*args*/, std::span<const u32> /*chosen*/,
                             std::span<kv::ExtentWant> /*places*/) {}
};

}  // namespace tarn::method
