// Where an engine's KV lies, decided once, at open. Nothing else asks.
//
//   host     all of it in the arena; the CPU computes
//   device   all of it in the memory of the GPU that computes
//   tiers    frames of it in the arena, the rest on a disk; the CPU computes, or a GPU to which it
//            comes in pieces
#pragma once

#include "runtime/config/box_config.h"
#include "runtime/exec/cpu/cpu_processor.h"
#include "runtime/exec/gpu/gpu_processor.h"
#include "runtime/kv/kv_cache.h"
#include "runtime/kv/parts/chunk_home.h"

namespace tarn::exec {

class Home {
 public:
  virtual Processor& processor() = 0;
  // Reserves the processor's memory, with room for what lies there of KV.
  virtual Result<void> reserve(const ProcessorArgs& args, const model::ModelDescription& model) = 0;
  // `tiers` is without frames, and without the store's memory: where KV lies there, this takes it
  // first of `store`.
  virtual Result<void> open_kv(kv::KvCache& kv, const kv::KvArgs& args, Carver& store,
                               const kv::TierArgs& tiers) = 0;
  // Returns where selection has its keys and indexes.
  virtual method::DeviceIndexes* indexes() = 0;
  // Returns what was measured of the box, without a disk where KV has none.
  virtual BoxConfig costs_from(const BoxConfig& box) const = 0;
  // Returns where KV of chunks is worked on: by the host's `host`, or here.
  virtual kv::ChunkHome& chunks(kv::ChunkHome& host) = 0;

 protected:
  ~Home() = default;
};

// Returns the box with reads of its disk not measured.
BoxConfig without_disk(const BoxConfig& box);

class HostHome final : public Home {
 public:
  explicit HostHome(CpuProcessor& cpu) : cpu_(cpu) {}
  Processor& processor() override { return cpu_; }
  Result<void> reserve(const ProcessorArgs& args, const model::ModelDescription& model) override;
  Result<void> open_kv(kv::KvCache& kv, const kv::KvArgs& args, Carver& store,
                       const kv::TierArgs& tiers) override;
  method::DeviceIndexes* indexes() override { return &indexes_; }
  BoxConfig costs_from(const BoxConfig& box) const override { return without_disk(box); }
  kv::ChunkHome& chunks(kv::ChunkHome& host) override { return host; }

 private:
  CpuProcessor& cpu_;
  method::HostIndexes indexes_{};
  std::span<std::byte> groups_{};
};

class DeviceHome final : public Home {
 public:
  explicit DeviceHome(GpuProcessor& gpu) : gpu_(gpu) {}
  Processor& processor() override { return gpu_; }
  Result<void> reserve(const ProcessorArgs& args, const model::ModelDescription& model) override;
  Result<void> open_kv(kv::KvCache& kv, const kv::KvArgs& args, Carver& store,
                       const kv::TierArgs& tiers) override;
  method::DeviceIndexes* indexes() override { return &gpu_.backend().resident().indexes(); }
  BoxConfig costs_from(const BoxConfig& box) const override { return without_disk(box); }
  kv::ChunkHome& chunks(kv::ChunkHome&) override { return gpu_.backend().resident().chunks(); }

 private:
  GpuProcessor& gpu_;
};

class TierHome final : public Home {
 public:
  explicit TierHome(Processor& processor) : processor_(processor) {}
  Processor& processor() override { return processor_; }
  Result<void> reserve(const ProcessorArgs& args, const model::ModelDescription& model) override;
  Result<void> open_kv(kv::KvCache& kv, const kv::KvArgs& args, Carver& store,
                       const kv::TierArgs& tiers) override;
  method::DeviceIndexes* indexes() override { return &indexes_; }
  BoxConfig costs_from(const BoxConfig& box) const override { return box; }
  kv::ChunkHome& chunks(kv::ChunkHome& host) override { return host; }

 private:
  Processor& processor_;
  method::HostIndexes indexes_{};
  std::span<std::byte> frames_{};
  Log log_{};
};

// The homes that this build has, of which an engine has one at a time.
class Homes {
 public:
  Homes() = default;
  Homes(const Homes&) = delete;
  Homes& operator=(const Homes&) = delete;

  // Before open; after a try that failed whether another one may succeed.
  void begin() { gpu_.pin_arena(false); }
  bool may_try_again();
  // Chooses by the plan: whether a GPU computes, and of how many frames KV has some of its groups.
  void choose(bool has_gpu, u32 n_frames);
  Home& home() const { return *home_; }
  Processor& processor() const { return home_->processor(); }
  void close();
  GpuProcessor& gpu() { return gpu_; }

 private:
  CpuProcessor cpu_{};
  GpuProcessor gpu_{};
  HostHome host_{cpu_};
  DeviceHome device_{gpu_};
  TierHome tiers_{cpu_}, tiers_by_gpu_{gpu_};
  Home* home_ = &host_;
};

}  // namespace tarn::exec
