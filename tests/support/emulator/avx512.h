// The AVX-512 intrinsics that the kernels use, lane by lane in C++ on a machine with AVX2. In a
// build with TARN_AVX512_EMULATED it is included before each file *_avx512.cpp, so that these
// bodies are tested where no CPU has AVX-512. SIMDe was no way: its fused multiply-add rounds
// twice. Semantics: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
#pragma once

#ifdef __AVX2__

#include <immintrin.h>

#include <cstring>
#include <type_traits>

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors as wide as these pass through memory here

namespace tarn::emulated {
namespace {

using Lane8 = unsigned char;
using Lane16 = unsigned short;
using Lane32 = unsigned int;
using Lane64 = unsigned long long;

// The lanes of a vector of type T, lane 0 first.
template <class T, unsigned kBytes = 64>
struct Lanes {
  static constexpr unsigned n = kBytes / sizeof(T);
  T lane[n];
  Lanes() : lane{} {}
  template <class Vector>
  explicit Lanes(const Vector& vector) {
    static_assert(sizeof vector == kBytes);
    std::memcpy(lane, &vector, kBytes);
  }
  template <class Vector>
  Vector as() const {
    static_assert(sizeof(Vector) == kBytes);
    Vector vector;
    std::memcpy(&vector, lane, kBytes);
    return vector;
  }
  operator __m512() const { return as<__m512>(); }
  operator __m512i() const { return as<__m512i>(); }
};

template <class T, class Vector, class F>
Lanes<T> map(const Vector& a, F f) {
  Lanes<T> x(a);
  for (T& lane : x.lane) lane = static_cast<T>(f(lane));
  return x;
}
template <class T, class Vector, class F>
Lanes<T> map(const Vector& a, const Vector& b, F f) {
  Lanes<T> x(a);
  const Lanes<T> y(b);
  for (unsigned i = 0; i < x.n; ++i) x.lane[i] = static_cast<T>(f(x.lane[i], y.lane[i]));
  return x;
}
template <class T, class F>
Lanes<T> make(F f) {  // of the lane's number
  Lanes<T> x;
  for (unsigned i = 0; i < x.n; ++i) x.lane[i] = static_cast<T>(f(i));
  return x;
}
template <class T, class Vector, class F>
Lane64 mask(const Vector& a, const Vector& b, F f) {
  const Lanes<T> x(a), y(b);
  Lane64 bits = 0;
  for (unsigned i = 0; i < x.n; ++i) bits |= Lane64{f(x.lane[i], y.lane[i])} << i;
  return bits;
}
template <class T, unsigned kBytes = 64>
Lanes<T, kBytes> load_masked(Lane64 mask, const void* at) {
  Lanes<T, kBytes> x;
  for (unsigned i = 0; i < x.n; ++i) {
    if ((mask >> i & 1) != 0) std::memcpy(x.lane + i, static_cast<const T*>(at) + i, sizeof(T));
  }
  return x;
}
template <class T, class Vector>
void store_masked(void* at, Lane64 mask, const Vector& a) {
  const Lanes<T> x(a);
  for (unsigned i = 0; i < x.n; ++i) {
    if ((mask >> i & 1) != 0) std::memcpy(static_cast<T*>(at) + i, x.lane + i, sizeof(T));
  }
}
template <class Vector>
Vector load(const void* at) {
  Vector vector;
  std::memcpy(&vector, at, sizeof vector);
  return vector;
}
// Half `part` of `a`, of two; the two halves of a vector.
template <class Half, class Vector>
Half half_of(const Vector& a, unsigned part) {
  return load<Half>(reinterpret_cast<const char*>(&a) + part * sizeof(Half));
}
template <class Half>
Lanes<char> join(const Half& low, const Half& high) {
  Lanes<char> x;
  std::memcpy(x.lane, &low, sizeof low);
  std::memcpy(x.lane + sizeof low, &high, sizeof high);
  return x;
}
// Lane i of the result is lane at(i) of `a`.
template <class T, class Vector, class F>
Lanes<T> permute(const Vector& a, F at) {
  const Lanes<T> x(a);
  return make<T>([&](unsigned i) { return x.lane[at(i)]; });
}
template <class T, class Vector>
Lanes<T> permute_two(const Vector& a, const __m512i& places, const Vector& b) {
  using Index = std::conditional_t<sizeof(T) == 4, Lane32, Lane16>;
  const Lanes<T> x(a), y(b);
  const Lanes<Index> place(places);
  return make<T>([&](unsigned i) {
    const unsigned at = place.lane[i] % (2 * x.n);
    return at < x.n ? x.lane[at] : y.lane[at - x.n];
  });
}
// Takes, of each 128 bits, the lower (upper = 0) or upper half of both, lane by lane.
template <class T>
Lanes<T> unpack(const __m512i& a, const __m512i& b, unsigned upper) {
  constexpr unsigned n = 16 / sizeof(T);
  const Lanes<T> x(a), y(b);
  return make<T>([&](unsigned i) {
    const unsigned at = i / n * n + upper * (n / 2) + i % n / 2;
    return i % 2 == 0 ? x.lane[at] : y.lane[at];
  });
}
template <class T, class From, class Vector>
Lanes<T> widen(const Vector& a) {
  const Lanes<From, sizeof a> x(a);
  return make<T>([&](unsigned i) { return x.lane[i]; });
}
template <class T>
T shifted_left(T x, Lane64 n) {
  return n < 8 * sizeof(T) ? static_cast<T>(x << n) : T{0};
}
template <class T>
T shifted_right(T x, Lane64 n) {
  return n < 8 * sizeof(T) ? static_cast<T>(x >> n) : T{0};
}
inline __m512i dpbusd_epi32(const __m512i& sums, const __m512i& a, const __m512i& b) {
  Lanes<Lane32> sum(sums);
  const Lanes<Lane8> x(a);
  const Lanes<signed char> y(b);
  for (unsigned i = 0; i < 64; ++i) {
    sum.lane[i / 4] += static_cast<Lane32>(int{x.lane[i]} * int{y.lane[i]});
  }
  return sum;
}
inline __m512i dpwssd_epi32(const __m512i& sums, const __m512i& a, const __m512i& b) {
  Lanes<Lane32> sum(sums);
  const Lanes<short> x(a), y(b);
  for (unsigned i = 0; i < 32; ++i) {
    sum.lane[i / 2] += static_cast<Lane32>(int{x.lane[i]} * int{y.lane[i]});
  }
  return sum;
}
inline __m512i shuffle_epi8(const __m512i& a, const __m512i& places) {
  const Lanes<Lane8> x(a), place(places);
  return make<Lane8>([&](unsigned i) {
    const unsigned at = place.lane[i];
    return at < 128 ? x.lane[i / 16 * 16 + at % 16] : Lane8{0};
  });
}
inline __m512i ternarylogic_epi32(const __m512i& a, const __m512i& b, const __m512i& c,
                                  unsigned table) {
  const Lanes<Lane64> x(a), y(b), z(c);
  return make<Lane64>([&](unsigned i) {
    Lane64 bits = 0;
    for (unsigned bit = 0; bit < 64; ++bit) {
      const Lane64 at =
          (x.lane[i] >> bit & 1) << 2 | (y.lane[i] >> bit & 1) << 1 | (z.lane[i] >> bit & 1);
      bits |= Lane64{table >> at & 1} << bit;
    }
    return bits;
  });
}
inline __m512i maskz_compress_epi32(Lane64 mask, const __m512i& a) {
  const Lanes<Lane32> x(a);
  Lanes<Lane32> out;
  unsigned n = 0;
  for (unsigned i = 0; i < x.n; ++i) {
    if ((mask >> i & 1) != 0) out.lane[n++] = x.lane[i];
  }
  return out;
}

template <class T, class Index, class Vector>
Lanes<T> pick(const __m512i& places, const Vector& a) {
  const Lanes<Index> place(places);
  return permute<T>(a, [&](unsigned i) { return place.lane[i] % Lanes<T>::n; });
}
template <class T, class Vector>
Lanes<T> blend(const Vector& a, Lane64 mask, const Vector& b) {
  const Lanes<T> x(a), y(b);
  return make<T>([&](unsigned i) { return (mask >> i & 1) != 0 ? y.lane[i] : x.lane[i]; });
}
template <class Part>
Lanes<char> lowest(const Part& a) {  // zeros above it, where a CPU leaves what it likes
  Lanes<char> x;
  std::memcpy(x.lane, &a, sizeof a);
  return x;
}
inline __m512 fmadd_ps(const __m512& a, const __m512& b, const __m512& c) {
  const Lanes<float> x(a), y(b), z(c);
  return make<float>([&](unsigned i) { return __builtin_fmaf(x.lane[i], y.lane[i], z.lane[i]); });
}
inline __m512 fmsub_ps(const __m512& a, const __m512& b, const __m512& c) {
  const Lanes<float> x(a), y(b), z(c);
  return make<float>([&](unsigned i) { return __builtin_fmaf(x.lane[i], y.lane[i], -z.lane[i]); });
}
// kKind: _CMP_EQ_OQ and its kin, as the instruction of AVX has them.
template <int kKind>
__mmask16 compare(const __m512& a, const __m512& b) {
  const auto bits = [&](unsigned part) {
    return static_cast<unsigned>(_mm256_movemask_ps(
        _mm256_cmp_ps(half_of<__m256>(a, part), half_of<__m256>(b, part), kKind)));
  };
  return static_cast<__mmask16>(bits(0) | bits(1) << 8);
}
inline __m512i srl_epi32(const __m512i& a, const __m128i& n) {
  const Lane64 by = static_cast<Lane64>(_mm_cvtsi128_si64(n));
  return map<Lane32>(a, [by](Lane32 x) { return shifted_right(x, by); });
}
inline int reduce_max_epi32(const __m512i& a) {
  const Lanes<int> x(a);
  int largest = x.lane[0];
  for (const int lane : x.lane) largest = lane > largest ? lane : largest;
  return largest;
}
template <class... T>
__m512i setr_epi32(T... values) {
  const int list[] = {static_cast<int>(values)...};
  static_assert(sizeof list == 64);
  return load<__m512i>(list);
}
template <class... T>
__m512i set_epi16(T... values) {
  const short list[] = {static_cast<short>(values)...};
  static_assert(sizeof list == 64);
  return make<short>([&](unsigned i) { return list[31 - i]; });
}
inline __m512i mask_broadcast_i32x4(const __m512i& a, Lane64 mask, const __m128i& four) {
  const Lanes<int, 16> x(four);
  const __m512i all = make<int>([&](unsigned i) { return x.lane[i % 4]; });
  return blend<int>(a, mask, all);
}
inline __m512i broadcast_i32x4(const __m128i& four) {
  const Lanes<int, 16> x(four);
  return make<int>([&](unsigned i) { return x.lane[i % 4]; });
}
inline __m512i cvtps_epi64(const __m256& a) {
  const Lanes<float, 32> x(a);
  return make<long long>([&](unsigned i) { return _mm_cvtss_si64(_mm_set_ss(x.lane[i])); });
}
inline __m256i maskz_cvtps_ph(Lane64 mask, const __m512& a, int /*to nearest even*/) {
  const auto half = [&](unsigned part) {
    return _mm256_cvtps_ph(half_of<__m256>(a, part), _MM_FROUND_TO_NEAREST_INT);
  };
  Lanes<Lane16, 32> x(_mm256_set_m128i(half(1), half(0)));
  for (unsigned i = 0; i < x.n; ++i) {
    if ((mask >> i & 1) == 0) x.lane[i] = 0;
  }
  return x.as<__m256i>();
}
inline __m128i cvtepi32_epi8(const __m512i& a) {
  const Lanes<int> x(a);
  Lanes<Lane8, 16> low;
  for (unsigned i = 0; i < low.n; ++i) low.lane[i] = static_cast<Lane8>(x.lane[i]);
  return low.as<__m128i>();
}
inline __m512 add_ps(const __m512& a, const __m512& b) {
  return map<float>(a, b, [](float x, float y) { return x + y; });
}
inline __m512 sub_ps(const __m512& a, const __m512& b) {
  return map<float>(a, b, [](float x, float y) { return x - y; });
}
inline __m512 mul_ps(const __m512& a, const __m512& b) {
  return map<float>(a, b, [](float x, float y) { return x * y; });
}
inline __m512 div_ps(const __m512& a, const __m512& b) {
  return map<float>(a, b, [](float x, float y) { return x / y; });
}
inline __m512 max_ps(const __m512& a, const __m512& b) {
  return map<float>(a, b, [](float x, float y) { return x > y ? x : y; });
}
inline __m512 min_ps(const __m512& a, const __m512& b) {
  return map<float>(a, b, [](float x, float y) { return x < y ? x : y; });
}
inline __m512i add_epi32(const __m512i& a, const __m512i& b) {
  return map<Lane32>(a, b, [](Lane32 x, Lane32 y) { return x + y; });
}
inline __m512i add_epi64(const __m512i& a, const __m512i& b) {
  return map<Lane64>(a, b, [](Lane64 x, Lane64 y) { return x + y; });
}
inline __m512i sub_epi8(const __m512i& a, const __m512i& b) {
  return map<Lane8>(a, b, [](Lane8 x, Lane8 y) { return x - y; });
}
inline __m512i sub_epi32(const __m512i& a, const __m512i& b) {
  return map<Lane32>(a, b, [](Lane32 x, Lane32 y) { return x - y; });
}
inline __m512i mullo_epi32(const __m512i& a, const __m512i& b) {
  return map<Lane32>(a, b, [](Lane32 x, Lane32 y) { return x * y; });
}
inline __m512i max_epi32(const __m512i& a, const __m512i& b) {
  return map<int>(a, b, [](int x, int y) { return x > y ? x : y; });
}
inline __m512i and_si512(const __m512i& a, const __m512i& b) {
  return map<Lane64>(a, b, [](Lane64 x, Lane64 y) { return x & y; });
}
inline __m512i or_si512(const __m512i& a, const __m512i& b) {
  return map<Lane64>(a, b, [](Lane64 x, Lane64 y) { return x | y; });
}
inline __m512i xor_si512(const __m512i& a, const __m512i& b) {
  return map<Lane64>(a, b, [](Lane64 x, Lane64 y) { return x ^ y; });
}
inline __m512i sllv_epi16(const __m512i& a, const __m512i& b) {
  return map<Lane16>(a, b, [](Lane16 x, Lane16 y) { return shifted_left(x, y); });
}
inline __m512i slli_epi16(const __m512i& a, unsigned n) {
  return map<Lane16>(a, [n](Lane16 x) { return shifted_left(x, n); });
}
inline __m512i slli_epi32(const __m512i& a, unsigned n) {
  return map<Lane32>(a, [n](Lane32 x) { return shifted_left(x, n); });
}
inline __m512i srli_epi16(const __m512i& a, unsigned n) {
  return map<Lane16>(a, [n](Lane16 x) { return shifted_right(x, n); });
}
inline __m512i srli_epi64(const __m512i& a, unsigned n) {
  return map<Lane64>(a, [n](Lane64 x) { return shifted_right(x, n); });
}
inline __m512i srai_epi32(const __m512i& a, unsigned n) {
  return map<int>(a, [n](int x) { return x >> n; });
}
inline __mmask32 test_epi16_mask(const __m512i& a, const __m512i& b) {
  return static_cast<__mmask32>(
      mask<Lane16>(a, b, [](Lane16 x, Lane16 y) { return (x & y) != 0; }));
}
inline __mmask16 test_epi32_mask(const __m512i& a, const __m512i& b) {
  return static_cast<__mmask16>(
      mask<Lane32>(a, b, [](Lane32 x, Lane32 y) { return (x & y) != 0; }));
}
inline __mmask16 cmpgt_epi32_mask(const __m512i& a, const __m512i& b) {
  return static_cast<__mmask16>(mask<int>(a, b, [](int x, int y) { return x > y; }));
}
inline __mmask16 cmpeq_epi32_mask(const __m512i& a, const __m512i& b) {
  return static_cast<__mmask16>(mask<int>(a, b, [](int x, int y) { return x == y; }));
}
inline __mmask16 cmpgt_epu32_mask(const __m512i& a, const __m512i& b) {
  return static_cast<__mmask16>(mask<Lane32>(a, b, [](Lane32 x, Lane32 y) { return x > y; }));
}
inline __mmask16 cmpeq_epu32_mask(const __m512i& a, const __m512i& b) {
  return static_cast<__mmask16>(mask<Lane32>(a, b, [](Lane32 x, Lane32 y) { return x == y; }));
}
inline __m512 setzero_ps() { return Lanes<float>(); }
inline __m512i setzero_si512() { return Lanes<int>(); }
inline __m512 set1_ps(float value) {
  return make<float>([value](unsigned) { return value; });
}
inline __m512i set1_epi8(int value) {
  return make<char>([value](unsigned) { return value; });
}
inline __m512i set1_epi16(int value) {
  return make<short>([value](unsigned) { return value; });
}
inline __m512i set1_epi32(int value) {
  return make<int>([value](unsigned) { return value; });
}
inline __m512i set1_epi64(long long value) {
  return make<long long>([value](unsigned) { return value; });
}
inline __m512 loadu_ps(const void* at) { return load<__m512>(at); }
inline __m512i loadu_si512(const void* at) { return load<__m512i>(at); }
inline __m512 maskz_loadu_ps(Lane64 mask, const void* at) { return load_masked<float>(mask, at); }
inline __m512i maskz_loadu_epi32(Lane64 mask, const void* at) { return load_masked<int>(mask, at); }
inline __m512i maskz_loadu_epi64(Lane64 mask, const void* at) {
  return load_masked<Lane64>(mask, at);
}
inline void storeu_ps(void* at, const __m512& a) { store_masked<float>(at, ~0ull, a); }
inline void storeu_si512(void* at, const __m512i& a) { store_masked<Lane64>(at, ~0ull, a); }
inline void store_si512(void* at, const __m512i& a) {
  if (reinterpret_cast<unsigned long long>(at) % 64 != 0) __builtin_trap();  // as a CPU would
  store_masked<Lane64>(at, ~0ull, a);
}
inline void mask_storeu_ps(void* at, Lane64 mask, const __m512& a) {
  store_masked<float>(at, mask, a);
}
inline void mask_storeu_epi32(void* at, Lane64 mask, const __m512i& a) {
  store_masked<int>(at, mask, a);
}
inline void mask_storeu_epi64(void* at, Lane64 mask, const __m512i& a) {
  store_masked<Lane64>(at, mask, a);
}
inline __m512 mask_mov_ps(const __m512& a, Lane64 mask, const __m512& b) {
  return blend<float>(a, mask, b);
}
inline __m512i mask_mov_epi16(const __m512i& a, Lane64 mask, const __m512i& b) {
  return blend<Lane16>(a, mask, b);
}
inline __m512i castps_si512(const __m512& a) { return load<__m512i>(&a); }
inline __m512 castsi512_ps(const __m512i& a) { return load<__m512>(&a); }
inline __m512 xor_ps(const __m512& a, const __m512& b) {
  return castsi512_ps(xor_si512(castps_si512(a), castps_si512(b)));
}
inline __m256i castsi512_si256(const __m512i& a) { return half_of<__m256i>(a, 0); }
inline __m256 castps512_ps256(const __m512& a) { return half_of<__m256>(a, 0); }
inline __m256 extractf32x8_ps(const __m512& a, unsigned part) { return half_of<__m256>(a, part); }
inline __m256i extracti64x4_epi64(const __m512i& a, unsigned part) {
  return half_of<__m256i>(a, part);
}
inline __m512i castsi128_si512(const __m128i& a) { return lowest(a); }
inline __m512 castps256_ps512(const __m256& a) { return lowest(a); }
inline float cvtss_f32(const __m512& a) { return Lanes<float>(a).lane[0]; }
inline __m512 cvtepi32_ps(const __m512i& a) {
  return join(_mm256_cvtepi32_ps(half_of<__m256i>(a, 0)),
              _mm256_cvtepi32_ps(half_of<__m256i>(a, 1)));
}
inline __m512i cvtps_epi32(const __m512& a) {
  return join(_mm256_cvtps_epi32(half_of<__m256>(a, 0)), _mm256_cvtps_epi32(half_of<__m256>(a, 1)));
}
inline __m512 cvtph_ps(const __m256i& a) {
  return join(_mm256_cvtph_ps(half_of<__m128i>(a, 0)), _mm256_cvtph_ps(half_of<__m128i>(a, 1)));
}
inline __m512i cvtepi8_epi32(const __m128i& a) { return widen<int, signed char>(a); }
inline __m512i cvtepu8_epi32(const __m128i& a) { return widen<int, Lane8>(a); }
inline __m512i cvtepu8_epi16(const __m256i& a) { return widen<short, Lane8>(a); }
inline __m512i cvtepu16_epi32(const __m256i& a) { return widen<int, Lane16>(a); }
inline __m512i permutexvar_epi16(const __m512i& places, const __m512i& a) {
  return pick<Lane16, Lane16>(places, a);
}
inline __m512 permutexvar_ps(const __m512i& places, const __m512& a) {
  return pick<float, Lane32>(places, a);
}
inline __m512 permutex2var_ps(const __m512& a, const __m512i& places, const __m512& b) {
  return permute_two<float>(a, places, b);
}
inline __m512i permutex2var_epi16(const __m512i& a, const __m512i& places, const __m512i& b) {
  return permute_two<Lane16>(a, places, b);
}
inline __m512 permute_ps(const __m512& a, unsigned places) {
  return permute<float>(a, [places](unsigned i) { return i / 4 * 4 + (places >> i % 4 * 2 & 3); });
}
inline __m512i unpacklo_epi32(const __m512i& a, const __m512i& b) {
  return unpack<Lane32>(a, b, 0);
}
inline __m512i unpackhi_epi32(const __m512i& a, const __m512i& b) {
  return unpack<Lane32>(a, b, 1);
}
inline __m512i unpacklo_epi64(const __m512i& a, const __m512i& b) {
  return unpack<Lane64>(a, b, 0);
}
inline __m512i unpackhi_epi64(const __m512i& a, const __m512i& b) {
  return unpack<Lane64>(a, b, 1);
}

}  // namespace
}  // namespace tarn::emulated

