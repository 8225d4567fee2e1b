// A GPU without a GPU: a Device in host memory. Kernels run in tests/support/emulator. Enqueued
// work waits in its stream's queue until an event is asked, so a host that reads too early reads
// old bytes. Then streams advance in a seeded order, as far as their events allow, until that event
// is done. A graph is the work enqueued during its capture, run again at each launch. A stream with
// kStreamLaunchesMax pieces of work blocks the enqueueing call until it has run one; a piece that
// it can never take is dropped and counted. A copy from or to memory that the device does not have
// is an illegal address, as on a real one.
//
// It fails on demand: every call that could reach a driver has a number, and a script sets which of
// them fail with which CUDA error. A loss stays, like a real one. Calls from an unbound thread are
// counted.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "platform/clock/clock.h"
#include "platform/gpu/device.h"
#include "platform/gpu/gpu_errors.h"
#include "tests/support/emulator/emulator.h"
#include "tests/support/seed.h"

namespace tarn::test {

inline constexpr DeviceFacts kOrinFacts = {.kind = DeviceKind::cuda,
                                           .name = {"fake Orin"},
                                           .integrated = true,
                                           .host_register = true,
                                           .compute_capability = 87,
                                           .n_sms = 8,
                                           .l2_bytes = 2 * kMiB,
                                           .memory_bytes = 256 * kMiB,
                                           .memory_free_bytes = 256 * kMiB,
                                           .slab_bytes_max = 8 * kMiB,
                                           .slab_alignment_bytes = 64 * kKiB};
inline constexpr DeviceFacts kDiscreteFacts = {.kind = DeviceKind::cuda,
                                               .name = {"fake RTX"},
                                               .integrated = false,
                                               .host_register = true,
                                               .compute_capability = 86,
                                               .n_sms = 28,
                                               .l2_bytes = 3 * kMiB,
                                               .memory_bytes = 2 * kGiB,
                                               .memory_free_bytes = 2 * kGiB,
                                               .slab_bytes_max = 32 * kMiB,
                                               .slab_alignment_bytes = 64 * kKiB};

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(const DeviceFacts& facts = kOrinFacts, u64 seed = 1);

  // The script. `call` counts from 1; `for_ever`: that call and all later ones.
  struct Failure {
    u64 call = 0;
    i32 code = 0;
    bool for_ever = false;
  };
  void fail_at(const Failure& failure) { failure_ = failure; }
  // From now on no event becomes done; or events work again.
  void hang(bool hangs = true) { work_left = hangs ? 0 : kNoEnd; }
  static constexpr u64 kNoEnd = ~u64{0};
  // The attribute allows registering memory; a registration of more than this is refused.
  u64 registers_bytes_max = ~u64{0};
  u64 pinned_bytes() const;
  u64 n_calls() const { return n_calls_; }
  const std::vector<std::string>& calls() const { return calls_; }
  // Calls of any kind by a thread that neither made the device nor was bound to it last.
  u64 n_unbound_calls() const { return n_unbound_calls_; }
  // Whether a thread was bound to it: its current device was changed.
  bool was_bound_by(std::thread::id thread) const { return binders_.contains(thread); }
  // Resources that are not released: "2 slabs, 1 event", or "".
  std::string leaks() const;
  // The work of the longest graph: kernels, copies.
  u64 graph_work_max() const;
  // Calls that a full stream blocked, and those that it would have blocked for ever.
  u64 n_kept() const { return n_kept_; }
  u64 n_kept_for_ever() const { return n_kept_for_ever_; }
  // Pieces of work sent to streams, run or not.
  u64 n_enqueued() const { return n_enqueued_; }
  // Kernels in its memory: loaded by load_kernel() or by a launch.
  u64 n_kernels() const { return kernels_.size(); }
  // Copies between host and device so far, without those of graphs.
  struct Copied {
    u64 n_in = 0, bytes_in = 0;
    u64 n_out = 0, bytes_out = 0;
    u64 n_out_beside = 0;  // done while the compute stream had work left
  };
  const Copied& copied() const { return copied_; }

  u64 work_left = kNoEnd;     // pieces of work until it hangs; a test may give it more
  bool computes = true;       // false: kernels do nothing, at no cost
  bool copies_first = false;  // the compute stream advances only if no other stream can
  u64 device_bytes_per_s = 100'000'000'000;
  u64 shared_bytes_per_s = 50'000'000'000;
  u64 driver_takes_bytes = 24 * kMiB;  // free memory taken since open()
  u64 graph_bytes = 64 * kKiB;         // of each
  u64 launch_takes_bytes = 0;          // for each graph, when it is first launched
  u64 host_takes_bytes = 0;            // this process' host memory, where both are the same
  u64 neighbour_takes_bytes = 0;       // another process takes it at the first query of an event

