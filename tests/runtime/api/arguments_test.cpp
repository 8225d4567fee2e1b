// Goal    what a host's arguments promise is checked before it is used: a count, before anything of
//         what it counts is read; a flag or a field that this version does not know is refused.
// Method  arrays that end where memory ends, with counts up to the greatest; each bit of each flags
//         argument; structs of a later version, with zeros in what is new and with more.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/runtime/api/host.h"
#include "tests/support/open_engine.h"

namespace tarn::arguments_test {
namespace {

using test::Host;
using test::SmallModel;

// `n` values behind which nothing can be read.
template <class T>
class LastOfMemory {
 public:
  LastOfMemory(u64 n, T value) {
    bytes_ = static_cast<char*>(
        mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(static_cast<void*>(bytes_) != MAP_FAILED);
    REQUIRE(mprotect(bytes_ + kBytes, kBytes, PROT_NONE) == 0);
    data_ = reinterpret_cast<T*>(bytes_ + kBytes - n * sizeof(T));
    std::fill_n(data_, n, value);
  }
  ~LastOfMemory() { munmap(bytes_, 2 * kBytes); }
  LastOfMemory(const LastOfMemory&) = delete;
  LastOfMemory& operator=(const LastOfMemory&) = delete;
  T* data() const { return data_; }

 private:
  static constexpr u64 kBytes = 65536;  // whole pages of the system, whatever they measure
  char* bytes_ = nullptr;
  T* data_ = nullptr;
};

constexpr u64 kHugeCounts[] = {u64{1} << 32, (u64{1} << 62) + 1, u64{UINT64_MAX}};

tarn_options options_of(const SmallModel& model) {
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = model.path().c_str();
  options.budget_bytes = u64{1} << 30;
  return options;
}

TEST_CASE("more tokens or text than the context has are refused unread") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* session = host.session();
  const LastOfMemory<u32> ids(4, 1);
  const LastOfMemory<char> text(4, 'a');
  REQUIRE(tarn_session_feed(session, ids.data(), 4) == TARN_OK);
  u32 id = 0;
  u64 n_out = 0;
  for (const u64 n : kHugeCounts) {
    CAPTURE(n);
    CHECK(tarn_session_feed(session, ids.data(), n) == TARN_INVALID_REQUEST);
    tarn_error why = TARN_INIT(tarn_error);
    REQUIRE(tarn_error_get(&why) == TARN_OK);
    CHECK(why.reason == TARN_REASON_CONTEXT_TOO_LONG);
    CHECK(why.figures[0].value >= n);  // four more are there
    CHECK(why.figures[1].value == 512);
    CHECK(tarn_tokenize(host.engine, text.data(), n, 0, &id, 1, &n_out) == TARN_INVALID_REQUEST);
    CHECK(tarn_session_feed_text(session, text.data(), n, 0) == TARN_INVALID_REQUEST);
  }
  CHECK(tarn_session_feed(session, ids.data(), 509) == TARN_INVALID_REQUEST);
  tarn_session_info info = TARN_INIT(tarn_session_info);
  REQUIRE(tarn_session_info_get(session, &info) == TARN_OK);
  CHECK(info.n_tokens == 4);
}

TEST_CASE("more stop strings, biases or CPUs than there may be are refused unread") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* session = host.session();
  const u32 id = 1;
  REQUIRE(tarn_session_feed(session, &id, 1) == TARN_OK);
  const LastOfMemory<tarn_logit_bias> biases(256, {1, 0.0f});
  tarn_generate_options generate = TARN_INIT(tarn_generate_options);
  generate.logit_biases = biases.data();
  generate.n_logit_biases = UINT32_MAX;
  CHECK(tarn_session_generate(session, &generate) == TARN_INVALID_REQUEST);

