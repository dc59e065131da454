// The vector layer for AVX2 with FMA and F16C: 8 floats, 16 registers. docs/dispatch.md says what a layer holds.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace attend::inline v1::kernels {
namespace {

struct Simd {
  using F = __m256;
  using Mask = __m256;
  static constexpr int lanes = 8;
  // 4 x 3 accumulators, 3 vectors and a broadcast: all 16 registers. Of a roof of 117 GFLOP/s this tile reaches 99
  // (1024 x 1024 x 64), 4 x 2 gives 94, 8 x 1 86, 2 x 4 78, and 8 x 2, which spills, 62.
  static constexpr int height = 4;
  static constexpr int vectors = 3;
  static constexpr int value_rows = 2, value_vectors = 4;  // decode: accumulators
#ifdef __AVXVNNI__
  static constexpr bool byte_products = true, byte_pairs = false;
#else
  static constexpr bool byte_products = false, byte_pairs = true;
#endif
  static constexpr bool signed_products = false, multiplies_in_registers = true;

  static F zero() {
    return _mm256_setzero_ps();
  }
  static F set1(float x) {
    return _mm256_set1_ps(x);
  }
  static F load(const float* p) {
    return _mm256_loadu_ps(p);
  }
  static F load_first(const float* p, std::int64_t count) {
    const __m256i number = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), number));
  }
  static void store(float* p, F x) {
    _mm256_storeu_ps(p, x);
  }
  static F add(F a, F b) {
    return _mm256_add_ps(a, b);
  }
  static F sub(F a, F b) {
    return _mm256_sub_ps(a, b);
  }
  static F mul(F a, F b) {
    return _mm256_mul_ps(a, b);
  }
  static F div(F a, F b) {
    return _mm256_div_ps(a, b);
  }
  static F fma(F a, F b, F c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  static F max(F a, F b) {
    return _mm256_max_ps(a, b);
  }
  static F min(F a, F b) {
    return _mm256_min_ps(a, b);
  }
  static F abs(F x) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
  }
  static F copy_sign(F x, F sign) {
    return _mm256_or_ps(abs(x), _mm256_and_ps(_mm256_set1_ps(-0.0f), sign));
  }

  // Lane i: the sum of x[i]'s lanes.
  static F sum_each(const F (&x)[lanes]) {
    const F low = _mm256_hadd_ps(_mm256_hadd_ps(x[0], x[1]), _mm256_hadd_ps(x[2], x[3]));
    const F high = _mm256_hadd_ps(_mm256_hadd_ps(x[4], x[5]), _mm256_hadd_ps(x[6], x[7]));
    return add(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
  }
  static F sum_each_i32(const F (&x)[lanes]) {
    const auto pairs = [](F a, F b) {
      return _mm256_castsi256_ps(_mm256_hadd_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
    };
    const F low = pairs(pairs(x[0], x[1]), pairs(x[2], x[3])), high = pairs(pairs(x[4], x[5]), pairs(x[6], x[7]));
    const __m256i a = _mm256_castps_si256(_mm256_permute2f128_ps(low, high, 0x20));
    const __m256i b = _mm256_castps_si256(_mm256_permute2f128_ps(low, high, 0x31));
    return _mm256_castsi256_ps(_mm256_add_epi32(a, b));
  }

  static void transpose(F (&x)[lanes]) {
    F part[4][2];  // [column][rows]: lane 4 l + r of [c][i] is element 4 l + c of row 4 i + r
    for (int i = 0; i < 2; ++i) {
      const F a = _mm256_unpacklo_ps(x[4 * i], x[4 * i + 1]), b = _mm256_unpackhi_ps(x[4 * i], x[4 * i + 1]);
      const F c = _mm256_unpacklo_ps(x[4 * i + 2], x[4 * i + 3]), d = _mm256_unpackhi_ps(x[4 * i + 2], x[4 * i + 3]);
      part[0][i] = _mm256_shuffle_ps(a, c, 0x44), part[1][i] = _mm256_shuffle_ps(a, c, 0xEE);
      part[2][i] = _mm256_shuffle_ps(b, d, 0x44), part[3][i] = _mm256_shuffle_ps(b, d, 0xEE);
    }
    for (int c = 0; c < 4; ++c) {
      x[c] = _mm256_permute2f128_ps(part[c][0], part[c][1], 0x20);
      x[4 + c] = _mm256_permute2f128_ps(part[c][0], part[c][1], 0x31);
    }
  }

  static void transpose_quarters(F (&x)[4]) {
    const auto wide = [&](int i) { return _mm256_castps_pd(x[i]); };
    const __m256d a = _mm256_unpacklo_pd(wide(0), wide(1)), b = _mm256_unpackhi_pd(wide(0), wide(1));
    const __m256d c = _mm256_unpacklo_pd(wide(2), wide(3)), d = _mm256_unpackhi_pd(wide(2), wide(3));
    x[0] = _mm256_castpd_ps(_mm256_permute2f128_pd(a, c, 0x20));
    x[1] = _mm256_castpd_ps(_mm256_permute2f128_pd(b, d, 0x20));
    x[2] = _mm256_castpd_ps(_mm256_permute2f128_pd(a, c, 0x31));
    x[3] = _mm256_castpd_ps(_mm256_permute2f128_pd(b, d, 0x31));
  }

  static Mask greater(F a, F b) {
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
  }
  static Mask equal(F a, F b) {
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
  }
  static Mask test(const std::uint32_t* p, std::uint32_t bit) {
    const __m256i wanted = _mm256_set1_epi32(static_cast<int>(bit));
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(bits, wanted), wanted));
  }
  // The lanes whose bit is set.
  static Mask lanes_of(std::uint32_t bits) {
    const __m256i own = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i some = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), own);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(some, own));
  }
  static std::uint32_t bits(Mask m) {
    return static_cast<std::uint32_t>(_mm256_movemask_ps(m));
  }
  static bool any(Mask m) {
    return _mm256_movemask_ps(m) != 0;
  }
  static F select(Mask m, F a, F b) {
    return _mm256_blendv_ps(b, a, m);
  }

  static F shift_up(F x, F before) {
    const __m256i between = _mm256_castps_si256(_mm256_permute2f128_ps(before, x, 0x21));
    return _mm256_castsi256_ps(_mm256_alignr_epi8(_mm256_castps_si256(x), between, 12));
  }

  static F fraction(F x) {
    return _mm256_sub_ps(x, _mm256_floor_ps(x));
  }
  // Below -126 nothing is left, whatever the exponent became; a NaN of y meets an exponent of 0 and stays.
  static F scale_by_floor(F y, F x) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(_mm256_floor_ps(x)), 23);
    const F scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), exponent));
    return _mm256_and_ps(scaled, _mm256_cmp_ps(x, _mm256_set1_ps(-126), _CMP_NLT_UQ));
  }

  static F load_bf16(const std::uint16_t* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static F load_f16(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void store_f16(std::uint16_t* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store_bf16(std::uint16_t* p, F x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const F both = select(equal(x, x), _mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet));
    const __m256i halves = _mm256_srli_epi32(_mm256_castps_si256(both), 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(halves, halves), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }

  static F load_i8(const std::int8_t* p) {
    return _mm256_castsi256_ps(_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static void store_i16(std::int16_t* p, F x) {
    const __m256i whole = _mm256_cvtps_epi32(x);
    const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), halves);
  }
#ifdef __AVXVNNI__
  static F dot_i16(F a, F b, F c) {
    return _mm256_castsi256_ps(
        _mm256_dpwssd_avx_epi32(_mm256_castps_si256(c), _mm256_castps_si256(a), _mm256_castps_si256(b)));
  }
  static F dot_u8(F a, F b, F c) {
    return _mm256_castsi256_ps(
        _mm256_dpbusd_avx_epi32(_mm256_castps_si256(c), _mm256_castps_si256(a), _mm256_castps_si256(b)));
  }
#else
  static F dot_i16(F a, F b, F c) {
    const __m256i products = _mm256_madd_epi16(_mm256_castps_si256(a), _mm256_castps_si256(b));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(c), products));
  }
  static F dot_u8(F a, F b, F c) {
    const __m256i x = _mm256_castps_si256(a), y = _mm256_castps_si256(b);
    const __m256i even = _mm256_and_si256(x, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(x, 8);
    const __m256i low = _mm256_srai_epi16(_mm256_slli_epi16(y, 8), 8), high = _mm256_srai_epi16(y, 8);
    const __m256i sums = _mm256_add_epi32(_mm256_madd_epi16(even, low), _mm256_madd_epi16(odd, high));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(c), sums));
  }
  static F dot_pairs(F a, F b, F c) {
    const __m256i products = _mm256_maddubs_epi16(_mm256_castps_si256(a), _mm256_castps_si256(b));
    __m256i sums = _mm256_add_epi16(_mm256_castps_si256(c), products);
    // GCC would put off sums that come one after another, and keep all of their products in memory meanwhile: 256 rows
    // took twice as long.
    __asm__("" : "+x"(sums));
    return _mm256_castsi256_ps(sums);
  }
  // As dot_u8(a, b, c), less 128 times b's bytes, none of which is -128.
  static F dot_lowered(F a, F b, F c) {
    const __m256i x = _mm256_xor_si256(_mm256_castps_si256(a), _mm256_set1_epi8(-128));
    const __m256i y = _mm256_sign_epi8(_mm256_castps_si256(b), x);
    return add_pairs(_mm256_castsi256_ps(_mm256_maddubs_epi16(_mm256_abs_epi8(x), y)), c);
  }
  static F add_pairs(F pairs, F c) {
    const __m256i sums = _mm256_madd_epi16(_mm256_castps_si256(pairs), _mm256_set1_epi16(1));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(c), sums));
  }
