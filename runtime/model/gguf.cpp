#include "runtime/model/gguf.h"

#include <algorithm>
#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/model/file_cursor.h"
#include "runtime/model/model_errors.h"

namespace tarn::model {
namespace {

using Limits = GgufLimits;

constexpr u32 kMagic = 0x46554747;  // "GGUF"
constexpr u64 kHeaderBytes = 24;    // magic, version, two counts
// The least bytes of an entry in the file: a count above bytes_left / this is wrong.
constexpr u64 kKeyBytesMin = 8 + 1 + 4 + 1;             // length, name, type, value
constexpr u64 kTensorBytesMin = 8 + 1 + 4 + 8 + 4 + 8;  // length, name, n_dims, dim, type, offset
constexpr u64 kStringLengthBytes = 8;
constexpr u64 kOffsetMax = u64{1} << 62;  // of data in a file of which only the head is there
constexpr char kTooSmall[] =
    "the memory for the model's directory is too small; lend it kGgufMemoryBytesMax";
// kGgufMemoryBytesMax assumes these sizes.
static_assert(sizeof(GgufKey) <= 64 && sizeof(GgufTensor) <= 88);

}  // namespace

// Fills a GgufFile. It is a class of its own, so that no GgufFile is ever half built.
class GgufFile::Reader {
 public:
  Reader(GgufFile& out, Bump& memory, const FileCursor::Range& args, GgufData data)
      : out_(out), memory_(memory), cursor_(args), data_(data) {}

  Result<void> read() {
    TARN_CHECK(read_header());
    TARN_CHECK(read_keys());
    TARN_CHECK(read_tensors());
    TARN_CHECK(place_data());
    TARN_CHECK(check_extents());
    return check_length();
  }

 private:
  Result<void> read_header();
  Result<void> read_keys();
  Result<void> read_key(GgufKey& key);
  Result<void> read_extent(GgufKey& key);
  Result<void> skip_strings(GgufKey& key);
  Result<void> read_tensors();
  Result<void> read_tensor(GgufTensor& tensor);
  Result<void> size_tensor(GgufTensor& tensor);
  Result<void> place_data();
  Result<void> check_extents();
  Result<void> check_length() const;
  Result<std::string_view> read_name(u64 bytes_max);
  Result<void> within_directory() const;
  template <class Entry>
  Result<std::span<const u32>> sort_by_name(std::span<const Entry> entries, const char* hint);

