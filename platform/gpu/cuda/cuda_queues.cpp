// platform/gpu/cuda/cuda_queues.cpp: the work that a CudaDevice enqueues: copies, events, graphs.
#include <algorithm>

#include "platform/base/assert.h"
#include "platform/gpu/cuda/cuda_device.h"

namespace tarn {
namespace {

cudaStream_t native(GpuStream* stream) { return reinterpret_cast<cudaStream_t>(stream); }
cudaEvent_t native(GpuEvent* event) { return reinterpret_cast<cudaEvent_t>(event); }
cudaGraphExec_t native(GpuGraph* graph) { return reinterpret_cast<cudaGraphExec_t>(graph); }

}  // namespace

GpuStream* CudaDevice::stream(StreamId id) {
  return reinterpret_cast<GpuStream*>(streams_[static_cast<u32>(id)]);
}

void CudaDevice::copy_any(void* to, const void* from, u64 bytes, cudaMemcpyKind kind, GpuStream* on,
                          const char* what) {
  if (is_lost() || bytes == 0) return;
  enqueued(cudaMemcpyAsync(to, from, bytes, kind, native(on)), what);
}

void CudaDevice::copy_in(DeviceBytes to, std::span<const std::byte> from, GpuStream* on) {
  copy_any(to.raw(), from.data(), from.size(), cudaMemcpyHostToDevice, on, "a copy to the GPU");
}

void CudaDevice::copy_out(std::span<std::byte> to, DeviceBytes from, GpuStream* on) {
  copy_any(to.data(), from.raw(), to.size(), cudaMemcpyDeviceToHost, on, "a copy from the GPU");
}

void CudaDevice::copy(DeviceBytes to, DeviceBytes from, u64 bytes, GpuStream* on) {
  // Either side may be registered host memory: the driver knows from the address.
  copy_any(to.raw(), from.raw(), bytes, cudaMemcpyDefault, on, "a copy on the GPU");
}

void CudaDevice::fill(DeviceBytes to, u8 value, u64 bytes, GpuStream* on) {
  if (is_lost() || bytes == 0) return;
  enqueued(cudaMemsetAsync(to.raw(), value, bytes, native(on)), "a fill on the GPU");
}

void CudaDevice::read(DeviceBytes from, u64 bytes, GpuStream* on) {
  if (is_lost()) return;
  launch_read_probe(from.raw(), bytes, facts_.n_sms, native(on));
  enqueued(cudaGetLastError(), "the read probe");
}

Result<GpuEvent*> CudaDevice::create_event() {
  TARN_ASSERT(n_events_ < kDeviceEventsMax);
  cudaEvent_t event = nullptr;
  TARN_CHECK(answer(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreate"));
  ++n_events_;
  return reinterpret_cast<GpuEvent*>(event);
}

void CudaDevice::destroy_event(GpuEvent* event) {
  TARN_ASSERT(n_events_ > 0);
  give_back([&] { return cudaEventDestroy(native(event)); });
  --n_events_;
}

void CudaDevice::record(GpuEvent* event, GpuStream* on) {
  if (!is_lost()) enqueued(cudaEventRecord(native(event), native(on)), "cudaEventRecord");
}

void CudaDevice::wait(GpuStream* waits, GpuEvent* event) {
  if (!is_lost()) {
    enqueued(cudaStreamWaitEvent(native(waits), native(event), 0), "cudaStreamWaitEvent");
  }
}

Result<bool> CudaDevice::is_done(GpuEvent* event) {
  collect_launches();
  const cudaError_t state = is_lost() ? cudaSuccess : cudaEventQuery(native(event));
  if (state == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  TARN_CHECK(answer(state, "cudaEventQuery"));
  return true;
}

Result<u64> CudaDevice::elapsed_ns(GpuEvent* from, GpuEvent* to) {
  float ms = 0;
  TARN_CHECK(answer(cudaEventElapsedTime(&ms, native(from), native(to)), "cudaEventElapsedTime"));
  return static_cast<u64>(static_cast<f64>(ms) * 1e6);
}

Result<void> CudaDevice::begin_capture(GpuStream* on) {
  // Relaxed: capture loads a kernel that was never launched, which the other modes may refuse as
  // unsafe. Nothing else of that kind happens between begin and end.
  return answer(cudaStreamBeginCapture(native(on), cudaStreamCaptureModeRelaxed),
                "cudaStreamBeginCapture");
}

Result<GpuGraph*> CudaDevice::end_capture(GpuStream* on) {
  TARN_ASSERT(graphs_.n_graphs < kDeviceGraphsMax);
  collect_launches();
  cudaGraph_t graph = nullptr;
  TARN_CHECK(answer(cudaStreamEndCapture(native(on), &graph), "cudaStreamEndCapture"));
  const Result<u64> before = memory_free_bytes();
  cudaGraphExec_t exec = nullptr;
  Result<void> made = answer(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  (void)cudaGraphDestroy(graph);
  // Allocates its memory here, and not at the first launch, which must be as fast as the others.
  if (made) made = answer(cudaGraphUpload(exec, native(on)), "cudaGraphUpload");
  if (!made) {
    if (exec != nullptr) give_back([&] { return cudaGraphExecDestroy(exec); });
    return fail(made.error());
  }
  const Result<u64> after = memory_free_bytes();
  ++graphs_.n_graphs;
  if (before && after && *before > *after) graphs_.bytes += *before - *after;
  return reinterpret_cast<GpuGraph*>(exec);
}

void CudaDevice::launch(GpuGraph* graph, GpuStream* on) {
  if (!is_lost()) enqueued(cudaGraphLaunch(native(graph), native(on)), "cudaGraphLaunch");
}

void CudaDevice::destroy_graph(GpuGraph* graph) {
  TARN_ASSERT(graphs_.n_graphs > 0);
  const Result<u64> before = memory_free_bytes();
  give_back([&] { return cudaGraphExecDestroy(native(graph)); });
  const Result<u64> after = memory_free_bytes();
  // The driver frees memory in pieces of its own; without any graph, graphs hold no memory.
  const u64 freed_bytes = before && after && *after > *before ? *after - *before : 0;
  --graphs_.n_graphs;
  graphs_.bytes = graphs_.n_graphs > 0 ? graphs_.bytes - std::min(graphs_.bytes, freed_bytes) : 0;
}

}  // namespace tarn
