// The vector layer for AVX-512 (F, BW, DQ, VL): 16 floats, 32 registers. docs/dispatch.md says what a layer holds.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace attend::inline v1::kernels {
namespace {

struct Simd {
  using F = __m512;
  using Mask = __mmask16;
  static constexpr int lanes = 16;
  // 8 x 3 accumulators, 3 vectors and a broadcast: 28 of the 32 registers.
  static constexpr int height = 8;
  static constexpr int vectors = 3;
  static constexpr int value_rows = 4, value_vectors = 4;  // decode: accumulators

  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  // The first of them, 1 to lanes - 1; zeros beyond, where no memory is read.
  static F load_first(const float* p, std::int64_t count) {
    return _mm512_maskz_loadu_ps(static_cast<Mask>((1u << count) - 1), p);
  }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  // b where either is NaN.
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F abs(F x) { return _mm512_abs_ps(x); }
  // The sign of `sign` on the magnitude of x.
  static F copy_sign(F x, F sign) {
    const __m512i bit = _mm512_set1_epi32(INT32_MIN);
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(bit, _mm512_castps_si512(sign), _mm512_castps_si512(x), 0xCA));
  }

  // Lane i: the sum of x[i]'s lanes.
  static F sum_each(const F (&x)[lanes]) { return sum_each_by<add>(x); }
  static F sum_each_i32(const F (&x)[lanes]) { return sum_each_by<add_i32>(x); }

  // In place: lane j of x[i] and lane i of x[j] change places.
  static void transpose(F (&x)[lanes]) {
    F part[4][4];  // [column][rows]: lane 4 l + r of [c][i] is element 4 l + c of row 4 i + r
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const F a = _mm512_unpacklo_ps(x[4 * i], x[4 * i + 1]), b = _mm512_unpackhi_ps(x[4 * i], x[4 * i + 1]);
      const F c = _mm512_unpacklo_ps(x[4 * i + 2], x[4 * i + 3]), d = _mm512_unpackhi_ps(x[4 * i + 2], x[4 * i + 3]);
      part[0][i] = _mm512_shuffle_ps(a, c, 0x44), part[1][i] = _mm512_shuffle_ps(a, c, 0xEE);
      part[2][i] = _mm512_shuffle_ps(b, d, 0x44), part[3][i] = _mm512_shuffle_ps(b, d, 0xEE);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const F even = _mm512_shuffle_f32x4(part[c][0], part[c][1], 0x88);
      const F odd = _mm512_shuffle_f32x4(part[c][0], part[c][1], 0xDD);
      const F more_even = _mm512_shuffle_f32x4(part[c][2], part[c][3], 0x88);
      const F more_odd = _mm512_shuffle_f32x4(part[c][2], part[c][3], 0xDD);
      x[c] = _mm512_shuffle_f32x4(even, more_even, 0x88), x[8 + c] = _mm512_shuffle_f32x4(even, more_even, 0xDD);
      x[4 + c] = _mm512_shuffle_f32x4(odd, more_odd, 0x88), x[12 + c] = _mm512_shuffle_f32x4(odd, more_odd, 0xDD);
    }
  }

  // The same of quarters of four vectors: quarter j of x[i] and quarter i of x[j] change places.
  static void transpose_quarters(F (&x)[4]) {
    const F even_low = _mm512_shuffle_f32x4(x[0], x[1], 0x88), odd_low = _mm512_shuffle_f32x4(x[0], x[1], 0xDD);
    const F even_high = _mm512_shuffle_f32x4(x[2], x[3], 0x88), odd_high = _mm512_shuffle_f32x4(x[2], x[3], 0xDD);
    x[0] = _mm512_shuffle_f32x4(even_low, even_high, 0x88), x[2] = _mm512_shuffle_f32x4(even_low, even_high, 0xDD);
    x[1] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88), x[3] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xDD);
  }

  static Mask greater(F a, F b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
  }
  static Mask equal(F a, F b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
  }
  // One bit of each 32-bit lane.
  static Mask test(const std::uint32_t* p, std::uint32_t bit) {
    return _mm512_test_epi32_mask(_mm512_loadu_si512(p), _mm512_set1_epi32(static_cast<int>(bit)));
  }
  // The lanes whose bit is set.
  static Mask lanes_of(std::uint32_t bits) {
    return static_cast<Mask>(bits);
  }
  // Bit i: lane i.
  static std::uint32_t bits(Mask m) {
    return m;
  }
  static bool any(Mask m) {
    return m != 0;
  }
  // a where m, else b.
  static F select(Mask m, F a, F b) {
    return _mm512_mask_blend_ps(m, b, a);
  }

  // Lane i: lane i - 1 of x; lane 0: the last one of before.
  static F shift_up(F x, F before) {
    return _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(x), _mm512_castps_si512(before), 15));
  }

  // x - floor(x), and y * 2^floor(x); 0 far below, NaN for NaN.
  static F fraction(F x) {
    return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);
  }
  static F scale_by_floor(F y, F x) {
    return _mm512_scalef_ps(y, x);
  }

  static F load_bf16(const std::uint16_t* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static F load_f16(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void store_f16(std::uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  // Round to nearest even on the bits; NaN keeps its upper half, made quiet.
  static void store_bf16(std::uint16_t* p, F x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __m512i both = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), rounded, quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)));
  }

  // 2 * lanes integers of 8 bits as pairs of 16.
  static F load_i8(const std::int8_t* p) {
    return _mm512_castsi512_ps(_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
  }
  // Rounded to integers of 16 bits.
  static void store_i16(std::int16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(x)));
  }
  // c + a.low * b.low + a.high * b.high, where a lane is a pair of 16-bit integers, and of c one of 32.
  static F dot_i16(F a, F b, F c) {
    const __m512i x = _mm512_castps_si512(a), y = _mm512_castps_si512(b), z = _mm512_castps_si512(c);
#ifdef __AVX512VNNI__
    return _mm512_castsi512_ps(_mm512_dpwssd_epi32(z, x, y));
#else
    return _mm512_castsi512_ps(_mm512_add_epi32(z, _mm512_madd_epi16(x, y)));
#endif
  }
