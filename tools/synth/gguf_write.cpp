#include "tools/synth/gguf_write.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace tarn::synth {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are written as they lie");

constexpr u32 kVersion = 3;
constexpr u64 kAlignment = 32;  // GGUF's default; no general.alignment key is needed
constexpr u64 kSlabBytesMax = 4 * kMiB;

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

u64 aligned_up(u64 n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

struct SlabPlace {
  u32 tensor_idx;
  u64 slab_idx;
  u64 first_byte;  // within the tensor
  u64 n_bytes;
};

std::vector<SlabPlace> cut_into_slabs(std::span<const GgufTensorInfo> tensors) {
  std::vector<SlabPlace> places;
  for (u32 t = 0; t < tensors.size(); ++t) {
    const u64 block_bytes = kernels::type_traits(tensors[t].type).block_bytes;
    const u64 slab_bytes = kSlabBytesMax / block_bytes * block_bytes;
    for (u64 first = 0; first < tensors[t].bytes; first += slab_bytes) {
      const u64 n_bytes = std::min(slab_bytes, tensors[t].bytes - first);
      places.push_back({t, first / slab_bytes, first, n_bytes});
    }
  }
  return places;
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

u64 GgufWriter::write(const std::string& path, u32 n_threads, const Fill& fill,
                      const Progress& progress) const {
  std::string head = "GGUF";
  append(head, kVersion);
  append(head, u64{tensors_.size()});
  append(head, n_keys_);
  head += keys_;
  for (const GgufTensorInfo& tensor : tensors_) {
    append_text(head, tensor.name);
    append(head, static_cast<u32>(tensor.dims.size()));
    for (const u64 dim : tensor.dims) append(head, dim);
    append(head, static_cast<u32>(tensor.type));
    append(head, tensor.offset);
  }
  head.resize(aligned_up(head.size()));
  const u64 file_bytes = head.size() + data_bytes_;
  {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(head.data(), static_cast<std::streamsize>(head.size()));
    if (data_bytes_ != 0) {  // the padding behind the last tensor, and the file's length
      file.seekp(static_cast<std::streamoff>(file_bytes - 1));
      file.put('\0');
    }
    if (!file.flush()) throw std::runtime_error(path + ": cannot be written");
  }

  const auto places = cut_into_slabs(tensors_);
  std::atomic<u64> next{0};
  std::atomic<u64> done_bytes{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&](bool reports) {
    try {
      std::ofstream file(path, std::ios::binary | std::ios::in);
      std::vector<u8> buffer(kSlabBytesMax);
      for (u64 i = next++; i < places.size(); i = next++) {
        const SlabPlace& place = places[i];
        const GgufTensorInfo& tensor = tensors_[place.tensor_idx];
        const auto& traits = kernels::type_traits(tensor.type);
        fill({.tensor_idx = place.tensor_idx,
              .slab_idx = place.slab_idx,
              .first_byte = place.first_byte,
              .first_element = place.first_byte / traits.block_bytes * traits.block_elems,
              .n_elements = place.n_bytes / traits.block_bytes * traits.block_elems,
              .out = std::span(buffer).first(place.n_bytes)});
        file.seekp(static_cast<std::streamoff>(head.size() + tensor.offset + place.first_byte));
        file.write(reinterpret_cast<const char*>(buffer.data()),
                   static_cast<std::streamsize>(place.n_bytes));
        if (!file.flush()) throw std::runtime_error(path + ": cannot be written");
        done_bytes += place.n_bytes;
        if (reports && progress) progress(done_bytes, data_bytes_);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
      next = places.size();
    }
  };
  std::vector<std::thread> threads;
  for (u32 t = 1; t < n_threads; ++t) threads.emplace_back(work, false);
  work(true);
  for (auto& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  return file_bytes;
}

}  // namespace tarn::synth
