#include "tests/support/fake_device.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

#include "platform/gpu/slabs.h"

namespace tarn::test {
namespace {

// As the drivers give it; pinned memory is read into by the disk.
constexpr std::align_val_t kAlignment{4096};
constexpr int kUnwritten = 0xA5;

GpuEvent* handle(const void* event) { return static_cast<GpuEvent*>(const_cast<void*>(event)); }

}  // namespace

void FakeDevice::AlignedDelete::operator()(std::byte* bytes) const {
  ::operator delete(bytes, kAlignment);
}

FakeDevice::FakeDevice(const DeviceFacts& facts, u64 seed) : facts_(facts), random_(seed) {
  for (Queue& queue : queues_) {
    queue.stream.take = [this, &queue](const void* kernel, std::function<void()> work) {
      if (!enqueues("a kernel")) return;
      kernels_.insert(kernel);
      put(&queue.stream, [this, work = std::move(work)] {
        if (computes) work();
        return true;
      });
    };
  }
}

std::string FakeDevice::leaks() const {
  std::string text;
  const auto count = [&](u64 n, const char* what) {
    if (n > 0) text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + what;
  };
  count(slabs_.size(), "slabs");
  count(pinned_.size(), "pinned");
  count(registered_.size(), "registered");
  count(events_.size(), "events");
  count(graphs_.size(), "graphs");
  return text;
}

void FakeDevice::note_thread() {
  if (std::this_thread::get_id() != bound_) ++n_unbound_calls_;
}

Result<void> FakeDevice::bind_thread() {
  bound_ = std::this_thread::get_id();
  binders_.insert(bound_);
  return answer("bind_thread");
}

u64 FakeDevice::graph_work_max() const {
  u64 n = 0;
  for (const auto& [handle, graph] : graphs_) n = std::max<u64>(n, graph->size());
  return n;
}

i32 FakeDevice::next_call(const char* what) {
  note_thread();
  ++n_calls_;
  calls_.emplace_back(what);
  const bool now = n_calls_ == failure_.call;
  const bool later = failure_.for_ever && failure_.call != 0 && n_calls_ > failure_.call;
  return now || later ? failure_.code : kGpuSuccess;
}

Result<void> FakeDevice::answer(const char* what) {
  const i32 code = next_call(what);
  if (gpu_error_class(code) == GpuErrorClass::lost) errors_.note(code, what);
  if (is_lost()) return errors_.take();
  if (code == kGpuSuccess) return {};
  return fail(gpu_error(code, what));
}

bool FakeDevice::enqueues(const char* what) {
  const i32 code = next_call(what);
  if (is_lost()) return false;
  errors_.note(code, what);
  return code == kGpuSuccess;
}

u64 FakeDevice::used_bytes() const {
  u64 used = driver_takes_bytes + graph_bytes * graphs_.size();
  used += launch_takes_bytes * launched_.size();
  if (was_asked_) used += neighbour_takes_bytes;
  for (const auto& [begin, piece] : slabs_) used += piece.bytes;
  if (facts_.integrated) {
    used += host_takes_bytes;
    for (const auto& [begin, piece] : pinned_) used += piece.bytes;
  }
  return used;
}

Result<u64> FakeDevice::memory_free_bytes() {
  TARN_CHECK(answer("memory_free_bytes"));
  return facts_.memory_free_bytes - std::min(facts_.memory_free_bytes, used_bytes());
}

Result<u64> FakeDevice::driver_bytes(u64 host_bytes) {
  TARN_TRY(const u64 free_bytes, memory_free_bytes());
  u64 ours = free_bytes + (facts_.integrated ? host_bytes : 0);
  for (const auto& [begin, piece] : slabs_) ours += piece.bytes;
  if (facts_.integrated) {
    for (const auto& [begin, piece] : pinned_) ours += piece.bytes;
  }
  return facts_.memory_free_bytes - std::min(facts_.memory_free_bytes, ours);
}

std::byte* FakeDevice::add_piece(Pieces& pieces, u64 bytes) {
  auto* begin = static_cast<std::byte*>(::operator new(bytes, kAlignment));
  std::memset(begin, kUnwritten, bytes);
  pieces[begin] = {.owned = std::unique_ptr<std::byte, AlignedDelete>(begin), .bytes = bytes};
  return begin;
}

Result<DeviceSlab> FakeDevice::reserve(const char* name, u64 bytes) {
  TARN_CHECK(answer(name));
  const u64 used = std::min(used_bytes(), facts_.memory_free_bytes);
  TARN_CHECK(check_headroom(facts_, name, bytes, facts_.memory_free_bytes - used));
  return DeviceSlab{DeviceBytes(add_piece(slabs_, bytes)), bytes};
}

void FakeDevice::release(const DeviceSlab& slab) {
  note_thread();
  run_queues();  // as cudaFree waits for the device
  slabs_.erase(slab.begin.raw());
}

Result<DeviceBytes> FakeDevice::register_host(std::span<std::byte> bytes) {
  TARN_CHECK(answer("register_host"));
  if (!facts_.host_register) return fail(gpu_error(kGpuNotSupported, "register_host"));
  if (bytes.size() > registers_bytes_max) return fail(gpu_error(kGpuOutOfMemory, "register_host"));
  registered_[bytes.data()] = {.owned = {}, .bytes = bytes.size()};
  return DeviceBytes(bytes.data());
}

void FakeDevice::unregister_host(std::span<std::byte> bytes) {
  note_thread();
  run_queues();
  registered_.erase(bytes.data());
}

Result<std::span<std::byte>> FakeDevice::reserve_pinned(const char* name, u64 bytes) {
  TARN_CHECK(answer(name));
  return std::span<std::byte>(add_piece(pinned_, bytes), bytes);
}

Result<DeviceBytes> FakeDevice::pinned_address(std::span<std::byte> bytes) {
  TARN_CHECK(answer("pinned_address"));
  if (!is_host(bytes.data())) return fail(gpu_error(kGpuInvalidValue, "pinned_address"));
  return DeviceBytes(bytes.data());
}

void FakeDevice::release_pinned(std::span<std::byte> bytes) {
  note_thread();
  run_queues();
  pinned_.erase(bytes.data());
}

Result<void> FakeDevice::load_kernel(const void* kernel) {
  TARN_CHECK(answer("load_kernel"));
  kernels_.insert(kernel);
  return {};
}

bool FakeDevice::is_host(const std::byte* at) const {
  for (const Pieces* pieces : {&pinned_, &registered_}) {
    for (const auto& [begin, piece] : *pieces) {
      if (at >= begin && at < begin + piece.bytes) return true;
    }
  }
  return false;
}

u64 FakeDevice::pinned_bytes() const {
  u64 n = 0;
  for (const auto& [begin, piece] : pinned_) n += piece.bytes;
  return n;
}

bool FakeDevice::has(const std::byte* begin, u64 bytes) const {
  for (const Pieces* pieces : {&slabs_, &pinned_, &registered_}) {
    for (const auto& [at, piece] : *pieces) {
      if (begin >= at && begin + bytes <= at + piece.bytes) return true;
    }
  }
  return false;
}

GpuStream* FakeDevice::stream(StreamId id) { return &queues_[static_cast<u32>(id)].stream; }

FakeDevice::Queue& FakeDevice::queue_of(GpuStream* stream) {
  for (Queue& queue : queues_) {
    if (&queue.stream == stream) return queue;
  }
  errors_.note(kGpuUnknown, "a stream of another device");
  return queues_[0];
}

void FakeDevice::put(GpuStream* on, Work work) {
  Queue& queue = queue_of(on);
  ++n_enqueued_;
  if (queue.captured != nullptr) {
    queue.captured->push_back(std::move(work));
    return;
  }
  if (queue.work.size() >= kStreamLaunchesMax) {
    ++n_kept_;
    run_queues(nullptr, &queue);
    if (queue.work.size() >= kStreamLaunchesMax) {
      ++n_kept_for_ever_;
      return;
    }
  }
  queue.work.push_back(std::move(work));
}

void FakeDevice::copy_in(DeviceBytes to, std::span<const std::byte> from, GpuStream* on) {
  if (!enqueues("copy_in")) return;
  ++copied_.n_in;
  copied_.bytes_in += from.size();
  put(on, [=, this] {
    if (!has(to.raw(), from.size())) {
      errors_.note(kGpuIllegalAddress, "copy_in");
    } else if (!from.empty()) {
      std::memcpy(to.raw(), from.data(), from.size());
    }
    return true;
  });
}

void FakeDevice::copy_out(std::span<std::byte> to, DeviceBytes from, GpuStream* on) {
  if (!enqueues("copy_out")) return;
  ++copied_.n_out;
  copied_.bytes_out += to.size();
  put(on, [=, this] {
    const Queue& compute = queues_[static_cast<u32>(StreamId::compute)];
    if (on != &compute.stream && !compute.work.empty()) ++copied_.n_out_beside;
    if (!has(from.raw(), to.size())) {
      errors_.note(kGpuIllegalAddress, "copy_out");
    } else if (!to.empty()) {
      std::memcpy(to.data(), from.raw(), to.size());
    }
    return true;
  });
}

void FakeDevice::copy(DeviceBytes to, DeviceBytes from, u64 bytes, GpuStream* on) {
  if (!enqueues("copy")) return;
  put(on, [=, this] {
    if (!has(to.raw(), bytes) || !has(from.raw(), bytes)) {
      errors_.note(kGpuIllegalAddress, "copy");
    } else {
      std::memmove(to.raw(), from.raw(), bytes);
    }
    return true;
  });
}

void FakeDevice::fill(DeviceBytes to, u8 value, u64 bytes, GpuStream* on) {
  if (!enqueues("fill")) return;
  put(on, [=, this] {
    if (!has(to.raw(), bytes)) {
      errors_.note(kGpuIllegalAddress, "fill");
    } else {
      std::memset(to.raw(), value, bytes);
    }
    return true;
  });
}

void FakeDevice::read(DeviceBytes from, u64 bytes, GpuStream* on) {
  if (!enqueues("read")) return;
  Queue& queue = queue_of(on);
  put(on, [=, this, &queue] {
    if (!has(from.raw(), bytes)) errors_.note(kGpuIllegalAddress, "read");
    const bool is_shared = is_host(from.raw());
    queue.now_ns += bytes * 1'000'000'000 / (is_shared ? shared_bytes_per_s : device_bytes_per_s);
    return true;
  });
}

Result<GpuEvent*> FakeDevice::create_event() {
  TARN_CHECK(answer("create_event"));
  auto event = std::make_shared<Event>();
  GpuEvent* named = handle(event.get());
  events_[named] = std::move(event);
  return named;
}

void FakeDevice::destroy_event(GpuEvent* event) {
  note_thread();
  events_.erase(event);
}

void FakeDevice::record(GpuEvent* event, GpuStream* on) {
  if (!enqueues("record")) return;
  const std::shared_ptr<Event> recorded = events_.at(event);
  const u64 mark = ++recorded->n_recorded;
  Queue& queue = queue_of(on);
  put(on, [recorded, mark, &queue] {
    recorded->n_reached = mark;
    recorded->at_ns = queue.now_ns;
    return true;
  });
}

void FakeDevice::wait(GpuStream* waits, GpuEvent* event) {
  if (!enqueues("wait")) return;
  const std::shared_ptr<Event> awaited = events_.at(event);
  const u64 mark = awaited->n_recorded;
  put(waits, [awaited, mark] { return awaited->n_reached >= mark; });
}

Result<bool> FakeDevice::is_done(GpuEvent* event) {
  TARN_CHECK(answer("is_done"));
  was_asked_ = true;
  const Event& asked = *events_.at(event);
  run_queues(&asked);
  if (is_lost()) return fail(errors_.take().error());
  return asked.n_reached == asked.n_recorded;
}

Result<u64> FakeDevice::elapsed_ns(GpuEvent* from, GpuEvent* to) {
  TARN_CHECK(answer("elapsed_ns"));
  return events_.at(to)->at_ns - events_.at(from)->at_ns;
}

Result<void> FakeDevice::begin_capture(GpuStream* on) {
  TARN_CHECK(answer("begin_capture"));
  queue_of(on).captured = std::make_shared<Graph>();
  return {};
}

Result<GpuGraph*> FakeDevice::end_capture(GpuStream* on) {
  const std::shared_ptr<Graph> graph = std::exchange(queue_of(on).captured, nullptr);
  TARN_CHECK(answer("end_capture"));
  if (graph == nullptr) return fail(gpu_error(901, "end_capture"));
  auto* named = reinterpret_cast<GpuGraph*>(graph.get());
  graphs_[named] = graph;
  return named;
}

void FakeDevice::launch(GpuGraph* graph, GpuStream* on) {
  if (!enqueues("launch")) return;
  launched_.insert(graph);
  put(on, [kept = graphs_.at(graph)] {
    return std::ranges::all_of(*kept, [](const Work& work) { return work(); });
  });
}

void FakeDevice::destroy_graph(GpuGraph* graph) {
  note_thread();
  graphs_.erase(graph);
  launched_.erase(graph);
}

GraphUse FakeDevice::graph_use() const {
  return {.n_graphs = static_cast<u32>(graphs_.size()), .bytes = graph_bytes * graphs_.size()};
}

Result<void> FakeDevice::check() {
  const i32 code = next_call("check");
  errors_.note(code, "check");
  return errors_.take();
}

// Until the event is done, or the full queue has room; without either, all.
void FakeDevice::run_queues(const Event* until, const Queue* full) {
  if (is_lost()) {
    for (Queue& queue : queues_) queue.work.clear();
    return;
  }
  const auto is_enough = [&] {
    if (until != nullptr) return until->n_reached == until->n_recorded;
    return full != nullptr && full->work.size() < kStreamLaunchesMax;
  };
  bool advances = true;
  while (advances && work_left > 0 && !is_enough()) {
    advances = false;
    const u64 first = copies_first ? 1 : random_.below(kStreams);
    for (u64 i = 0; i < kStreams && !advances; ++i) {
      Queue& queue = queues_[(first + i) % kStreams];
      advances = !queue.work.empty() && queue.work.front()();
      if (advances) queue.work.pop_front();
      if (advances && work_left != kNoEnd) --work_left;
      if (is_lost()) return run_queues(until, full);
    }
  }
}

}  // namespace tarn::test