#ifdef __AVX512VNNI__
  static constexpr bool byte_products = true, byte_pairs = false, signed_products = false,
                        multiplies_in_registers = true;
  // c + the sum of a's unsigned times b's signed bytes, where a lane is four of them, and of c an integer.
  static F dot_u8(F a, F b, F c) {
    return _mm512_castsi512_ps(
        _mm512_dpbusd_epi32(_mm512_castps_si512(c), _mm512_castps_si512(a), _mm512_castps_si512(b)));
  }
#else
  static constexpr bool byte_products = false, byte_pairs = false, signed_products = false,
                        multiplies_in_registers = false;
  static F dot_u8(F a, F b, F c) {
    const __m512i x = _mm512_castps_si512(a), y = _mm512_castps_si512(b);
    const __m512i even = _mm512_and_si512(x, _mm512_set1_epi16(255)), odd = _mm512_srli_epi16(x, 8);
    const __m512i low = _mm512_srai_epi16(_mm512_slli_epi16(y, 8), 8), high = _mm512_srai_epi16(y, 8);
    const __m512i sums = _mm512_add_epi32(_mm512_madd_epi16(even, low), _mm512_madd_epi16(odd, high));
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(c), sums));
  }
#endif
  // Four bytes for every lane. Where each product has one of its own, vbroadcastss (set1()) takes 1.33 cycles on Zen 4
  // and vpbroadcastd 0.99: one row's products took 1.4 times as long.
  static F spread(const std::int8_t* bytes) {
    std::int32_t four;
    __builtin_memcpy(&four, bytes, sizeof four);
    return _mm512_castsi512_ps(_mm512_set1_epi32(four));
  }
  static F to_i32(F x) {
    return _mm512_castsi512_ps(_mm512_cvtps_epi32(x));
  }
  static std::int32_t sum_i32(F x) {
    return _mm512_reduce_add_epi32(_mm512_castps_si512(x));
  }
  // The lowest byte of each lane.
  static void store_low_bytes(std::int8_t* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_castps_si512(x)));
  }
  static F from_i32(F x) {
    return _mm512_cvtepi32_ps(_mm512_castps_si512(x));
  }

  // 16 bytes of each of `lanes` rows, from rows[i] + at on: lane i of words[w] is word w of row i.
  static inline __attribute__((always_inline)) void load_quads(const char* const* rows, std::int64_t at,
                                                               F (&words)[4]) {
    F x[4];
    for (int i = 0; i < 4; ++i) {
      const auto quad = [&](int row) { return _mm_loadu_ps(reinterpret_cast<const float*>(rows[row] + at)); };
      const __m256 low = _mm256_insertf128_ps(_mm256_castps128_ps256(quad(i)), quad(4 + i), 1);
      const __m256 high = _mm256_insertf128_ps(_mm256_castps128_ps256(quad(8 + i)), quad(12 + i), 1);
      x[i] = _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
    }
    const F a = _mm512_unpacklo_ps(x[0], x[1]), b = _mm512_unpackhi_ps(x[0], x[1]);
    const F c = _mm512_unpacklo_ps(x[2], x[3]), d = _mm512_unpackhi_ps(x[2], x[3]);
    words[0] = _mm512_shuffle_ps(a, c, 0x44), words[1] = _mm512_shuffle_ps(a, c, 0xEE);
    words[2] = _mm512_shuffle_ps(b, d, 0x44), words[3] = _mm512_shuffle_ps(b, d, 0xEE);
  }
  // The float of the f16 in the low half of each lane.
  static F half(F words) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_castps_si512(words)));
  }
  // Byte K of each lane at its top, zeros below.
  template <int K>
  static F raise_byte(F words) {
    constexpr int none = 0x808080, byte = 1 << 24;
    const __m512i order =
        _mm512_set4_epi32(none + (12 + K) * byte, none + (8 + K) * byte, none + (4 + K) * byte, none + K * byte);
    return _mm512_castsi512_ps(_mm512_shuffle_epi8(_mm512_castps_si512(words), order));
  }
  // table[byte] for every byte, each below 16.
  static F look_up(const std::int8_t* table, F bytes) {
    const __m512i all = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    return _mm512_castsi512_ps(_mm512_shuffle_epi8(all, _mm512_castps_si512(bytes)));
  }

  // Of two rows of 2 * lanes elements of 16 bits: pairs of what stands at the same place, half of them each, in an
  // order that the instructions find best.
  static F interleave_low(F a, F b) {
    return _mm512_castsi512_ps(_mm512_unpacklo_epi16(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  }
  static F interleave_high(F a, F b) {
    return _mm512_castsi512_ps(_mm512_unpackhi_epi16(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  }
  // Which lane of the two, low's first, has the pair of that element.
  static constexpr int interleaved_place(int element) {
    return element % 8 / 4 * lanes + element / 8 * 4 + element % 4;
  }

#ifdef __AVX512BF16__
  // c + a.low * b.low + a.high * b.high, where a lane is a pair of bf16.
  static F dot_bf16(F a, F b, F c) {
#ifdef __clang__
    // Clang 16 dies of the cast where a is a broadcast (LLVM's issue 68117).
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
#else
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
#endif
  }
  // Lanes of low and high, rounded, side by side.
  static F pair_bf16(F low, F high) {
    const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, halves));
  }
  // Rounded as pair_bf16 rounds: one instruction, to which denormals are 0.
  static void store_bf16_operand(std::uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(x));
  }
  // Pairs of what stands at the same place of two rows of 2 * lanes elements of 16 bits.
  static void interleave(std::uint32_t* to, const char* low, const char* high) {
    const __m512i a = _mm512_loadu_si512(low), b = _mm512_loadu_si512(high);
    const __m512i step = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                                          37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, step, b));
    _mm512_storeu_si512(to + lanes, _mm512_permutex2var_epi16(a, _mm512_add_epi16(step, _mm512_set1_epi16(16)), b));
  }
  // Both of each pair times a power of two.
  static F scale_pair_bf16(F x, F factor) {
    const __m512i bits = _mm512_castps_si512(x);
    const F low = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16)), factor);
    const F high = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(-65536))), factor);
    return pair_bf16(low, high);
  }
