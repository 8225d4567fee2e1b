#include "runtime/reuse/kv_identity.h"

#include <array>
#include <bit>

#include "platform/base/checked.h"
#include "runtime/store/record.h"

namespace tarn::reuse {

// The tensors' bytes say which model it is; the hyper-parameters say how they are used.
KvIdentity kv_identity(const KvIdentityArgs& args) {
  const model::ModelSpec& spec = *args.spec;
  const std::array<u64, 11> model = {
      args.content_hash[0], args.content_hash[1], static_cast<u64>(spec.arch),
      spec.n_layers,        spec.d_model,         spec.d_ff,
      spec.n_heads,         spec.n_vocab,         std::bit_cast<u32>(spec.rms_eps),
      spec.qkv_bias,        spec.qk_norm};
  const std::array<u8, 32> no_entropy{};  // an identity is the same in every store
  const store::Secret open = store::make_secret(no_entropy);
  const std::array<u64, 3> rope = {std::bit_cast<u64>(spec.rope_base),
                                   std::bit_cast<u64>(spec.rope_scale),
                                   store::root_key(open, std::as_bytes(args.rope_factors)).low};
  return {.model = store::root_key(open, std::as_bytes(std::span(model))),
          .n_cache_layers = spec.n_cache_layers,
          .n_kv_heads = spec.n_kv_heads,
          .head_dim = spec.head_dim,
          .page_tokens = args.page_tokens,
          .kv_type = args.kv_type,
          .layout = kPageLayout,
          .rope_type = spec.rope_halves ? 1u : 0u,
          .rope_dims = spec.n_rot,
          .rope_scaling = store::root_key(open, std::as_bytes(std::span(rope))).low,
          .numerics_id = args.numerics_id};
}

store::Key identity_key(const store::Secret& secret, const KvIdentity& identity) {
  return store::root_key(secret, std::as_bytes(std::span(&identity, 1)));
}

std::optional<u64> group_bytes(const KvIdentity& identity) {
  constexpr u32 kF16 = 0, kQ8_0 = 1, kQ4_0 = 2, kBlock = 32;
  const bool is_whole = identity.kv_type == kF16 || identity.head_dim % kBlock == 0;
  if (identity.kv_type > kQ4_0 || !is_whole || identity.layout != kPageLayout) return std::nullopt;
  if (identity.page_tokens > store::kTokensMax) return std::nullopt;
  const u64 block_bytes = identity.kv_type == kQ8_0 ? 34 : 18;
  const u64 vector_bytes = identity.kv_type == kF16 ? u64{2} * identity.head_dim
                                                    : identity.head_dim / kBlock * block_bytes;
  const auto bytes = (Checked(identity.n_kv_heads) * identity.page_tokens * 2 * vector_bytes)
                         .at_most(store::kPayloadBytesMax);
  if (!bytes || *bytes == 0) return std::nullopt;
  return align_up(*bytes, store::kSectorBytes);
}

const char* first_difference(const KvIdentity& one, const KvIdentity& other) {
  if (!(one.model == other.model)) return "model";
  if (!(one.tenant == other.tenant)) return "tenant";
  if (one.n_cache_layers != other.n_cache_layers) return "n_cache_layers";
  if (one.n_kv_heads != other.n_kv_heads) return "n_kv_heads";
  if (one.head_dim != other.head_dim) return "head_dim";
  if (one.page_tokens != other.page_tokens) return "kv.page_tokens";
  if (one.kv_type != other.kv_type) return "kv.type";
  if (one.layout != other.layout) return "layout";
  if (one.rope_type != other.rope_type) return "rope_type";
  if (one.rope_dims != other.rope_dims) return "rope_dims";
  if (one.rope_scaling != other.rope_scaling) return "rope_scaling";
  if (one.numerics_id != other.numerics_id) return "numerics_id";
  if (one.prefill_policy != other.prefill_policy) return "prefill_policy";
  return nullptr;
}

}  // namespace tarn::reuse