  const DeviceFacts& facts() const override { return facts_; }
  Result<void> bind_thread() override;
  Result<u64> memory_free_bytes() override;
  Result<u64> driver_bytes(u64 host_bytes) override;
  Result<DeviceSlab> reserve(const char* name, u64 bytes) override;
  void release(const DeviceSlab& slab) override;
  Result<DeviceBytes> register_host(std::span<std::byte> bytes) override;
  void unregister_host(std::span<std::byte> bytes) override;
  Result<DeviceBytes> pinned_address(std::span<std::byte> bytes) override;
  Result<std::span<std::byte>> reserve_pinned(const char* name, u64 bytes) override;
  void release_pinned(std::span<std::byte> bytes) override;
  Result<void> load_kernel(const void* kernel) override;
  GpuStream* stream(StreamId id) override;
  void copy_in(DeviceBytes to, std::span<const std::byte> from, GpuStream* on) override;
  void copy_out(std::span<std::byte> to, DeviceBytes from, GpuStream* on) override;
  void copy(DeviceBytes to, DeviceBytes from, u64 bytes, GpuStream* on) override;
  void fill(DeviceBytes to, u8 value, u64 bytes, GpuStream* on) override;
  void read(DeviceBytes from, u64 bytes, GpuStream* on) override;
  Result<GpuEvent*> create_event() override;
  void destroy_event(GpuEvent* event) override;
  void record(GpuEvent* event, GpuStream* on) override;
  void wait(GpuStream* waits, GpuEvent* event) override;
  Result<bool> is_done(GpuEvent* event) override;
  Result<u64> elapsed_ns(GpuEvent* from, GpuEvent* to) override;
  Result<void> begin_capture(GpuStream* on) override;
  Result<GpuGraph*> end_capture(GpuStream* on) override;
  void launch(GpuGraph* graph, GpuStream* on) override;
  void destroy_graph(GpuGraph* graph) override;
  GraphUse graph_use() const override;
  Result<void> check() override;
  bool is_lost() const override { return errors_.is_lost(); }
  void give_up() override { errors_.note(kGpuLaunchTimeout, "it does not answer"); }

 private:
  struct Event {
    u64 n_recorded = 0, n_reached = 0;  // done if they are equal
    u64 at_ns = 0;
  };
  // One piece of work; false: it must wait.
  using Work = std::function<bool()>;
  using Graph = std::vector<Work>;
  struct Queue {
    GpuStream stream{};
    std::deque<Work> work{};
    std::shared_ptr<Graph> captured{};  // while capturing
    u64 now_ns = 0;
  };
  struct AlignedDelete {
    void operator()(std::byte* bytes) const;
  };
  struct Piece {
    std::unique_ptr<std::byte, AlignedDelete> owned{};  // empty if the memory is the host's
    u64 bytes = 0;
  };
  using Pieces = std::map<std::byte*, Piece>;

  i32 next_call(const char* what);
  void note_thread();
  Result<void> answer(const char* what);
  // Whether the call succeeds; otherwise notes its error.
  bool enqueues(const char* what);
  Queue& queue_of(GpuStream* stream);
  void put(GpuStream* on, Work work);
  void run_queues(const Event* until = nullptr, const Queue* full = nullptr);
  bool is_host(const std::byte* at) const;  // registered or pinned
  bool has(const std::byte* begin, u64 bytes) const;
  static std::byte* add_piece(Pieces& pieces, u64 bytes);
  u64 used_bytes() const;

  DeviceFacts facts_;
  GpuErrorLatch errors_{};
  Random random_;
  Failure failure_{};
  u64 n_kept_ = 0, n_kept_for_ever_ = 0;
  u64 n_calls_ = 0, n_enqueued_ = 0, n_unbound_calls_ = 0;
  bool was_asked_ = false;  // an event
  Copied copied_{};
  std::thread::id bound_ = std::this_thread::get_id();
  std::set<std::thread::id> binders_;
  std::set<GpuGraph*> launched_;  // the existing graphs that were launched
  std::vector<std::string> calls_;
  std::array<Queue, kStreams> queues_{};
  Pieces slabs_, pinned_, registered_;
  std::set<const void*> kernels_;
  std::map<GpuEvent*, std::shared_ptr<Event>> events_;
  std::map<GpuGraph*, std::shared_ptr<Graph>> graphs_;
};

}  // namespace tarn::test
