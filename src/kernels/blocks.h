// Blocks of quantized numbers, as ggml has them (attend/quantized.h), unpacked in registers: a vector's lanes are rows,
// so that each lane has the bits of its own row's block, and no sum goes across lanes. 16 bytes of each row are read at
// once and transposed to words of 32 bits; all that follows are operations on words.
#pragma once

#include "kernels/arithmetic.h"

namespace attend::inline v1::kernels {
namespace {

using SignedWords = std::int32_t __attribute__((vector_size(4 * lanes)));
using SignedBytes = std::int8_t __attribute__((vector_size(4 * lanes)));

// Columns that share a scale, or two.
constexpr std::int64_t chunk_columns = 32;
// Chunks that are unpacked at once, at most: those that share bytes.
constexpr int chunks_at_once = 4;

// 32 columns of `lanes` rows: column 4 w + k is byte k of codes[w], times the scale of its half, and what is added: -0
// unless the type has it, so that every number stays what it is. Products of bytes take the codes as bytes from 0 on:
// less what the type's codes count from. Products of floats take signed bytes, and the scale is 2^-24 of what is meant,
// as a byte counts where it stands, at the top of a word.
struct Chunk {
  Words codes[8];
  F scale[2], least[2];
};

// The blocks of as many rows as a vector has lanes.
struct BlockRows {
  const char* const* rows;  // [lanes]
  std::int64_t at;          // bytes from the beginning of a row to its block

  // 16 bytes of each.
  inline __attribute__((always_inline)) void quads(std::int64_t offset, Words* to) const {
    F words[4];
    Simd::load_quads(rows, at + offset, words);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) to[i] = (Words)words[i];
  }
  // One word of each: the first of 16 bytes, or the last, where they end with the block.
  inline __attribute__((always_inline)) Words first_word(std::int64_t offset) const {
    Words words[4];
    quads(offset, words);
    return words[0];
  }
  inline __attribute__((always_inline)) Words last_word(std::int64_t offset) const {
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

// Four bits, each at the bottom of a byte.
inline Words spread_bits(Words bits) {
  return (bits & 15) * 0x00204081u & every_byte;
}

// The bits `mask` of each byte from `shift` on, as those from `place` on.
inline Words some_bits(Words bytes, int shift, std::uint32_t mask, int place = 0) {
  const Words moved = shift < place ? bytes << (place - shift) : shift > place ? bytes >> (shift - place) : bytes;
  return moved & (mask << place) * every_byte;
}

// Codes are as many less than the bytes.
template <class To>
inline Words lowered(Words codes, std::int8_t by) {
  return To::bytes ? codes : (Words)((SignedBytes)codes - by);
}
// Codes are signed bytes.
template <class To>
inline Words with_sign(Words codes) {
  return To::bytes ? codes ^ 128 * every_byte : codes;
}

// The numbers of IQ4_NL and IQ4_XS.
alignas(16) constexpr std::int8_t iq4_numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                     1,    13,   25,  38,  53,  69,  89,  113};
template <class To>
inline Words look_up_iq4(Words codes) {
  return with_sign<To>((Words)Simd::look_up(iq4_numbers, (F)codes));
}

// How the blocks of each type are unpacked: unpack() goes through the chunks from number `first` of a block on,
// `chunks` of them, those that share bytes together, and says what it finds to `to`: codes(n, w, Words) of chunk n (its
// columns from 4 w on), in any order; then end(n, half, scale, least) of each half of a chunk, or of both at once (half
// is `both`), where it has all codes. Without `least` nothing is added. So what takes them may multiply where they
// come, in registers.
//
// from: what the codes count from: a byte less that is the code; 0 where something is added to numbers. most: the
// largest byte. halves: 16 columns share a scale, not 32. To::bytes: whether it takes codes as bytes from 0 on.
constexpr int both = -1;

struct OneChunk {
  static constexpr int chunks = 1, block_chunks = 1;
  static constexpr bool halves = false;
};
struct FourChunks {
  static constexpr int chunks = 4, block_chunks = 8;
  static constexpr bool halves = false;
};
struct FourChunksOfHalves {
  static constexpr int chunks = 4, block_chunks = 8;
  static constexpr bool halves = true;
};

// body(w, codes) of 16 bytes of 4 bits: the low halves are columns 0 to 15, the high ones 16 to 31.
template <class Body>
inline __attribute__((always_inline)) void for_each_half(const BlockRows& block, std::int64_t offset, Body body) {
  Words bytes[4];
  block.quads(offset, bytes);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) body(i, low_halves(bytes[i])), body(4 + i, high_halves(bytes[i]));
}

struct Q4_0 : OneChunk {
  static constexpr std::int32_t from = 8, most = 15;
  template <class To>
  static inline __attribute__((always_inline)) void unpack(const BlockRows& block, int, To& to) {
    for_each_half(block, 2, [&](int w, Words codes) { to.codes(0, w, lowered<To>(codes, from)); });
    to.end(0, both, low_f16(block.first_word(0)));
  }
};

struct Q4_1 : OneChunk {
  static constexpr std::int32_t from = 0, most = 15;
  template <class To>
  static inline __attribute__((always_inline)) void unpack(const BlockRows& block, int, To& to) {
    for_each_half(block, 4, [&](int w, Words codes) { to.codes(0, w, codes); });
    const Words head = block.first_word(0);
    to.end(0, both, low_f16(head), high_f16(head));
  }
};

struct Q5_0 : OneChunk {
  static constexpr std::int32_t from = 16, most = 31;
  template <class To>
  static inline __attribute__((always_inline)) void unpack(const BlockRows& block, int, To& to) {
    Words head[4];
    block.quads(0, head);
    const Words fifth = head[0] >> 16 | head[1] << 16;
    for_each_half(block, 6, [&](int w, Words codes) {
      to.codes(0, w, lowered<To>(codes | spread_bits(fifth >> (4 * w)) << 4, from));
    });
    to.end(0, both, low_f16(head[0]));
  }
};

struct Q5_1 : OneChunk {
  static constexpr std::int32_t from = 0, most = 31;
  template <class To>
  static inline __attribute__((always_inline)) void unpack(const BlockRows& block, int, To& to) {
    Words head[4];
    block.quads(0, head);
    for_each_half(block, 8, [&](int w, Words codes) { to.codes(0, w, codes | spread_bits(head[1] >> (4 * w)) << 4); });
    to.end(0, both, low_f16(head[0]), high_f16(head[0]));
  }
};

struct Q8_0 : OneChunk {
  static constexpr std::int32_t from = 128, most = 255;
  template <class To>
  static inline __attribute__((always_inline)) void unpack(const BlockRows& block, int, To& to) {
#pragma GCC unroll 2
    for (int part = 0; part < 2; ++part) {
      Words bytes[4];
      block.quads(2 + 16 * part, bytes);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) to.codes(0, 4 * part + i, with_sign<To>(bytes[i]));
    }
    to.end(0, both, low_f16(block.first_word(0)));
  }
};

