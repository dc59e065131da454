// Blocks of 256 numbers: sub-blocks have whole numbers for scales, times a scale that the block's share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attend::inline v1::models {

inline constexpr std::int64_t k_block = 256;

// block: [256]; to: as many bytes as a block of the type has.
void quantize_q4_k(const float* block, std::byte* to);
void quantize_q5_k(const float* block, std::byte* to);
void quantize_q6_k(const float* block, std::byte* to);

}  // namespace attend::inline v1::models
