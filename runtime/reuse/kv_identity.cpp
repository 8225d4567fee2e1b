#include "runtime/reuse/kv_identity.h"

#include <array>
#include <bit>

#include "platform/base/checked.h"
#include "runtime/config/config.h"
#include "runtime/config/fixed_text.h"
#include "runtime/store/record.h"

namespace tarn::reuse {
namespace {

using Text = FixedText<sizeof(Detail)>;

struct Number {
  const char* name;
  u32 KvIdentity::*field;
};
constexpr Number kNumbers[] = {
    {"n_cache_layers", &KvIdentity::n_cache_layers},
    {"n_kv_heads", &KvIdentity::n_kv_heads},
    {"head_dim", &KvIdentity::head_dim},
    {"kv.page_tokens", &KvIdentity::page_tokens},
    {"kv.type", &KvIdentity::kv_type},
    {"layout", &KvIdentity::layout},
    {"rope_type", &KvIdentity::rope_type},
    {"rope_dims", &KvIdentity::rope_dims},
    {"numerics_id", &KvIdentity::numerics_id},
    {"prefill_policy", &KvIdentity::prefill_policy},
};

// A model's name, cut to leave room for another one, and its hash.
void write_model(std::string_view name, const store::Key& model, Text& text) {
  constexpr u64 kNameBytesMax = 24;
  if (!name.empty()) text << name.substr(0, kNameBytesMax) << " ";
  text << "(";
  for (u32 i = 16; i-- > 0;) {
    const char digit = "0123456789abcdef"[model.low >> (4 * i) & 15];
    text << std::string_view(&digit, 1);
  }
  text << ")";
}

bool is_of_today(u32 numerics_id) {
  return numerics_id == kCpuNumericsId || numerics_id == kGpuNumericsId;
}

// Names a difference as a user sets it, the device; another version's arithmetic by number.
void write_numerics(u32 numerics_id, bool is_device, Text& text) {
  if (!is_device) {
    text << u64{numerics_id};
  } else {
    text << (numerics_id == kGpuNumericsId ? "cuda" : "cpu");
  }
}

void write_kv_type(u32 kv_type, Text& text) {
  text << (kv_type < std::size(kKvTypeNames) ? kKvTypeNames[kv_type] : "unknown");
}

}  // namespace

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
  for (const Number& number : kNumbers) {
    if (one.*number.field != other.*number.field) return number.name;
  }
  return one.rope_scaling != other.rope_scaling ? "rope_scaling" : nullptr;
}

Detail difference_text(const KvIdentity& saved, std::string_view saved_model, const KvIdentity& own,
                       std::string_view own_model) {
  const std::string_view field = first_difference(saved, own);
  const bool is_device =
      field == "numerics_id" && is_of_today(saved.numerics_id) && is_of_today(own.numerics_id);
  const std::string_view key = is_device                ? "device.kind"
                               : field == "numerics_id" ? "arithmetic"
                                                        : field;
  Text text;
  const auto write = [&](const KvIdentity& of, std::string_view model) {
    if (field == "model") return write_model(model, of.model, text);
    if (field == "kv.type") return write_kv_type(of.kv_type, text);
    if (field == "numerics_id") return write_numerics(of.numerics_id, is_device, text);
    for (const Number& number : kNumbers) {
      if (field == number.name) text << u64{of.*number.field};
    }
    if (field == "rope_scaling") text << of.rope_scaling;
  };
  text << "was saved with " << key << " = ";
  write(saved, saved_model);
  text << "; this engine has ";
  write(own, own_model);
  return text.view();
}

}  // namespace tarn::reuse
