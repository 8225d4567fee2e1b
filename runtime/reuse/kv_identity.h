// The facts that make KV of equal tokens differ: model, tensors, type, page shape and arithmetic.
// KV of one identity is never taken for KV of another. Its bytes are a part of every manifest, and
// the root of all page keys is made of them.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "platform/base/result.h"
#include "runtime/kv/numerics.h"
#include "runtime/model/model_spec.h"
#include "runtime/store/key.h"

namespace tarn::reuse {

// Every field counts; zero where something has no say.
struct KvIdentity {
  store::Key model{};   // hash of the model file's tensors and hyper-parameters
  store::Key tenant{};  // who may share it
  u32 n_cache_layers = 0;
  u32 n_kv_heads = 0;
  u32 head_dim = 0;
  u32 page_tokens = 0;
  u32 kv_type = 0;         // kernels::KvType
  u32 layout = 0;          // of a page; raised when it changes
  u32 rope_type = 0;       // which pairs turn
  u32 rope_dims = 0;       // of head_dim
  u64 rope_scaling = 0;    // hash of base, scale and factors, by their bits
  u32 numerics_id = 0;     // backend, ISA and kernel revision, raised by hand when results change
  u32 prefill_policy = 0;  // 0: exact; else whatever lossy way the prompt was read in
  friend bool operator==(const KvIdentity&, const KvIdentity&) = default;
};
static_assert(sizeof(KvIdentity) == 80);

inline constexpr u32 kPageLayout = 1;  // KvIdentity::layout of this version
using kv::kCpuNumericsId;              // KvIdentity::numerics_id
using kv::kGpuNumericsId;

struct KvIdentityArgs {
  const model::ModelSpec* spec = nullptr;
  std::array<u64, 2> content_hash{};    // of the tensors' bytes
  std::span<const f32> rope_factors{};  // empty: none
  u32 kv_type = 0;
  u32 page_tokens = 0;
  u32 numerics_id = 0;
};
KvIdentity kv_identity(const KvIdentityArgs& args);

// The bytes of a group of this identity, as store/FORMAT.md lays it out. Nothing where type or
// layout are not this version's, or no record holds so much. The size that a file states must be
// equal: a group of another size under a good key would be read as one of this.
std::optional<u64> group_bytes(const KvIdentity& identity);

inline KvIdentity of_tenant(KvIdentity identity, const store::Key& tenant) {
  identity.tenant = tenant;
  return identity;
}
// The root of all chains of this identity.
store::Key identity_key(const store::Secret& secret, const KvIdentity& identity);
// Returns the first field in which two differ, by its name; nullptr: none.
const char* first_difference(const KvIdentity& one, const KvIdentity& other);
// Says it to a user: "was saved with kv.type = f16; this engine has q8_0". The models' names go
// with the identities.
Detail difference_text(const KvIdentity& saved, std::string_view saved_model, const KvIdentity& own,
                       std::string_view own_model);

}  // namespace tarn::reuse
