#include "models/gguf/quantize_row.h"

#include <cstring>
#include <limits>

#include "core/element.h"
#include "models/gguf/fit.h"
#include "models/gguf/quantize_k.h"

namespace attend::inline v1::models {

namespace {

constexpr std::size_t small_block = 32;  // of the types that are not K
constexpr float largest_half = 65504;

// 1 over the scale; 0 where it is so small that there is none.
float inverse_of(float scale) {
  const float found = scale == 0 ? 0 : 1 / scale;
  return std::isfinite(found) ? found : 0;
}

void quantize_q8_0(const float* block, std::byte* to) {
  float largest = 0;
  for (std::size_t n = 0; n < small_block; ++n) largest = std::max(largest, std::fabs(block[n]));
  const float scale = largest / 127, by = inverse_of(scale);
  store(to, half_of_float(scale));
  for (std::size_t n = 0; n < small_block; ++n)
    to[2 + n] = static_cast<std::byte>(static_cast<std::int8_t>(std::round(block[n] * by)));
}

// The first number of the largest magnitude becomes -8, so that the scale has the other sign.
void quantize_q4_0(const float* block, std::byte* to) {
  const float largest =
      *std::max_element(block, block + small_block, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const float scale = largest / -8, by = inverse_of(scale);
  store(to, half_of_float(scale));
  const auto four_bits = [&](float number) {
    return static_cast<unsigned>(std::clamp(static_cast<int>(number * by + 8.5F), 0, 15));
  };
  for (int n = 0; n < 16; ++n) to[2 + n] = static_cast<std::byte>(four_bits(block[n]) | four_bits(block[n + 16]) << 4);
}

// 32 bits with the fifth bit of each code, and 16 bytes with the other four.
void store_five_bits(const std::uint8_t* codes, std::byte* to) {
  std::uint32_t fifth = 0;
  for (std::size_t n = 0; n < small_block; ++n) fifth |= static_cast<std::uint32_t>(codes[n] >> 4) << n;
  store(to, fifth);
  for (int n = 0; n < 16; ++n) to[4 + n] = static_cast<std::byte>((codes[n] & 15) | (codes[n + 16] & 15) << 4);
}

// Four blocks, of which `count` are stored: Q5_0 or Q5_1.
void quantize_five_bits(const Coding& coding, const float* const* blocks, std::size_t count, std::byte* to) {
  Numbers<small_block> of;
  float units[lanes];
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    units[lane] = unit_of(blocks[lane], small_block);
    of.set(lane, blocks[lane], units[lane] == 0 ? 0 : 1 / units[lane], coding);
  }
  of.sum_up();
  Line line = find_line(of, coding);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    line.scale[lane] = as_half(line.scale[lane], units[lane]);
    line.added[lane] = as_half(line.added[lane], units[lane]);
  }
  std::uint8_t codes[lanes][small_block];
  for (std::size_t n = 0; n < small_block; ++n) {
    const Four code = code_of(of.x[n], line, inverse(line.scale), coding) - all(coding.low);
    for (std::size_t lane = 0; lane < lanes; ++lane) codes[lane][n] = static_cast<std::uint8_t>(code[lane]);
  }
  for (std::size_t lane = 0; lane < count; ++lane) {
    store(to, half_in_file(line.scale[lane], units[lane])), to += 2;
    if (coding.adds) store(to, half_in_file(line.added[lane], units[lane])), to += 2;
    store_five_bits(codes[lane], to), to += 20;
  }
}

// In lanes that no block is left for stands the last one again.
void quantize_five_bits(const Coding& coding, std::size_t block_bytes, const float* row, std::size_t blocks,
                        std::byte* to) {
  for (std::size_t first = 0; first < blocks; first += lanes) {
    const float* four[lanes];
    for (std::size_t lane = 0; lane < lanes; ++lane)
      four[lane] = row + std::min(first + lane, blocks - 1) * small_block;
    quantize_five_bits(coding, four, std::min(lanes, blocks - first), to + first * block_bytes);
  }
}

}  // namespace

std::uint64_t bytes_of_row(GgufType type, std::int64_t count) {
  if (const auto blocks = quantized(type))
    return static_cast<std::uint64_t>(count / block_size(*blocks) * block_bytes(*blocks));
  return static_cast<std::uint64_t>(count) * (type == GgufType::f32 ? 4 : 2);
}

float largest_number(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return std::numeric_limits<float>::max();
    case GgufType::q4_0:
      return 8 * largest_half;
    case GgufType::q5_0:
      return 16 * largest_half;
    case GgufType::q8_0:
      return 127 * largest_half;
    case GgufType::q4_k:
    case GgufType::q5_k:
      return 63 * largest_half;  // what is taken off, at most
    case GgufType::q6_k:
      return 31 * 127 * largest_half;
    default:
      return largest_half;  // F16, and Q5_1, which has the least number of a block as f16
  }
}

void quantize_row(GgufType type, const float* row, std::int64_t count, std::byte* to) {
  const auto each_block = [&](void (*quantize)(const float*, std::byte*)) {
    const std::int64_t size = block_size(*quantized(type)), bytes = block_bytes(*quantized(type));
    for (std::int64_t n = 0; n < count / size; ++n) quantize(row + n * size, to + n * bytes);
  };
  const std::size_t blocks = static_cast<std::size_t>(count) / small_block;  // of a type that is not K
  switch (type) {
    case GgufType::f32:
      std::memcpy(to, row, static_cast<std::size_t>(count) * 4);
      return;
    case GgufType::q4_0:
      return each_block(quantize_q4_0);
    case GgufType::q5_0:
      return quantize_five_bits({.low = -16, .high = 15}, 22, row, blocks, to);
    case GgufType::q5_1:
      return quantize_five_bits({.low = 0, .high = 31, .adds = true}, 24, row, blocks, to);
    case GgufType::q8_0:
      return each_block(quantize_q8_0);
    case GgufType::q4_k:
      return each_block(quantize_q4_k);
    case GgufType::q5_k:
      return each_block(quantize_q5_k);
    case GgufType::q6_k:
      return each_block(quantize_q6_k);
    default:
      for (std::int64_t n = 0; n < count; ++n) store(to + 2 * n, half_of_float(row[n]));
  }
}

}  // namespace attend::inline v1::models
