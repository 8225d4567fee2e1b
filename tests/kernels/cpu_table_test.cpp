// Goal    the engine gets exactly the kernels it asks for, or an error.
// Method  every table is asked for by name; what does not run here must be refused.
#include "kernels/cpu_table.h"

#include <doctest/doctest.h>

#include <string>

namespace tarn::kernels::cpu_table_test {
namespace {

TEST_CASE("every table is complete, and the last one is generic") {
  REQUIRE_FALSE(cpu_tables().empty());
  CHECK(std::string(cpu_tables().back().isa) == "generic");
  CHECK(cpu_tables().back().runs_here());
  for (const CpuTable& table : cpu_tables()) {
    CAPTURE(table.isa);
    CHECK((table.tile_rows != nullptr));
    CHECK((table.quantize_activations != nullptr));
    CHECK((table.matmul != nullptr));
    CHECK((table.rms_norm != nullptr));
    CHECK((table.rope != nullptr));
    CHECK((table.swiglu != nullptr));
    CHECK((table.add != nullptr));
    CHECK((table.exp != nullptr));
    CHECK((table.attn != nullptr));
    CHECK((table.kv_store != nullptr));
    CHECK((table.pq_load != nullptr));
    CHECK((table.pq_assign != nullptr));
    CHECK((table.pq_accumulate != nullptr));
    CHECK((table.pq_lut != nullptr));
    CHECK((table.pq_score != nullptr));
    CHECK((table.pq_weigh != nullptr));
    CHECK((table.top_k != nullptr));
  }
}

TEST_CASE("a table is given by its name, or refused") {
  const CpuTable* best = nullptr;
  for (const CpuTable& table : cpu_tables()) {
    CAPTURE(table.isa);
    const Result<const CpuTable*> chosen = cpu_table_select(table.isa);
    if (table.runs_here()) {
      REQUIRE(chosen.has_value());
      CHECK(*chosen == &table);
      if (best == nullptr) best = &table;
    } else {
      REQUIRE_FALSE(chosen.has_value());
      CHECK(chosen.error().status == Status::unsupported);
    }
  }
  const Result<const CpuTable*> automatic = cpu_table_select("auto");
  REQUIRE(automatic.has_value());
  CHECK(*automatic == best);
}

TEST_CASE("a name that no build knows is an error, not a fallback") {
  for (const char* name : {"no-such-isa", "", "AVX2", "generic "}) {
    const Result<const CpuTable*> chosen = cpu_table_select(name);
    REQUIRE_FALSE(chosen.has_value());
    CHECK(chosen.error().status == Status::invalid_config);
  }
}

}  // namespace
}  // namespace tarn::kernels::cpu_table_test