  GgufFile& out_;
  Bump& memory_;
  FileCursor cursor_;
  GgufData data_;
  u64 n_tensors_ = 0;
  u64 n_keys_ = 0;
  u64 names_bytes_left_ = Limits::kKeyNamesBytesMax;
  std::span<GgufTensor> tensors_{};
};

Result<void> GgufFile::Reader::read_header() {
  if (out_.file_bytes_ < kHeaderBytes) {
    return invalid("not a GGUF file: shorter than its header; check the path", "",
                   {"file_bytes", out_.file_bytes_});
  }
  TARN_TRY(const u32 magic, cursor_.number<u32>());
  if (magic != kMagic) {
    return invalid("not a GGUF file: it does not begin with GGUF; check the path", "",
                   {"magic", magic});
  }
  TARN_TRY(out_.version_, cursor_.number<u32>());
  if (out_.version_ != 0 && (out_.version_ & 0xFFFF) == 0) {
    if (data_ != GgufData::of_any_order) return big_endian();
    cursor_.reverse_numbers();
    out_.is_big_endian_ = true;
    out_.version_ = static_cast<u32>(reversed_bytes(out_.version_, sizeof out_.version_));
  }
  if (out_.version_ < 2 || out_.version_ > 3) {
    return unsupported("this GGUF version is not known here; convert the model to version 3", "",
                       {"version", out_.version_});
  }
  TARN_TRY(n_tensors_, cursor_.number<u64>());
  TARN_TRY(n_keys_, cursor_.number<u64>());
  const u64 bytes_left = cursor_.bytes_left();
  if (n_keys_ > Limits::kKeysMax) {
    return invalid("the file announces more keys than any real model has", "", {"n_keys", n_keys_},
                   {"limit", Limits::kKeysMax});
  }
  if (n_keys_ > bytes_left / kKeyBytesMin) {
    return invalid("the file is cut off: it announces more keys than it can hold; get it again", "",
                   {"n_keys", n_keys_}, {"bytes_left", bytes_left});
  }
  if (n_tensors_ > Limits::kTensorsMax) {
    return invalid("the file announces more tensors than any real model has", "",
                   {"n_tensors", n_tensors_}, {"limit", Limits::kTensorsMax});
  }
  if (n_tensors_ > bytes_left / kTensorBytesMin) {
    return invalid("the file is cut off: it announces more tensors than it can hold; get it again",
                   "", {"n_tensors", n_tensors_}, {"bytes_left", bytes_left});
  }
  return {};
}

Result<void> GgufFile::Reader::within_directory() const {
  if (cursor_.offset() <= Limits::kDirectoryBytesMax) return {};
  return invalid("the file's directory is larger than any real model's", "",
                 {"offset", cursor_.offset()}, {"limit", Limits::kDirectoryBytesMax});
}

// Reads a length and that many bytes, and copies them with a terminator.
Result<std::string_view> GgufFile::Reader::read_name(u64 bytes_max) {
  const u64 offset = cursor_.offset();
  TARN_TRY(const u64 n_bytes, cursor_.number<u64>());
  if (n_bytes == 0) return invalid("a key or tensor without a name", "", {"offset", offset});
  if (n_bytes > bytes_max) {
    return invalid("the name of a key or tensor is too long, or all together are", "",
                   {"offset", offset}, {"bytes", n_bytes});
  }
  TARN_TRY(const std::byte* bytes, cursor_.take(n_bytes));
  const std::string_view text(reinterpret_cast<const char*>(bytes), n_bytes);
  const auto copy = memory_.alloc<char>(n_bytes + 1);
  if (!copy) return out_of_memory(kTooSmall, memory_);
  std::memcpy(copy->data(), text.data(), n_bytes);
  (*copy)[n_bytes] = '\0';
  return std::string_view(copy->data(), n_bytes);
}

Result<void> GgufFile::Reader::read_keys() {
  const auto keys = memory_.alloc<GgufKey>(n_keys_);
  if (!keys) return out_of_memory(kTooSmall, memory_);
  for (GgufKey& key : *keys) {
    key = {};
    TARN_CHECK(read_key(key));
    TARN_CHECK(within_directory());
  }
  out_.keys_ = *keys;
  TARN_TRY(out_.keys_by_name_, sort_by_name(out_.keys_, "the key is in the file twice"));
  return {};
}

Result<void> GgufFile::Reader::read_key(GgufKey& key) {
  const u64 n_left = names_bytes_left_ - std::min<u64>(names_bytes_left_, 1);
  TARN_TRY(key.name, read_name(std::min(n_left, Limits::kKeyNameBytesMax)));
  names_bytes_left_ -= key.name.size() + 1;
  TARN_TRY(const u32 type, cursor_.number<u32>());
  if (type > static_cast<u32>(GgufType::f64)) {
    return invalid("the key's value has a type that the format does not know", key.name,
                   {"type", type}, {"offset", cursor_.offset()});
  }
  key.type = static_cast<GgufType>(type);
  return read_extent(key);
}

Result<void> GgufFile::Reader::read_extent(GgufKey& key) {
  if (key.type == GgufType::array) {
    TARN_TRY(const u32 element, cursor_.number<u32>());
    if (element > static_cast<u32>(GgufType::f64)) {
      return invalid("the array's elements have a type that the format does not know", key.name,
                     {"type", element});
    }
    key.element = static_cast<GgufType>(element);
    TARN_TRY(key.count, cursor_.number<u64>());
    if (key.element == GgufType::array) {
      return unsupported("an array of arrays; no key that is used has one", key.name);
    }
    const u64 element_bytes_min =
        key.element == GgufType::string ? kStringLengthBytes : gguf_number_bytes(key.element);
    if (key.count > Limits::kArrayElementsMax ||
        key.count > cursor_.bytes_left() / element_bytes_min) {
      return invalid("the array announces more elements than the file or any real model can hold",
                     key.name, {"count", key.count}, {"limit", Limits::kArrayElementsMax});
    }
    key.offset = cursor_.offset();
    if (key.element == GgufType::string) return skip_strings(key);
    key.bytes = key.count * element_bytes_min;  // at most the bytes left, as checked above
    return cursor_.skip(key.bytes);
  }
  if (key.type == GgufType::string) {
    TARN_TRY(key.bytes, cursor_.number<u64>());
    key.offset = cursor_.offset();
    return cursor_.skip(key.bytes);
  }
  key.offset = cursor_.offset();
  key.bytes = gguf_number_bytes(key.type);
  TARN_TRY(const std::byte* bytes, cursor_.take(key.bytes));
  key.bits = out_.number_bits(bytes, key.type);
  return {};
}

Result<void> GgufFile::Reader::skip_strings(GgufKey& key) {
  for (u64 i = 0; i < key.count; ++i) {
    TARN_TRY(const u64 n_bytes, cursor_.number<u64>());
    TARN_CHECK(cursor_.skip(n_bytes));
    TARN_CHECK(within_directory());
  }
  key.bytes = cursor_.offset() - key.offset;
  return {};
}

Result<void> GgufFile::Reader::read_tensors() {
  const auto tensors = memory_.alloc<GgufTensor>(n_tensors_);
  if (!tensors) return out_of_memory(kTooSmall, memory_);
  for (GgufTensor& tensor : *tensors) {
    tensor = {};
    TARN_CHECK(read_tensor(tensor));
    TARN_CHECK(size_tensor(tensor));
    TARN_CHECK(within_directory());
  }
  tensors_ = *tensors;
  out_.tensors_ = tensors_;
  TARN_TRY(out_.tensors_by_name_, sort_by_name(out_.tensors_, "the tensor is in the file twice"));
  return {};
}

// The offset stays relative to the data section until place_data().
Result<void> GgufFile::Reader::read_tensor(GgufTensor& tensor) {
  TARN_TRY(tensor.name, read_name(Limits::kTensorNameBytesMax));
  TARN_TRY(tensor.n_dims, cursor_.number<u32>());
  if (tensor.n_dims < 1 || tensor.n_dims > Limits::kDimsMax) {
    return invalid("the tensor does not have 1 to 4 dimensions", tensor.name,
                   {"n_dims", tensor.n_dims});
  }
  for (u32 i = 0; i < tensor.n_dims; ++i) {
    TARN_TRY(tensor.dims[i], cursor_.number<u64>());
    if (tensor.dims[i] == 0) {
      return invalid("the tensor has a dimension of zero", tensor.name, {"dim", i});
    }
  }
  TARN_TRY(tensor.type_id, cursor_.number<u32>());
  TARN_TRY(tensor.offset, cursor_.number<u64>());
  return {};
}

Result<void> GgufFile::Reader::size_tensor(GgufTensor& tensor) {
  const Checked n_elements =
      Checked(tensor.dims[0]) * tensor.dims[1] * tensor.dims[2] * tensor.dims[3];
  if (!n_elements.at_most(Limits::kElementsMax)) {
    return invalid("the tensor's dimensions multiply to more than any real tensor", tensor.name,
                   {"dim_0", tensor.dims[0]}, {"dim_1", tensor.dims[1]});
  }
  const GgufTensorTypeInfo* type = gguf_tensor_type(tensor.type_id);
  if (type == nullptr) return {};
  if (tensor.dims[0] % type->block_elems != 0) {
    return invalid("the tensor's rows are not a whole number of its type's blocks", tensor.name,
                   {"row", tensor.dims[0]}, {"block", type->block_elems});
  }
  const auto n_bytes = (n_elements.divided_exactly(type->block_elems) * type->block_bytes).get();
  TARN_ASSERT(n_bytes.has_value());  // 2^42 elements of at most 8 bytes
  tensor.bytes = *n_bytes;
  return {};
}

Result<void> GgufFile::Reader::place_data() {
  out_.alignment_ = Limits::kAlignmentDefault;
  constexpr std::string_view kName = "general.alignment";
  if (const GgufKey* key = out_.find_key(kName)) {
    if (key->type != GgufType::u32) {
      return invalid("the key has the wrong type; it must be a u32", kName);
    }
    out_.alignment_ = key->bits;
  }
  const u64 alignment = out_.alignment_;
  if (alignment < Limits::kAlignmentMin || alignment > Limits::kAlignmentMax ||
      (alignment & (alignment - 1)) != 0) {
    return invalid("the alignment is not a power of two within the limits", kName,
                   {"alignment", alignment}, {"limit", Limits::kAlignmentMax});
  }
  // At most kDirectoryBytesMax + kAlignmentMax.
  out_.data_offset_ = align_up(cursor_.offset(), alignment);
  return {};
}

// Checks that every tensor lies inside the file, or where its data may miss behind it, that none
// overlap, and that nothing follows the last.
Result<void> GgufFile::Reader::check_extents() {
  const u64 mark = memory_.used_bytes();
  const u64 end_max = data_ == GgufData::may_miss ? kOffsetMax : out_.file_bytes_;
  const auto order = memory_.alloc<u32>(tensors_.size());
  if (!order) return out_of_memory(kTooSmall, memory_);
  for (u32 i = 0; i < tensors_.size(); ++i) {
    GgufTensor& tensor = tensors_[i];
    (*order)[i] = i;
    if (tensor.offset % out_.alignment_ != 0) {
      return invalid("the tensor's data is not aligned", tensor.name, {"offset", tensor.offset},
                     {"alignment", out_.alignment_});
    }
    const auto begin = (Checked(out_.data_offset_) + tensor.offset).get();
    // A type that the table lacks has at least one byte.
    const u64 n_bytes = std::max<u64>(tensor.bytes, 1);
    const auto end = begin ? (Checked(*begin) + n_bytes).at_most(end_max) : std::nullopt;
    if (!end) {
      return invalid("the tensor's data reaches beyond the end of the file; get the file again",
                     tensor.name, {"offset", tensor.offset}, {"file_bytes", out_.file_bytes_});
    }
    tensor.offset = *begin;
  }
  std::sort(order->begin(), order->end(),
            [&](u32 a, u32 b) { return tensors_[a].offset < tensors_[b].offset; });
  u64 end = out_.data_offset_;
  bool end_known = true;
  for (const u32 idx : *order) {
    const GgufTensor& tensor = tensors_[idx];
    if (tensor.offset < end) {
      return invalid("the tensor's data overlaps another tensor's", tensor.name,
                     {"offset", tensor.offset});
    }
    end = tensor.offset + std::max<u64>(tensor.bytes, 1);  // at most end_max, as checked above
    end_known = tensor.bytes != 0;
  }
  memory_.rewind(mark);
  out_.missing_bytes_ = end - std::min(end, out_.file_bytes_);
  const u64 padded_end = align_up(end, out_.alignment_);  // at most end_max, aligned
  if (end_known && out_.file_bytes_ > padded_end) {
    return invalid("the file continues after its last tensor; it is damaged or was built wrongly",
                   "", {"file_bytes", out_.file_bytes_}, {"expected", padded_end});
  }
  return {};
}

// The extents were checked against the length at the start.
Result<void> GgufFile::Reader::check_length() const {
  TARN_TRY(const u64 now, out_.io_->size_bytes(out_.file_));
  if (now == out_.file_bytes_) return {};
  return invalid("the file's length changed while it was read; do not write to it", "",
                 {"before", out_.file_bytes_}, {"now", now});
}

template <class Entry>
Result<std::span<const u32>> GgufFile::Reader::sort_by_name(std::span<const Entry> entries,
                                                            const char* hint) {
  const auto by_name = memory_.alloc<u32>(entries.size());
  if (!by_name) return out_of_memory(kTooSmall, memory_);
  for (u32 i = 0; i < entries.size(); ++i) (*by_name)[i] = i;
  std::sort(by_name->begin(), by_name->end(),
            [&](u32 a, u32 b) { return entries[a].name < entries[b].name; });
  for (u64 i = 1; i < by_name->size(); ++i) {
    const std::string_view name = entries[(*by_name)[i]].name;
    if (entries[(*by_name)[i - 1]].name == name) return invalid(hint, name);
  }
  return std::span<const u32>(*by_name);
}

Result<GgufFile> GgufFile::read(IoBackend& io, IoFile file, Bump& memory, GgufData data) {
  const u64 mark = memory.used_bytes();
  GgufFile out;
  out.io_ = &io;
  out.file_ = file;
  TARN_TRY(out.file_bytes_, io.size_bytes(file));
  const auto window = memory.alloc_bytes(Limits::kWindowBytes, kSectorBytes);
  if (!window) return out_of_memory(kTooSmall, memory);
  out.window_ = *window;
  Reader reader(out, memory, {.io = &io, .file = file, .window = *window, .end = out.file_bytes_},
                data);
  const Result<void> done = reader.read();
  if (done) return out;
  memory.rewind(mark);
  return fail(done.error());
}

}  // namespace tarn::model