#endif

  // 64 bytes of bool as bits.
  static std::uint64_t bits_of_bools(const std::uint8_t* p) {
    const __m512i bytes = _mm512_loadu_si512(p);
    return _mm512_test_epi8_mask(bytes, bytes);
  }

 private:
  static F add_i32(F a, F b) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  }
  template <F (*plus)(F, F)>
  static F sum_each_by(const F (&x)[lanes]) {
    F four[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const F a = plus(_mm512_unpacklo_ps(x[4 * i], x[4 * i + 1]), _mm512_unpackhi_ps(x[4 * i], x[4 * i + 1]));
      const F b = plus(_mm512_unpacklo_ps(x[4 * i + 2], x[4 * i + 3]), _mm512_unpackhi_ps(x[4 * i + 2], x[4 * i + 3]));
      four[i] = plus(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE));
    }
    const F low = plus(_mm512_shuffle_f32x4(four[0], four[1], 0x88), _mm512_shuffle_f32x4(four[0], four[1], 0xDD));
    const F high = plus(_mm512_shuffle_f32x4(four[2], four[3], 0x88), _mm512_shuffle_f32x4(four[2], four[3], 0xDD));
    return plus(_mm512_shuffle_f32x4(low, high, 0x88), _mm512_shuffle_f32x4(low, high, 0xDD));
  }
};

}  // namespace
}  // namespace attend::inline v1::kernels
