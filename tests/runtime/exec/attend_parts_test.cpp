// Goal    attention on the CPU has the bits of one call of the kernel over all slots, whatever its
//         parts are: groups of any number, or slots that were all chosen, copied by it or gathered
//         before. It asks between pieces of 8,192 slots whether the step is still wanted: one that
//         is not is left there, with no output.
// Method  a backend over a sequence in memory, of random K and V, beside calls of the kernel by
//         hand; a source that cuts parts as it is told; a host that counts how often it is asked
//         and says no when it is told to.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/exec/cpu/cpu_backend.h"
#include "tests/support/carved.h"
#include "tests/support/seed.h"

namespace tarn::exec::attend_parts_test {
namespace {

constexpr u32 kHeadDim = 32, kGroupHeads = 2, kRows = 5;
constexpr u32 kPart = kAttnPieceSlots;

class CountingHost final : public step::StepHost {
 public:
  bool tick(step::Pause) override { return ++n_asked < says_no_from; }
  u32 n_asked = 0;
  u32 says_no_from = ~u32{0};
};

// Parts of so many groups, or all slots as chosen ones of one KV head.
class Parts final : public kv::PartSource {
 public:
  u32 n_together(std::span<const step::Run> runs) const override {
    return static_cast<u32>(runs.size());
  }
  bool wants_query(const step::Run&) const override { return false; }
  void begin(std::span<step::Run>, u32, const f32*) override {}
  bool next(std::span<step::Run> runs, u32, u32 group_end, step::KvPart& part) override {
    if (runs[0].selects) return std::exchange(part.head_end, 1) == 0;
    part.group_begin = part.group_end;
    part.group_end = std::min(part.group_begin + pin_set_groups, group_end);
    n_held += part.group_begin < group_end;
    return part.group_begin < group_end;
  }
  void give_back(std::span<const step::Run>, u32, const step::KvPart&) override { ++n_given_back; }
  step::ChosenSlots choose(const Head&, u32) override { return chosen; }
  step::DeviceRow take_device_row(const step::Run&) override { return {}; }

  u32 pin_set_groups = ~u32{0} / 2;
  step::ChosenSlots chosen{};
  u32 n_held = 0, n_given_back = 0;
};

// One layer with one KV head, n_slots of it written; the step's rows are the last ones.
class Attention {
 public:
  Attention(u32 n_slots, u32 page_tokens, u64 seed)
      : n_slots_(n_slots), page_tokens_(page_tokens), random_(seed) {
    const u32 n_groups = (n_slots + page_tokens - 1) / page_tokens;
    const kv::GroupShape shape{
        .n_kv_heads = 1,
        .page_tokens = page_tokens,
        .vector_bytes = static_cast<u32>(kernels::kv_vector_bytes(kernels::KvType::f16, kHeadDim))};
    region_.resize(n_groups * shape.group_bytes());
    pool_memory_ = test::carved([&](Carver& c) { pool_.init(c, shape, n_groups); });
    pool_.lie_in(region_);
    groups_.resize(kv::Sequence::n_entries(1, n_groups * page_tokens, page_tokens));
    sequence_.init(&pool_, 1, n_groups * page_tokens, groups_);
    REQUIRE(sequence_.reserve(n_slots));
    std::array<f32, kHeadDim> k{}, v{};
    for (u32 slot = 0; slot < n_slots; ++slot) {
      for (u32 i = 0; i < kHeadDim; ++i) k[i] = value(), v[i] = value();
      table_->kv_store({.type = kernels::KvType::f16,
                        .k = k.data(),
                        .v = v.data(),
                        .slot = sequence_.slot_for_write(0, 0, slot),
                        .head_dim = kHeadDim});
    }
    for (f32& x : q_) x = value();
    for (u32 row = 0; row < kRows; ++row) visible_[row] = n_slots - kRows + 1 + row;
    spec_.n_heads = kGroupHeads;
    spec_.n_kv_heads = 1;
    spec_.head_dim = kHeadDim;
    REQUIRE(workers_.start({}).has_value());
    args_ = {.table = table_,
             .workers = &workers_,
             .clock = &clock_,
             .spec = &spec_,
             .page_tokens = page_tokens,
             .rows_max = kRows,
             .parts = &parts};
    sizes_ = {.page_tokens = page_tokens, .pages_max = n_groups};
    init_backend();
  }

  using Out = std::array<f32, kRows * kGroupHeads * kHeadDim>;
  static constexpr f32 kUntouched = -7.0f;

  // As over memory and disk: the state between parts is the block's, not the task's.
  void keep_states() {
    sizes_.carried_rows = kRows;
    init_backend();
  }

  Out attend(CountingHost& host) {
    Out out;
    out.fill(kUntouched);
    step::Run run{.n_rows = kRows, .sequence = &sequence_};
    step::Batch batch{.n_rows = 0, .visible = visible_.data(), .runs = {&run, 1}, .host = &host};
    backend_.begin_step(batch);
    batch.n_rows = kRows;
    backend_.attend(batch, 0, {q_.data(), kGroupHeads * kHeadDim},
                    {out.data(), kGroupHeads * kHeadDim});
    return out;
  }
  // The last row alone, over chosen slots: all of them.
  std::array<f32, kGroupHeads * kHeadDim> attend_chosen(bool are_gathered) {
    std::vector<u32> slots(n_slots_);
    std::iota(slots.begin(), slots.end(), 0u);
    std::vector<const u8*> groups(sequence_.n_groups());
    sequence_.pages(0, 0, 0, sequence_.n_groups(), groups);
    const u64 page_bytes =
        u64{page_tokens_} * 2 * kernels::kv_vector_bytes(kernels::KvType::f16, kHeadDim);
    std::vector<u8> tile(page_bytes * (256 / page_tokens_ + 1));
    std::vector<const u8*> tile_pages;
    for (u64 at = 0; at + page_bytes <= tile.size(); at += page_bytes) {
      tile_pages.push_back(tile.data() + at);
    }
    parts.chosen = {.slots = slots,
                    .pages = are_gathered ? groups.data() : nullptr,
                    .groups = groups.data(),
                    .tile = tile.data(),
                    .tile_pages = tile_pages.data(),
                    .state = args_.attention.carried_states.data()};
    std::array<f32, kGroupHeads * kHeadDim> out;
    step::Run run{.n_rows = 1, .sequence = &sequence_, .selects = true};
    const step::Batch batch{.n_rows = 1, .visible = &visible_.back(), .runs = {&run, 1}};
    backend_.attend(batch, 0, {q_.data() + (kRows - 1) * out.size(), out.size()},
                    {out.data(), out.size()});
    return out;
  }
  Parts parts{};
  bool is_abandoned() const { return backend_.is_abandoned(); }

