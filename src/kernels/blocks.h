// Blocks of quantized numbers, as ggml has them (attend/quantized.h), unpacked in registers: a vector's lanes are rows,
// so that each lane has the bits of its own row's block, and no sum goes across lanes. 16 bytes of each row are read at
// once and transposed to words of 32 bits; all that follows are operations on words.
#pragma once

#include "kernels/arithmetic.h"

namespace attend::inline v0::kernels {
namespace {

using SignedWords = std::int32_t __attribute__((vector_size(4 * lanes)));
using SignedBytes = std::int8_t __attribute__((vector_size(4 * lanes)));

// Columns that share a scale, or two.
constexpr std::int64_t chunk_columns = 32;
// Chunks that are unpacked at once, at most: those that share bytes.
constexpr int chunks_at_once = 4;

// Whether the products take codes as bytes from 0 on, by dot_u8, or as signed bytes that become floats.
constexpr bool products_of_bytes = Simd::byte_products;

// 32 columns of `lanes` rows: column 4 w + k is byte k of codes[w], times the scale of its half, and what is added: -0
// unless the type has it, so that every number stays what it is. Products of bytes: less what the type's codes count
// from (BlockType). Products of floats: the scale is 2^-24 of what is meant, as a byte counts where it stands, at the
// top of a word.
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
  // One word of each: the first of 16 bytes, or the last, where they end with the block.
  Words first_word(std::int64_t offset) const {
    Words words[4];
    quads(offset, words);
    return words[0];
  }
  Words last_word(std::int64_t offset) const {
    Words words[4];
    quads(offset - 12, words);
    return words[3];
  }
};

constexpr std::uint32_t every_byte = 0x01010101;

inline Words low_halves(Words bytes) {
  return bytes & (15 * every_byte);
}
inline Words high_halves(Words bytes) {
  return bytes >> 4 & (15 * every_byte);
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
inline F negative(F x) {
  return Simd::sub(Simd::set1(-0.0f), x);
}
inline void set_scale(Chunk& to, int half, F scale) {
  to.scale[half] = products_of_bytes ? scale : Simd::mul(scale, Simd::set1(0x1p-24f));
}
// Of both halves.
inline void set_scale(Chunk& to, F scale) {
  set_scale(to, 0, scale);
  to.scale[1] = to.scale[0];
}
inline void set_least(Chunk& to, F least) {
  to.least[0] = to.least[1] = least;
}

// A scale, f16, at the block's beginning.
inline void load_scale(const BlockRows& block, Chunk& to) {
  set_scale(to, low_f16(block.first_word(0)));
}
// A scale and what is added, one after the other.
inline void load_scale_and_least(const BlockRows& block, Chunk& to) {
  const Words head = block.first_word(0);
  set_scale(to, low_f16(head));
  set_least(to, high_f16(head));
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

// 32 bytes of each row, without the lowest `shift` bits.
struct Bytes {
  Bytes(const BlockRows& block, std::int64_t offset, int shift = 0) {
    block.quads(offset, words);
    block.quads(offset + 16, words + 4);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) words[i] >>= shift;
  }
  Words words[8];
};

// A column of each byte: the bits `mask` from `shift` on.
inline void set_codes(const Bytes& bytes, int shift, std::uint32_t mask, Chunk& to) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) to.codes[i] = bytes.words[i] >> shift & (mask * every_byte);
}
// More bits of the codes: the bits `mask` from `shift` on become those from `place` on.
inline void add_bits(const Bytes& bytes, int shift, std::uint32_t mask, int place, Chunk& to) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const Words word = bytes.words[i], moved = shift < place ? word << (place - shift) : word >> (shift - place);
    to.codes[i] |= moved & (mask << place) * every_byte;
  }
}
inline void add_fifth_bits(Words bits, Chunk& to) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) to.codes[i] |= spread_bits(bits >> (4 * i)) << 4;
}

// Codes are as many less than the bytes.
inline void lower_codes(Chunk& to, std::int8_t by) {
  if constexpr (products_of_bytes) return;
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) to.codes[i] = (Words)((SignedBytes)to.codes[i] - by);
}
// Codes are signed bytes.
inline void sign_codes(Chunk& to) {
  if constexpr (!products_of_bytes) return;
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) to.codes[i] ^= 128 * every_byte;
}

// The numbers of IQ4_NL and IQ4_XS.
alignas(16) constexpr std::int8_t iq4_numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                     1,    13,   25,  38,  53,  69,  89,  113};
inline void look_up_iq4(Chunk& to) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) to.codes[i] = (Words)Simd::look_up(iq4_numbers, (F)to.codes[i]);
  sign_codes(to);
}

