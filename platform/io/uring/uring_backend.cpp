// platform/io/uring/uring_backend.cpp: io_uring through liburing, with few opcodes (read, write,
// their registered forms, fsync), registered files, and registered buffers where the memlock limit
// allows.
//
// The path of a request: submit() -> starting_ -> one SQE, handed to the kernel at once -> CQE ->
// IoTransfer::take(), which ends it or sends it through starting_ again. `n_in_flight_` counts from
// submit() to reap() and never exceeds the rings' size, so neither ring can overflow.
#include "platform/io/uring_backend.h"

#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "platform/base/assert.h"
#include "platform/base/descriptor.h"
#include "platform/io/io_files.h"
#include "platform/io/io_transfer.h"
#include "platform/io/ring_queue.h"

namespace tarn {
namespace {

constexpr u64 kForeverNs = ~u64{0};
// Registered buffers: the kernel accepts at most 1 GiB for one, so a larger span is cut.
constexpr u64 kBufferBytesMax = kGiB;
constexpr u32 kBuffersMax = 256;
// Attempts, 1 ms apart, to submit one request to a kernel that is out of memory for it.
constexpr u32 kStartsMax = 1000;

u64 now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<u64>(now.tv_sec) * 1'000'000'000u + static_cast<u64>(now.tv_nsec);
}

// Gives the ring another descriptor; liburing before 2.2 keeps one number alone.
template <class Ring>
void set_descriptor(Ring& ring, int fd) {
  ring.ring_fd = fd;
  if constexpr (requires { ring.enter_ring_fd; }) ring.enter_ring_fd = fd;
}

void sleep_ns(u64 ns) {
  const timespec span = {static_cast<time_t>(ns / 1'000'000'000),
                         static_cast<long>(ns % 1'000'000'000)};
  nanosleep(&span, nullptr);
}

class UringBackend final : public IoBackend {
 public:
  explicit UringBackend(u32 in_flight_max) : in_flight_max_(in_flight_max) {
    for (u32 i = 0; i < in_flight_max_; ++i) free_slots_.push(i);
  }

  ~UringBackend() override {
    if (!is_set_up_) return;
    // The kernel may still write into the buffer of a request in flight.
    IoCompletion ignored;
    while (n_in_kernel_ > 0 && !is_stuck_) static_cast<void>(reap({&ignored, 1}, 1, kForeverNs));
    io_uring_queue_exit(&ring_);
  }

  // Returns nullptr, or the reason why there is no ring; `error` then is the errno.
  const char* set_up(int& error) {
    io_uring_params params{};
    error = -io_uring_queue_init_params(in_flight_max_, &ring_, &params);
    if (error == ENOSYS) return "this kernel has no io_uring, or a seccomp profile hides it";
    if (error == EPERM || error == EACCES) {
      return "io_uring is forbidden here: a seccomp profile, or the sysctl "
             "kernel.io_uring_disabled";
    }
    if (error == ENOMEM) return "no memory for io_uring: raise RLIMIT_MEMLOCK";
    if (error != 0) return "io_uring could not be set up";
    is_set_up_ = true;
    const int fd = above_standard(ring_.ring_fd);
    error = fd < 0 ? errno : 0;
    set_descriptor(ring_, fd);
    if (fd < 0) return "io_uring could not get a descriptor: raise RLIMIT_NOFILE";
    constexpr u32 kFeatures = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
    if ((params.features & kFeatures) != kFeatures) return "io_uring here is older than Linux 5.11";
    std::array<i32, kIoFilesMax> none;
    none.fill(-1);
    has_file_table_ = io_uring_register_files(&ring_, none.data(), kIoFilesMax) == 0;
    return self_test(error);
  }

  const char* name() const override { return "io_uring"; }
  u32 in_flight_max() const override { return in_flight_max_; }

  Result<IoFile> open(const IoOpenArgs& args) override {
    const auto file = files_.open(args);
    if (file) register_file(*file, files_.descriptor(*file));
    return file;
  }
  bool is_direct(IoFile file) const override { return files_.is_direct(file); }
  Result<u64> size_bytes(IoFile file) override { return files_.size_bytes(file); }
  Result<void> allocate(IoFile file, u64 bytes) override { return files_.allocate(file, bytes); }

  void close(IoFile file) override {
    const u32 index = static_cast<u32>(file.index);
    files_.descriptor(file);  // asserts that it is open
    if (is_registered_[index]) register_file(file, -1);
    is_registered_[index] = false;
    files_.close(file);
  }

  bool register_buffers(std::span<const std::span<std::byte>> buffers) override {
    if (n_buffers_ > 0) io_uring_unregister_buffers(&ring_);
    n_buffers_ = 0;
    u32 n = 0;
    for (std::span<std::byte> rest : buffers) {
      while (!rest.empty()) {
        if (n == kBuffersMax) return false;
        const u64 bytes = std::min(rest.size(), kBufferBytesMax);
        buffers_[n++] = {rest.data(), bytes};
        rest = rest.subspan(bytes);
      }
    }
    if (n == 0 || io_uring_register_buffers(&ring_, buffers_.data(), n) != 0) return false;
    n_buffers_ = n;
    return true;
  }

  bool submit(const IoRequest& request) override {
    if (n_in_flight_ == in_flight_max_) return false;
    ++n_in_flight_;
    const IoTransfer transfer{.request = request,
                              .fd = files_.descriptor(request.file),
                              .direct = files_.is_direct(request.file)};
    const auto immediate = transfer.without_a_call();
    if (immediate) {
      done_.push({.tag = request.tag, .result = *immediate});
      return true;
    }
    const u32 slot = free_slots_.pop();
    transfers_[slot] = transfer;
    starting_.push(slot);
    start_all();
    return true;
  }

  u32 reap(std::span<IoCompletion> completions, u32 n_min, u64 timeout_ns) override {
    const u64 room = std::min<u64>(completions.size(), n_in_flight_);
    const u32 n_wanted = static_cast<u32>(std::min<u64>(n_min, room));
    const u64 begin_ns = now_ns();
    u32 n = 0;
    for (;;) {
      take_completions();
      start_all();
      while (n < room && !done_.empty()) completions[n++] = done_.pop();
      const u64 waited_ns = now_ns() - begin_ns;
      if (n >= n_wanted || waited_ns >= timeout_ns) break;
      wait_for_one(timeout_ns - waited_ns);
    }
    n_in_flight_ -= n;
    return n;
  }

 private:
  void register_file(IoFile file, i32 fd) {
    if (!has_file_table_) return;
    const u32 index = static_cast<u32>(file.index);
    is_registered_[index] = io_uring_register_files_update(&ring_, index, &fd, 1) == 1;
  }

  // The registered buffer that holds all of the next call, or -1.
  i32 buffer_of(const IoTransfer& transfer) const {
    const std::byte* begin = transfer.next_data();
    const std::byte* end = begin + transfer.next_bytes();
    for (u32 i = 0; i < n_buffers_; ++i) {
      const std::byte* base = static_cast<const std::byte*>(buffers_[i].iov_base);
      if (begin >= base && end <= base + buffers_[i].iov_len) return static_cast<i32>(i);
    }
    return -1;
  }

  void fill(io_uring_sqe* sqe, u32 slot) const {
    const IoTransfer& transfer = transfers_[slot];
    const u32 file_idx = static_cast<u32>(transfer.request.file.index);
    const bool fixed_file = is_registered_[file_idx];
    const i32 fd = fixed_file ? static_cast<i32>(file_idx) : transfer.fd;
    const u32 bytes = static_cast<u32>(transfer.next_bytes());
    const u64 offset = transfer.next_offset();
    const i32 buffer = transfer.request.op == IoOp::sync_data ? -1 : buffer_of(transfer);
    switch (transfer.request.op) {
      case IoOp::read:
        if (buffer >= 0) {
          io_uring_prep_read_fixed(sqe, fd, transfer.next_data(), bytes, offset, buffer);
        } else {
          io_uring_prep_read(sqe, fd, transfer.next_data(), bytes, offset);
        }
        break;
      case IoOp::write:
        if (buffer >= 0) {
          io_uring_prep_write_fixed(sqe, fd, transfer.next_data(), bytes, offset, buffer);
        } else {
          io_uring_prep_write(sqe, fd, transfer.next_data(), bytes, offset);
        }
        break;
      case IoOp::sync_data:
        io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
        break;
    }
    if (fixed_file) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    sqe->user_data = slot;
  }

  // Submits the waiting requests. At most one SQE is filled that the kernel has not taken; a kernel
  // that is short of resources gets it again at the next reap.
  void start_all() {
    while (!starting_.empty()) {
      const u32 slot = starting_.front();
      if (broken_errno_ == 0) {
        if (!sqe_is_pending_) {
          io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
          TARN_ASSERT(sqe != nullptr);
          fill(sqe, slot);
          sqe_is_pending_ = true;
        }
        const int result = io_uring_submit(&ring_);
        if (result == 1) {
          sqe_is_pending_ = false;
          n_failed_starts_ = 0;
          ++n_in_kernel_;
          starting_.pop();
          continue;
        }
        const bool may_pass = result == 0 || result == -EAGAIN || result == -EBUSY ||
                              result == -EINTR || result == -ENOMEM;
        if (may_pass && ++n_failed_starts_ <= kStartsMax) return;
        broken_errno_ = result == 0 ? EIO : -result;
      }
      // The ring accepts nothing any more. Requests in the kernel complete through CQEs; the others
      // end here.
      starting_.pop();
      finish(slot, -i64{broken_errno_});
    }
  }

  void take_completions() {
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const u32 slot = static_cast<u32>(cqe->user_data);
      const i32 result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      TARN_ASSERT(slot < in_flight_max_ && n_in_kernel_ > 0);
      --n_in_kernel_;
      const auto final_result = transfers_[slot].take(result);
      if (final_result) {
        finish(slot, *final_result);
      } else {
        starting_.push(slot);
      }
    }
  }

  void finish(u32 slot, i64 result) {
    done_.push({.tag = transfers_[slot].request.tag, .result = result});
    free_slots_.push(slot);
  }

  void wait_for_one(u64 timeout_ns) {
    constexpr u64 kNapNs = 1'000'000;
    if (!starting_.empty() || n_in_kernel_ == 0) {
      sleep_ns(std::min(timeout_ns, kNapNs));  // the kernel was short of resources: retry later
      return;
    }
    constexpr u64 kWaitNs = 1'000'000'000;  // the loop in reap() checks the timeout
    const u64 wait_ns = std::min(timeout_ns, kWaitNs);
    __kernel_timespec span = {static_cast<i64>(wait_ns / 1'000'000'000),
                              static_cast<i64>(wait_ns % 1'000'000'000)};
    io_uring_cqe* cqe = nullptr;
    const int result = io_uring_wait_cqe_timeout(&ring_, &cqe, &span);
    if (result != 0 && result != -ETIME && result != -EINTR) sleep_ns(std::min(timeout_ns, kNapNs));
  }

  // Writes a file in memory, syncs it and reads it back, with plain and with registered buffers.
  // Some kernels and sandboxes set a ring up and then fail its requests, or never end one: its
  // buffers are left to the kernel then.
  const char* self_test(int& error) {
    constexpr const char* kFailed = "io_uring failed its self test";
    const i32 fd = above_standard(memfd_create("tarn-io-self-test", MFD_CLOEXEC));
    if (fd < 0) {
      error = errno;
      return "io_uring could not be tested: memfd_create is refused";
    }
    void* const pages =
        mmap(nullptr, 2 * kSectorBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
      error = errno;
      ::close(fd);
      return "io_uring could not be tested: mmap is refused";
    }
    const std::span<std::byte> both(static_cast<std::byte*>(pages), 2 * kSectorBytes);
    const bool good = passes(fd, both.first(kSectorBytes), both.last(kSectorBytes), error);
    if (!is_stuck_) munmap(pages, both.size());
    return good ? nullptr : kFailed;
  }

  bool passes(i32 fd, std::span<std::byte> written, std::span<std::byte> read_back, int& error) {
    const IoFile file = files_.adopt(fd);
    register_file(file, fd);
    for (u64 i = 0; i < kSectorBytes; ++i) written[i] = static_cast<std::byte>(i * 31 + 7);
    bool good = run_one({.op = IoOp::write, .file = file, .buffer = written}, error);
    good = good && run_one({.op = IoOp::sync_data, .file = file}, error);
    for (const bool registered : {false, true}) {
      if (registered && !register_buffers({&read_back, 1})) break;  // allowed: RLIMIT_MEMLOCK
      std::ranges::fill(read_back, std::byte{0});
      good = good && run_one({.op = IoOp::read, .file = file, .buffer = read_back}, error) &&
             std::ranges::equal(written, read_back);
    }
    if (is_stuck_) return false;
    register_buffers({});
    close(file);
    return good;
  }

  bool run_one(const IoRequest& request, int& error) {
    constexpr u64 kTimeoutNs = 5'000'000'000;
    IoCompletion completion{};
    const bool answered = submit(request) && reap({&completion, 1}, 1, kTimeoutNs) == 1;
    if (!answered) error = ETIMEDOUT;
    is_stuck_ = is_stuck_ || !answered;
    if (answered && completion.result < 0) error = static_cast<int>(-completion.result);
    return answered && completion.result == static_cast<i64>(request.buffer.size());
  }

  const u32 in_flight_max_;
  io_uring ring_{};
  bool is_set_up_ = false;
  bool is_stuck_ = false;  // a request of the self test does not end
  IoFileTable files_{};
  bool has_file_table_ = false;
  std::array<bool, kIoFilesMax> is_registered_{};
  std::array<iovec, kBuffersMax> buffers_{};
  u32 n_buffers_ = 0;

  // n_in_flight_ = slots in starting_ + n_in_kernel_ + completions in done_.
  u32 n_in_flight_ = 0;
  u32 n_in_kernel_ = 0;
  std::array<IoTransfer, kIoInFlightMax> transfers_{};
  RingQueue<u32, kIoInFlightMax> free_slots_{};
  RingQueue<u32, kIoInFlightMax> starting_{};
  RingQueue<IoCompletion, kIoInFlightMax> done_{};
  bool sqe_is_pending_ = false;
  u32 n_failed_starts_ = 0;
  int broken_errno_ = 0;
};

}  // namespace

u64 uring_backend_bytes() { return sizeof(UringBackend); }

Result<IoBackend*> uring_backend_create(const IoConfig& config, std::span<std::byte> memory) {
  TARN_ASSERT(memory.size() >= sizeof(UringBackend));
  auto* backend = new (memory.data()) UringBackend(config.in_flight_max);
  int error = 0;
  const char* why_not = backend->set_up(error);
  if (why_not == nullptr) return static_cast<IoBackend*>(backend);
  backend->~UringBackend();
  return fail({.status = Status::io_failed,
               .hint = why_not,
               .figures = {{{"errno", static_cast<u64>(error)}}}});
}

}  // namespace tarn
