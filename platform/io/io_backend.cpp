#include "platform/io/io_backend.h"

#include <errno.h>

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "platform/io/threads_backend.h"
#include "platform/io/uring_backend.h"

namespace tarn {
namespace {

constexpr u64 kBackendAlignment = 64;

Unexpected read_failed(IoFile file, u64 offset, i64 result) {
  return fail({.status = Status::io_failed,
               .hint = "the file could not be read",
               .figures = {{{"errno", static_cast<u64>(-result)},
                            {"offset", offset},
                            {"file", static_cast<u64>(file.index)}}}});
}

Unexpected file_too_short(u64 offset, u64 missing_bytes) {
  return fail({.status = Status::io_failed,
               .hint = "the file ends too early: it was cut, or is still being written",
               .figures = {{{"offset", offset}, {"missing_bytes", missing_bytes}}}});
}

}  // namespace

u64 io_backend_bytes() {
  return std::max(uring_backend_bytes(), threads_backend_bytes()) + kBackendAlignment;
}

Result<IoBackendHandle> io_backend_create(const IoConfig& config, std::span<std::byte> memory) {
  TARN_ASSERT(memory.size() >= io_backend_bytes());
  if (config.in_flight_max < 1 || config.in_flight_max > kIoInFlightMax || config.n_threads < 1 ||
      config.n_threads > kIoThreadsMax) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .hint = "io: in_flight_max or n_threads is out of range",
                 .figures = {{{"in_flight_max", config.in_flight_max},
                              {"its_limit", kIoInFlightMax},
                              {"n_threads", config.n_threads},
                              {"its_limit", kIoThreadsMax}}}});
  }
  const u64 address = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto aligned = memory.subspan(align_up(address, kBackendAlignment) - address);
  const char* why_not = nullptr;
  if (config.kind != IoKind::threads) {
    const auto ring = uring_backend_create(config, aligned);
    if (ring) return IoBackendHandle{.backend = *ring};
    if (config.kind == IoKind::uring) return fail(ring.error());
    why_not = ring.error().hint;
  }
  TARN_TRY(IoBackend * threads, threads_backend_create(config, aligned));
  return IoBackendHandle{.backend = threads, .why_not = why_not};
}

void io_backend_destroy(IoBackend* backend) { backend->~IoBackend(); }

Result<void> io_read_exact(IoBackend& io, IoFile file, u64 offset, std::span<std::byte> buffer) {
  // Reads in pieces, so that a backend works on as many requests at once as it can.
  constexpr u64 kPieceBytes = kMiB;
  const u64 n_pieces = ceil_div(buffer.size(), kPieceBytes);
  const auto piece = [&](u64 piece_idx) {
    const u64 begin = piece_idx * kPieceBytes;
    return buffer.subspan(begin, std::min(kPieceBytes, buffer.size() - begin));
  };
  Result<void> outcome{};
  u64 n_submitted = 0, n_reaped = 0;
  while (n_reaped < n_submitted || (outcome && n_submitted < n_pieces)) {
    while (outcome && n_submitted < n_pieces &&
           io.submit({.op = IoOp::read,
                      .file = file,
                      .offset = offset + n_submitted * kPieceBytes,
                      .buffer = piece(n_submitted),
                      .tag = n_submitted})) {
      ++n_submitted;
    }
    IoCompletion completions[16];
    const u32 n = io.reap(completions, 1, ~u64{0});
    TARN_ASSERT(n > 0);  // 0: another user's requests fill the backend
    for (const IoCompletion& completion : std::span(completions, n)) {
      TARN_ASSERT(completion.tag < n_submitted);
      ++n_reaped;
      if (!outcome) continue;  // the first failure is answered; the others only have to end
      const u64 begin = offset + completion.tag * kPieceBytes;
      const u64 want_bytes = piece(completion.tag).size();
      if (completion.result < 0) {
        outcome = read_failed(file, begin, completion.result);
      } else if (static_cast<u64>(completion.result) < want_bytes) {
        const u64 got_bytes = static_cast<u64>(completion.result);
        outcome = file_too_short(begin + got_bytes, want_bytes - got_bytes);
      }
    }
  }
  return outcome;
}

}  // namespace tarn
