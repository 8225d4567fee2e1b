// Goal    a right GGUF file is read as it was written, whatever its sizes; values come out as the
// type
//         that was asked for, or not at all; a disk that fails or a file that changes is an error.
// Method  images built in memory, read through a backend that refuses misaligned requests; arrays
// that
//         cross the reader's window; every read failed in turn.
#include "runtime/model/gguf.h"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"
#include "tests/support/memory_io.h"

namespace tarn::model::gguf_test {
namespace {

using test::Bytes;
using test::GgufId;
using test::GgufImage;
using test::MemoryIo;

struct Opened {
  Bytes bytes;
  MemoryIo io;
  std::vector<std::byte> memory = std::vector<std::byte>(kGgufMemoryBytesMax + 2 * kMiB);
  Bump bump{memory};
  Result<GgufFile> file = fail({});

  explicit Opened(const GgufImage& image) : Opened(image.bytes()) {}
  explicit Opened(Bytes file_bytes, GgufData data = GgufData::needed)
      : bytes(std::move(file_bytes)) {
    file = GgufFile::read(io, io.add(bytes), bump, data);
  }
};

template <class T>
std::string hint_of(const Result<T>& result) {
  return result ? "no error" : result.error().hint;
}

GgufImage sample() {
  GgufImage image;
  image.set_string("general.architecture", "llama");
  image.set_u8("a.u8", 255);
  image.set_i8("a.i8", -7);
  image.set_u16("a.u16", 65535);
  image.set_i16("a.i16", -300);
  image.set_u32("a.u32", 4000000000u);
  image.set_i32("a.i32", -2000000000);
  image.set_u64("a.u64", ~u64{0});
  image.set_i64("a.i64", 77);
  image.set_f32("a.f32", 1.5f);
  image.set_f64("a.f64", 2.25);
  image.set_bool("a.bool", true);
  image.set_strings("a.texts", {"", "one", std::string("t\0o", 3), "\xff\xfe"});
  image.set_f32s("a.f32s", {1.0f, -2.0f});
  image.set_i32s("a.i32s", {3, -4});
  image.add_f32("first.weight", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  image.add_f32("second.weight", {3}, {9, 10, 11});
  return image;
}

TEST_CASE("keys and tensors come out as they were written") {
  for (const u32 version : {2u, 3u}) {
    GgufImage image = sample();
    image.version = version;
    Opened opened(image);
    REQUIRE_MESSAGE(opened.file.has_value(), hint_of(opened.file));
    const GgufFile& file = *opened.file;
    CHECK(file.version() == version);
    CHECK(file.file_bytes() == opened.bytes.size());
    CHECK(file.keys().size() == image.keys.size());
    CHECK(file.data_offset() == align_up(image.directory_bytes(), 32));
    CHECK(opened.bump.used_bytes() <= kGgufMemoryBytesMax);

    const GgufTensor* second = file.find_tensor("second.weight");
    REQUIRE(second != nullptr);
    CHECK(second->n_dims == 1);
    CHECK(second->dims[0] == 3);
    CHECK(second->dims[1] == 1);
    CHECK(second->bytes == 12);
    f32 values[3];
    std::memcpy(values, opened.bytes.data() + second->offset, sizeof values);
    CHECK(values[2] == 11.0f);
    CHECK(std::strlen(second->name.data()) == second->name.size());
    CHECK(file.find_tensor("third.weight") == nullptr);
    CHECK(file.find_key("a.") == nullptr);
  }
}

TEST_CASE("a number is given as the type that was asked for, or refused") {
  Opened opened(sample());
  REQUIRE(opened.file.has_value());
  const GgufFile& file = *opened.file;
  CHECK(**file.get_u64("a.u8") == 255);
  CHECK(**file.get_u64("a.u16") == 65535);
  CHECK(**file.get_u64("a.u32") == 4000000000u);
  CHECK(**file.get_u64("a.u64") == ~u64{0});
  CHECK(**file.get_u64("a.i64") == 77);
  CHECK(**file.get_f64("a.f32") == 1.5);
  CHECK(**file.get_f64("a.f64") == 2.25);
  CHECK(**file.get_bool("a.bool"));
  CHECK_FALSE(file.get_u64("absent")->has_value());
  CHECK_FALSE(file.get_f64("absent")->has_value());
  CHECK_FALSE(file.get_bool("absent")->has_value());
  CHECK_FALSE(file.get_string("absent", opened.bump, 10)->has_value());

  for (const char* key : {"a.i8", "a.i16", "a.i32"}) {
    CAPTURE(key);
    CHECK(hint_of(file.get_u64(key)) == "the key's value is negative");
  }
  for (const char* key : {"a.f32", "a.bool", "a.texts", "general.architecture"}) {
    CAPTURE(key);
    CHECK(hint_of(file.get_u64(key)).find("must be an integer") != std::string::npos);
  }
  CHECK(hint_of(file.get_f64("a.u32")).find("floating-point") != std::string::npos);
  CHECK(hint_of(file.get_bool("a.u8")).find("boolean") != std::string::npos);
  CHECK(hint_of(file.get_string("a.u8", opened.bump, 10)).find("text") != std::string::npos);
  CHECK(hint_of(file.get_string("general.architecture", opened.bump, 4)).find("too long") !=
        std::string::npos);
  CHECK(**file.get_string("general.architecture", opened.bump, 5) == "llama");
}

TEST_CASE("numbers that are not finite and texts with a zero byte are refused") {
  GgufImage image;
  image.set_f32("nan", std::numeric_limits<f32>::quiet_NaN());
  image.set_f64("inf", std::numeric_limits<f64>::infinity());
  image.set_string("zero", std::string_view("a\0b", 3));
  Opened opened(image);
  REQUIRE(opened.file.has_value());
  CHECK(hint_of(opened.file->get_f64("nan")).find("finite") != std::string::npos);
  CHECK(hint_of(opened.file->get_f64("inf")).find("finite") != std::string::npos);
  CHECK(hint_of(opened.file->get_string("zero", opened.bump, 9)).find("zero") != std::string::npos);
}

struct Collected {
  std::vector<std::string> texts;
  u64 stop_after = ~u64{0};
};
Result<void> collect(void* context, u64 index, std::string_view text) {
  auto* collected = static_cast<Collected*>(context);
  CHECK(index == collected->texts.size());
  if (index == collected->stop_after) return fail({.status = Status::cancelled, .hint = "stop"});
  collected->texts.emplace_back(text);
  return {};
}

TEST_CASE("a key that is not used may have any name and any value that lies in the directory") {
  const std::string_view names[] = {"général.nom",
                                    "日本語",
                                    "General.Name",
                                    "a key with spaces",
                                    " ",
                                    ".",
                                    "..a..",
                                    "llama",
                                    "\xff\xfe",
                                    "a\x1b[2Jb\r\n",
                                    std::string_view("general\0x", 9),
                                    std::string_view("general\0y", 9)};
  const std::string longest(GgufLimits::kKeyNameBytesMax, 'k');
  const std::vector<std::string> texts = {"", std::string(100'000, 't'), "\xff"};
  GgufImage image = sample();
  u32 n = 0;
  for (const std::string_view name : names) image.set_u32(name, ++n);
  image.set_u32(longest, 77);
  image.set_string("tokenizer.huggingface.json", std::string(2 * kMiB, 'j'));
  image.set_strings("notes", texts);
  image.set_strings("none", {});
  image.set_raw("odd", GgufId::kBool, Bytes(1, std::byte{2}));
  Opened opened(image);
  REQUIRE_MESSAGE(opened.file.has_value(), hint_of(opened.file));
  const GgufFile& file = *opened.file;
  CHECK(opened.bump.used_bytes() <= kGgufMemoryBytesMax);
  CHECK(file.keys().size() == image.keys.size());
  n = 0;
  for (const std::string_view name : names) {
    CAPTURE(name);
    CHECK(**file.get_u64(name) == ++n);
  }
  CHECK(**file.get_u64(longest) == 77);
  CHECK(**file.get_u64("a.u16") == 65535);
  // A value that is used still has its bounds.
  Collected collected;
  CHECK(hint_of(file.each_string(*file.find_key("notes"), collect, &collected))
            .find("longer than any real token") != std::string::npos);
  CHECK(collected.texts.size() == 1);
  CHECK(hint_of(file.get_bool("odd")).find("neither 0 nor 1") != std::string::npos);
  CHECK(
      hint_of(file.get_string("tokenizer.huggingface.json", opened.bump, kMiB)).find("too long") !=
      std::string::npos);
}

TEST_CASE("arrays are streamed whole, also where they cross the window") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  std::vector<std::string> texts;
  std::vector<f32> scores;
  std::vector<i32> kinds;
  for (u32 i = 0; i < 30000; ++i) {
    const u64 n = i % 5000 == 1 ? GgufLimits::kArrayStringBytesMax : random.below(40);
    std::string text(n, 'x');
    for (char& c : text) c = static_cast<char>(random.next());
    texts.push_back(text);
    scores.push_back(random.normal());
    kinds.push_back(static_cast<i32>(random.next()));
  }
  GgufImage image;
  image.set_strings("texts", texts);
  image.set_f32s("scores", scores);
  image.set_i32s("kinds", kinds);
  Opened opened(image);
  REQUIRE_MESSAGE(opened.file.has_value(), hint_of(opened.file));
  const GgufFile& file = *opened.file;
  Collected collected;
  REQUIRE(file.each_string(*file.find_key("texts"), collect, &collected).has_value());
  CHECK(collected.texts == texts);
  std::vector<f32> scores_read(scores.size());
  REQUIRE(file.read_f32(*file.find_key("scores"), scores_read).has_value());
  CHECK(scores_read == scores);
  std::vector<i32> kinds_read(kinds.size());
  REQUIRE(file.read_i32(*file.find_key("kinds"), kinds_read).has_value());
  CHECK(kinds_read == kinds);

  Collected stopped{.texts = {}, .stop_after = 3};
  CHECK(hint_of(file.each_string(*file.find_key("texts"), collect, &stopped)) == "stop");
  CHECK(stopped.texts.size() == 3);
  CHECK(hint_of(file.each_string(*file.find_key("kinds"), collect, &stopped)).find("texts") !=
        std::string::npos);
  CHECK(hint_of(file.read_i32(*file.find_key("scores"), kinds_read)).find("integers") !=
        std::string::npos);
  CHECK(hint_of(file.read_f32(*file.find_key("texts"), scores_read)).find("numbers") !=
        std::string::npos);
}

TEST_CASE("the directory of a big-endian file reads alike, where it may be of any order") {
  const Bytes bytes = test::big_endian(sample().bytes());
  CHECK(hint_of(Opened(bytes).file).find("big-endian") != std::string::npos);
  CHECK(hint_of(Opened(bytes, GgufData::may_miss).file).find("big-endian") != std::string::npos);
  const Opened native(sample()), other(bytes, GgufData::of_any_order);
  REQUIRE_MESSAGE(other.file.has_value(), hint_of(other.file));
  CHECK(other.file->is_big_endian());
  CHECK_FALSE(native.file->is_big_endian());
  CHECK(other.file->version() == native.file->version());
  REQUIRE(other.file->keys().size() == native.file->keys().size());
  for (const GgufKey& key : native.file->keys()) {
    CAPTURE(std::string(key.name));
    const GgufKey* found = other.file->find_key(key.name);
    REQUIRE(found != nullptr);
    CHECK(found->type == key.type);
    CHECK(found->count == key.count);
    CHECK(found->bits == key.bits);
  }
  Collected texts;
  REQUIRE(other.file->each_string(*other.file->find_key("a.texts"), collect, &texts).has_value());
  CHECK(texts.texts.size() == 4);
  f32 reals[2];
  REQUIRE(other.file->read_f32(*other.file->find_key("a.f32s"), reals).has_value());
  CHECK(reals[1] == -2.0f);
  i32 integers[2];
  REQUIRE(other.file->read_i32(*other.file->find_key("a.i32s"), integers).has_value());
  CHECK(integers[1] == -4);
  for (const GgufTensor& tensor : native.file->tensors()) {
    const GgufTensor* found = other.file->find_tensor(tensor.name);
    REQUIRE(found != nullptr);
    CHECK(found->dims[0] == tensor.dims[0]);
    CHECK(found->offset == tensor.offset);
    CHECK(found->bytes == tensor.bytes);
  }
}

TEST_CASE("an array of any integer type is read as i32 where its values fit") {
  struct Case {
    const char* name;
    u32 type;
    u64 element_bytes;
    u64 bits;
    bool fits;
    i32 want;
  };
  constexpr Case kCases[] = {
      {"u8 max", 0, 1, 255, true, 255},
      {"i8 min", 1, 1, 0x80, true, -128},
      {"u16 max", 2, 2, 0xFFFF, true, 65535},
      {"i16 min", 3, 2, 0x8000, true, -32768},
      {"u32 at the border", 4, 4, 0x7FFFFFFF, true, 0x7FFFFFFF},
      {"u32 beyond", 4, 4, 0x80000000, false, 0},
      {"i32 min", 5, 4, 0x80000000, true, std::numeric_limits<i32>::min()},
      {"u64 beyond", 10, 8, 0x100000001, false, 0},
      {"u64 that looks negative", 10, 8, ~u64{0}, false, 0},
      {"i64 -1", 11, 8, ~u64{0}, true, -1},
      {"i64 below", 11, 8, 0xFFFFFFFF7FFFFFFF, false, 0},
      {"i64 beyond", 11, 8, 0x80000000, false, 0},
  };
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    Bytes element;
    test::put_bytes(element, &c.bits, c.element_bytes);
    GgufImage image;
    image.set_array("values", c.type, 1, element);
    Opened opened(image);
    REQUIRE(opened.file.has_value());
    i32 out = 0;
    const auto done = opened.file->read_i32(*opened.file->find_key("values"), {&out, 1});
    CHECK(done.has_value() == c.fits);
    if (c.fits) CHECK(out == c.want);
  }
}

TEST_CASE("an array of any type of numbers is read as f32") {
  struct Case {
    const char* name;
    u32 type;
    u64 element_bytes;
    u64 bits;
    f32 want;
  };
  constexpr Case kCases[] = {
      {"u8 max", GgufId::kU8, 1, 255, 255.0f},
      {"i8 min", GgufId::kI8, 1, 0x80, -128.0f},
      {"i32 -1000", GgufId::kI32, 4, 0xFFFFFC18, -1000.0f},
      {"u32 max, rounded", GgufId::kU32, 4, 0xFFFFFFFF, 4294967296.0f},
      {"u64 max, rounded", GgufId::kU64, 8, ~u64{0}, 18446744073709551616.0f},
      {"i64 -1", GgufId::kI64, 8, ~u64{0}, -1.0f},
  };
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    Bytes element;
    test::put_bytes(element, &c.bits, c.element_bytes);
    GgufImage image;
    image.set_array("values", c.type, 1, element);
    image.set_array("flags", GgufId::kBool, 1, std::span(element).first(1));
    Opened opened(image);
    REQUIRE(opened.file.has_value());
    f32 out = 0.0f;
    REQUIRE(opened.file->read_f32(*opened.file->find_key("values"), {&out, 1}).has_value());
    CHECK(out == c.want);
    CHECK_FALSE(opened.file->read_f32(*opened.file->find_key("flags"), {&out, 1}).has_value());
  }
}

TEST_CASE("an f64 array narrows to f32 where it fits") {
  Bytes elements;
  const f64 values[] = {0.1, -std::numeric_limits<f64>::infinity(), 1e39};
  test::put_bytes(elements, values, sizeof values);
  GgufImage image;
  image.set_array("fit", 12, 2, std::span(elements).first(16));
  image.set_array("beyond", 12, 3, elements);
  Opened opened(image);
  REQUIRE(opened.file.has_value());
  f32 out[3];
  REQUIRE(opened.file->read_f32(*opened.file->find_key("fit"), std::span(out, 2)).has_value());
  CHECK(out[0] == 0.1f);
  CHECK(out[1] == -std::numeric_limits<f32>::infinity());
  CHECK_FALSE(opened.file->read_f32(*opened.file->find_key("beyond"), out).has_value());
}

TEST_CASE("alignments, gaps and unpadded ends that the format allows are read") {
  for (const u64 alignment : {8u, 32u, 64u, 4096u, 1048576u}) {
    CAPTURE(alignment);
    GgufImage image = sample();
    image.alignment = alignment;
    image.set_u32("general.alignment", static_cast<u32>(alignment));
    image.pad_end = alignment != 64;
    Opened opened(image);
    REQUIRE_MESSAGE(opened.file.has_value(), hint_of(opened.file));
    CHECK(opened.file->alignment() == alignment);
    CHECK(opened.file->tensors()[0].offset % alignment == 0);
  }
}

TEST_CASE("a vocabulary-only file needs no tensor, of whatever architecture") {
  GgufImage image;
  image.set_string("general.architecture", "something-new");
  image.set_strings("tokenizer.ggml.tokens", {"a", "b"});
  for (const bool padded : {false, true}) {
    image.trailing.resize(padded ? align_up(image.directory_bytes(), 32) - image.directory_bytes()
                                 : 0);
    Opened opened(image);
    REQUIRE_MESSAGE(opened.file.has_value(), hint_of(opened.file));
    CHECK(opened.file->tensors().empty());
  }
}

TEST_CASE("a tensor of a type that nobody knows keeps its place and its id") {
  GgufImage image;
  image.add_tensor("odd", 999, {5}, Bytes(100));
  image.add_f32("even", {1}, {1});
  Opened opened(image);
  REQUIRE_MESSAGE(opened.file.has_value(), hint_of(opened.file));
  CHECK(opened.file->find_tensor("odd")->bytes == 0);
  CHECK(opened.file->find_tensor("odd")->type_id == 999);
  CHECK(std::string(gguf_tensor_type_name(999)) == "unknown");
  CHECK(std::string(gguf_tensor_type_name(23)) == "iq4_xs");
}

TEST_CASE("every read that fails is an error, and nothing of the memory is kept") {
  GgufImage image = sample();
  std::vector<std::string> texts(60000, "0123456789abcdef");
  image.set_strings("texts", texts);
  Opened opened(image);
  REQUIRE(opened.file.has_value());
  const u64 n_reads = opened.io.n_reads();
  CHECK(n_reads >= 4);
  for (u64 i = 0; i < n_reads; ++i) {
    CAPTURE(i);
    for (const bool shrinks : {false, true}) {
      MemoryIo io;
      (shrinks ? io.script.shrink_at_read : io.script.fail_at_read) = i;
      io.script.shrink_to_bytes = 10;
      Bump bump{opened.memory};
      const auto file = GgufFile::read(io, io.add(opened.bytes), bump);
      REQUIRE_FALSE(file.has_value());
      CHECK(file.error().status == Status::io_failed);
      CHECK(bump.used_bytes() == 0);
    }
  }
}

TEST_CASE("a file that is cut at any byte is refused") {
  const Bytes whole = sample().bytes();
  std::vector<std::byte> memory(kGgufMemoryBytesMax);
  // The last tensor has 12 bytes and 20 of padding, which a file may lack.
  for (u64 n_bytes = 0; n_bytes < whole.size() - 20; ++n_bytes) {
    CAPTURE(n_bytes);
    MemoryIo io;
    Bump bump{memory};
    const auto file = GgufFile::read(io, io.add(std::span(whole).first(n_bytes)), bump);
    REQUIRE_FALSE(file.has_value());
    CHECK(file.error().status == Status::invalid_model);
  }
}

TEST_CASE("where data may miss, the head of a file is read, and says how much is missing") {
  const Bytes whole = sample().bytes();
  std::vector<std::byte> memory(kGgufMemoryBytesMax);
  u32 n_read = 0;
  for (u64 n_bytes = 0; n_bytes <= whole.size(); ++n_bytes) {
    CAPTURE(n_bytes);
    MemoryIo io;
    Bump bump{memory};
    const auto file =
        GgufFile::read(io, io.add(std::span(whole).first(n_bytes)), bump, GgufData::may_miss);
    if (!file) {
      CHECK(file.error().status == Status::invalid_model);
      CHECK(n_read == 0);  // the directory is cut
      continue;
    }
    ++n_read;
    const u64 data_end = whole.size() - 20;
    CHECK(file->missing_bytes() == data_end - std::min(n_bytes, data_end));
    CHECK(file->tensors().size() == sample().tensors.size());
  }
  CHECK(n_read > 50);
}

TEST_CASE("too little memory is an error of its own, at every size") {
  const Bytes bytes = sample().bytes();
  Opened opened(sample());
  REQUIRE(opened.file.has_value());
  const u64 used_bytes = opened.bump.used_bytes();
  for (u64 n_bytes = 0; n_bytes < used_bytes; n_bytes += n_bytes < 255 * kKiB ? 16 * kKiB : 7) {
    CAPTURE(n_bytes);
    MemoryIo io;
    Bump bump{std::span(opened.memory).first(n_bytes)};
    const auto file = GgufFile::read(io, io.add(bytes), bump);
    REQUIRE_FALSE(file.has_value());
    CHECK(file.error().status == Status::over_budget);
  }
}

}  // namespace
}  // namespace tarn::model::gguf_test
