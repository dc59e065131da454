// Blocks of quantized numbers, as ggml has them (attend/quantized.h), unpacked in registers: a vector's lanes are rows,
// so that each lane has the bits of its own row's block, and no sum goes across lanes. 16 bytes of each row are read at
// once and transposed to words of 32 bits; all that follows are operations on words.
#pragma once

#include "kernels/arithmetic.h"

namespace attend::kernels {
namespace {

using Words = std::uint32_t __attribute__((vector_size(4 * lanes)));
using SignedBytes = std::int8_t __attribute__((vector_size(4 * lanes)));

// Columns that are unpacked at once.
constexpr std::int64_t chunk_columns = 32;

// 32 columns of `lanes` rows: column 4 w + k is byte k of codes[w], a signed number, times the scale of its half, and
// what is added. The scale is 2^-24 of what is meant: a byte counts where it stands, at the top of a word.
struct Chunk {
  Words codes[8];
  F scale[2], least[2];
};

// The blocks of as many rows as a vector has lanes.
struct BlockRows {
  const char* const* rows;  // [lanes]
  std::int64_t at;          // bytes from the beginning of a row to its block

  // 16 bytes of each.
  void quads(std::int64_t offset, Words* to) const {
    F words[4];
    Simd::load_quads(rows, at + offset, words);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) to[i] = (Words)words[i];
  }
  // 4 bytes of each.
  Words word(std::int64_t offset) const {
    return (Words)Simd::load_words(rows, at + offset);
  }
};

constexpr std::uint32_t every_byte = 0x01010101;

inline Words low_halves(Words bytes) {
  return bytes & (15 * every_byte);
}
inline Words high_halves(Words bytes) {
  return bytes >> 4 & (15 * every_byte);
}
inline Words minus(Words bytes, std::int8_t number) {
  return (Words)((SignedBytes)bytes - number);
}
inline F low_f16(Words words) {
  return Simd::half((F)words);
}
inline F high_f16(Words words) {
  return Simd::half((F)(words >> 16));
}
inline F whole(Words numbers) {
  return Simd::from_i32((F)numbers);
}
// Of both halves.
inline void set_scale(Chunk& to, F scale) {
  to.scale[0] = to.scale[1] = Simd::mul(scale, Simd::set1(0x1p-24f));
}
inline void set_scale(Chunk& to, int half, F scale) {
  to.scale[half] = Simd::mul(scale, Simd::set1(0x1p-24f));
}
// Not 0: a sum with -0 leaves every number what it is, -0 too.
inline void add_nothing(Chunk& to) {
  to.least[0] = to.least[1] = Simd::set1(-0.0f);
}

// A scale, f16, at the block's beginning, and nothing is added.
inline void load_scale(const BlockRows& block, Chunk& to) {
  set_scale(to, low_f16(block.word(0)));
  add_nothing(to);
}
// A scale and what is added, one after the other.
inline void load_scale_and_least(const BlockRows& block, Chunk& to) {
  const Words head = block.word(0);
  set_scale(to, low_f16(head));
  to.least[0] = to.least[1] = high_f16(head);
}

// Four bits, each at the bottom of a byte.
inline Words spread_bits(Words bits) {
  return (bits & 15) * 0x00204081u & every_byte;
}

// 16 bytes of 4 bits: the low halves are columns 0 to 15, the high ones 16 to 31.
inline void load_halves(const BlockRows& block, std::int64_t offset, Chunk& to) {
  Words bytes[4];
  block.quads(offset, bytes);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) to.codes[i] = low_halves(bytes[i]), to.codes[4 + i] = high_halves(bytes[i]);
}

// 32 bytes of each row, a column each: of each byte the bits `mask` from `shift` on.
inline void load_bits(const BlockRows& block, std::int64_t offset, int shift, std::uint32_t mask, Words* to) {
  block.quads(offset, to);
  block.quads(offset + 16, to + 4);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) to[i] = to[i] >> shift & (mask * every_byte);
}

// What 32 more bytes have of each code, from bit `place` on.
inline void add_bits(const BlockRows& block, std::int64_t offset, int shift, std::uint32_t mask, int place, Chunk& to) {
  Words more[8];
  load_bits(block, offset, shift, mask, more);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) to.codes[i] |= more[i] << place;
}

inline void add_fifth_bits(Words bits, Chunk& to) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) to.codes[i] |= spread_bits(bits >> (4 * i)) << 4;
}

inline void shift_codes(Chunk& to, std::int8_t number) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) to.codes[i] = minus(to.codes[i], number);
}

// The numbers of IQ4_NL and IQ4_XS.
alignas(16) constexpr std::int8_t iq4_numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                     1,    13,   25,  38,  53,  69,  89,  113};
inline void look_up_iq4(Chunk& to) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) to.codes[i] = (Words)Simd::look_up(iq4_numbers, (F)to.codes[i]);
}

// Each unpacks 32 columns, those of number `part` in the block.

void unpack_q4_0(const BlockRows& block, int, Chunk& to) {
  load_halves(block, 2, to);
  shift_codes(to, 8);
  load_scale(block, to);
}

void unpack_q4_1(const BlockRows& block, int, Chunk& to) {
  load_halves(block, 4, to);
  load_scale_and_least(block, to);
}

void unpack_q5_0(const BlockRows& block, int, Chunk& to) {
  load_halves(block, 6, to);
  add_fifth_bits(block.word(2), to);
  shift_codes(to, 16);
  load_scale(block, to);
}

void unpack_q5_1(const BlockRows& block, int, Chunk& to) {
  load_halves(block, 8, to);
  add_fifth_bits(block.word(4), to);
  load_scale_and_least(block, to);
}