  const LastOfMemory<const char*> stops(16, "x");
  generate = TARN_INIT(tarn_generate_options);
  generate.stops = stops.data();
  generate.n_stops = UINT32_MAX;
  CHECK(tarn_session_generate(session, &generate) == TARN_INVALID_REQUEST);
  const LastOfMemory<char> endless(129, 'a');  // one byte longer than a stop string may be
  *stops.data() = endless.data();
  generate.n_stops = 1;
  CHECK(tarn_session_generate(session, &generate) == TARN_INVALID_REQUEST);

  const LastOfMemory<u32> cpus(4, 0);
  tarn_options options = options_of(model);
  options.cpus = cpus.data();
  options.n_cpus = UINT32_MAX;
  tarn_engine* engine = nullptr;
  CHECK(tarn_open(&options, &engine) == TARN_INVALID_CONFIG);
  CHECK(engine == nullptr);
  tarn_plan plan = TARN_INIT(tarn_plan);
  CHECK(tarn_plan_memory(&options, &plan) == TARN_INVALID_CONFIG);
}

TEST_CASE("each bit of flags means something, or is refused") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* session = host.session();
  u32 ids[16];
  u64 n = 0, n_known = 0;
  for (u32 bit = 0; bit < 32; ++bit) {
    CAPTURE(bit);
    const u32 flags = u32{1} << bit;
    const bool is_known =
        flags == TARN_ADD_SPECIAL || flags == TARN_PARSE_SPECIAL || flags == TARN_ADD_BOS;
    n_known += is_known;
    const i32 want = is_known ? TARN_OK : TARN_INVALID_REQUEST;
    CHECK(tarn_tokenize(host.engine, "ab", 2, flags, ids, 16, &n) == want);
    CHECK((n > 0) == is_known);
    CHECK(tarn_session_feed_text(session, "ab", 2, flags) == want);
    if (is_known) continue;
    CHECK(std::string(tarn_error_text()).find("flags") != std::string::npos);
    CHECK(tarn_tokenize(host.engine, "ab", 2, flags | 7, ids, 16, &n) == want);
  }
  CHECK(n_known == 3);
}

// A struct as a later version's header has it, with one more field.
template <class T>
struct Later {
  T known = TARN_INIT(T);
  u64 later = 0;
  const T* pointer() {
    known.struct_size = sizeof *this;
    return &known;
  }
};

TEST_CASE("a struct of a later version is taken while what is new in it is zero") {
  const SmallModel model("llama", "f16");
  Later<tarn_options> options{.known = options_of(model)};
  tarn_plan plan = TARN_INIT(tarn_plan);
  tarn_engine* engine = nullptr;
  CHECK(tarn_plan_memory(options.pointer(), &plan) == TARN_OK);
  options.later = 1;
  CHECK(tarn_plan_memory(options.pointer(), &plan) == TARN_INVALID_REQUEST);
  CHECK(tarn_open(options.pointer(), &engine) == TARN_INVALID_REQUEST);
  CHECK(std::string(tarn_error_text()).find("newer") != std::string::npos);
  options.later = 0;
  REQUIRE(tarn_open(options.pointer(), &engine) == TARN_OK);

  tarn_session* session = nullptr;
  REQUIRE(tarn_session_create(engine, nullptr, &session) == TARN_OK);
  REQUIRE(tarn_session_feed_text(session, "ab", 2, 0) == TARN_OK);
  Later<tarn_generate_options> generate;
  generate.known.max_tokens = 2;
  generate.later = u64{1} << 63;
  CHECK(tarn_session_generate(session, generate.pointer()) == TARN_INVALID_REQUEST);
  CHECK(tarn_session_run(session, generate.pointer(), nullptr, nullptr) == TARN_INVALID_REQUEST);
  generate.later = 0;
  CHECK(tarn_session_run(session, generate.pointer(), nullptr, nullptr) == TARN_OK);
  // A size that was never set may be anything.
  const LastOfMemory<tarn_generate_options> last(1, TARN_INIT(tarn_generate_options));
  last.data()->struct_size = UINT32_MAX;
  CHECK(tarn_session_generate(session, last.data()) == TARN_INVALID_REQUEST);
  tarn_close(engine);
}

}  // namespace
}  // namespace tarn::arguments_test
