// Goal    a method of lab is one file and one row of its table, and an engine selects by it.
// Method  a table of what each row chooses; an engine that is lent the row answers otherwise than
//         full attention, and says its name.
#include <doctest/doctest.h>

#include "runtime/lab/methods.h"
#include "tests/support/open_engine.h"

namespace tarn::lab_methods_native_test {
namespace {

struct Case {
  const char* name;
  u32 n_tokens, k;
  std::vector<u32> slots;  // of 2 sinks and 3 local ones
};
const Case kCases[] = {
    {"every-second", 12, 8, {0, 1, 2, 4, 6, 8, 9, 10, 11}},
    {"every-second", 12, 2, {0, 1, 2, 4, 9, 10, 11}},
    {"random", 12, 8, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
    {"random", 12, 2, {0, 1, 2, 5, 9, 10, 11}},
    {"random", 5, 2, {0, 1, 2, 3, 4}},
};

TEST_CASE("each row chooses what its rule says") {
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.name));
    CAPTURE(c.n_tokens);
    const method::Method* row = lab::method_named(c.name);
    REQUIRE(row != nullptr);
    alignas(64) std::byte room[64];
    REQUIRE(row->reader_bytes <= sizeof room);
    const SelectConfig config;
    const method::Reader* reader = row->make(
        room, {.config = config, .keys = {}, .capacity_tokens = 64, .head = 0, .region = {}});
    std::vector<u32> slots(64);
    std::vector<std::byte> scratch(1 << 20);
    const u64 at = reinterpret_cast<u64>(scratch.data());
    const u32 n = reader->choose({.table = kernels::cpu_tables().back(),
                                  .query = {nullptr, 1, 1.0f},
                                  .ranges = method::token_ranges(c.n_tokens, 2, 3),
                                  .k = c.k,
                                  .scratch = std::span(scratch).subspan(align_up(at, 64) - at),
                                  .slots = slots},
                                 {});
    slots.resize(n);
    CHECK((slots == c.slots));
  }
  CHECK(lab::method_named("every-third") == nullptr);
}

TEST_CASE("an engine selects by a row that it is lent") {
  const test::SmallModel model("llama", "f16");
  for (const method::Method& row : lab::methods()) {
    CAPTURE(std::string(row.name));
    Config config = test::small_config();
    config.select = {.code_bits = 2, .n_sinks = 4, .n_local = 8, .k = 16, .index_delay_tokens = 1};
    config.select.lab_method = &row;
    test::OpenEngine open(model.path(), config);
    CHECK(std::string_view(open.engine.status().select) == row.name);
    CHECK_FALSE(open.engine.status().select_verified);
    const auto session = open.session_with(test::random_ids(7, 150));
    REQUIRE(open.engine.sessions()
                .generate(session, {.max_tokens = 8, .ignore_end = true})
                .has_value());
    u64 n_slots = 0;
    while (open.engine.has_work()) n_slots += open.engine.step().n_slots_chosen;
    CHECK(n_slots > 0);
  }
}

}  // namespace
}  // namespace tarn::lab_methods_native_test