void unpack_q8_0(const BlockRows& block, int, Chunk& to) {
  block.quads(2, to.codes);
  block.quads(18, to.codes + 4);
  load_scale(block, to);
}

void unpack_iq4_nl(const BlockRows& block, int, Chunk& to) {
  load_halves(block, 2, to);
  look_up_iq4(to);
  load_scale(block, to);
}

// 16 bytes of scales (4 bits) and what they are lowered by (4 bits), 64 bytes of numbers, both scales.
void unpack_q2_k(const BlockRows& block, int part, Chunk& to) {
  load_bits(block, 16 + part / 4 * 32, part % 4 * 2, 3, to.codes);
  const Words heads = block.word(80), pair = block.word(part / 2 * 4) >> (part % 2 * 16);
  const F scale = low_f16(heads), least = Simd::sub(Simd::set1(-0.0f), high_f16(heads));
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    set_scale(to, half, Simd::mul(scale, whole(pair >> (8 * half) & 15)));
    to.least[half] = Simd::mul(least, whole(pair >> (8 * half + 4) & 15));
  }
}

// 32 bytes of third bits, 64 of numbers, 12 of scales (6 bits), the scale.
void unpack_q3_k(const BlockRows& block, int part, Chunk& to) {
  load_bits(block, 32 + part / 4 * 32, part % 4 * 2, 3, to.codes);
  add_bits(block, 0, part, 1, 2, to);
  shift_codes(to, 4);
  // Of scale n = 2 part + half: four bits in byte n % 8, the upper half from 8 on; two more in byte 8 + n % 4.
  const Words low = block.word(96 + part % 4 / 2 * 4), high = block.word(104);
  const F scale = high_f16(block.word(106));
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const int n = 2 * part + half;
    const Words bits = (low >> (8 * (n % 4) + n / 8 * 4) & 15) | (high >> (8 * (n % 4) + 2 * (n / 4)) & 3) << 4;
    set_scale(to, half, Simd::mul(scale, whole(bits - 32)));
  }
  add_nothing(to);
}

// Of Q4_K and Q5_K: both scales, and 12 bytes that hold eight scales and eight numbers that are taken off, 6 bits each.
inline void load_scales_of_k(const BlockRows& block, int part, Chunk& to) {
  Words head[4];
  block.quads(0, head);
  const int byte = 8 * (part % 4);
  const Words scales = head[1] >> byte, least = head[2] >> byte, more = head[3] >> byte;
  const Words scale = part < 4 ? scales & 63 : (more & 15) | (scales >> 6 & 3) << 4;
  const Words lower = part < 4 ? least & 63 : (more >> 4 & 15) | (least >> 6 & 3) << 4;
  set_scale(to, Simd::mul(low_f16(head[0]), whole(scale)));
  to.least[0] = to.least[1] = Simd::mul(Simd::sub(Simd::set1(-0.0f), high_f16(head[0])), whole(lower));
}

void unpack_q4_k(const BlockRows& block, int part, Chunk& to) {
  load_bits(block, 16 + part / 2 * 32, part % 2 * 4, 15, to.codes);
  load_scales_of_k(block, part, to);
}

void unpack_q5_k(const BlockRows& block, int part, Chunk& to) {
  load_bits(block, 48 + part / 2 * 32, part % 2 * 4, 15, to.codes);
  add_bits(block, 16, part, 1, 4, to);
  load_scales_of_k(block, part, to);
}

// 128 bytes of four bits, 64 of two more, 16 scales of 8 bits, the scale.
void unpack_q6_k(const BlockRows& block, int part, Chunk& to) {
  load_bits(block, part / 4 * 64 + part % 2 * 32, part % 4 / 2 * 4, 15, to.codes);
  add_bits(block, 128 + part / 4 * 32, part % 4 * 2, 3, 4, to);
  shift_codes(to, 32);
  const Words scales = block.word(192 + part / 2 * 4) >> (part % 2 * 16);
  const F scale = high_f16(block.word(206));
  // 2^-24 of a byte at the top of a word is the byte.
  to.scale[0] = Simd::mul(Simd::mul(scale, whole(scales << 24)), Simd::set1(0x1p-48f));
  to.scale[1] = Simd::mul(Simd::mul(scale, whole(scales >> 8 << 24)), Simd::set1(0x1p-48f));
  add_nothing(to);
}

// The scale, two bits of each of eight scales, four more of each, 128 bytes of numbers.
void unpack_iq4_xs(const BlockRows& block, int part, Chunk& to) {
  load_halves(block, 8 + part * 16, to);
  look_up_iq4(to);
  const Words head = block.word(0), low = block.word(4) >> (4 * part) & 15, high = head >> (16 + 2 * part) & 3;
  set_scale(to, Simd::mul(low_f16(head), whole((low | high << 4) - 32)));
  add_nothing(to);
}

using Unpack = void (*)(const BlockRows& block, int part, Chunk& to);

inline Unpack unpack_of(QuantizedType type) {
  static constexpr Unpack all[] = {unpack_q4_0, unpack_q4_1, unpack_q5_0, unpack_q5_1, unpack_q8_0,   unpack_q2_k,
                                   unpack_q3_k, unpack_q4_k, unpack_q5_k, unpack_q6_k, unpack_iq4_nl, unpack_iq4_xs};
  return all[static_cast<int>(type)];
}

// The numbers in column 4 w + K of the chunk.
template <int K>
inline __attribute__((always_inline)) F number(const Chunk& chunk, int w) {
  return Simd::fma(Simd::from_i32(Simd::raise_byte<K>((F)chunk.codes[w])), chunk.scale[w / 4], chunk.least[w / 4]);
}

}  // namespace
}  // namespace attend::kernels
