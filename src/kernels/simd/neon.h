// The vector layer for AArch64: NEON, 4 floats, 32 registers. docs/dispatch.md says what a layer holds.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "core/half.h"

namespace attend::inline v1::kernels {
namespace {

struct Simd {
  using F = float32x4_t;
  using Mask = uint32x4_t;
  static constexpr int lanes = 4;
  // 8 x 3 accumulators, 3 vectors and a broadcast: 28 of the 32 registers.
  static constexpr int height = 8;
  static constexpr int vectors = 3;
  static constexpr int value_rows = 4, value_vectors = 4;  // decode: accumulators

  static F zero() { return vdupq_n_f32(0); }
  static F set1(float x) { return vdupq_n_f32(x); }
  static F load(const float* p) { return vld1q_f32(p); }
  static F load_first(const float* p, std::int64_t count) {
    F x = vsetq_lane_f32(p[0], vdupq_n_f32(0), 0);
    if (count > 1) x = vsetq_lane_f32(p[1], x, 1);
    return count > 2 ? vsetq_lane_f32(p[2], x, 2) : x;
  }
  static void store(float* p, F x) { vst1q_f32(p, x); }
  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F div(F a, F b) { return vdivq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  // b where either is NaN, as x86 has it.
  static F max(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static F min(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static F abs(F x) { return vabsq_f32(x); }
  static F copy_sign(F x, F sign) { return vbslq_f32(vdupq_n_u32(0x80000000u), sign, x); }

  // Lane i: the sum of x[i]'s lanes.
  static F sum_each(const F (&x)[lanes]) { return vpaddq_f32(vpaddq_f32(x[0], x[1]), vpaddq_f32(x[2], x[3])); }
  static F sum_each_i32(const F (&x)[lanes]) {
    const auto whole = [&](int i) { return vreinterpretq_s32_f32(x[i]); };
    return vreinterpretq_f32_s32(vpaddq_s32(vpaddq_s32(whole(0), whole(1)), vpaddq_s32(whole(2), whole(3))));
  }

  static void transpose(F (&x)[lanes]) {
    const float32x4x2_t ab = vtrnq_f32(x[0], x[1]), cd = vtrnq_f32(x[2], x[3]);
    x[0] = vcombine_f32(vget_low_f32(ab.val[0]), vget_low_f32(cd.val[0]));
    x[1] = vcombine_f32(vget_low_f32(ab.val[1]), vget_low_f32(cd.val[1]));
    x[2] = vcombine_f32(vget_high_f32(ab.val[0]), vget_high_f32(cd.val[0]));
    x[3] = vcombine_f32(vget_high_f32(ab.val[1]), vget_high_f32(cd.val[1]));
  }
  static void transpose_quarters(F (&x)[4]) { transpose(x); }

  static Mask greater(F a, F b) { return vcgtq_f32(a, b); }
  static Mask equal(F a, F b) { return vceqq_f32(a, b); }
  static Mask test(const std::uint32_t* p, std::uint32_t bit) { return vtstq_u32(vld1q_u32(p), vdupq_n_u32(bit)); }
  // The lanes whose bit is set.
  static Mask lanes_of(std::uint32_t bits) {
    static constexpr std::uint32_t own[lanes] = {1, 2, 4, 8};
    return vtstq_u32(vld1q_u32(own), vdupq_n_u32(bits));
  }
  static std::uint32_t bits(Mask m) {
    static constexpr std::uint32_t own[lanes] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(m, vld1q_u32(own)));
  }
  static bool any(Mask m) { return vmaxvq_u32(m) != 0; }
  static F select(Mask m, F a, F b) { return vbslq_f32(m, a, b); }

  static F shift_up(F x, F before) { return vextq_f32(before, x, 3); }

  static F fraction(F x) { return vsubq_f32(x, vrndmq_f32(x)); }
  static F scale_by_floor(F y, F x) {
    const F least = set1(-126);
    const int32x4_t exponent = vcvtq_s32_f32(max(least, vrndmq_f32(x)));
    const F scaled = vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(y), vshlq_n_s32(exponent, 23)));
    return select(greater(least, x), zero(), select(equal(x, x), scaled, x));
  }

