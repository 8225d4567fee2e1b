#include "tools/support/gguf_write.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "tools/support/exit_code.h"

namespace tarn::tools {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are written as they lie");

constexpr u32 kVersion = 3;
constexpr u64 kAlignment = 32;             // GGUF's default; no general.alignment key is needed
constexpr u64 kSlabBytesMax = kMiB;        // changing it changes files: slabs seed the weights
constexpr u64 kChunkBytes = 16 * kMiB;     // one write
constexpr u64 kWriteAlignment = 4 * kKiB;  // direct I/O's, on any disk

// GGUF's value type ids.
constexpr u32 kTypeU32 = 4, kTypeI32 = 5, kTypeF32 = 6, kTypeBool = 7, kTypeString = 8;
constexpr u32 kTypeArray = 9;

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_text(std::string& out, std::string_view text) {
  append(out, u64{text.size()});
  out.append(text);
}

u64 aligned_up(u64 n, u64 alignment = kAlignment) {
  return (n + alignment - 1) / alignment * alignment;
}

// The output file, written in aligned pieces by direct I/O if the file system supports it. Through
// the page cache, a model larger than the kernel's limit of dirty pages is written at a fraction of
// the disk's speed.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path) : path_(path) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    constexpr mode_t kMode = 0666;
    fd_ = ::open(path.c_str(), kFlags | O_DIRECT, kMode);
    if (fd_ < 0 && errno == EINVAL) fd_ = ::open(path.c_str(), kFlags, kMode);
    if (fd_ < 0) fail();
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  // Any thread; all three aligned to kWriteAlignment.
  void write_at(u64 offset, std::span<const u8> bytes) const {
    while (!bytes.empty()) {
      const auto n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail();
      offset += static_cast<u64>(n);
      bytes = bytes.subspan(static_cast<u64>(n));
    }
  }
  void close_at(u64 file_bytes) {
    if (::ftruncate(fd_, static_cast<off_t>(file_bytes)) != 0) fail();
    if (::close(std::exchange(fd_, -1)) != 0) fail();
  }

 private:
  [[noreturn]] void fail() const {
    throw std::runtime_error(path_ + ": cannot be written: " + std::strerror(errno));
  }

  std::string path_;
  int fd_ = -1;
};

u64 slab_bytes_of(const GgufTensorInfo& tensor) {
  const u64 block_bytes = kernels::type_traits(tensor.type).block_bytes;
  return kSlabBytesMax / block_bytes * block_bytes;
}

// Copies the overlap of `source` (at source_at in the file) and `chunk` (at chunk_at) into `chunk`.
void copy_overlap(std::span<const u8> source, u64 source_at, std::span<u8> chunk, u64 chunk_at) {
  const u64 begin = std::max(source_at, chunk_at);
  const u64 end = std::min(source_at + source.size(), chunk_at + chunk.size());
  if (begin >= end) return;
  std::memcpy(chunk.data() + (begin - chunk_at), source.data() + (begin - source_at), end - begin);
}

}  // namespace

u16 f16_bits(f32 value) {
  const u32 bits = std::bit_cast<u32>(value);
  const u32 sign = (bits >> 16) & 0x8000u;
  const u32 magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<u16>(sign | 0x7E00u);   // NaN
  if (magnitude >= 0x477FF000u) return static_cast<u16>(sign | 0x7C00u);  // 65520 and above
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 leaves multiples of 2^-24 in the low bits, rounded to nearest even.
    const f32 shifted = std::bit_cast<f32>(magnitude) + 0.5f;
    return static_cast<u16>(sign | (std::bit_cast<u32>(shifted) - 0x3F000000u));
  }
  const u32 rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<u16>(sign | ((rounded - 0x38000000u) >> 13));
}