struct Iq4Nl : OneChunk {
  static constexpr std::int32_t from = 128, most = 255;
  template <class To>
  static inline __attribute__((always_inline)) void unpack(const BlockRows& block, int, To& to) {
    for_each_half(block, 2, [&](int w, Words codes) { to.codes(0, w, look_up_iq4<To>(codes)); });
    to.end(0, both, low_f16(block.first_word(0)));
  }
};

// 16 bytes of scales (4 bits) and what they are lowered by (4 bits), 64 bytes of numbers, both scales.
struct Q2_K : FourChunksOfHalves {
  static constexpr std::int32_t from = 0, most = 3;
  template <class To>
  static inline __attribute__((always_inline)) void unpack(const BlockRows& block, int first, To& to) {
    const Words heads = block.last_word(80);
    const F scale = low_f16(heads), least = negative(high_f16(heads));
    Words scales[4];
    block.quads(first * 2, scales);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Words bytes[4];
      block.quads(16 + first * 8 + 16 * half, bytes);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
        for (int n = 0; n < 4; ++n) to.codes(n, 4 * half + i, some_bits(bytes[i], 2 * n, 3));
      }
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) {
        const Words pair = scales[n / 2] >> (n % 2 * 16 + 8 * half);
        to.end(n, half, Simd::mul(scale, whole(pair & 15)), Simd::mul(least, whole(pair >> 4 & 15)));
      }
    }
  }
};

