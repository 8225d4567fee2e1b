// A CTA makes a square of 64 rows by 64 outputs, each of its four warps a quarter of it, in steps
// of 32 k that come by asynchronous copies one step ahead. Written to be plain and right; cuBLAS
// does this work where it is.
#include "kernels/common/cta.h"
#include "kernels/matmul/matmul_gpu.h"

namespace tarn::kernels::TARN_GPU {
namespace {

struct Narrow {
  static constexpr u32 kThreads = 256;
  using Args = GpuNarrowArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const u32 n = cta.block_y();
    const u32 i = cta.block() * kThreads + cta.thread();
    if (n >= load<u32>(args.n_rows) || i >= args.d) return;
    store(args.out + u64{n} * args.d + i, narrow_f16(args.x[n * args.x_stride + i]));
  }
};

struct Matmul {
  static constexpr u32 kThreads = 128;
  static constexpr u32 kSide = 64;      // rows and outputs of a CTA
  static constexpr u32 kStep = 32;      // along k
  static constexpr u32 kChunks = 4;     // of 16 bytes in a step of one row
  static constexpr u32 kRowChunks = 5;  // with one of padding: lanes' fragments hit 32 banks
  static constexpr u32 kRowWords = 4 * kRowChunks;
  static constexpr u32 kBufferChunks = 2 * kSide * kRowChunks;  // x, then w
  static constexpr u64 kSharedBytes = shared_bytes_of(2 * kBufferChunks, sizeof(U32x4));
  using Args = GpuMatmulArgs;

  // Rows beyond the last read the last: what comes of them is not stored.
  TARN_DEVICE static void fetch(Cta& cta, const u16* source, u32 first_row, u32 n_rows, u32 k,
                                u32 step, const Shared<U32x4>& target) {
    for (u32 c = cta.thread(); c < kSide * kChunks; c += kThreads) {
      const u32 row = c / kChunks, chunk = c % kChunks;
      const u32 its_row = first_row + row < n_rows ? first_row + row : n_rows - 1;
      const u16* from = source + u64{its_row} * k + step * kStep + chunk * 8;
      cta.copy_async(target, row * kRowChunks + chunk, from);
    }
  }

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const Shared<U32x4> buffers = cta.shared<U32x4>(2 * kBufferChunks);
    const u32 n_rows = load<u32>(args.n_rows);
    const u32 n_begin = cta.block_y() * kSide, r_begin = cta.block() * kSide;
    if (n_begin >= n_rows) return;
    const u32 n_steps = args.k / kStep;
    f32 sums[2][4][4] = {};  // [16 rows][8 outputs][fragment]
    fetch_step(cta, args, n_begin, r_begin, n_rows, 0, buffers);
    for (u32 step = 0; step < n_steps; ++step) {
      if (step + 1 < n_steps) {
        fetch_step(cta, args, n_begin, r_begin, n_rows, step + 1, buffers);
        cta.copy_wait<1>();
      } else {
        cta.copy_wait<0>();
      }
      cta.barrier();  // every thread's part of the step has arrived
      multiply(cta, buffers.part(step % 2 * kBufferChunks, kBufferChunks).as<u32>(), sums);
      cta.barrier();  // the step after the next overwrites this one
    }
    write(cta, args, n_begin, r_begin, n_rows, sums);
  }

  TARN_DEVICE static void fetch_step(Cta& cta, const Args& args, u32 n_begin, u32 r_begin,
                                     u32 n_rows, u32 step, const Shared<U32x4>& buffers) {
    const Shared<U32x4> buffer = buffers.part(step % 2 * kBufferChunks, kBufferChunks);
    const u32 half = kSide * kRowChunks;
    fetch(cta, args.x, n_begin, n_rows, args.k, step, buffer.part(0, half));
    fetch(cta, args.w, r_begin, args.n_out, args.k, step, buffer.part(half, half));
    cta.copy_commit();
  }

  TARN_DEVICE static void multiply(Cta& cta, const Shared<u32>& words, f32 (&sums)[2][4][4]) {
    const u32 group = cta.lane() / 4, within = cta.lane() % 4;
    const u32 n = cta.warp() / 2 * 32, r = cta.warp() % 2 * 32;  // the warp's quarter
    TARN_UNROLL(2) for (u32 k = 0; k < 2; ++k) {
      u32 a[2][4], b[4][2];
      TARN_UNROLL(2) for (u32 i = 0; i < 2; ++i) {
        const u32 at = (n + 16 * i + group) * kRowWords + 8 * k + within;
        a[i][0] = words[at];
        a[i][1] = words[at + 8 * kRowWords];
        a[i][2] = words[at + 4];
        a[i][3] = words[at + 8 * kRowWords + 4];
      }
      TARN_UNROLL(4) for (u32 j = 0; j < 4; ++j) {
        const u32 at = (kSide + r + 8 * j + group) * kRowWords + 8 * k + within;
        b[j][0] = words[at];
        b[j][1] = words[at + 4];
      }
      TARN_UNROLL(2) for (u32 i = 0; i < 2; ++i) {
        TARN_UNROLL(4) for (u32 j = 0; j < 4; ++j) cta.mma_f16(sums[i][j], a[i], b[j]);
      }
    }
  }

  TARN_DEVICE static void write(Cta& cta, const Args& args, u32 n_begin, u32 r_begin, u32 n_rows,
                                const f32 (&sums)[2][4][4]) {
    const u32 group = cta.lane() / 4, within = cta.lane() % 4;
    TARN_UNROLL(2) for (u32 i = 0; i < 2; ++i) {
      TARN_UNROLL(4) for (u32 j = 0; j < 4; ++j) {
        TARN_UNROLL(4) for (u32 e = 0; e < 4; ++e) {
          const u32 n = n_begin + cta.warp() / 2 * 32 + 16 * i + group + 8 * (e / 2);
          const u32 r = r_begin + cta.warp() % 2 * 32 + 8 * j + 2 * within + e % 2;
          if (n >= n_rows || r >= args.n_out) continue;
          f32 sum = sums[i][j][e];
          if (args.bias != nullptr) sum = sum + args.bias[r];
          f32* out = args.out + n * args.out_stride + r;
          store(out, args.store == Store::add ? *out + sum : sum);
        }
      }
    }
  }
};

}  // namespace

void narrow_gpu(const GpuNarrowArgs& args, GpuStream* stream) {
  const u32 n_ctas = (args.d + Narrow::kThreads - 1) / Narrow::kThreads;
  launch<Narrow>({.n_ctas = n_ctas, .n_ctas_y = args.rows_max}, stream, args);
}

void matmul_gpu(const GpuMatmulArgs& args, GpuStream* stream) {
  const u32 n_ctas = (args.n_out + Matmul::kSide - 1) / Matmul::kSide;
  const u32 n_ctas_y = (args.rows_max + Matmul::kSide - 1) / Matmul::kSide;
  launch<Matmul>({.n_ctas = n_ctas, .n_ctas_y = n_ctas_y, .shared_bytes = Matmul::kSharedBytes},
                 stream, args);
}

void matmul_kernels(const KernelSink& sink) { tell<Narrow, Matmul>(sink); }

}  // namespace tarn::kernels::TARN_GPU