u16 bf16_bits(f32 value) {
  const u32 bits = std::bit_cast<u32>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<u16>((bits >> 16) | 0x40u);
  return static_cast<u16>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

void GgufWriter::begin_key(std::string_view key, u32 type) {
  append_text(keys_, key);
  append(keys_, type);
  ++n_keys_;
}

void GgufWriter::begin_array(std::string_view key, u32 element_type, u64 count) {
  begin_key(key, kTypeArray);
  append(keys_, element_type);
  append(keys_, count);
}

void GgufWriter::set_u32(std::string_view key, u32 value) {
  begin_key(key, kTypeU32);
  append(keys_, value);
}

void GgufWriter::set_f32(std::string_view key, f32 value) {
  begin_key(key, kTypeF32);
  append(keys_, value);
}

void GgufWriter::set_bool(std::string_view key, bool value) {
  begin_key(key, kTypeBool);
  append(keys_, static_cast<u8>(value));
}

void GgufWriter::set_string(std::string_view key, std::string_view value) {
  begin_key(key, kTypeString);
  append_text(keys_, value);
}

void GgufWriter::set_strings(std::string_view key, std::span<const std::string> values) {
  begin_array(key, kTypeString, values.size());
  for (const std::string& value : values) append_text(keys_, value);
}

void GgufWriter::set_f32s(std::string_view key, std::span<const f32> values) {
  begin_array(key, kTypeF32, values.size());
  for (const f32 value : values) append(keys_, value);
}

void GgufWriter::set_i32s(std::string_view key, std::span<const i32> values) {
  begin_array(key, kTypeI32, values.size());
  for (const i32 value : values) append(keys_, value);
}

void GgufWriter::copy_value(std::string_view key, u32 type, std::span<const u8> value) {
  begin_key(key, type);
  keys_.append(reinterpret_cast<const char*>(value.data()), value.size());
}

u32 GgufWriter::add_tensor(std::string name, kernels::TensorType type, std::vector<u64> dims) {
  const auto& traits = kernels::type_traits(type);
  if (dims.empty() || dims[0] % traits.block_elems != 0) {
    throw std::invalid_argument(name + ": rows of " + std::to_string(dims.empty() ? 0 : dims[0]) +
                                " are no multiple of " + traits.name + "'s block of " +
                                std::to_string(traits.block_elems) + "; choose a float type");
  }
  u64 n_bytes = traits.block_bytes;
  for (const u64 dim : dims) n_bytes *= dim;
  n_bytes /= traits.block_elems;
  tensors_.push_back({std::move(name), type, std::move(dims), data_bytes_, n_bytes});
  data_bytes_ = aligned_up(data_bytes_ + n_bytes);
  return static_cast<u32>(tensors_.size() - 1);
}

std::string GgufWriter::directory() const {
  std::string out = "GGUF";
  append(out, kVersion);
  append(out, u64{tensors_.size()});
  append(out, n_keys_);
  out += keys_;
  for (const GgufTensorInfo& tensor : tensors_) {
    append_text(out, tensor.name);
    append(out, static_cast<u32>(tensor.dims.size()));
    for (const u64 dim : tensor.dims) append(out, dim);
    append(out, static_cast<u32>(tensor.type));
    append(out, tensor.offset);
  }
  out.resize(aligned_up(out.size()));
  return out;
}

void GgufWriter::fill_chunk(u64 data_at, u64 chunk_at, std::span<u8> chunk, std::span<u8> buffer,
                            const Fill& fill) const {
  for (u32 t = 0; t < tensors_.size(); ++t) {
    const GgufTensorInfo& tensor = tensors_[t];
    const u64 tensor_at = data_at + tensor.offset;
    if (tensor_at >= chunk_at + chunk.size()) break;
    if (tensor_at + tensor.bytes <= chunk_at) continue;
    const auto& traits = kernels::type_traits(tensor.type);
    const u64 slab_bytes = slab_bytes_of(tensor);
    // A slab across the border of two chunks is made for both.
    u64 slab_idx = chunk_at > tensor_at ? (chunk_at - tensor_at) / slab_bytes : 0;
    for (; slab_idx * slab_bytes < tensor.bytes; ++slab_idx) {
      const u64 first_byte = slab_idx * slab_bytes;
      if (tensor_at + first_byte >= chunk_at + chunk.size()) break;
      const u64 n_bytes = std::min(slab_bytes, tensor.bytes - first_byte);
      const std::span<u8> out = buffer.first(n_bytes);
      fill({.tensor_idx = t,
            .slab_idx = slab_idx,
            .first_byte = first_byte,
            .first_element = first_byte / traits.block_bytes * traits.block_elems,
            .n_elements = n_bytes / traits.block_bytes * traits.block_elems,
            .out = out});
      copy_overlap(out, tensor_at + first_byte, chunk, chunk_at);
    }
  }
}

u64 GgufWriter::write(const std::string& path, u32 n_threads, const Fill& fill,
                      const Progress& progress) const {
  const std::string head = directory();
  const auto* head_bytes = reinterpret_cast<const u8*>(head.data());
  const u64 file_bytes = head.size() + data_bytes_;
  // A small file takes little memory.
  const u64 chunk_bytes = std::min(kChunkBytes, aligned_up(file_bytes, kWriteAlignment));
  OutputFile file(path);
  std::atomic<u64> next_chunk{0};
  std::atomic<u64> done_bytes{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&](std::vector<u8> memory, bool reports) {
    if (!reports) set_thread_fatal_sink(&fatal_sink());
    try {
      void* place = memory.data();
      u64 room = memory.size();
      auto* aligned = static_cast<u8*>(std::align(kWriteAlignment, chunk_bytes, place, room));
      const std::span<u8> buffer(aligned + chunk_bytes, kSlabBytesMax);
      for (u64 at = next_chunk++ * kChunkBytes; at < file_bytes; at = next_chunk++ * kChunkBytes) {
        // The last chunk is padded for the write, and the file cut to its length afterwards.
        const u64 n_bytes = std::min(kChunkBytes, file_bytes - at);
        const std::span<u8> chunk(aligned, aligned_up(n_bytes, kWriteAlignment));
        std::ranges::fill(chunk, u8{0});
        copy_overlap({head_bytes, head.size()}, 0, chunk, at);
        fill_chunk(head.size(), at, chunk, buffer, fill);
        file.write_at(at, chunk);
        done_bytes += n_bytes;
        if (reports && progress) progress(done_bytes, file_bytes);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
      next_chunk = file_bytes / kChunkBytes + 1;
    }
  };
  const auto new_memory = [&] {
    return std::vector<u8>(chunk_bytes + kWriteAlignment + kSlabBytesMax);
  };
  std::vector<u8> own_memory = new_memory();
  const u64 n_workers = std::min<u64>(n_threads, (file_bytes + kChunkBytes - 1) / kChunkBytes);
  std::vector<std::thread> threads;
  threads.reserve(n_workers);
  // If the system refuses another thread, or memory for it, the running threads do all the work.
  try {
    for (u64 t = 1; t < n_workers; ++t) threads.emplace_back(work, new_memory(), false);
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
  work(std::move(own_memory), true);
  for (auto& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  file.close_at(file_bytes);
  return file_bytes;
}

}  // namespace tarn::tools
