// What a method of selection is. A reader is the index of one (cache layer, KV head) of a session,
// and chooses the slots that this head reads. The table kMethods has a row for each method.
//
//   memory   a reader is made in reader_bytes of the plan's memory, and has region_bytes() more
//   thread   one at a time; heads are independent tasks
#pragma once

#include <new>
#include <span>

#include "runtime/config/select_config.h"
#include "runtime/method/selection.h"

namespace tarn::method {

// Raise it when the same settings choose other tokens than before. Saved indexes and results of
// `tarn verify` with another number are not used.
inline constexpr u64 kSelectionId = 2;

// How a model's keys lie.
struct KeyDims {
  u32 head_dim;
  u32 adjacent_dims;  // first dims whose RoPE pairs are interleaved (llama); 0: half-split
};

struct ReaderArgs {
  const SelectConfig& config;
  KeyDims keys;
  u32 capacity_tokens;
  u32 head;  // counted over all (cache layer, KV head) pairs
  std::span<std::byte> region;
};

class Reader {
 public:
  virtual ~Reader() = default;
  // Drops all state: the next choice begins with an empty index.
  virtual void forget() {}
  // Keeps what belongs to the slots before middle_end.
  virtual void truncate(u32 /*middle_end*/) {}
  // Of the same method and shape.
  virtual void copy_from(const Reader& /*source*/) {}
  // The first slot whose key it has not taken in. A method without an index returns slot_end.
  virtual u32 n_taken(u32 slot_end) const { return slot_end; }
  // Takes in the keys from there up to slot_end. The scratch has room for a key, or what
  // PqIndex::take_in() needs.
  virtual void take_in(const kernels::CpuTable& /*table*/, const KeyPages& /*keys*/,
                       u32 /*slot_end*/, std::span<std::byte> /*scratch*/) {}
  // All of the middle was taken in. Returns how many of args.slots it has written. `keys` are there
  // for a method with Method::reads_keys alone.
  virtual u32 choose(const SelectionArgs& args, const KeyPages& keys) const = 0;
};

// How a GPU with the KV in its memory chooses; none: the method is refused there.
enum class DeviceChoice : u8 { none, last, by_codes };

struct Method {
  const char* name;
  u64 reader_bytes = 0;  // of a Reader; 0: everything is read
  Reader* (*make)(std::byte* at, const ReaderArgs& args) = nullptr;
  u64 (*region_bytes)(const SelectConfig& config, const KeyDims& keys,
                      u32 capacity_tokens) = nullptr;  // nullptr: it has no region
  bool is_trained = false;  // its readers are PqIndexes, which IndexJobs trains
  bool reads_keys = false;  // choose() reads keys: all of the KV must lie in memory
  DeviceChoice on_device = DeviceChoice::none;
};

template <class R>
Reader* make_reader(std::byte* at, const ReaderArgs& args) {
  static_assert(alignof(R) <= 64);
  return new (at) R(args);
}

// A row for each name of SelectMethod, in its order.
extern const Method kMethods[];
const Method& method_of(const SelectConfig& config);

}  // namespace tarn::method
