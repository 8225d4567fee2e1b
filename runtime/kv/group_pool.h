// A fixed set of equally sized KV groups in one region. A group is all KV heads of one cache layer
// over the same `page_tokens` slots: the unit of allocation, identity and reference counting.
//
//   one group    [n_kv_heads][page], padded to 4 KiB at its end; page = [page_tokens, 2, vector],
//                2 = {K, V}; vector = kv_vector_bytes(type, head_dim)
//   states       free -> writable (exactly one owner) -> sealed (immutable, counted) -> free;
//                sealed -> writable for its only owner, under a new generation;
//                sealed <-> idle: without references, and its page stays (prefix_index.h); -> free
//   thread       engine thread only
//   when full    acquire() frees idle groups. Without any it returns nothing: the caller waits,
//                evicts or refuses; it never allocates
//
// Invariant: free + idle groups + groups in use = groups_max; a group is in use iff its
//            references > 0; a writable group has references = 1.
#pragma once

#include <cstring>
#include <optional>
#include <span>

#include "runtime/kv/free_list.h"

namespace tarn::kv {

// Names a group without pointing at it. A generation behind the group's is stale; every access
// asserts.
struct GroupRef {
  u32 idx = ~u32{0};
  u32 generation = 0;
};

struct GroupShape {
  u32 n_kv_heads = 0;
  u32 page_tokens = 0;
  u32 vector_bytes = 0;  // K or V of one token of one head
  constexpr u64 page_bytes() const { return u64{page_tokens} * 2 * vector_bytes; }
  constexpr u64 payload_bytes() const { return n_kv_heads * page_bytes(); }
  constexpr u64 group_bytes() const { return (payload_bytes() + 4095) / 4096 * 4096; }
};

// Memory of groups that is more than one region: a GPU's, which the CPU cannot address, or frames
// that are fewer than the groups (residency.h). Copies are in order with whatever else uses the
// groups.
class GroupMemory {
 public:
  virtual u8* group(u32 group_idx) = 0;
  // Copies a group's bytes. The defaults serve memory of the host in which each group has one
  // address.
  virtual void copy(u8* to, const u8* from, u64 bytes) { std::memcpy(to, from, bytes); }
  // Hooks that follow a group's life.
  virtual void on_acquire(u32 /*group_idx*/) {}
  virtual void on_seal(u32 /*group_idx*/) {}
  virtual void on_reopen(u32 /*group_idx*/) {}
  virtual void on_release(u32 /*group_idx*/) {}

 protected:
  ~GroupMemory() = default;
};

inline constexpr u32 kNoPage = ~u32{0};

// Who knows groups as parts of pages.
class PageOwner {
 public:
  // Returns whether the page stays, idle, now that no sequence has a group of it.
  virtual bool on_released(u32 page) = 0;
  virtual void on_held(u32 page) = 0;    // an idle group of it is taken
  virtual void on_reopen(u32 page) = 0;  // a group of it is to be written: it is no page then
  // Frees the groups of one idle page. False: there is none.
  virtual bool free_one() = 0;

 protected:
  ~PageOwner() = default;
};

class GroupPool {
 public:
  // Takes the tables; one of the others tells where the groups lie.
  void init(Carver& carver, const GroupShape& shape, u32 groups_max);
  void belong_to(PageOwner* pages) { pages_ = pages; }
  void lie_in(std::span<std::byte> region);  // groups_max groups
  void lie_in(GroupMemory* memory) { memory_ = memory; }

  // Writable, with one reference; the content is what was there before.
  std::optional<GroupRef> acquire();
  void seal(GroupRef group);           // no more writes
  void add_reference(GroupRef group);  // sealed or idle
  void release(GroupRef group);        // the last reference frees it, or leaves it idle
  // Makes a sealed group with one reference writable again, its content kept. The old name is
  // stale.
  GroupRef reopen(GroupRef group);
  // Notes that a sealed group is the part `layer` of this page; kNoPage: of none.
  void set_page(GroupRef group, u32 page, u32 layer);
  u32 page_of(u32 group_idx) const { return groups_[group_idx].page; }
  u32 layer_in_page(u32 group_idx) const { return groups_[group_idx].layer; }
  void free_idle(GroupRef group);
  bool is_sealed(GroupRef group) const { return current(group).is_sealed; }
  u32 references(GroupRef group) const { return current(group).references; }

  // Page of one KV head. Writing to a sealed group is our bug: page_for_write asserts.
  const u8* page(GroupRef group, u32 kv_head) const;
  u8* page_for_write(GroupRef group, u32 kv_head);
  u8* address(GroupRef group) const;  // of its first page, which the others follow
  // Copies the first n slots of every head.
  void copy_slots(GroupRef source, GroupRef target, u32 n_slots);

  const GroupShape& shape() const { return shape_; }
  u32 groups_max() const { return free_.size(); }
  u32 groups_free() const { return free_.n_free() + n_idle_; }  // that acquire() can give
  u32 groups_idle() const { return n_idle_; }
  void check_invariants() const;

 private:
  struct Group {
    u32 generation = 0;
    u32 references = 0;
    u32 page = kNoPage;
    u16 layer = 0;  // in the page
    bool is_sealed = false;
  };
  Group& of_generation(GroupRef ref) const;  // asserts
  Group& current(GroupRef ref) const;        // and that it has references
  void give_back(u32 idx);

  GroupShape shape_{};
  u8* region_ = nullptr;  // nullptr: the groups lie in memory_
  GroupMemory* memory_ = nullptr;
  PageOwner* pages_ = nullptr;
  std::span<Group> groups_{};  // [groups_max]
  FreeList free_{};
  u32 n_idle_ = 0;
};

}  // namespace tarn::kv
