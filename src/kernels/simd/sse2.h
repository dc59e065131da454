// The vector layer that every x86-64 processor has: SSE2, 4 floats, 16 registers, no fused multiply-add.
// docs/dispatch.md says what a layer holds.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "core/half.h"

namespace attend::inline v1::kernels {
namespace {

struct Simd {
  using F = __m128;
  using Mask = __m128;
  static constexpr int lanes = 4;
  // 4 x 2 accumulators, 2 vectors, a broadcast and a product: 12 of the 16 registers; a third vector would spill.
  static constexpr int height = 4;
  static constexpr int vectors = 2;
  static constexpr int value_rows = 4, value_vectors = 4;  // decode: accumulators
  static constexpr bool byte_products = false, byte_pairs = false, signed_products = false,
                        multiplies_in_registers = false;

  static F zero() { return _mm_setzero_ps(); }
  static F set1(float x) { return _mm_set1_ps(x); }
  static F load(const float* p) { return _mm_loadu_ps(p); }
  static F load_first(const float* p, std::int64_t count) {
    const F last = _mm_load_ss(p + count - 1);
    if (count == 1) return last;
    const F two = _mm_castpd_ps(_mm_load_sd(reinterpret_cast<const double*>(p)));
    return count == 2 ? two : _mm_movelh_ps(two, last);
  }
  static void store(float* p, F x) { _mm_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm_add_ps(a, b); }
  static F sub(F a, F b) { return _mm_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm_mul_ps(a, b); }
  static F div(F a, F b) { return _mm_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
  static F max(F a, F b) { return _mm_max_ps(a, b); }
  static F min(F a, F b) { return _mm_min_ps(a, b); }
  static F abs(F x) { return _mm_andnot_ps(_mm_set1_ps(-0.0f), x); }
  static F copy_sign(F x, F sign) { return _mm_or_ps(abs(x), _mm_and_ps(_mm_set1_ps(-0.0f), sign)); }

  // Lane i: the sum of x[i]'s lanes.
  static F sum_each(const F (&x)[lanes]) { return sum_each_by<add>(x); }
  static F sum_each_i32(const F (&x)[lanes]) { return sum_each_by<add_i32>(x); }

  static void transpose(F (&x)[lanes]) { _MM_TRANSPOSE4_PS(x[0], x[1], x[2], x[3]); }
  static void transpose_quarters(F (&x)[4]) { transpose(x); }

  static Mask greater(F a, F b) { return _mm_cmpgt_ps(a, b); }
  static Mask equal(F a, F b) { return _mm_cmpeq_ps(a, b); }
  static Mask test(const std::uint32_t* p, std::uint32_t bit) {
    const __m128i wanted = _mm_set1_epi32(static_cast<int>(bit));
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm_castsi128_ps(_mm_cmpeq_epi32(_mm_and_si128(bits, wanted), wanted));
  }
  // The lanes whose bit is set.
  static Mask lanes_of(std::uint32_t bits) {
    const __m128i own = _mm_setr_epi32(1, 2, 4, 8);
    const __m128i some = _mm_and_si128(_mm_set1_epi32(static_cast<int>(bits)), own);
    return _mm_castsi128_ps(_mm_cmpeq_epi32(some, own));
  }
  static std::uint32_t bits(Mask m) { return static_cast<std::uint32_t>(_mm_movemask_ps(m)); }
  static bool any(Mask m) { return _mm_movemask_ps(m) != 0; }
  static F select(Mask m, F a, F b) { return _mm_or_ps(_mm_and_ps(m, a), _mm_andnot_ps(m, b)); }

  // Beyond 2^23 every float is whole, and beyond 2^31 the conversion would overflow.
  static F floor(F x) {
    const F cut = _mm_cvtepi32_ps(_mm_cvttps_epi32(x));
    const F lower = _mm_sub_ps(cut, _mm_and_ps(_mm_cmpgt_ps(cut, x), _mm_set1_ps(1)));
    return select(greater(_mm_set1_ps(0x1p23f), abs(x)), lower, x);
  }
  static F shift_up(F x, F before) {
    return _mm_move_ss(_mm_shuffle_ps(x, x, 0x90), _mm_shuffle_ps(before, before, 0xFF));
  }

  static F fraction(F x) { return _mm_sub_ps(x, floor(x)); }
  static F scale_by_floor(F y, F x) {
    const F least = _mm_set1_ps(-126);
    const __m128i exponent = _mm_cvtps_epi32(_mm_max_ps(least, floor(x)));
    const F scaled = _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(y), _mm_slli_epi32(exponent, 23)));
    return select(greater(least, x), zero(), select(equal(x, x), scaled, x));
  }