// Each unpacks the chunks from number `first` of the block on, as many as its BlockType says.

inline __attribute__((always_inline)) void unpack_q4_0(const BlockRows& block, int, Chunk* to) {
  load_halves(block, 2, *to);
  lower_codes(*to, 8);
  load_scale(block, *to);
}

inline __attribute__((always_inline)) void unpack_q4_1(const BlockRows& block, int, Chunk* to) {
  load_halves(block, 4, *to);
  load_scale_and_least(block, *to);
}

inline __attribute__((always_inline)) void unpack_q5_0(const BlockRows& block, int, Chunk* to) {
  Words head[4];
  block.quads(0, head);
  load_halves(block, 6, *to);
  add_fifth_bits(head[0] >> 16 | head[1] << 16, *to);
  lower_codes(*to, 16);
  set_scale(*to, low_f16(head[0]));
}

inline __attribute__((always_inline)) void unpack_q5_1(const BlockRows& block, int, Chunk* to) {
  Words head[4];
  block.quads(0, head);
  load_halves(block, 8, *to);
  add_fifth_bits(head[1], *to);
  set_scale(*to, low_f16(head[0]));
  set_least(*to, high_f16(head[0]));
}

inline __attribute__((always_inline)) void unpack_q8_0(const BlockRows& block, int, Chunk* to) {
  block.quads(2, to->codes);
  block.quads(18, to->codes + 4);
  sign_codes(*to);
  load_scale(block, *to);
}

inline __attribute__((always_inline)) void unpack_iq4_nl(const BlockRows& block, int, Chunk* to) {
  load_halves(block, 2, *to);
  look_up_iq4(*to);
  load_scale(block, *to);
}

// 16 bytes of scales (4 bits) and what they are lowered by (4 bits), 64 bytes of numbers, both scales.
inline __attribute__((always_inline)) void unpack_q2_k(const BlockRows& block, int first, Chunk* to) {
  const Bytes bytes(block, 16 + first * 8);
  const Words heads = block.last_word(80);
  const F scale = low_f16(heads), least = negative(high_f16(heads));
  Words scales[4];
  block.quads(first * 2, scales);
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) {
    set_codes(bytes, 2 * n, 3, to[n]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const Words both = scales[n / 2] >> (n % 2 * 16 + 8 * half);
      set_scale(to[n], half, Simd::mul(scale, whole(both & 15)));
      to[n].least[half] = Simd::mul(least, whole(both >> 4 & 15));
    }
  }
}

// 32 bytes of third bits, 64 of numbers, 12 of scales (6 bits), the scale.
inline __attribute__((always_inline)) void unpack_q3_k(const BlockRows& block, int first, Chunk* to) {
  const Bytes bytes(block, 32 + first * 8), third(block, 0, first);
  Words tail[4];  // the last 16 bytes: two of the numbers, the scales, the scale
  block.quads(94, tail);
  const F scale = high_f16(tail[3]);
  // Eight scales of 4 bits in the bytes of two words, in the upper halves for the second four chunks; 2 bits more of
  // each, those of four scales in the four bytes of a word.
  const Words more = (tail[2] >> 16 | tail[3] << 16) >> first;
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) {
    set_codes(bytes, 2 * n, 3, to[n]);
    add_bits(third, n, 1, 2, to[n]);
    lower_codes(to[n], 4);
    const Words low = (tail[n / 2] >> 16 | tail[n / 2 + 1] << 16) >> first;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const int byte = 8 * (2 * n % 4 + half);
      const Words bits = (low >> byte & 15) | (more >> (byte + n / 2 * 2) & 3) << 4;
      set_scale(to[n], half, Simd::mul(scale, whole(bits - 32)));
    }
  }
}

// Of Q4_K and Q5_K: both scales, and 12 bytes that hold eight scales and eight numbers that are taken off, 6 bits each.
inline void load_scales_of_k(const BlockRows& block, int first, Chunk* to) {
  Words head[4];
  block.quads(0, head);
  const Words four_bits = 15 * every_byte + Words{}, upper = 0x30 * every_byte + Words{};
  Words scales = head[1] & (63 * every_byte), lowered = head[2] & (63 * every_byte);
  if (first != 0) {
    scales = (head[3] & four_bits) | (head[1] >> 2 & upper);
    lowered = (head[3] >> 4 & four_bits) | (head[2] >> 2 & upper);
  }
  const F scale = low_f16(head[0]), least = negative(high_f16(head[0]));
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) {
    set_scale(to[n], Simd::mul(scale, whole(scales >> (8 * n) & 255)));
    set_least(to[n], Simd::mul(least, whole(lowered >> (8 * n) & 255)));
  }
}