// clang-format off
// Some are macros in the compiler's headers.
#undef _mm512_add_epi32
#undef _mm512_add_epi64
#undef _mm512_add_ps
#undef _mm512_and_epi32
#undef _mm512_and_si512
#undef _mm512_broadcast_i32x4
#undef _mm512_castps256_ps512
#undef _mm512_castps512_ps256
#undef _mm512_castps_si512
#undef _mm512_castsi128_si512
#undef _mm512_castsi512_ps
#undef _mm512_castsi512_si256
#undef _mm512_cmp_ps_mask
#undef _mm512_cmpeq_epi32_mask
#undef _mm512_cmpeq_epu32_mask
#undef _mm512_cmpgt_epi32_mask
#undef _mm512_cmpgt_epu32_mask
#undef _mm512_cvtepi32_epi8
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepu8_epi16
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtph_ps
#undef _mm512_cvtps_epi32
#undef _mm512_cvtps_epi64
#undef _mm512_cvtss_f32
#undef _mm512_div_ps
#undef _mm512_dpbusd_epi32
#undef _mm512_dpwssd_epi32
#undef _mm512_extractf32x8_ps
#undef _mm512_extracti64x4_epi64
#undef _mm512_fmadd_ps
#undef _mm512_fmsub_ps
#undef _mm512_loadu_ps
#undef _mm512_loadu_si512
#undef _mm512_mask_broadcast_i32x4
#undef _mm512_mask_mov_epi16
#undef _mm512_mask_mov_ps
#undef _mm512_mask_storeu_epi32
#undef _mm512_mask_storeu_epi64
#undef _mm512_mask_storeu_ps
#undef _mm512_maskz_compress_epi32
#undef _mm512_maskz_cvtps_ph
#undef _mm512_maskz_loadu_epi32
#undef _mm512_maskz_loadu_epi64
#undef _mm512_maskz_loadu_ps
#undef _mm512_max_epi32
#undef _mm512_max_ps
#undef _mm512_min_ps
#undef _mm512_mul_ps
#undef _mm512_mullo_epi32
#undef _mm512_or_si512
#undef _mm512_permute_ps
#undef _mm512_permutex2var_epi16
#undef _mm512_permutex2var_ps
#undef _mm512_permutexvar_epi16
#undef _mm512_permutexvar_ps
#undef _mm512_reduce_max_epi32
#undef _mm512_set1_epi16
#undef _mm512_set1_epi32
#undef _mm512_set1_epi64
#undef _mm512_set1_epi8
#undef _mm512_set1_ps
#undef _mm512_set_epi16
#undef _mm512_setr_epi32
#undef _mm512_setzero_ps
#undef _mm512_setzero_si512
#undef _mm512_shuffle_epi8
#undef _mm512_slli_epi16
#undef _mm512_slli_epi32
#undef _mm512_sllv_epi16
#undef _mm512_srai_epi32
#undef _mm512_srl_epi32
#undef _mm512_srli_epi16
#undef _mm512_srli_epi64
#undef _mm512_store_si512
#undef _mm512_storeu_ps
#undef _mm512_storeu_si512
#undef _mm512_sub_epi32
#undef _mm512_sub_epi8
#undef _mm512_sub_ps
#undef _mm512_ternarylogic_epi32
#undef _mm512_test_epi16_mask
#undef _mm512_test_epi32_mask
#undef _mm512_unpackhi_epi32
#undef _mm512_unpackhi_epi64
#undef _mm512_unpacklo_epi32
#undef _mm512_unpacklo_epi64
#undef _mm512_xor_epi32
#undef _mm512_xor_ps
#undef _mm512_xor_si512
#undef _mm256_maskz_loadu_ps
#undef _mm256_maskz_loadu_epi8
#undef _mm_maskz_loadu_epi8