// 32 bytes of third bits, 64 of numbers, 12 of scales (6 bits), the scale.
struct Q3_K : FourChunksOfHalves {
  static constexpr std::int32_t from = 4, most = 7;
  template <class To>
  static inline __attribute__((always_inline)) void unpack(const BlockRows& block, int first, To& to) {
    Words tail[4];  // the last 16 bytes: two of the numbers, the scales, the scale
    block.quads(94, tail);
    const F scale = high_f16(tail[3]);
    // Eight scales of 4 bits in the bytes of two words, in the upper halves for the second four chunks; 2 bits more of
    // each, those of four scales in the four bytes of a word.
    const Words more = (tail[2] >> 16 | tail[3] << 16) >> first;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Words bytes[4], third[4];
      block.quads(32 + first * 8 + 16 * half, bytes);
      block.quads(16 * half, third);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const Words bits = third[i] >> first;
#pragma GCC unroll 4
        for (int n = 0; n < 4; ++n)
          to.codes(n, 4 * half + i, lowered<To>(some_bits(bytes[i], 2 * n, 3) | some_bits(bits, n, 1, 2), from));
      }
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) {
        const Words low = (tail[n / 2] >> 16 | tail[n / 2 + 1] << 16) >> first;
        const int byte = 8 * (2 * n % 4 + half);
        const Words bits = (low >> byte & 15) | (more >> (byte + n / 2 * 2) & 3) << 4;
        to.end(n, half, Simd::mul(scale, whole(bits - 32)));
      }
    }
  }
};

// Of Q4_K and Q5_K: both scales, and 12 bytes that hold eight scales and eight numbers that are taken off, 6 bits each.
struct ScalesOfK {
  ScalesOfK(const BlockRows& block, int first) {
    Words head[4];
    block.quads(0, head);
    const Words four_bits = 15 * every_byte + Words{}, upper = 0x30 * every_byte + Words{};
    scales = head[1] & (63 * every_byte), less = head[2] & (63 * every_byte);
    if (first != 0) {
      scales = (head[3] & four_bits) | (head[1] >> 2 & upper);
      less = (head[3] >> 4 & four_bits) | (head[2] >> 2 & upper);
    }
    scale = low_f16(head[0]), least = negative(high_f16(head[0]));
  }
  F scale_of(int n) const { return Simd::mul(scale, whole(scales >> (8 * n) & 255)); }
  F least_of(int n) const { return Simd::mul(least, whole(less >> (8 * n) & 255)); }

  Words scales, less;
  F scale, least;
};

// Their codes: the halves of 32 bytes from `offset` on are two chunks. more(n, w): further bits of word w of chunk n.
template <class To, class More>
inline __attribute__((always_inline)) void unpack_k(const BlockRows& block, int first, std::int64_t offset, To& to,
                                                    More more) {
#pragma GCC unroll 2
  for (int n = 0; n < 4; n += 2) {
#pragma GCC unroll 2
    for (int part = 0; part < 2; ++part) {
      Words bytes[4];
      block.quads(offset + first * 16 + n * 16 + 16 * part, bytes);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int w = 4 * part + i;
        to.codes(n, w, low_halves(bytes[i]) | more(n, w));
        to.codes(n + 1, w, high_halves(bytes[i]) | more(n + 1, w));
      }
    }
  }
  const ScalesOfK scales(block, first);
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) to.end(n, both, scales.scale_of(n), scales.least_of(n));
}

struct Q4_K : FourChunks {
  static constexpr std::int32_t from = 0, most = 15;
  template <class To>
  static inline __attribute__((always_inline)) void unpack(const BlockRows& block, int first, To& to) {
    unpack_k(block, first, 16, to, [](int, int) { return Words{}; });
  }
};

struct Q5_K : FourChunks {
  static constexpr std::int32_t from = 0, most = 31;
  template <class To>
  static inline __attribute__((always_inline)) void unpack(const BlockRows& block, int first, To& to) {
    Words fifth[8];
    block.quads(16, fifth);
    block.quads(32, fifth + 4);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) fifth[i] >>= first;
    unpack_k(block, first, 48, to, [&](int n, int w) { return some_bits(fifth[w], n, 1, 4); });
  }
};

// 128 bytes of four bits, 64 of two more, 16 scales of 8 bits, the scale.
struct Q6_K : FourChunksOfHalves {
  static constexpr std::int32_t from = 32, most = 63;
  template <class To>
  static inline __attribute__((always_inline)) void unpack(const BlockRows& block, int first, To& to) {
    const F scale = high_f16(block.last_word(206));
    Words scales[4];
    block.quads(192, scales);
    const Words of_first = first == 0 ? scales[0] : scales[2], of_last = first == 0 ? scales[1] : scales[3];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Words upper[4];
      block.quads(128 + first * 8 + 16 * half, upper);
#pragma GCC unroll 2
      for (int n = 0; n < 2; ++n) {
        Words bytes[4];
        block.quads(first * 16 + n * 32 + 16 * half, bytes);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          to.codes(n, 4 * half + i, lowered<To>(low_halves(bytes[i]) | some_bits(upper[i], 2 * n, 3, 4), from));
          to.codes(n + 2, 4 * half + i,
                   lowered<To>(high_halves(bytes[i]) | some_bits(upper[i], 2 * n + 4, 3, 4), from));
        }
      }
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) {
        const Words four = n < 2 ? of_first : of_last;
        const SignedWords number = (SignedWords)(four << (24 - 8 * (2 * n % 4 + half))) >> 24;
        to.end(n, half, Simd::mul(scale, whole((Words)number)));
      }
    }
  }
};

