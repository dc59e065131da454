// Products of bf16 by the processor's own instruction: for the sources of targets whose vector layer has it.
#pragma once

#include "kernels/arithmetic.h"

namespace attend::inline v1::kernels {
namespace {

// Two bf16 products a lane and step, summed in f32.
struct DotBF16 {
  static constexpr int pair = 2;
  static constexpr bool integer = false;
  static constexpr int degree = 4;  // the weights keep 8 bits
  static F fma(F a, F b, F c) { return Simd::dot_bf16(a, b, c); }
  static F step(F even, F odd) { return Simd::pair_bf16(even, odd); }
  static void store_half(std::uint16_t* to, F x) { Simd::store_bf16_operand(to, x); }
  static void interleave(std::uint32_t* to, const char* low, const char* high) { Simd::interleave(to, low, high); }
  static F scale(F step, F alpha) { return Simd::scale_pair_bf16(step, alpha); }
  static F sum_each(const F (&x)[lanes]) { return Simd::sum_each(x); }
  static F total(F sum) { return sum; }
};

}  // namespace
}  // namespace attend::inline v1::kernels
