// The interface of a method of selection. A reader is the index of one (cache layer, KV head) of a
// session, and chooses the slots that this head reads. The table kMethods has a row for each
// method.
//
//   memory   a reader is made in reader_bytes of the plan's memory, and has region_bytes() more
//   thread   one at a time; heads are independent tasks, and so are the parts of a training
#pragma once

#include <new>
#include <span>

#include "runtime/config/select_config.h"
#include "runtime/method/device.h"
#include "runtime/method/selection.h"
#include "runtime/model/model_spec.h"

namespace tarn::method {

class DiskOrder;
class IndexMemory;

// Raise it when the same settings choose other tokens than before. Saved indexes and results of
// `tarn verify` with another number are not used.
inline constexpr u64 kSelectionId = 2;

// How a model's keys lie.
struct KeyDims {
  u32 head_dim;
  u32 adjacent_dims;  // first dims whose RoPE pairs are interleaved (llama); 0: half-split
};

struct ReaderArgs {
  const SelectConfig& config;  // outlives the reader
  KeyDims keys;
  u32 capacity_tokens;
  u32 head;  // counted over all (cache layer, KV head) pairs
  std::span<std::byte> region;
};

// A task of a training. Each part has one over the sample; when it is done, one over each window of
// the rows, in any order.
struct TrainUnit {
  enum class Keys : u8 { sample, rows } what;
  const kernels::CpuTable& table;
  KeyPages keys;
  u32 begin, end;                // slots of `keys`: of the sample, 0 and its keys' number
  u32 part;                      // of TrainNeeds::n_parts
  std::span<std::byte> scratch;  // 64-byte aligned, TrainNeeds::scratch_bytes
};

class Reader {
 public:
  virtual ~Reader() = default;
  // Drops all state: the next choice begins with an empty index.
  virtual void forget() {}
  // Keeps what belongs to the slots before middle_end.
  virtual void truncate(u32 /*middle_end*/) {}
  // Copies a reader of the same method and shape.
  virtual void copy_from(const Reader& /*source*/) {}
  // Returns the first slot whose key it has not taken in. A method without an index returns
  // slot_end.
  virtual u32 n_taken(u32 slot_end) const { return slot_end; }
  // Takes in the keys from there up to slot_end. The scratch has room for a key, or what
  // TrainNeeds::scratch_bytes says.
  virtual void take_in(const kernels::CpuTable& /*table*/, const KeyPages& /*keys*/,
                       u32 /*slot_end*/, std::span<std::byte> /*scratch*/) {}
  // Chooses, when all of the middle was taken in. Returns how many of args.slots it has written.
  // `keys` are there for a method with Method::reads_keys alone.
  virtual u32 choose(const SelectionArgs& args, const KeyPages& keys) const = 0;

  // ---- Of a trained method (Method::training) ---------------------------------------------------

  // Begins an index over the slots [slot_begin, slot_begin + n_rows), in place of any other.
  virtual void begin_training(u32 /*slot_begin*/, u32 /*n_rows*/) {}
  virtual void train(const TrainUnit& /*unit*/) {}
  // Ends a training: all rows were trained, and are taken in.
  virtual void end_training() {}
  // Rows that were trained; 0: there is no index.
  virtual u32 n_trained() const { return 0; }

  // Bytes of what the training has made; 0: it is not saved, and is trained again.
  virtual u64 saved_bytes() const { return 0; }
  // Writes that many of `out`, which may be longer.
  virtual void save(std::span<std::byte> /*out*/) const {}
  // Takes up what save() wrote of a training over these rows, in place of it. `bytes` are from a
  // file, and may be longer. False: they do not hold, and there is no index.
  virtual bool load(u32 /*slot_begin*/, u32 /*n_rows*/, std::span<const std::byte> /*bytes*/) {
    return false;
  }
};

// The memory that the plan reserves for a trained method, with a context of capacity_tokens.
struct TrainNeeds {
  u32 n_parts = 1;          // of a head's training, which are independent tasks
  u32 sample_rows_max = 0;  // evenly spaced over the rows; 0: no sample is taken
  u64 scratch_bytes = 0;    // of train() and take_in(), a worker
  u32 lut_elems = 0;        // of choose(), as in SelectionShape
  u64 saved_bytes = 0;  // of a head, with what its disk order adds, at most; 0: nothing is saved
  u32 n_pairs = 0;      // of codes, which its disk order goes by; 0: it has none
  DeviceCodes codes{};  // where it chooses on a GPU by codes
};

// Returns the i-th row of a sample of n_sample.
inline u32 sample_row(u32 i, u32 n_sample, u32 n_rows) {
  return static_cast<u32>(u64{i} * n_rows / n_sample);
}

struct Training {
  TrainNeeds (*needs)(const SelectConfig& config, const KeyDims& keys, u32 capacity_tokens);
  // A disk order (disk_order.h), made in kDiskOrderBytes, and what its choice of n_slots works in.
  DiskOrder* (*make_order)(std::byte* at, IndexMemory* memory) = nullptr;
  u64 (*order_scratch_bytes)(u64 n_slots) = nullptr;
};

// How a GPU with the KV in its memory chooses; none: the method is refused there.
enum class DeviceChoice : u8 { none, last, by_codes };

struct Method {
  const char* name;
  u64 reader_bytes = 0;  // of a Reader; 0: everything is read
  Reader* (*make)(std::byte* at, const ReaderArgs& args) = nullptr;
  u64 (*region_bytes)(const SelectConfig& config, const KeyDims& keys,
                      u32 capacity_tokens) = nullptr;  // nullptr: it has no region
  // Whether model and configuration go together; nullptr: always.
  Result<void> (*check)(const model::ModelSpec& spec, const SelectConfig& config) = nullptr;
  const Training* training = nullptr;  // nullptr: choices need none
  bool reads_keys = false;             // choose() reads keys: all of the KV must lie in memory
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
