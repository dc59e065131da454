// bf16 and f16 one at a time: of tensors, and in targets without an instruction. Internal linkage: each target keeps a
// copy of its own.
#pragma once

#include <cstdint>

namespace attend::inline v1 {
namespace {

[[maybe_unused]] inline float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = half >> 10 & 31, fraction = half & 0x3FF;
  std::uint32_t bits = sign | (exponent + 112) << 23 | fraction << 13;
  if (exponent == 31) bits = sign | 0x7F800000u | fraction << 13;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  if (exponent != 0) return value;
  const float small = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -small : small;
}

// Round to nearest even.
[[maybe_unused]] inline std::uint16_t half_of_float(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  bits &= 0x7FFFFFFFu;
  if (bits > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00 | (bits >> 13 & 0x3FF));
  if (bits >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00);  // 65520 and more
  if (bits < 0x38800000u) {
    // Subnormal: adding 0.5 leaves the fraction, rounded, in the lowest bits.
    float magnitude;
    __builtin_memcpy(&magnitude, &bits, 4);
    magnitude += 0.5f;
    __builtin_memcpy(&bits, &magnitude, 4);
    return static_cast<std::uint16_t>(sign | (bits - 0x3F000000u));
  }
  const std::uint32_t odd = bits >> 13 & 1;
  return static_cast<std::uint16_t>(sign | ((bits + 0xC8000000u + 0xFFF + odd) >> 13));
}

[[maybe_unused]] inline std::uint16_t bfloat_of_float(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  if (value != value) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace
}  // namespace attend::inline v1
