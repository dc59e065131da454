// The operations of one target's vector layer, one function each over plain arrays: what is compiled with a target's
// options (operations.h) fills it, and an ordinary file (simd_test.cpp) compares. No code of the C++ library may be in
// here: docs/dispatch.md, "What must not leave a target's object".
#pragma once

#include <cstdint>

namespace attend::test {

// y[i] is made from what stands at i in the other arrays, i < n, n a multiple of 16: of every target's lanes.
struct SimdTable {
  using Unary = void (*)(const float* x, float* y, long n);
  using Binary = void (*)(const float* a, const float* b, float* y, long n);
  using Widen = void (*)(const std::uint16_t* x, float* y, long n);
  using Narrow = void (*)(const float* x, std::uint16_t* y, long n);

  const char* target;
  int lanes, vectors, height;

  void (*zero)(float* y, long n);
  void (*set1)(float x, float* y, long n);
  Unary copy;                                                // load, then store
  void (*load_first)(const float* x, long count, float* y);  // one vector
  Binary add, sub, mul, div;
  void (*fma)(const float* a, const float* b, const float* c, float* y, long n);
  Binary max, min;
  Unary abs;
  Binary copy_sign;

  // Masks are shown as 1 and 0.
  Binary greater, equal;
  void (*test)(const std::uint32_t* x, std::uint32_t bit, float* y, long n);
  void (*lanes_of)(std::uint32_t bits, float* y);                          // one vector
  void (*shift_up)(const float* x, const float* before, float* y);         // one vector
  std::uint32_t (*bits_of_lanes)(std::uint32_t bits);                      // that lanes_of made
  void (*any_greater)(const float* a, const float* b, bool* any, long n);  // of each vector
  void (*select_greater)(const float* a, const float* b, const float* x, const float* z, float* y, long n);

  void (*sum_each)(const float* x, float* y);  // of [lanes,lanes]
  void (*transpose)(float* x);                 // [lanes,lanes], in place
  void (*transpose_quarters)(float* x);        // [4,lanes], in place
  Unary fraction;
  Binary scale_by_floor;
  Widen load_bf16, load_f16;
  Narrow store_bf16, store_f16;
  void (*load_i8)(const std::int8_t* x, float* y, long n);  // 2 * n of them
  void (*store_i16)(const float* x, std::int16_t* y, long n);
  // An element of a, b and y is a pair of 16 bits, or a whole number of 32.
  void (*dot_i16)(const float* a, const float* b, const float* c, float* y, long n);
  // One of a and b is four bytes: of a unsigned ones. by_pairs: as dot_pairs and add_pairs do it. Null where the layer
  // has none.
  using Dot = void (*)(const float* a, const float* b, const float* c, float* y, long n);
  Dot dot_u8, by_pairs, dot_lowered;
  void (*spread)(const std::int8_t* four, float* y);  // one vector
  Unary to_i32;
  std::int32_t (*sum_i32)(const float* x);  // of one vector
  void (*store_low_bytes)(const float* x, std::int8_t* y, long n);
  Unary from_i32;
  void (*sum_each_i32)(const float* x, float* y);  // of [lanes,lanes]
  Binary interleave_low, interleave_high;
  int (*interleaved_place)(int element);
  std::uint64_t (*bits_of_bools)(const std::uint8_t* x);
  void (*transpose4)(const float* r0, const float* r1, const float* r2, const float* r3, float* to, long stride);

  // What is built of them.
  Unary exp2_of_degree_4, exp2_of_degree_5, tanh;
  Binary round_pair;  // an element of y is a pair of bf16 in 32 bits
  double (*logarithm)(float x);

  // Where the processor multiplies bf16, else null. An element of a, b, x and y is a pair of bf16 in 32 bits.
  void (*dot_bf16)(const float* a, const float* b, const float* c, float* y, long n);
  Binary pair_bf16;
  Narrow store_bf16_operand;
  void (*interleave)(const std::uint16_t* low, const std::uint16_t* high, float* y);  // two vectors of pairs
  void (*scale_pair_bf16)(const float* x, float factor, float* y, long n);
};

#if defined(__x86_64__)
extern const SimdTable simd_baseline, simd_avx2, simd_avx2_vnni, simd_avx512, simd_avx512_vnni, simd_avx512_bf16;
inline constexpr const SimdTable* simd_tables[] = {&simd_baseline, &simd_avx2,        &simd_avx2_vnni,
                                                   &simd_avx512,   &simd_avx512_vnni, &simd_avx512_bf16};
#elif defined(__wasm_simd128__)
extern const SimdTable simd_baseline;
inline constexpr const SimdTable* simd_tables[] = {&simd_baseline};
#else
extern const SimdTable simd_neon;
inline constexpr const SimdTable* simd_tables[] = {&simd_neon};
#endif

}  // namespace attend::test