#define _mm512_add_epi32 tarn::emulated::add_epi32
#define _mm512_add_epi64 tarn::emulated::add_epi64
#define _mm512_add_ps tarn::emulated::add_ps
#define _mm512_and_epi32 tarn::emulated::and_si512
#define _mm512_and_si512 tarn::emulated::and_si512
#define _mm512_broadcast_i32x4 tarn::emulated::broadcast_i32x4
#define _mm512_castps256_ps512 tarn::emulated::castps256_ps512
#define _mm512_castps512_ps256 tarn::emulated::castps512_ps256
#define _mm512_castps_si512 tarn::emulated::castps_si512
#define _mm512_castsi128_si512 tarn::emulated::castsi128_si512
#define _mm512_castsi512_ps tarn::emulated::castsi512_ps
#define _mm512_castsi512_si256 tarn::emulated::castsi512_si256
#define _mm512_cmp_ps_mask(a, b, kind) tarn::emulated::compare<kind>(a, b)
#define _mm512_cmpeq_epi32_mask tarn::emulated::cmpeq_epi32_mask
#define _mm512_cmpeq_epu32_mask tarn::emulated::cmpeq_epu32_mask
#define _mm512_cmpgt_epi32_mask tarn::emulated::cmpgt_epi32_mask
#define _mm512_cmpgt_epu32_mask tarn::emulated::cmpgt_epu32_mask
#define _mm512_cvtepi32_epi8 tarn::emulated::cvtepi32_epi8
#define _mm512_cvtepi32_ps tarn::emulated::cvtepi32_ps
#define _mm512_cvtepi8_epi32 tarn::emulated::cvtepi8_epi32
#define _mm512_cvtepu16_epi32 tarn::emulated::cvtepu16_epi32
#define _mm512_cvtepu8_epi16 tarn::emulated::cvtepu8_epi16
#define _mm512_cvtepu8_epi32 tarn::emulated::cvtepu8_epi32
#define _mm512_cvtph_ps tarn::emulated::cvtph_ps
#define _mm512_cvtps_epi32 tarn::emulated::cvtps_epi32
#define _mm512_cvtps_epi64 tarn::emulated::cvtps_epi64
#define _mm512_cvtss_f32 tarn::emulated::cvtss_f32
#define _mm512_div_ps tarn::emulated::div_ps
#define _mm512_dpbusd_epi32 tarn::emulated::dpbusd_epi32
#define _mm512_dpwssd_epi32 tarn::emulated::dpwssd_epi32
#define _mm512_extractf32x8_ps tarn::emulated::extractf32x8_ps
#define _mm512_extracti64x4_epi64 tarn::emulated::extracti64x4_epi64
#define _mm512_fmadd_ps tarn::emulated::fmadd_ps
#define _mm512_fmsub_ps tarn::emulated::fmsub_ps
#define _mm512_loadu_ps tarn::emulated::loadu_ps
#define _mm512_loadu_si512 tarn::emulated::loadu_si512
#define _mm512_mask_broadcast_i32x4 tarn::emulated::mask_broadcast_i32x4
#define _mm512_mask_mov_epi16 tarn::emulated::mask_mov_epi16
#define _mm512_mask_mov_ps tarn::emulated::mask_mov_ps
#define _mm512_mask_storeu_epi32 tarn::emulated::mask_storeu_epi32
#define _mm512_mask_storeu_epi64 tarn::emulated::mask_storeu_epi64
#define _mm512_mask_storeu_ps tarn::emulated::mask_storeu_ps
#define _mm512_maskz_compress_epi32 tarn::emulated::maskz_compress_epi32
#define _mm512_maskz_cvtps_ph tarn::emulated::maskz_cvtps_ph
#define _mm512_maskz_loadu_epi32 tarn::emulated::maskz_loadu_epi32
#define _mm512_maskz_loadu_epi64 tarn::emulated::maskz_loadu_epi64
#define _mm512_maskz_loadu_ps tarn::emulated::maskz_loadu_ps
#define _mm512_max_epi32 tarn::emulated::max_epi32
#define _mm512_max_ps tarn::emulated::max_ps
#define _mm512_min_ps tarn::emulated::min_ps
#define _mm512_mul_ps tarn::emulated::mul_ps
#define _mm512_mullo_epi32 tarn::emulated::mullo_epi32
#define _mm512_or_si512 tarn::emulated::or_si512
#define _mm512_permute_ps tarn::emulated::permute_ps
#define _mm512_permutex2var_epi16 tarn::emulated::permutex2var_epi16
#define _mm512_permutex2var_ps tarn::emulated::permutex2var_ps
#define _mm512_permutexvar_epi16 tarn::emulated::permutexvar_epi16
#define _mm512_permutexvar_ps tarn::emulated::permutexvar_ps
#define _mm512_reduce_max_epi32 tarn::emulated::reduce_max_epi32
#define _mm512_set1_epi16 tarn::emulated::set1_epi16
#define _mm512_set1_epi32 tarn::emulated::set1_epi32
#define _mm512_set1_epi64 tarn::emulated::set1_epi64
#define _mm512_set1_epi8 tarn::emulated::set1_epi8
#define _mm512_set1_ps tarn::emulated::set1_ps
#define _mm512_set_epi16 tarn::emulated::set_epi16
#define _mm512_setr_epi32 tarn::emulated::setr_epi32
#define _mm512_setzero_ps tarn::emulated::setzero_ps
#define _mm512_setzero_si512 tarn::emulated::setzero_si512
#define _mm512_shuffle_epi8 tarn::emulated::shuffle_epi8
#define _mm512_slli_epi16 tarn::emulated::slli_epi16
#define _mm512_slli_epi32 tarn::emulated::slli_epi32
#define _mm512_sllv_epi16 tarn::emulated::sllv_epi16
#define _mm512_srai_epi32 tarn::emulated::srai_epi32
#define _mm512_srl_epi32 tarn::emulated::srl_epi32
#define _mm512_srli_epi16 tarn::emulated::srli_epi16
#define _mm512_srli_epi64 tarn::emulated::srli_epi64
#define _mm512_store_si512 tarn::emulated::store_si512
#define _mm512_storeu_ps tarn::emulated::storeu_ps
#define _mm512_storeu_si512 tarn::emulated::storeu_si512
#define _mm512_sub_epi32 tarn::emulated::sub_epi32
#define _mm512_sub_epi8 tarn::emulated::sub_epi8
#define _mm512_sub_ps tarn::emulated::sub_ps
#define _mm512_ternarylogic_epi32 tarn::emulated::ternarylogic_epi32
#define _mm512_test_epi16_mask tarn::emulated::test_epi16_mask
#define _mm512_test_epi32_mask tarn::emulated::test_epi32_mask
#define _mm512_unpackhi_epi32 tarn::emulated::unpackhi_epi32
#define _mm512_unpackhi_epi64 tarn::emulated::unpackhi_epi64
#define _mm512_unpacklo_epi32 tarn::emulated::unpacklo_epi32
#define _mm512_unpacklo_epi64 tarn::emulated::unpacklo_epi64
#define _mm512_xor_epi32 tarn::emulated::xor_si512
#define _mm512_xor_ps tarn::emulated::xor_ps
#define _mm512_xor_si512 tarn::emulated::xor_si512
#define _mm256_maskz_loadu_ps(mask, at) (tarn::emulated::load_masked<float, 32>(mask, at).as<__m256>())
#define _mm256_maskz_loadu_epi8(mask, at) (tarn::emulated::load_masked<char, 32>(mask, at).as<__m256i>())
#define _mm_maskz_loadu_epi8(mask, at) (tarn::emulated::load_masked<char, 16>(mask, at).as<__m128i>())
#define __AVX512F__ 1
// clang-format on
#endif
