// Every IoBackend with its disk, for tests of all of them: io_uring and the threads over a scratch
// file on the build folder's file system, and the simulated disk.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>

#include <memory>

#include "tests/support/io_backends.h"
#include "tests/support/sim_disk.h"

namespace tarn::test {

class IoWorld {
 public:
  virtual ~IoWorld() = default;
  virtual std::string name() const = 0;
  virtual const char* path() const = 0;  // of this world's only file, which does not exist at first
  virtual std::shared_ptr<IoBackend> make(const IoConfig& config) = 0;  // config.kind is ours
  // Makes new backends, of every kind that can read this world's file.
  virtual std::vector<std::shared_ptr<IoBackend>> make_each() = 0;
  virtual void write_file(std::span<const std::byte> bytes) = 0;
  virtual void truncate_file(u64 bytes) = 0;
  virtual bool registers_buffers() const = 0;
};

class RealIoWorld final : public IoWorld {
 public:
  RealIoWorld(IoKind kind, const char* file_name) : kind_(kind), file_(file_name) {}
  std::string name() const override { return kind_ == IoKind::uring ? "io_uring" : "threads"; }
  const char* path() const override { return file_.path(); }
  std::shared_ptr<IoBackend> make(const IoConfig& config) override {
    IoConfig own = config;
    own.kind = kind_;
    return make_real(own);
  }
  std::vector<std::shared_ptr<IoBackend>> make_each() override {
    std::vector<std::shared_ptr<IoBackend>> each;
    for (const IoKind kind : io_kinds_here()) each.push_back(make_real({.kind = kind}));
    return each;
  }
  void write_file(std::span<const std::byte> bytes) override {
    const int fd = open(path(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    REQUIRE(fd >= 0);
    REQUIRE(write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    close(fd);
  }
  void truncate_file(u64 bytes) override {
    REQUIRE(truncate(path(), static_cast<off_t>(bytes)) == 0);
  }
  bool registers_buffers() const override { return kind_ == IoKind::uring; }

 private:
  static std::shared_ptr<IoBackend> make_real(const IoConfig& config) {
    auto io = std::make_shared<OwnedIo>(config);
    REQUIRE(*io);
    return {io, &**io};
  }

  IoKind kind_;
  ScratchFile file_;
};

class SimIoWorld final : public IoWorld {
 public:
  std::string name() const override { return "simulated"; }
  const char* path() const override { return "file"; }
  std::shared_ptr<IoBackend> make(const IoConfig& config) override {
    return std::make_shared<SimIo>(disk_, clock_, config.in_flight_max);
  }
  std::vector<std::shared_ptr<IoBackend>> make_each() override { return {make({})}; }
  void write_file(std::span<const std::byte> bytes) override { disk_.write_file(path(), bytes); }
  void truncate_file(u64 bytes) override { disk_.truncate_file(path(), bytes); }
  bool registers_buffers() const override { return true; }

 private:
  SimDisk disk_{seed_from_environment()};
  VirtualClock clock_;
};

// One of each; `file_name` separates tests that run in parallel.
inline std::vector<std::unique_ptr<IoWorld>> io_worlds_here(const char* file_name) {
  std::vector<std::unique_ptr<IoWorld>> worlds;
  for (const IoKind kind : io_kinds_here()) {
    worlds.push_back(std::make_unique<RealIoWorld>(
        kind, (std::string(file_name) + (kind == IoKind::uring ? "_uring" : "_threads")).c_str()));
  }
  worlds.push_back(std::make_unique<SimIoWorld>());
  return worlds;
}

// Bytes at an address that direct I/O accepts.
class SectorBuffer {
 public:
  explicit SectorBuffer(u64 bytes)
      : memory_(bytes + kSectorBytes),
        data_(reinterpret_cast<std::byte*>(
            (reinterpret_cast<std::uintptr_t>(memory_.data()) + kSectorBytes - 1) &
            ~std::uintptr_t{kSectorBytes - 1})),
        bytes_(bytes) {}
  SectorBuffer(const SectorBuffer&) = delete;
  SectorBuffer& operator=(const SectorBuffer&) = delete;
  std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  std::vector<std::byte> memory_;
  std::byte* data_;
  u64 bytes_;
};

inline std::vector<std::byte> random_bytes(Random& random, u64 n_bytes) {
  std::vector<std::byte> bytes(n_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

// Returns the result of one request, on a backend with nothing else in flight.
inline i64 run_one(IoBackend& io, const IoRequest& request) {
  REQUIRE(io.submit(request));
  IoCompletion completion{};
  REQUIRE(io.reap({&completion, 1}, 1, ~u64{0}) == 1);
  CHECK(completion.tag == request.tag);
  return completion.result;
}

}  // namespace tarn::test