#endif
  static F spread(const std::int8_t* bytes) {
    std::int32_t four;
    __builtin_memcpy(&four, bytes, sizeof four);
    return _mm256_castsi256_ps(_mm256_set1_epi32(four));
  }
  static F to_i32(F x) {
    return _mm256_castsi256_ps(_mm256_cvtps_epi32(x));
  }
  static std::int32_t sum_i32(F x) {
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(_mm256_castps_si256(x)),
                                       _mm256_extracti128_si256(_mm256_castps_si256(x), 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
  }
  static void store_low_bytes(std::int8_t* p, F x) {
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_castps_si256(x), _mm256_set1_epi32(0x0C080400));
    const __m128i low = _mm256_castsi256_si128(bytes), high = _mm256_extracti128_si256(bytes, 1);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_unpacklo_epi32(low, high));
  }
  static F from_i32(F x) {
    return _mm256_cvtepi32_ps(_mm256_castps_si256(x));
  }

  static inline __attribute__((always_inline)) void load_quads(const char* const* rows, std::int64_t at,
                                                               F (&words)[4]) {
    F x[4];
    for (int i = 0; i < 4; ++i) {
      const auto quad = [&](int row) { return _mm_loadu_ps(reinterpret_cast<const float*>(rows[row] + at)); };
      x[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(quad(i)), quad(4 + i), 1);
    }
    const F a = _mm256_unpacklo_ps(x[0], x[1]), b = _mm256_unpackhi_ps(x[0], x[1]);
    const F c = _mm256_unpacklo_ps(x[2], x[3]), d = _mm256_unpackhi_ps(x[2], x[3]);
    words[0] = _mm256_shuffle_ps(a, c, 0x44), words[1] = _mm256_shuffle_ps(a, c, 0xEE);
    words[2] = _mm256_shuffle_ps(b, d, 0x44), words[3] = _mm256_shuffle_ps(b, d, 0xEE);
  }
  static F half(F words) {
    const __m256i low = _mm256_and_si256(_mm256_castps_si256(words), _mm256_set1_epi32(0xFFFF));
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
  }
  template <int K>
  static F raise_byte(F words) {
    constexpr int none = 0x808080, byte = 1 << 24;
    constexpr int a = none + K * byte, b = none + (4 + K) * byte, c = none + (8 + K) * byte, d = none + (12 + K) * byte;
    const __m256i order = _mm256_setr_epi32(a, b, c, d, a, b, c, d);
    return _mm256_castsi256_ps(_mm256_shuffle_epi8(_mm256_castps_si256(words), order));
  }
  static F look_up(const std::int8_t* table, F bytes) {
    const __m256i all = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    return _mm256_castsi256_ps(_mm256_shuffle_epi8(all, _mm256_castps_si256(bytes)));
  }

  static F interleave_low(F a, F b) {
    return _mm256_castsi256_ps(_mm256_unpacklo_epi16(_mm256_castps_si256(a), _mm256_castps_si256(b)));
  }
  static F interleave_high(F a, F b) {
    return _mm256_castsi256_ps(_mm256_unpackhi_epi16(_mm256_castps_si256(a), _mm256_castps_si256(b)));
  }
  static constexpr int interleaved_place(int element) {
    return element % 8 / 4 * lanes + element / 8 * 4 + element % 4;
  }

  static std::uint64_t bits_of_bools(const std::uint8_t* p) {
    const auto zeros = [p](int at) {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + at));
      return static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_setzero_si256())));
    };
    return ~(zeros(0) | static_cast<std::uint64_t>(zeros(32)) << 32);
  }
};

}  // namespace
}  // namespace attend::inline v1::kernels
