#include "runtime/reuse/selection_key.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "platform/base/assert.h"
#include "runtime/method/method.h"

namespace tarn::reuse {
namespace {

struct FieldBytes {
  std::array<std::byte, 2048> bytes{};
  u64 n = 0;
  void put(const void* data, u64 n_bytes) {
    TARN_ASSERT(n + n_bytes <= bytes.size());
    std::memcpy(bytes.data() + n, data, n_bytes);
    n += n_bytes;
  }
  void put(u64 value) { put(&value, sizeof value); }

  template <class Field, class... Rest>
  void operator()(const char* key, const Field& field, const Rest&...) {
    if (std::ranges::find(kNoSayInSelection, key) != std::end(kNoSayInSelection)) return;
    if constexpr (std::is_integral_v<Field> || std::is_enum_v<Field>) {
      put(key, std::strlen(key));
      put(static_cast<u64>(field));
    } else {
      TARN_ASSERT(false);  // a key without a number has a say
    }
  }
};

}  // namespace

store::Key selection_key(const SelectConfig& config, u64 selection_id, u32 kv_type) {
  FieldBytes fields;
  fields.put(selection_id);
  fields.put(kv_type);
  fields.put(config.lab_method != nullptr);
  if (config.lab_method != nullptr) {
    fields.put(config.lab_method->name, std::strlen(config.lab_method->name));
  }
  SelectConfig::visit_fields(config, fields);
  const LayerCost& cost = config.cost;  // they have no say in a fixed number
  const u64 costs[] = {cost.job_ns,   cost.row_ps,     cost.update_ps,    cost.layer_ns,
                       cost.token_ps, cost.squared_fs, cost.share_percent};
  if (config.iterations == 0) fields.put(costs, sizeof costs);
  const std::array<u8, 32> no_entropy{};  // it is the same in every store
  return store::root_key(store::make_secret(no_entropy), std::span(fields.bytes).first(fields.n));
}

}  // namespace tarn::reuse
