// A queue of GPU work, as kernels' launchers take it. The type is opaque: under CUDA the address is
// a reinterpreted cudaStream_t, under the emulator it is an object of the emulator. The creator of
// a stream owns it.
#pragma once

namespace tarn {

struct GpuStream;

}  // namespace tarn