// Two chunks of each 32 bytes.
inline void load_codes_of_k(const BlockRows& block, std::int64_t offset, Chunk* to) {
#pragma GCC unroll 2
  for (int n = 0; n < 4; n += 2) {
    const Bytes bytes(block, offset + n * 16);
    set_codes(bytes, 0, 15, to[n]);
    set_codes(bytes, 4, 15, to[n + 1]);
  }
}

inline __attribute__((always_inline)) void unpack_q4_k(const BlockRows& block, int first, Chunk* to) {
  load_codes_of_k(block, 16 + first * 16, to);
  load_scales_of_k(block, first, to);
}

inline __attribute__((always_inline)) void unpack_q5_k(const BlockRows& block, int first, Chunk* to) {
  load_codes_of_k(block, 48 + first * 16, to);
  const Bytes fifth(block, 16, first);
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) add_bits(fifth, n, 1, 4, to[n]);
  load_scales_of_k(block, first, to);
}

// 128 bytes of four bits, 64 of two more, 16 scales of 8 bits, the scale.
inline __attribute__((always_inline)) void unpack_q6_k(const BlockRows& block, int first, Chunk* to) {
  const Bytes upper(block, 128 + first * 8);
#pragma GCC unroll 2
  for (int n = 0; n < 2; ++n) {
    const Bytes bytes(block, first * 16 + n * 32);
    set_codes(bytes, 0, 15, to[n]);
    add_bits(upper, 2 * n, 3, 4, to[n]);
    set_codes(bytes, 4, 15, to[n + 2]);
    add_bits(upper, 2 * n + 4, 3, 4, to[n + 2]);
    lower_codes(to[n], 32);
    lower_codes(to[n + 2], 32);
  }
  const F scale = high_f16(block.last_word(206));
  Words scales[4];
  block.quads(192, scales);
  const Words low = first == 0 ? scales[0] : scales[2], high = first == 0 ? scales[1] : scales[3];
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const SignedWords number = (SignedWords)((n < 2 ? low : high) << (24 - 8 * (2 * n % 4 + half))) >> 24;
      set_scale(to[n], half, Simd::mul(scale, whole((Words)number)));
    }
  }
}

// The scale, two bits of each of eight scales, four more of each, 128 bytes of numbers.
inline __attribute__((always_inline)) void unpack_iq4_xs(const BlockRows& block, int first, Chunk* to) {
  Words head[4];
  block.quads(0, head);
  const F scale = low_f16(head[0]);
  const Words low = head[1] >> (4 * first), high = head[0] >> (16 + 2 * first);
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) {
    load_halves(block, 8 + (first + n) * 16, to[n]);
    look_up_iq4(to[n]);
    const Words bits = (low >> (4 * n) & 15) | (high >> (2 * n) & 3) << 4;
    set_scale(to[n], Simd::mul(scale, whole(bits - 32)));
  }
}

using Unpack = void (*)(const BlockRows& block, int first, Chunk* to);

// How a type's blocks are unpacked, and what its chunks are.
struct BlockType {
  Unpack unpack;
  int chunks;         // that it unpacks at once
  std::int32_t from;  // what its codes count from: a byte less that is the code; 0 where something is added to numbers
  bool halves;        // 16 columns share a scale, not 32
};

// In the order of QuantizedType.
constexpr BlockType block_types[] = {
    {unpack_q4_0, 1, 8, false}, {unpack_q4_1, 1, 0, false},     {unpack_q5_0, 1, 16, false},
    {unpack_q5_1, 1, 0, false}, {unpack_q8_0, 1, 128, false},   {unpack_q2_k, 4, 0, true},
    {unpack_q3_k, 4, 4, true},  {unpack_q4_k, 4, 0, false},     {unpack_q5_k, 4, 0, false},
    {unpack_q6_k, 4, 32, true}, {unpack_iq4_nl, 1, 128, false}, {unpack_iq4_xs, 4, 128, false}};

inline const BlockType& type_of(QuantizedType type) {
  return block_types[static_cast<int>(type)];
}

// The numbers in column 4 w + K of the chunk, for products of floats.
template <int K>
inline __attribute__((always_inline)) F number(const Chunk& chunk, int w) {
  return Simd::fma(Simd::from_i32(Simd::raise_byte<K>((F)chunk.codes[w])), chunk.scale[w / 4], chunk.least[w / 4]);
}

}  // namespace
}  // namespace attend::inline v0::kernels