  static F load_bf16(const std::uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
  static F load_f16(const std::uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static void store_f16(std::uint16_t* p, F x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
  static void store_bf16(std::uint16_t* p, F x) {
    float wide[lanes];
    std::uint16_t half[lanes];  // p may be misaligned
    store(wide, x);
    for (int i = 0; i < lanes; ++i) half[i] = bfloat_of_float(wide[i]);
    __builtin_memcpy(p, half, sizeof half);
  }

  static F load_i8(const std::int8_t* p) { return vreinterpretq_f32_s16(vmovl_s8(vld1_s8(p))); }
  static void store_i16(std::int16_t* p, F x) {
    const int16x4_t whole = vqmovn_s32(vcvtnq_s32_f32(x));
    __builtin_memcpy(p, &whole, sizeof whole);  // p may be misaligned
  }
  static F dot_i16(F a, F b, F c) {
    const int16x8_t x = vreinterpretq_s16_f32(a), y = vreinterpretq_s16_f32(b);
    const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y)), high = vmull_high_s16(x, y);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(c), vpaddq_s32(low, high)));
  }
#ifdef __ARM_FEATURE_DOTPROD
  static constexpr bool byte_products = false, byte_pairs = false, signed_products = true;
  static constexpr bool multiplies_in_registers = true;
  // a's bytes up to 127.
  static F dot_u8(F a, F b, F c) {
    const int32x4_t sums = vdotq_s32(vreinterpretq_s32_f32(c), vreinterpretq_s8_f32(a), vreinterpretq_s8_f32(b));
    return vreinterpretq_f32_s32(sums);
  }
  static F dot_lowered(F a, F b, F c) {
    return dot_u8(vreinterpretq_f32_u8(veorq_u8(vreinterpretq_u8_f32(a), vdupq_n_u8(128))), b, c);
  }
#else
  static constexpr bool byte_products = false, byte_pairs = false, signed_products = false;
  static constexpr bool multiplies_in_registers = false;
  static F dot_u8(F a, F b, F c) {
    const uint16x8_t x = vreinterpretq_u16_f32(a);
    const int16x8_t y = vreinterpretq_s16_f32(b);
    const int16x8_t even = vreinterpretq_s16_u16(vandq_u16(x, vdupq_n_u16(255)));
    const int16x8_t odd = vreinterpretq_s16_u16(vshrq_n_u16(x, 8));
    const int16x8_t low = vshrq_n_s16(vshlq_n_s16(y, 8), 8), high = vshrq_n_s16(y, 8);
    const int32x4_t first =
        vmlal_s16(vmull_s16(vget_low_s16(even), vget_low_s16(low)), vget_low_s16(odd), vget_low_s16(high));
    const int32x4_t second = vmlal_high_s16(vmull_high_s16(even, low), odd, high);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(c), vpaddq_s32(first, second)));
  }
#endif
  static F spread(const std::int8_t* bytes) {
    std::int32_t four;
    __builtin_memcpy(&four, bytes, sizeof four);
    return vreinterpretq_f32_s32(vdupq_n_s32(four));
  }
  static F to_i32(F x) {
    return vreinterpretq_f32_s32(vcvtnq_s32_f32(x));
  }
  static std::int32_t sum_i32(F x) {
    return vaddvq_s32(vreinterpretq_s32_f32(x));
  }
  static void store_low_bytes(std::int8_t* p, F x) {
    const uint16x4_t halves = vmovn_u32(vreinterpretq_u32_f32(x));
    const uint8x8_t bytes = vmovn_u16(vcombine_u16(halves, halves));
    __builtin_memcpy(p, &bytes, lanes);
  }
  static F from_i32(F x) {
    return vcvtq_f32_s32(vreinterpretq_s32_f32(x));
  }

  static inline __attribute__((always_inline)) void load_quads(const char* const* rows, std::int64_t at,
                                                               F (&words)[4]) {
    for (int i = 0; i < 4; ++i) {
      words[i] = vreinterpretq_f32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(rows[i] + at)));
    }
    transpose(words);
  }
  static F half(F words) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_f32(words))));
  }
  template <int K>
  static F raise_byte(F words) {
    return vreinterpretq_f32_u32(
        vandq_u32(vshlq_n_u32(vreinterpretq_u32_f32(words), 24 - 8 * K), vdupq_n_u32(0xFF000000u)));
  }
  static F look_up(const std::int8_t* table, F bytes) {
    return vreinterpretq_f32_s8(vqtbl1q_s8(vld1q_s8(table), vreinterpretq_u8_f32(bytes)));
  }

  static F interleave_low(F a, F b) {
    return vreinterpretq_f32_s16(vzip1q_s16(vreinterpretq_s16_f32(a), vreinterpretq_s16_f32(b)));
  }
  static F interleave_high(F a, F b) {
    return vreinterpretq_f32_s16(vzip2q_s16(vreinterpretq_s16_f32(a), vreinterpretq_s16_f32(b)));
  }
  static constexpr int interleaved_place(int element) {
    return element;
  }

  static std::uint64_t bits_of_bools(const std::uint8_t* p) {
    std::uint64_t bits = 0;
    for (int i = 0; i < 64; ++i) bits |= static_cast<std::uint64_t>(p[i] != 0) << i;
    return bits;
  }
};

// Four rows of four floats to four columns, to_stride floats apart.
inline void transpose4(const float* r0, const float* r1, const float* r2, const float* r3, float* to,
                       std::int64_t to_stride) {
  const float32x4x2_t ab = vtrnq_f32(vld1q_f32(r0), vld1q_f32(r1));
  const float32x4x2_t cd = vtrnq_f32(vld1q_f32(r2), vld1q_f32(r3));
  vst1q_f32(to, vcombine_f32(vget_low_f32(ab.val[0]), vget_low_f32(cd.val[0])));
  vst1q_f32(to + to_stride, vcombine_f32(vget_low_f32(ab.val[1]), vget_low_f32(cd.val[1])));
  vst1q_f32(to + 2 * to_stride, vcombine_f32(vget_high_f32(ab.val[0]), vget_high_f32(cd.val[0])));
  vst1q_f32(to + 3 * to_stride, vcombine_f32(vget_high_f32(ab.val[1]), vget_high_f32(cd.val[1])));
}

}  // namespace
}  // namespace attend::inline v1::kernels
