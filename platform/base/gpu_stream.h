// platform/base/gpu_stream.h
//
// A queue of GPU work, as kernels' launchers take it. Opaque: under CUDA the address is a
// cudaStream_t reinterpreted, under the emulator it is an object of the emulator's own. Whoever
// made the stream owns it.
#pragma once

namespace tarn {

struct GpuStream;

}  // namespace tarn
