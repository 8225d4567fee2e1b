#include "runtime/lab/methods.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "platform/base/random_at.h"
#include "runtime/lab/every_second.h"
#include "runtime/lab/sum_codes.h"
#include "runtime/method/pq/pq_reader.h"

namespace tarn::lab {

using method::KeyPages;
using method::ReaderArgs;
using method::SelectionArgs;
using method::SelectionScratch;

namespace {

class OracleReader final : public method::Reader {
 public:
  explicit OracleReader(const ReaderArgs& /*args*/) {}
  u32 choose(const SelectionArgs& args, const KeyPages& keys) const override {
    return select_oracle(args, keys);
  }
};

class RandomReader final : public method::Reader {
 public:
  explicit RandomReader(const ReaderArgs& args) : seed_(random_at(kRandomSeed, args.head)) {}
  u32 choose(const SelectionArgs& args, const KeyPages& /*keys*/) const override {
    return select_random(args, seed_);
  }

 private:
  u64 seed_;
};

class ShuffledCodes final : public method::Reader {
 public:
  explicit ShuffledCodes(const ReaderArgs& args) : pq_(args) {}
  void forget() override { pq_.forget(); }
  void truncate(u32 middle_end) override { pq_.truncate(middle_end); }
  void copy_from(const Reader& source) override {
    pq_.copy_from(static_cast<const ShuffledCodes&>(source).pq_);
  }
  u32 n_taken(u32 slot_end) const override { return pq_.n_taken(slot_end); }
  void take_in(const kernels::CpuTable& table, const KeyPages& keys, u32 slot_end,
               std::span<std::byte> scratch) override {
    pq_.take_in(table, keys, slot_end, scratch);
  }
  void begin_training(u32 slot_begin, u32 n_rows) override {
    pq_.begin_training(slot_begin, n_rows);
  }
  void train(const method::TrainUnit& unit) override { pq_.train(unit); }
  void end_training() override { pq_.end_training(); }
  u32 n_trained() const override { return pq_.n_trained(); }
  u32 choose(const SelectionArgs& args, const KeyPages& keys) const override {
    const u32 n_slots = pq_.choose(args, keys);
    const method::TokenRanges& s = args.ranges;
    const u64 n = s.n_middle();
    // A stride without a common factor visits every place once; the golden ratio's scatters them.
    u64 stride = static_cast<u64>(0.618 * static_cast<f64>(n)) | 1u;
    while (std::gcd(stride, n) != 1) stride += 2;
    const auto chosen = args.slots.subspan(s.n_sinks(), n_slots - s.n_sinks() - s.n_local());
    for (u32& slot : chosen) {
      slot = s.middle_begin + static_cast<u32>(((slot - s.middle_begin) * stride + n / 3) % n);
    }
    std::ranges::sort(chosen);
    return n_slots;
  }

 private:
  method::PqReader pq_;
};

// A disk order has places for what PQ chooses.
constexpr method::Training kShuffledTraining = {
    .needs = [](const SelectConfig& config, const method::KeyDims& keys, u32 capacity_tokens) {
      method::TrainNeeds needs = method::pq_train_needs(config, keys, capacity_tokens);
      needs.n_pairs = 0;
      needs.saved_bytes = 0;
      return needs;
    }};

constexpr method::Method kMethods[] = {
    {.name = "every-second",
     .reader_bytes = sizeof(EverySecond),
     .make = method::make_reader<EverySecond>},
    {.name = "oracle",
     .reader_bytes = sizeof(OracleReader),
     .make = method::make_reader<OracleReader>,
     .reads_keys = true},
    {.name = "random",
     .reader_bytes = sizeof(RandomReader),
     .make = method::make_reader<RandomReader>},
    {.name = "shuffled-codes",
     .reader_bytes = sizeof(ShuffledCodes),
     .make = method::make_reader<ShuffledCodes>,
     .region_bytes = method::PqReader::region_bytes,
     .check = method::PqReader::check,
     .training = &kShuffledTraining},
    {.name = "sum-codes",
     .reader_bytes = sizeof(SumCodes),
     .make = method::make_reader<SumCodes>,
     .region_bytes = SumCodes::region_bytes,
     .training = &kSumTraining},
};

}  // namespace

std::span<const method::Method> methods() { return kMethods; }

const method::Method* method_named(std::string_view name) {
  const auto* row = std::ranges::find(kMethods, name, &method::Method::name);
  return row == std::end(kMethods) ? nullptr : row;
}

bool set_method(SelectConfig& config, std::string_view name) {
  config.lab_method = method_named(name);
  if (config.lab_method != nullptr) return true;
  const auto* const at = std::ranges::find(kSelectMethodNames, name);
  if (at == std::end(kSelectMethodNames)) return false;
  config.method = static_cast<SelectMethod>(at - std::begin(kSelectMethodNames));
  return true;
}

// Exact scores of the middle, in attention's own order of additions: keys of a tile as columns,
// which makes them a codebook of one sub-space.
u32 select_oracle(const SelectionArgs& args, const KeyPages& keys) {
  constexpr u32 kTile = method::PqIndex::kTileTokens;
  const SelectionScratch scratch = method::carve_selection(args);
  const u32 n = args.ranges.n_middle(), d = keys.head_dim, n_heads = args.query.n_heads;
  std::vector<f32> rows(u64{kTile} * d), columns(rows.size()), lut(u64{n_heads} * kTile);
  for (u32 begin = 0; begin < n; begin += kTile) {
    const u32 n_tile = std::min(kTile, n - begin);
    keys.load(args.table, args.ranges.middle_begin + begin, n_tile, rows.data());
    for (u64 t = 0; t < kTile; ++t) {
      for (u64 i = 0; i < d; ++i) columns[i * kTile + t] = t < n_tile ? rows[t * d + i] : 0.0f;
    }
    args.table.pq_lut({.q = args.query.q,
                       .q_stride = d,
                       .codebook = columns.data(),
                       .lut = lut.data(),
                       .n_heads = n_heads,
                       .n_subspaces = 1,
                       .dims = d,
                       .n_padded = kTile});
    for (u64 h = 0; h < n_heads; ++h) {
      for (u64 t = 0; t < n_tile; ++t) {
        scratch.scores[h * n + begin + t] = lut[h * kTile + t] * args.query.scale;
      }
    }
  }
  return method::choose_best(args, scratch, method::rank_of(args, scratch, n));
}

u32 select_random(const SelectionArgs& args, u64 seed) {
  const SelectionScratch scratch = method::carve_selection(args);
  for (u32 i = 0; i < args.ranges.n_middle(); ++i) {
    // 24 bits are a float exactly; the slot itself is hashed, so a token's luck is its own.
    const u64 hash = random_at(seed, args.ranges.middle_begin + i);
    scratch.weights[i] = static_cast<f32>(hash >> 40);
  }
  return method::choose_best(args, scratch, scratch.weights);
}

}  // namespace tarn::lab
