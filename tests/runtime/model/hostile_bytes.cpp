// Files that the reader of the directory refuses.
#include <cstring>

#include "kernels/quant/tensor_type.h"
#include "runtime/model/model_spec.h"
#include "tests/runtime/model/hostile_corpus.h"
#include "tests/support/tiny_model.h"

namespace tarn::test {
namespace {

using Limits = model::GgufLimits;

constexpr u64 kMax = ~u64{0};
constexpr Status kInvalid = Status::invalid_model;
constexpr Status kUnsupported = Status::unsupported;
constexpr const char* kCutOff = "the file ends too early";
constexpr const char* kManyKeys = "more keys than any real model";
constexpr const char* kManyTensors = "more tensors than any real model";
constexpr const char* kCutKeys = "more keys than it can hold";
constexpr const char* kCutTensors = "more tensors than it can hold";
constexpr const char* kManyElements = "the array announces more elements";
constexpr const char* kBeyond = "reaches beyond the end of the file";
constexpr const char* kOver = "overlaps another tensor's";
constexpr const char* kUnaligned = "the tensor's data is not aligned";
constexpr const char* kProduct = "dimensions multiply to more than any real tensor";

Bytes cut(const GgufImage& image, u64 n_bytes) {
  Bytes bytes = image.bytes();
  bytes.resize(n_bytes);
  return bytes;
}

Bytes one_string(u64 n_bytes_said, u64 n_bytes_real) {
  Bytes out;
  put_u64(out, n_bytes_said);
  out.resize(out.size() + n_bytes_real, std::byte{'x'});
  return out;
}

// An array's value: type, count, and some bytes behind it.
Bytes array_value(u32 element, u64 count, u64 n_bytes_real) {
  Bytes out;
  put_u32(out, element);
  put_u64(out, count);
  out.resize(out.size() + n_bytes_real);
  return out;
}

void add_header(CorpusBuilder& corpus) {
  corpus.add_bytes("F", "an empty file", kInvalid, "shorter than its header",
                   [] { return Bytes(); });
  corpus.add_bytes("F", "one byte", kInvalid, "shorter than its header", [] { return Bytes(1); });
  corpus.add_bytes("F", "23 bytes of the header", kInvalid, "shorter than its header",
                   [] { return cut(tiny_model({}), 23); });
  corpus.add_bytes("F", "a page of zeros", kInvalid, "does not begin with GGUF",
                   [] { return Bytes(4096); });
  corpus.add_bytes("F", "a page of ones", kInvalid, "does not begin with GGUF",
                   [] { return Bytes(4096, std::byte{0xFF}); });
  for (const u32 magic : {0x67676D6Cu, 0x67676A74u, 0x46554746u, 0x66756767u, 0x04034B50u}) {
    corpus.add("F", "magic " + std::to_string(magic), kInvalid, "does not begin with GGUF",
               [magic](GgufImage& i) { i.magic = magic; });
  }
  for (const u32 version : {0u, 1u, 4u, 0x10003u, 0xFFFFFFFFu}) {
    corpus.add("F", "version " + std::to_string(version), kUnsupported,
               "this GGUF version is not known", [version](GgufImage& i) { i.version = version; });
  }
  for (const u32 version : {0x02000000u, 0x03000000u}) {
    corpus.add("F", "big-endian version " + std::to_string(version), kUnsupported, "big-endian",
               [version](GgufImage& i) { i.version = version; });
  }
  // CVE-2024-23605 and CVE-2024-21836: counts times the size of an entry wrap to a small number.
  for (const u64 n : {kMax, u64{1} << 63, (u64{1} << 61) + 1, u64{0x0555555555555556},
                      (u64{1} << 32) + 1, Limits::kKeysMax + 1}) {
    corpus.add("G1", "CVE-2024-23605: " + std::to_string(n) + " keys", kInvalid, kManyKeys,
               [n](GgufImage& i) { i.n_keys = n; });
  }
  for (const u64 n : {kMax, u64{1} << 63, (u64{1} << 60) + 3, u64{0x02E8BA2E8BA2E8BB},
                      (u64{1} << 32) + 1, Limits::kTensorsMax + 1}) {
    corpus.add("G1", "CVE-2024-21836: " + std::to_string(n) + " tensors", kInvalid, kManyTensors,
               [n](GgufImage& i) { i.n_tensors = n; });
  }
  corpus.add("G7", "more keys than bytes", kInvalid, kCutKeys, [](GgufImage& i) {
    i = GgufImage{};
    i.n_keys = 4000;
    i.trailing.resize(4000 * 13);
  });
  corpus.add("G7", "more tensors than bytes", kInvalid, kCutTensors, [](GgufImage& i) {
    i = GgufImage{};
    i.n_tensors = 16000;
    i.trailing.resize(16000 * 30);
  });
  corpus.add("G7", "one key more than there are", kInvalid, "is too long",
             [](GgufImage& i) { i.n_keys = i.keys.size() + 1; });
  corpus.add("G7", "one tensor more than there are", kInvalid, "a key or tensor without a name",
             [](GgufImage& i) {
               i.n_tensors = i.tensors.size() + 1;
               i.alignment = 4096;
               i.set_u32("general.alignment", 4096);
             });
}

void add_keys(CorpusBuilder& corpus) {
  corpus.add("G8", "PR 26318: an empty key name", kInvalid, "a key or tensor without a name",
             [](GgufImage& i) { i.set_u32("", 1); });
  for (const u64 n : {Limits::kKeyNameBytesMax + 1, Limits::kKeyNamesBytesMax}) {
    corpus.add("G7", "a key name of " + std::to_string(n) + " bytes", kInvalid, "is too long",
               [n](GgufImage& i) { i.set_u32(std::string(n, 'k'), 1); });
  }
  // CVE-2024-23496: the length of a string plus one wraps, and a huge read meets an empty buffer.
  for (const u64 n : {kMax, kMax - 1, u64{1} << 63, u64{1} << 32, (u64{1} << 32) + 4}) {
    corpus.add_bytes("G1", "CVE-2024-23496: a key name of " + std::to_string(n) + " bytes",
                     kInvalid, "is too long", [n] {
                       Bytes bytes = tiny_model({}).bytes();
                       std::memcpy(bytes.data() + 24, &n, sizeof n);
                       return bytes;
                     });
  }
  corpus.add("G7", "key names of a mebibyte together", kInvalid, "too long, or all together are",
             [](GgufImage& i) {
               for (u32 n = 0; n < 17; ++n)
                 i.set_u32(std::to_string(n) + std::string(Limits::kKeyNameBytesMax - 2, 'k'), 1);
             });
  for (const u32 type : {13u, 255u, 0x80000000u, 0xFFFFFFFFu}) {
    corpus.add("G8", "a value of type " + std::to_string(type), kInvalid,
               "a type that the format does not know: odd",
               [type](GgufImage& i) { i.set_raw("odd", type, Bytes(64)); });
    corpus.add("G8", "an array of type " + std::to_string(type), kInvalid,
               "elements have a type that the format does not know: odd",
               [type](GgufImage& i) { i.set_raw("odd", 9, array_value(type, 1, 64)); });
  }
  for (const u8 value : {u8{2}, u8{255}}) {
    corpus.add("G8", "a boolean of " + std::to_string(value), kInvalid,
               "neither 0 nor 1: llama.attention.causal", [value](GgufImage& i) {
                 i.set_raw("llama.attention.causal", GgufId::kBool, Bytes(1, std::byte{value}));
               });
  }
  for (const char* name : {"general.architecture", "llama.block_count", "tokenizer.ggml.tokens"}) {
    corpus.add("G9", std::string(name) + " twice", kInvalid,
               std::string("in the file twice: ") + name,
               [name](GgufImage& i) { i.keys.push_back(i.key(name)); });
  }
  // The directory cut at places that a reader reaches in different states.
  const u64 n_directory = tiny_model({}).directory_bytes();
  struct Cut {
    u64 n_bytes;
    const char* error;
  };
  for (const Cut at : {Cut{24, kCutKeys}, Cut{31, kCutKeys}, Cut{56, kCutKeys},
                       Cut{300, kCutTensors}, Cut{n_directory / 2, kCutOff},
                       Cut{n_directory - 9, kCutOff}, Cut{n_directory - 1, kCutOff}}) {
    corpus.add_bytes("G3", "the directory cut at byte " + std::to_string(at.n_bytes), kInvalid,
                     at.error, [n = at.n_bytes] { return cut(tiny_model({}), n); });
  }
}

void add_strings_and_arrays(CorpusBuilder& corpus) {
  for (const u64 n : {kMax, kMax - 7, u64{1} << 63, u64{1} << 32, u64{kMiB}}) {
    corpus.add("G1", "CVE-2024-23496: a text of " + std::to_string(n) + " bytes", kInvalid, kCutOff,
               [n](GgufImage& i) { i.set_raw("odd", GgufId::kString, one_string(n, 10)); });
  }
  // CVE-2024-21802: the count of an array times the size of an element wraps.
  for (const u32 type : {0u, 2u, 4u, 6u, 7u, 8u, 10u, 12u}) {
    for (const u64 n :
         {kMax, (u64{1} << 61) + 1, (u64{1} << 32) + 1, Limits::kArrayElementsMax + 1}) {
      corpus.add(
          "G1",
          "CVE-2024-21802: " + std::to_string(n) + " elements of type " + std::to_string(type),
          kInvalid, kManyElements,
          [type, n](GgufImage& i) { i.set_raw("odd", 9, array_value(type, n, 16)); });
    }
  }
  corpus.add("G7", "ollama #17042: an array that the file could not hold", kInvalid, kManyElements,
             [](GgufImage& i) { i.set_raw("odd", 9, array_value(8, 4'000'000, 100)); });
  corpus.add("G7", "an array one element longer than the file", kInvalid, kManyElements,
             [](GgufImage& i) {
               i = GgufImage{};
               i.set_raw("odd", 9, array_value(GgufId::kU64, 1001, 8000));
             });
  corpus.add("G7", "arrays in arrays", kUnsupported, "an array of arrays",
             [](GgufImage& i) { i.set_raw("odd", 9, array_value(9, 1, 64)); });
  corpus.add("G7", "arrays in arrays a hundred deep", kUnsupported, "an array of arrays",
             [](GgufImage& i) {
               Bytes value;
               for (u32 depth = 0; depth < 100; ++depth) {
                 put_u32(value, GgufId::kArray);
                 put_u64(value, 1);
               }
               i.set_raw("odd", GgufId::kArray, value);
             });
  for (const u64 n : {kMax, kMax - 7, u64{1} << 32, u64{kMiB}}) {
    corpus.add("G7", "a token of " + std::to_string(n) + " bytes", kInvalid, kCutOff,
               [n](GgufImage& i) {
                 Bytes value = array_value(GgufId::kString, 2, 0);
                 put_string(value, "good");
                 put_u64(value, n);
                 value.resize(value.size() + 100);
                 i.set_raw("odd", 9, value);
               });
  }
  corpus.add("G3", "a token beyond the end of the file", kInvalid, kCutOff, [](GgufImage& i) {
    i = GgufImage{};
    Bytes value = array_value(GgufId::kString, 1, 0);
    put_u64(value, 60000);
    i.set_raw("odd", 9, value);
  });
  corpus.add_bytes("G7", "a directory of 33 MiB of empty tokens", kInvalid,
                   "directory is larger than any real model's", [] {
                     GgufImage image;
                     image.set_raw("a", 9, array_value(GgufId::kString, 4'000'000, 32'000'000));
                     image.set_raw("b", 9, array_value(GgufId::kString, 400'000, 3'200'000));
                     return image.bytes();
                   });
  corpus.add_bytes("G7", "a directory of 33 MiB of numbers", kInvalid,
                   "directory is larger than any real model's", [] {
                     GgufImage image;
                     image.set_raw("a", 9, array_value(GgufId::kU64, 4'190'000, 33'520'000));
                     image.set_raw("b", 9, array_value(GgufId::kU64, 10'000, 80'000));
                     return image.bytes();
                   });
}

void add_tensors(CorpusBuilder& corpus) {
  const auto on_first = [](auto change) {
    return [change](GgufImage& i) { change(i.tensors.front()); };
  };
  corpus.add("G8", "a tensor without a name", kInvalid, "a key or tensor without a name",
             on_first([](GgufTensorEntry& t) { t.name.clear(); }));
  corpus.add("G7", "a tensor name of 65 bytes", kInvalid, "is too long",
             on_first([](GgufTensorEntry& t) { t.name = std::string(65, 't'); }));
  corpus.add("G8", "a tensor name with a terminal escape", kUnsupported,
             "a tensor that this architecture does not have would be ignored: ?]0;x?ä",
             on_first([](GgufTensorEntry& t) { t.name = "\x1b]0;x\x07ä"; }));
  for (const u32 n : {0u, 5u, 255u, 0x80000000u, 0xFFFFFFFFu}) {
    corpus.add(n == 0 ? "G2" : "G1", "a tensor of " + std::to_string(n) + " dimensions", kInvalid,
               "does not have 1 to 4 dimensions",
               on_first([n](GgufTensorEntry& t) { t.n_dims = n; }));
  }
  for (u32 dim = 0; dim < 4; ++dim) {
    corpus.add("G2", "ggml PR 1517: dimension " + std::to_string(dim) + " is zero", kInvalid,
               "has a dimension of zero", on_first([dim](GgufTensorEntry& t) {
                 t.dims.resize(4, 1);
                 t.dims[dim] = 0;
               }));
  }
  corpus.add_bytes("G2", "ggml PR 1517: 73 bytes with a dimension of zero", kInvalid,
                   "has a dimension of zero", [] {
                     GgufImage image;
                     image.add_tensor("t", 2, {0}, {});
                     Bytes bytes = image.bytes();
                     bytes.resize(73);
                     return bytes;
                   });
  // CVE-2026-33298: products that wrap to a small number of bytes.
  struct Shape {
    std::vector<u64> dims;
    u32 type;
  };
  const Shape kShapes[] = {
      {{u64{1} << 32, u64{1} << 32}, 0},
      {{u64{1} << 31, u64{1} << 31, 4}, 0},
      {{u64{1} << 62, 4}, 0},
      {{u64{1} << 63}, 1},
      {{kMax}, 24},
      {{kMax, kMax, kMax, kMax}, 24},
      {{u64{1} << 16, u64{1} << 16, u64{1} << 16, u64{1} << 16}, 0},
      {{u64{1} << 21, u64{1} << 21, u64{1} << 21, 2}, 0},
      {{0x4000000000000001, 4}, 0},
      {{u64{1} << 60, 32}, 8},
      {{u64{1} << 62}, 12},
      {{(u64{1} << 42) + 32}, 8},
      {{0x8000000000000000, 2}, 24},
      {{u64{1} << 40, 5}, 0},
  };
  for (const Shape& shape : kShapes) {
    std::string text;
    for (const u64 dim : shape.dims) text += " " + std::to_string(dim);
    corpus.add("G1", "CVE-2026-33298: dimensions" + text, kInvalid, kProduct,
               [shape](GgufImage& i) {
                 i.tensors.front().dims = shape.dims;
                 i.tensors.front().type = shape.type;
               });
  }
  struct Rows {
    u32 type;
    u64 k;
  };
  std::vector<Rows> wrong = {Rows{40, 32}};  // one of a type that this build cannot compute with
  for (const auto& traits : kernels::kTypeTraits) {
    if (traits.block_elems == 1) continue;
    const u32 type = static_cast<u32>(traits.type), k = traits.block_elems;
    for (const u32 n : {k / 2, k - 1, k + 1}) wrong.push_back({type, n});
  }
  for (const Rows rows : wrong) {
    corpus.add("G1", "a row of " + std::to_string(rows.k) + " in type " + std::to_string(rows.type),
               kInvalid, "not a whole number of its type's blocks", [rows](GgufImage& i) {
                 i.tensors.front().dims[0] = rows.k;
                 i.tensors.front().type = rows.type;
               });
  }
  corpus.add("G9", "two tensors of one name", kInvalid, "the tensor is in the file twice",
             [](GgufImage& i) { i.tensors.back().name = i.tensors.front().name; });
}

void add_extents(CorpusBuilder& corpus) {
  const auto at = [](u64 offset) {
    return [offset](GgufImage& i) { i.tensors.back().offset = offset; };
  };
  // CVE-2026-7482: a range that the file does not have is read, and what lies behind is disclosed.
  for (const u64 offset : {u64{1} << 20, u64{1} << 32, u64{1} << 62, kMax - 31, kMax - 4095}) {
    corpus.add("G3", "CVE-2026-7482: a tensor at offset " + std::to_string(offset), kInvalid,
               kBeyond, at(offset));
  }
  corpus.add("G3", "CVE-2026-7482: a tensor longer than the rest of the file", kInvalid, kBeyond,
             [](GgufImage& i) { i.tensors.back().dims[1] *= 2; });
  corpus.add("G3", "a tensor of 4 TiB in a small file", kInvalid, kBeyond,
             [](GgufImage& i) { i.tensors.back().dims = {u64{1} << 40}; });
  // CVE-2025-53630 and its bypass, PR 24759: a size near 2^64 that its padding wraps to nothing.
  corpus.add("G1", "PR 24759: a type with the most bytes for its elements", kInvalid, kBeyond,
             [](GgufImage& i) {
               i.tensors.back().type = 28;
               i.tensors.back().dims = {u64{1} << 42};
             });
  corpus.add("G1", "CVE-2025-53630: the sum of all sizes wraps", kInvalid, kBeyond,
             [](GgufImage& i) {
               for (auto& tensor : i.tensors) tensor.dims = {u64{1} << 42};
             });
  corpus.add(
      "G1", "CVE-2026-27940: an offset that wraps with the data's start", kInvalid, kBeyond,
      [](GgufImage& i) { i.tensors.back().offset = (kMax - i.directory_bytes()) & ~u64{31}; });
  for (const u64 offset : {u64{1}, u64{8}, u64{31}, u64{33}}) {
    corpus.add("G3", "a tensor at the odd offset " + std::to_string(offset), kInvalid, kUnaligned,
               at(offset));
  }
  corpus.add("G3", "two tensors in one place", kInvalid, kOver, at(0));
  corpus.add("G3", "a tensor that begins inside another", kInvalid, kOver, at(32));
  corpus.add("G3", "a tensor of an unknown type in another's place", kInvalid, kOver,
             [](GgufImage& i) {
               i.tensors.back().type = 77;
               i.tensors.back().offset = 0;
             });
  corpus.add("G3", "a tensor of an unknown type behind the end", kInvalid, kBeyond,
             [](GgufImage& i) {
               i.tensors.back().type = 77;
               i.tensors.back().offset = u64{1} << 30;
             });
  for (const u64 n : {u64{1}, u64{32}, u64{4096}, u64{1} << 20}) {
    corpus.add("F", std::to_string(n) + " bytes behind the last tensor", kInvalid,
               "continues after its last tensor", [n](GgufImage& i) { i.trailing.resize(n); });
  }
  corpus.add("F", "bytes behind a vocabulary", kInvalid, "continues after its last tensor",
             [](GgufImage& i) {
               i.tensors.clear();
               i.trailing.resize(100);
             });
  for (const u32 n : {0u, 1u, 4u, 7u, 24u, 33u, 2097152u, 0x80000000u, 0xFFFFFFFFu}) {
    corpus.add(n == 0 ? "G2" : "G1", "an alignment of " + std::to_string(n), kInvalid,
               "not a power of two within the limits",
               [n](GgufImage& i) { i.set_u32("general.alignment", n); });
  }
  corpus.add("G8", "an alignment as u64", kInvalid, "must be a u32: general.alignment",
             [](GgufImage& i) { i.set_u64("general.alignment", 32); });
  corpus.add("G8", "an alignment as text", kInvalid, "must be a u32: general.alignment",
             [](GgufImage& i) { i.set_string("general.alignment", "32"); });
  corpus.add("G8", "an alignment as an array", kInvalid, "must be a u32: general.alignment",
             [](GgufImage& i) { i.set_u32s("general.alignment", {32}); });
  corpus.add("G3", "data cut by one byte", kInvalid, kBeyond, [](GgufImage& i) {
    i.pad_end = false;
    i.tensors.back().data.pop_back();
  });
  corpus.add("G3", "no data at all", kInvalid, kBeyond, [](GgufImage& i) {
    for (auto& tensor : i.tensors) tensor.data.clear();
  });
}

// PR 19856 and #19919: the check for duplicates must not be quadratic. Names differ in their last
// bytes only, so that comparing is as slow as it gets; the last repeats the first.
void add_slow_names(CorpusBuilder& corpus) {
  corpus.add_bytes("G9", "PR 19856: as many keys as there may be, the last a duplicate", kInvalid,
                   "the key is in the file twice", [] {
                     GgufImage image;
                     for (u64 n = 0; n < Limits::kKeysMax; ++n) {
                       std::string name(Limits::kKeyNamesBytesMax / Limits::kKeysMax - 9, 'k');
                       name += std::to_string(10'000'000 + n % (Limits::kKeysMax - 1));
                       image.keys.push_back({name, GgufId::kU8, Bytes(1)});
                     }
                     return image.bytes();
                   });
  corpus.add_bytes("G9", "PR 19856: as many tensors as there may be, the last a duplicate",
                   kInvalid, "the tensor is in the file twice", [] {
                     GgufImage image;
                     for (u64 n = 0; n < Limits::kTensorsMax; ++n) {
                       std::string name(Limits::kTensorNameBytesMax - 8, 't');
                       name += std::to_string(10'000'000 + n % (Limits::kTensorsMax - 1));
                       image.tensors.push_back({name, 24, {1}, Bytes(1), {}, {}});
                     }
                     return image.bytes();
                   });
  corpus.add_bytes("G9", "as many tensors as there may be, none of them known", kUnsupported,
                   "a tensor that this architecture does not have", [] {
                     GgufImage image = tiny_model({});
                     while (image.tensors.size() < Limits::kTensorsMax) {
                       image.tensors.push_back(
                           {"t" + std::to_string(image.tensors.size()), 24, {1}, Bytes(1), {}, {}});
                     }
                     return image.bytes();
                   });
  corpus.add_bytes("G9", "as many layers as there may be, all missing", kInvalid,
                   "missing: blk.2.attn_norm.weight", [] {
                     GgufImage image = tiny_model({});
                     image.set_u32("llama.block_count", model::kLayersMax);
                     return image.bytes();
                   });
}

void add_changing_files(CorpusBuilder& corpus) {
  const Bytes whole = tiny_model({}).bytes();
  for (const u64 to_bytes : {u64{0}, u64{100}, u64{4096}, u64{whole.size() - 1}}) {
    HostileCase c{"G4",
                  "cut to " + std::to_string(to_bytes) + " bytes while it is read",
                  [] { return tiny_model({}).bytes(); },
                  Status::io_failed,
                  "became shorter while it was read",
                  {}};
    c.script.shrink_at_read = 0;
    c.script.shrink_to_bytes = to_bytes;
    corpus.add_case(c);
  }
  HostileCase c{"G4",
                "cut behind the directory while it is read",
                [] {
                  GgufImage image = tiny_model({.n_vocab = 20000});
                  return image.bytes();
                },
                kInvalid,
                "length changed while it was read",
                {}};
  c.script.shrink_at_read = 1;
  c.script.shrink_to_bytes = 700 * kKiB;
  corpus.add_case(c);
  HostileCase failing{"G4",
                      "a disk that fails",
                      [] { return tiny_model({}).bytes(); },
                      Status::io_failed,
                      "reading the model file failed",
                      {}};
  failing.script.fail_at_read = 0;
  corpus.add_case(failing);
}

}  // namespace

void add_byte_cases(CorpusBuilder& corpus) {
  add_header(corpus);
  add_keys(corpus);
  add_strings_and_arrays(corpus);
  add_tensors(corpus);
  add_extents(corpus);
  add_slow_names(corpus);
  add_changing_files(corpus);
}

}  // namespace tarn::test
