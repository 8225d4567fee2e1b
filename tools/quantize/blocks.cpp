#include "tools/quantize/blocks.h"

#include <cstring>
#include <iterator>

#include "kernels/common/half.h"
#include "kernels/quant/strip.h"
#include "kernels/quant/unpack.h"
#include "platform/base/assert.h"

namespace tarn::tools {
namespace {

using kernels::TensorType;

void put_u16(u16 value, u8* out) { std::memcpy(out, &value, sizeof value); }

void put_plane(const kernels::Plane& plane, std::span<const u8> codes, u8* block) {
  for (u32 i = 0; i < codes.size(); ++i) {
    const auto bit =
        kernels::bit_in_file(plane, i / kernels::kStripElems, i % kernels::kStripElems);
    const u32 bits = u32{codes[i]} >> plane.shift & ((1u << plane.bits) - 1);
    block[plane.at + bit.byte] |= static_cast<u8>(bits << bit.shift);
  }
}

template <class Type>
void put_scales(const BlockParts& parts, u8* out) {
  if constexpr (kernels::ReadsScales<Type>) {
    Type::write_scales(parts.scales.data(), parts.minima.data(), out);
  } else {
    for (u32 i = 0; i < Type::kScales; ++i) out[i] = static_cast<u8>(parts.scales[i]);
  }
}

template <class Type>
void put(const BlockParts& parts, u8* block) {
  constexpr auto& kHead = Type::kHead;
  if constexpr (kHead[0].n_bytes == 1) {
    block[kHead[0].at] = static_cast<u8>(parts.d);
  } else {
    put_u16(parts.d, block + kHead[0].at);
  }
  if constexpr (kernels::HasMinimum<Type>) put_u16(parts.dmin, block + kHead[1].at);
  if constexpr (kernels::HasScales<Type>) {
    put_scales<Type>(parts, block + kHead[std::size(kHead) - 1].at);
  }
  auto codes = parts.codes;
  if constexpr (Type::kPlanes[0].bits == 8) {
    for (u8& code : codes) code ^= 0x80u;
  }
  for (const kernels::Plane& plane : Type::kPlanes) {
    put_plane(plane, std::span(codes).first(Type::kTraits.block_elems), block);
  }
}

template <class Type>
constexpr BlockForm form_of() {
  BlockForm form{.type = Type::kTraits.type,
                 .n_subs = 1,
                 .scales = {1, 1},
                 .minima = {0, 0},
                 .code_most = Type::kMost - Type::kLeast,
                 .code_of_zero = -Type::kLeast,
                 .levels = {},
                 .has_exponent = Type::kHead[0].n_bytes == 1,
                 .put = put<Type>};
  if constexpr (kernels::AddsMinimum<Type>) form.minima = {-1, -1};
  if constexpr (kernels::HasScales<Type>) {
    form.n_subs = Type::kScales;
    form.scales = {Type::kScaleLeast, Type::kScaleMost};
    if (kernels::HasMinimum<Type>) form.minima = form.scales;
  }
  if constexpr (kernels::HasTable<Type>) {
    form.levels = Type::kTable;
    form.code_most = static_cast<i32>(std::size(Type::kTable)) - 1;
    form.code_of_zero = 0;
  }
  return form;
}

template <class... Types>
constexpr std::array<BlockForm, sizeof...(Types)> forms_of(kernels::TypeList<Types...>) {
  return {form_of<Types>()...};
}
constexpr auto kForms = forms_of(kernels::QuantTypes());

}  // namespace

const BlockForm& block_form(TensorType type) {
  const BlockForm* found = nullptr;
  for (const BlockForm& form : kForms) {
    if (form.type == type) found = &form;
  }
  TARN_ASSERT(found != nullptr);
  return *found;
}

void put_floats(TensorType type, std::span<const f32> values, u8* out) {
  if (type == TensorType::f32) {
    std::memcpy(out, values.data(), values.size_bytes());
    return;
  }
  for (u64 i = 0; i < values.size(); ++i) {
    const f32 value = values[i];
    put_u16(type == TensorType::f16 ? kernels::f32_to_f16(value) : kernels::f32_to_bf16(value),
            out + 2 * i);
  }
}

void put_block(TensorType type, const BlockParts& parts, u8* block) {
  std::memset(block, 0, kernels::type_traits(type).block_bytes);
  block_form(type).put(parts, block);
}

}  // namespace tarn::tools