  static F load_bf16(const std::uint16_t* p) {
    const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), bits));
  }
  static F load_f16(const std::uint16_t* p) {
    std::uint16_t half[lanes];  // p may be misaligned
    __builtin_memcpy(half, p, sizeof half);
    return _mm_setr_ps(float_of_half(half[0]), float_of_half(half[1]), float_of_half(half[2]), float_of_half(half[3]));
  }
  static void store_f16(std::uint16_t* p, F x) {
    float wide[lanes];
    std::uint16_t half[lanes];
    store(wide, x);
    for (int i = 0; i < lanes; ++i) half[i] = half_of_float(wide[i]);
    __builtin_memcpy(p, half, sizeof half);
  }
  static void store_bf16(std::uint16_t* p, F x) {
    float wide[lanes];
    std::uint16_t half[lanes];
    store(wide, x);
    for (int i = 0; i < lanes; ++i) half[i] = bfloat_of_float(wide[i]);
    __builtin_memcpy(p, half, sizeof half);
  }

  static F load_i8(const std::int8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm_castsi128_ps(_mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8));
  }
  static void store_i16(std::int16_t* p, F x) {
    const __m128i whole = _mm_cvtps_epi32(x);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi32(whole, whole));
  }
  static F dot_i16(F a, F b, F c) {
    const __m128i products = _mm_madd_epi16(_mm_castps_si128(a), _mm_castps_si128(b));
    return _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(c), products));
  }
  static F dot_u8(F a, F b, F c) {
    const __m128i x = _mm_castps_si128(a), y = _mm_castps_si128(b);
    const __m128i even = _mm_and_si128(x, _mm_set1_epi16(255)), odd = _mm_srli_epi16(x, 8);
    const __m128i low = _mm_srai_epi16(_mm_slli_epi16(y, 8), 8), high = _mm_srai_epi16(y, 8);
    const __m128i sums = _mm_add_epi32(_mm_madd_epi16(even, low), _mm_madd_epi16(odd, high));
    return _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(c), sums));
  }
  static F spread(const std::int8_t* bytes) {
    std::int32_t four;
    __builtin_memcpy(&four, bytes, sizeof four);
    return _mm_castsi128_ps(_mm_set1_epi32(four));
  }
  static F to_i32(F x) { return _mm_castsi128_ps(_mm_cvtps_epi32(x)); }
  static std::int32_t sum_i32(F x) {
    const __m128i four = _mm_castps_si128(x), two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
  }
  static void store_low_bytes(std::int8_t* p, F x) {
    const __m128i bytes = _mm_and_si128(_mm_castps_si128(x), _mm_set1_epi32(255));
    const __m128i halves = _mm_packs_epi32(bytes, bytes);
    const int four = _mm_cvtsi128_si32(_mm_packus_epi16(halves, halves));
    __builtin_memcpy(p, &four, sizeof four);
  }
  static F from_i32(F x) { return _mm_cvtepi32_ps(_mm_castps_si128(x)); }

  static inline __attribute__((always_inline)) void load_quads(const char* const* rows, std::int64_t at,
                                                               F (&words)[4]) {
    for (int i = 0; i < 4; ++i) words[i] = load(reinterpret_cast<const float*>(rows[i] + at));
    transpose(words);
  }
  // The exponent is moved by a product, which also makes subnormals normal; infinity and NaN are put there.
  static F half(F words) {
    const __m128i bits = _mm_castps_si128(words), size = _mm_and_si128(bits, _mm_set1_epi32(0x7FFF));
    const F finite = _mm_mul_ps(_mm_castsi128_ps(_mm_slli_epi32(size, 13)), _mm_set1_ps(0x1p112f));
    const __m128i special = _mm_and_si128(_mm_cmpgt_epi32(size, _mm_set1_epi32(0x7BFF)), _mm_set1_epi32(0x7F800000));
    const __m128i sign = _mm_slli_epi32(_mm_and_si128(bits, _mm_set1_epi32(0x8000)), 16);
    return _mm_or_ps(finite, _mm_castsi128_ps(_mm_or_si128(special, sign)));
  }
  template <int K>
  static F raise_byte(F words) {
    return _mm_castsi128_ps(_mm_and_si128(_mm_slli_epi32(_mm_castps_si128(words), 24 - 8 * K),
                                          _mm_set1_epi32(static_cast<int>(0xFF000000))));
  }
  static F look_up(const std::int8_t* table, F bytes) {
    std::int8_t each[4 * lanes];
    __builtin_memcpy(each, &bytes, sizeof each);
    for (std::int8_t& byte : each) byte = table[byte];
    __builtin_memcpy(&bytes, each, sizeof each);
    return bytes;
  }

  static F interleave_low(F a, F b) {
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_castps_si128(a), _mm_castps_si128(b)));
  }
  static F interleave_high(F a, F b) {
    return _mm_castsi128_ps(_mm_unpackhi_epi16(_mm_castps_si128(a), _mm_castps_si128(b)));
  }
  static constexpr int interleaved_place(int element) { return element; }

  static std::uint64_t bits_of_bools(const std::uint8_t* p) {
    std::uint64_t zeros = 0;
    for (int i = 0; i < 4; ++i) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * i));
      const int mask = _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128()));
      zeros |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(mask)) << 16 * i;
    }
    return ~zeros;
  }

 private:
  static F add_i32(F a, F b) { return _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(a), _mm_castps_si128(b))); }
  template <F (*plus)(F, F)>
  static F sum_each_by(const F (&x)[lanes]) {
    const F a = plus(_mm_unpacklo_ps(x[0], x[1]), _mm_unpackhi_ps(x[0], x[1]));
    const F b = plus(_mm_unpacklo_ps(x[2], x[3]), _mm_unpackhi_ps(x[2], x[3]));
    return plus(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
  }
};

}  // namespace
}  // namespace attend::inline v1::kernels