// The scale, two bits of each of eight scales, four more of each, 128 bytes of numbers.
struct Iq4Xs : FourChunks {
  static constexpr std::int32_t from = 128, most = 255;
  template <class To>
  static inline __attribute__((always_inline)) void unpack(const BlockRows& block, int first, To& to) {
    Words head[4];
    block.quads(0, head);
    const F scale = low_f16(head[0]);
    const Words low = head[1] >> (4 * first), high = head[0] >> (16 + 2 * first);
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
      for_each_half(block, 8 + (first + n) * 16, [&](int w, Words codes) { to.codes(n, w, look_up_iq4<To>(codes)); });
      const Words bits = (low >> (4 * n) & 15) | (high >> (2 * n) & 3) << 4;
      to.end(n, both, Simd::mul(scale, whole(bits - 32)));
    }
  }
};

// body.operator()<Type>() of a quantized type.
template <class Body>
inline void with_type(QuantizedType type, Body body) {
  switch (type) {
    case QuantizedType::q4_0:
      return body.template operator()<Q4_0>();
    case QuantizedType::q4_1:
      return body.template operator()<Q4_1>();
    case QuantizedType::q5_0:
      return body.template operator()<Q5_0>();
    case QuantizedType::q5_1:
      return body.template operator()<Q5_1>();
    case QuantizedType::q8_0:
      return body.template operator()<Q8_0>();
    case QuantizedType::q2_k:
      return body.template operator()<Q2_K>();
    case QuantizedType::q3_k:
      return body.template operator()<Q3_K>();
    case QuantizedType::q4_k:
      return body.template operator()<Q4_K>();
    case QuantizedType::q5_k:
      return body.template operator()<Q5_K>();
    case QuantizedType::q6_k:
      return body.template operator()<Q6_K>();
    case QuantizedType::iq4_nl:
      return body.template operator()<Iq4Nl>();
    case QuantizedType::iq4_xs:
      return body.template operator()<Iq4Xs>();
  }
}

// Puts what is unpacked into memory, chunk n at [n * vectors]: what is added stays as it is where a type adds nothing.
template <bool Bytes>
struct ToChunks {
  static constexpr bool bytes = Bytes;

  void codes(int n, int w, Words words) { chunks[n * vectors].codes[w] = words; }
  void end(int n, int half, F scale) {
    Chunk& to = chunks[n * vectors];
    if (!Bytes) scale = Simd::mul(scale, Simd::set1(0x1p-24f));
    if (half != 1) to.scale[0] = scale;
    if (half != 0) to.scale[1] = scale;
  }
  void end(int n, int half, F scale, F least) {
    end(n, half, scale);
    Chunk& to = chunks[n * vectors];
    if (half != 1) to.least[0] = least;
    if (half != 0) to.least[1] = least;
  }

  Chunk* chunks;
};

// How a type's blocks are unpacked into memory, and how many chunks at once.
struct BlockType {
  void (*unpack)(const BlockRows& block, int first, Chunk* to);
  int chunks;
};

template <bool Bytes, class Type>
void unpack_chunks(const BlockRows& block, int first, Chunk* to) {
  ToChunks<Bytes> chunks{to};
  Type::unpack(block, first, chunks);
}

template <bool Bytes>
inline BlockType type_of(QuantizedType type) {
  BlockType found{};
  with_type(type, [&]<class Type>() { found = {unpack_chunks<Bytes, Type>, Type::chunks}; });
  return found;
}

// The numbers in column 4 w + K of the chunk, for products of floats.
template <int K>
inline __attribute__((always_inline)) F number(const Chunk& chunk, int w) {
  return Simd::fma(Simd::from_i32(Simd::raise_byte<K>((F)chunk.codes[w])), chunk.scale[w / 4], chunk.least[w / 4]);
}

}  // namespace
}  // namespace attend::inline v1::kernels