  // One call of the kernel over all slots.
  Out at_once() {
    Out out;
    std::vector<const u8*> pages(sequence_.n_groups());
    sequence_.pages(0, 0, 0, sequence_.n_groups(), pages);
    std::vector<Line> scratch(scratch_.size());
    table_->attn({.type = kernels::KvType::f16,
                  .pages = pages.data(),
                  .page_tokens = page_tokens_,
                  .head_dim = kHeadDim,
                  .q = q_.data(),
                  .q_stride = kGroupHeads * kHeadDim,
                  .out = out.data(),
                  .out_stride = kGroupHeads * kHeadDim,
                  .n_rows = kRows,
                  .n_group_heads = kGroupHeads,
                  .visible = visible_.data(),
                  .scale = 1.0f / __builtin_sqrtf(static_cast<f32>(kHeadDim)),
                  .scratch = scratch.data()});
    return out;
  }

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes{};
  };
  void init_backend() {
    Carver counter;
    AttentionMemory::carve(counter, spec_, sizes_);
    scratch_.resize(*counter.n_bytes().get() / sizeof(Line) + 1);
    Carver placer(std::as_writable_bytes(std::span(scratch_)));
    args_.attention = AttentionMemory::carve(placer, spec_, sizes_);
    backend_.init(args_);
  }
  f32 value() { return random_.normal(); }

  const u32 n_slots_, page_tokens_;
  test::Random random_;
  const kernels::CpuTable* table_ = *kernels::cpu_table_select("auto");
  std::vector<std::byte> region_, pool_memory_;
  std::vector<kv::GroupRef> groups_;
  kv::GroupPool pool_;
  kv::Sequence sequence_;
  std::array<f32, kRows * kGroupHeads * kHeadDim> q_{};
  std::array<u32, kRows> visible_{};
  model::ModelSpec spec_{};
  std::vector<Line> scratch_;
  WorkerPool workers_;
  SystemClock clock_;
  AttentionSizes sizes_{};
  CpuBackendArgs args_{};
  CpuBackend backend_;
};

TEST_CASE("attention in parts has the bits of one call, and asks once a part") {
  const u64 seed = test::seed_from_environment();
  CAPTURE(seed);
  struct Case {
    u32 page_tokens, n_slots, n_parts;
  };
  // Pages of 48 do not fill a part: 170 of them are 8,160 slots.
  for (const Case& c :
       {Case{64, 700, 1}, Case{64, kPart, 1}, Case{64, kPart + 1, 2}, Case{64, kPart + kRows, 2},
        Case{64, 2 * kPart, 2}, Case{64, 2 * kPart + 100, 3}, Case{48, 8160, 1}, Case{48, 8161, 2},
        Case{48, kPart, 2}, Case{48, kPart + 1, 2}}) {
    CAPTURE(c.page_tokens);
    CAPTURE(c.n_slots);
    Attention attention(c.n_slots, c.page_tokens, seed);
    CountingHost host;
    CHECK(attention.attend(host) == attention.at_once());
    CHECK(host.n_asked == c.n_parts);
    CHECK_FALSE(attention.is_abandoned());
  }
}

TEST_CASE("a task that nobody wants any more is left behind its part") {
  Attention attention(3 * kPart, 64, 1);
  CountingHost host;
  host.says_no_from = 2;
  const Attention::Out out = attention.attend(host);
  CHECK(attention.is_abandoned());
  CHECK(host.n_asked == 2);  // before the first part and behind it
  for (const f32 x : out) REQUIRE(x == Attention::kUntouched);
}

TEST_CASE("parts of any length have the bits of one call, and are given back") {
  for (const u32 pin_set_groups : {1u, 2u, 3u, 11u, 128u, 129u}) {
    CAPTURE(pin_set_groups);
    Attention attention(kPart + 700, 64, 3);
    attention.keep_states();
    attention.parts.pin_set_groups = pin_set_groups;
    CountingHost host;
    CHECK(attention.attend(host) == attention.at_once());
    CHECK(attention.parts.n_held == (kPart / 64 + 11 + pin_set_groups - 1) / pin_set_groups);
    CHECK(attention.parts.n_given_back == attention.parts.n_held);
  }
}

TEST_CASE("with all slots chosen, copied or gathered, a row has the bits of one call") {
  for (const u32 page_tokens : {32u, 48u, 64u, 256u}) {
    CAPTURE(page_tokens);
    Attention attention(700, page_tokens, 5);
    attention.keep_states();
    const Attention::Out all = attention.at_once();
    for (const bool are_gathered : {false, true}) {
      const auto last = attention.attend_chosen(are_gathered);
      CHECK(std::equal(last.begin(), last.end(), all.end() - last.size()));
    }
  }
}

}  // namespace
}  // namespace tarn::exec::attend_parts_test
