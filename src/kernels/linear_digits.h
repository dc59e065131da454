// y = x W^T + b where W is quantized, by products of bytes: for the sources of targets whose vector layer has them.
// Codes are multiplied as they are, for 32 columns with the same scale at once, and x is written in digits: three
// signed bytes that are fixed point of 24 bits, as fine as f32 is where x is largest. Sums within the 32 columns are
// exact; they are added up in f32. It takes a fifth of linear_blocks.h's instructions for one row. Rows that are many
// meet them too: a row has the same bits whatever else is computed with it.
#pragma once

#include "kernels/linear_blocks.h"

namespace attend::inline v0::kernels {
namespace {

// 32 numbers of x: scale * (65536 high + 256 middle + low), where the scale is a power of two. NaN among them makes the
// scale NaN, and so all of the row's results.
//
// Of numbers near either end of f32 the scale, or it times a weight's, is no normal number. Such are kept `far`: the
// numbers times 2^96 or 2^-32, and the scale below 0. Infinite ones: the scale is -infinity, the high digits are 1 and
// -1 where they stand, and 0 elsewhere.
struct Digits {
  std::int8_t high[chunk_columns], middle[chunk_columns], low[chunk_columns];
  float scale;
  float sum[3];  // of the numbers: in each half, in both
  std::int16_t high_sum[2];
  std::int32_t middle_low_sum[2];  // of the digits: in each half
  std::int32_t beside_far;         // whether there are far ones in its row, or in another that was prepared with it

  // A half's sum of those, or with `both` their sum.
  static std::int32_t of(const auto* sums, int half) { return half == both ? sums[0] + sums[1] : sums[half]; }
};
static_assert(sizeof(Digits) == chunk_columns * sizeof(float), "prepare() puts it where the numbers would be");

// Where the largest of 32 is below the one, or not below the other, they are far. A weight's scale is 2^-24 at least
// and below 2^22, and a sum is of 32 numbers.
constexpr float far_below = 0x1p-80f, far_above = 0x1p121f;

// What far numbers are multiplied by. It is told from the scale that they have then: 2^-75 to 2^-6, or 2^67 and more.
constexpr float up = 0x1p96f, down = 0x1p-32f;
inline float undo_far(float scale) {
  return scale < 1 ? 1 / up : 1 / down;
}

// The scale by which the largest of 32 fills the digits, 2^-22 of a power of two above it: numbers are below
// 127 * (65536 + 256 + 1), which is 2^23 / 1.004. Of zeros it is 2^-126.
inline float scale_of(float largest) {
  largest *= 1.004f;
  std::uint32_t bits;
  __builtin_memcpy(&bits, &largest, sizeof bits);
  const std::uint32_t exponent = max_of<std::uint32_t>(bits >> 23, 23);
  bits = (exponent - 22) << 23;
  float scale;
  __builtin_memcpy(&scale, &bits, sizeof scale);
  return scale;
}

inline void fill_digits(const std::int32_t* numbers, float scale, Digits& to) {
  std::int32_t sums[2] = {}, high_sums[2] = {};
  for (int half = 0; half < 2; ++half) {
    for (int i = 16 * half; i < 16 * half + 16; ++i) {
      // Bytes from -128 to 127: those of a number that is 128 more in each, less 128 in each.
      const std::uint32_t balanced = (static_cast<std::uint32_t>(numbers[i]) + 0x808080) ^ 0x808080;
      to.high[i] = static_cast<std::int8_t>(balanced >> 16);
      to.middle[i] = static_cast<std::int8_t>(balanced >> 8);
      to.low[i] = static_cast<std::int8_t>(balanced);
      sums[half] += numbers[i], high_sums[half] += to.high[i];
    }
    to.high_sum[half] = static_cast<std::int16_t>(high_sums[half]);
    to.middle_low_sum[half] = sums[half] - 65536 * high_sums[half];
  }
  to.scale = scale, to.beside_far = 0;
  to.sum[0] = static_cast<float>(sums[0]) * scale, to.sum[1] = static_cast<float>(sums[1]) * scale;
  to.sum[2] = static_cast<float>(sums[0] + sums[1]) * scale;
}

inline void write_digits(const float* x, Digits& to);

__attribute__((noinline)) void write_far_digits(const float* x, float largest, Digits& to) {
  if (largest - largest == 0) {
    float near[chunk_columns];
    for (std::int64_t i = 0; i < chunk_columns; ++i) near[i] = x[i] * (largest < 1 ? up : down);
    write_digits(near, to);
    to.scale = -to.scale;
    return;
  }
  std::int32_t numbers[chunk_columns];
  for (std::int64_t i = 0; i < chunk_columns; ++i) numbers[i] = 65536 * ((x[i] == infinity) - (x[i] == -infinity));
  fill_digits(numbers, largest == infinity ? -infinity : largest, to);
}

inline void write_digits(const float* x, Digits& to) {
  std::uint32_t bits[chunk_columns], most = 0;
  __builtin_memcpy(bits, x, sizeof bits);
  for (const std::uint32_t b : bits) most = max_of(most, b & 0x7FFFFFFF);  // NaN, if one is
  float largest;
  __builtin_memcpy(&largest, &most, sizeof largest);
  if (most != 0 && !(largest >= far_below && largest < far_above)) [[unlikely]]
    return write_far_digits(x, largest, to);
  const float scale = scale_of(largest), inverse = 1 / scale;
  std::int32_t numbers[chunk_columns];
  for (std::int64_t i = 0; i < chunk_columns; i += lanes) {
    const F whole = Simd::to_i32(Simd::mul(Simd::load(x + i), Simd::set1(inverse)));
    __builtin_memcpy(numbers + i, &whole, sizeof whole);
  }
  fill_digits(numbers, scale, to);
}

// sum + what far digits make of a half of a chunk, or of all of it: `products` are those of digits and codes.
template <bool Halves, bool Least>
__attribute__((noinline)) F add_far(const Digits& x, int half, const Chunk& chunk, std::int32_t from, F products,
                                    F sum) {
  const F scale = chunk.scale[half], least = Least ? chunk.least[half] : Simd::set1(-0.0f);
  if (x.scale == -infinity) {  // each by itself: they may differ in sign, and a weight be 0
    const auto* codes = reinterpret_cast<const unsigned char*>(chunk.codes);
    for (int i = 16 * half; i < (Halves ? 16 * half + 16 : 32); ++i) {
      if (x.high[i] == 0) continue;
      SignedWords code;
      for (int lane = 0; lane < lanes; ++lane) code[lane] = codes[(i / 4 * lanes + lane) * 4 + i % 4] - from;
      const F weight = Simd::fma(Simd::from_i32((F)code), scale, least);
      sum = Simd::fma(weight, Simd::set1(static_cast<float>(x.high[i]) * infinity), sum);
    }
    return sum;
  }
  const F undo = Simd::set1(undo_far(-x.scale));
  sum = Simd::fma(Simd::mul(products, undo), Simd::mul(scale, Simd::set1(-x.scale)), sum);
  if constexpr (Least) sum = Simd::fma(Simd::mul(least, undo), Simd::set1(x.sum[Halves ? half : 2]), sum);
  return sum;
}

// The sums of three digits as one.
inline F joined(F high, F middle, F low) {
  const F below = (F)(((SignedWords)middle << 8) + (SignedWords)low);
  return Simd::fma(Simd::from_i32(high), Simd::set1(65536), Simd::from_i32(below));
}

// sums += what R rows of x, `stride` from one to the next, make of a chunk of each of V vectors of outputs.
template <bool Halves, bool Least, bool Far, int R, int V>
inline __attribute__((always_inline)) void add_products(const Digits* x, std::int64_t stride,
                                                        const Chunk* const* chunks, std::int32_t from,
                                                        F (&sums)[R][V]) {
  constexpr int words = Halves ? 4 : 8;
#pragma GCC unroll 2
  for (int half = 0; half < (Halves ? 2 : 1); ++half) {
    F high[R][V] = {}, middle[R][V] = {}, low[R][V] = {};
#pragma GCC unroll 8
    for (int w = half * words; w < half * words + words; ++w) {
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) {
        const Digits& row = x[r * stride];
        const F first = Simd::spread(row.high + 4 * w), second = Simd::spread(row.middle + 4 * w),
                third = Simd::spread(row.low + 4 * w);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
          const F codes = (F)chunks[v]->codes[w];
          high[r][v] = Simd::dot_u8(codes, first, high[r][v]);
          middle[r][v] = Simd::dot_u8(codes, second, middle[r][v]);
          low[r][v] = Simd::dot_u8(codes, third, low[r][v]);
        }
      }
    }
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) {
      const Digits& row = x[r * stride];
      const std::int32_t number = Halves ? half : both;
      const auto products = [&](int v) {
        if constexpr (Least) return joined(high[r][v], middle[r][v], low[r][v]);
        const SignedWords above = (SignedWords)high[r][v] - from * row.of(row.high_sum, number);
        const SignedWords below = (SignedWords)low[r][v] - from * row.of(row.middle_low_sum, number);
        return joined((F)above, middle[r][v], (F)below);
      };
      if (Far && row.scale < 0) {
        for (int v = 0; v < V; ++v)
          sums[r][v] = add_far<Halves, Least>(row, half, *chunks[v], from, products(v), sums[r][v]);
        continue;
      }
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        const F scale = Simd::mul(chunks[v]->scale[half], Simd::set1(row.scale));
        sums[r][v] = Simd::fma(products(v), scale, sums[r][v]);
        if constexpr (Least)
          sums[r][v] = Simd::fma(chunks[v]->least[half], Simd::set1(row.sum[Halves ? half : 2]), sums[r][v]);
      }
    }
  }
}

// The same of sums [R,width] in memory, and a panel's vectors.
template <bool Halves, bool Least, bool Far, int R>
__attribute__((noinline)) void add_to_rows(const Digits* x, std::int64_t stride, const Chunk* const* chunks,
                                           std::int32_t from, float* to) {
  F sums[R][vectors];
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[r][v] = Simd::load(to + r * width + v * lanes);
  }
  add_products<Halves, Least, Far>(x, stride, chunks, from, sums);
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) Simd::store(to + r * width + v * lanes, sums[r][v]);
  }
}

// The rows of x, and their sums with the outputs of one panel.
template <bool Halves, bool Least>
class DigitRows {
 public:
  DigitRows(const LinearOperands& a, std::int64_t first, std::int64_t last, std::int32_t from)
      : x_(static_cast<const Digits*>(a.x) + first * (a.x_stride / chunk_columns)),
        stride_(a.x_stride / chunk_columns),
        rows_(last - first),
        from_(from) {}

  void start() {
    for (std::int64_t i = 0; i < rows_ * width; ++i) sums_[i] = 0;
    far_ = false;
    for (std::int64_t r = 0; r < rows_; ++r) far_ |= x_[r * stride_].beside_far != 0;
  }

  // What stands in 32 columns, the chunk of that number, of each vector of outputs. Two rows at once: with three GCC
  // keeps sums in memory (512 rows: 113 GFLOP/s of Q4_1, 110 with three and 96 with four; f32 has 109).
  void add(std::int64_t number, const Chunk* const (&chunks)[vectors]) {
    std::int64_t r = 0;
    for (; r + 2 <= rows_; r += 2) add_rows<2>(r, number, chunks);
    if (r < rows_) add_rows<1>(r, number, chunks);
  }

  float* sums() { return sums_; }

 private:
  template <int R>
  void add_rows(std::int64_t r, std::int64_t number, const Chunk* const (&chunks)[vectors]) {
    const Digits* const x = x_ + r * stride_ + number;
    float* const sums = sums_ + r * width;
    if (far_) return add_to_rows<Halves, Least, true, R>(x, stride_, chunks, from_, sums);
    add_to_rows<Halves, Least, false, R>(x, stride_, chunks, from_, sums);
  }

  const Digits* x_;
  std::int64_t stride_, rows_;
  std::int32_t from_;
  bool far_ = false;  // whether some of the digits may be
  alignas(64) float sums_[linear_rows * width];
};

// All rows of x, at most linear_stream_rows, meet the panels [begin, end) where they lie.
template <bool Halves, bool Least>
void stream_digits(const LinearOperands& a, const BlockMatrix& of, std::int64_t rows, std::int64_t begin,
                   std::int64_t end) {
  BlockPanel weights(of);
  AskAhead ahead(of, begin, end, a.in / chunk_columns);
  DigitRows<Halves, Least> x(a, 0, rows, weights.type().from);
  for (std::int64_t panel = begin; panel < end; ++panel) {
    weights.start(panel * width, a.out);
    x.start();
    for (std::int64_t number = 0; number < a.in / chunk_columns;) {
      weights.unpack();
      for (int n = 0; n < weights.chunks(); ++n, ++number) {
        ahead.ask();
        const Chunk* chunks[vectors];
        for (int v = 0; v < vectors; ++v) chunks[v] = &weights.chunk(v, n);
        x.add(number, chunks);
      }
    }
    store_linear(a, 0, rows, panel, x.sums());
  }
}

// One row of x, without far digits, meets what is unpacked of a vector's rows at once: codes go from bytes to products
// in registers, and while those of 16 bytes are multiplied the next are put together. (Four chunks of Q4_K unpacked
// first and multiplied then take 1.3 times as long on Zen 4: the processor looks 320 instructions ahead, and a chunk
// has 140.) With each word it asks for memory, of the same place in rows that come later: in the order in which they
// are read, one after another, 1.1 to 1.2 times as fast from memory as whole panels that are asked for ahead.
template <class Type>
class RowSum {
 public:
  RowSum(const char* const* rows, std::int64_t block_bytes, std::int64_t ahead)
      : rows_(rows), block_bytes_(block_bytes), ahead_(ahead) {}

  // The chunks that come next meet these digits; `at`: where their bytes begin in a row.
  inline __attribute__((always_inline)) void start(const Digits* x, std::int64_t at) {
    x_ = x, at_ = at + ahead_;
#pragma GCC unroll 4
    for (int n = 0; n < Type::chunks; ++n) begin(n, Type::halves ? 0 : both);
  }

  inline __attribute__((always_inline)) void codes(int n, int w, Words words) {
    const Digits& x = x_[n];
    high_[n] = Simd::dot_u8((F)words, Simd::spread(x.high + 4 * w), high_[n]);
    middle_[n] = Simd::dot_u8((F)words, Simd::spread(x.middle + 4 * w), middle_[n]);
    low_[n] = Simd::dot_u8((F)words, Simd::spread(x.low + 4 * w), low_[n]);
    ask(n, w);
  }
  // Of four chunks one half comes after the other: added in the order of the columns, as other rows' are.
  inline __attribute__((always_inline)) void end(int n, int half, F scale, F least = Simd::zero()) {
    const Digits& x = x_[n];
    const Part part = {joined(high_[n], middle_[n], low_[n]), Simd::mul(scale, Simd::set1(x.scale)), least};
    if (Type::halves && half == 0) {
      first_[n] = part;
      return begin(n, 1);
    }
    if constexpr (Type::halves) add(first_[n], x.sum[0]);
    add(part, x.sum[Type::halves ? 1 : 2]);
  }

  F sum() const {
    return sum_;
  }

 private:
  // The sums begin with what the codes count from, taken off.
  inline __attribute__((always_inline)) void begin(int n, int half) {
    const std::int32_t from = Type::from;
    high_[n] = (F)(SignedWords{} - from * x_[n].of(x_[n].high_sum, half)), middle_[n] = Simd::zero();
    low_[n] = (F)(SignedWords{} - from * x_[n].of(x_[n].middle_low_sum, half));
  }

  // What a half of a chunk, or both, add.
  struct Part {
    F products, scale, least;
  };

  inline __attribute__((always_inline)) void add(const Part& part, float sum) {
    sum_ = Simd::fma(part.products, part.scale, sum_);
    if constexpr (Type::from == 0) sum_ = Simd::fma(part.least, Simd::set1(sum), sum_);
  }

  // A line of the cache of each row for every 64 bytes of it, at least: a block's bytes are 18 to 34 a chunk.
  inline __attribute__((always_inline)) void ask(int n, int w) {
    const int number = 8 * n + w;
    if constexpr (Type::chunks == 4) {
      const char* const place = rows_[number % lanes] + at_ + number / lanes * 52;
      __builtin_prefetch(place, 0, 2);
      // Its bytes lie in three places of a block: 5 to 10 % faster from memory where they are near by then.
      if constexpr (Type::halves) __builtin_prefetch(place - ahead_ + block_bytes_, 0, 3);
    } else {
      __builtin_prefetch(rows_[number] + at_, 0, 2);
      __builtin_prefetch(rows_[8 + number] + at_, 0, 2);
    }
  }

  const char* const* rows_;
  const Digits* x_ = nullptr;
  std::int64_t block_bytes_, ahead_, at_ = 0;
  F sum_ = Simd::zero(), high_[Type::chunks] = {}, middle_[Type::chunks] = {}, low_[Type::chunks] = {};
  Part first_[Type::halves ? Type::chunks : 1] = {};
};

// As stream_digits(), of one row without far digits.
template <class Type>
void stream_digits_of_row(const LinearOperands& a, const BlockMatrix& of, std::int64_t begin, std::int64_t end) {
  const std::int64_t last = min_of(end * width, a.out);
  const std::int64_t rows_ahead = (1023 + of.row_bytes) / of.row_bytes * lanes;
  alignas(64) float sums[width];
  for (std::int64_t panel = begin; panel < end; ++panel) {
    for (int v = 0; v < vectors; ++v) {
      const std::int64_t first = panel * width + v * lanes;
      const char* rows[lanes];
      rows_of(of, first, a.out, lanes, rows);
      RowSum<Type> sum(rows, of.block_bytes, first + rows_ahead < last ? rows_ahead * of.row_bytes : 0);
      const auto* x = static_cast<const Digits*>(a.x);
      for (std::int64_t at = 0; at < of.row_bytes; at += of.block_bytes) {
#pragma GCC unroll 2
        for (int chunk = 0; chunk < Type::block_chunks; chunk += Type::chunks, x += Type::chunks) {
          sum.start(x, at + chunk * of.block_bytes / Type::block_chunks);
          Type::unpack({rows, at}, chunk, sum);
        }
      }
      Simd::store(sums + v * lanes, sum.sum());
    }
    store_linear(a, 0, 1, panel, sums);
  }
}

// One panel as run_digits() reads it: outputs [first, last), at most `width`, [in / 32][vectors] Chunk.
void pack_digits(const BlockMatrix& of, std::int64_t first, std::int64_t last, float* packed) {
  static_assert(sizeof(Chunk[vectors]) <= sizeof(float[chunk_columns * width]), "a panel of linear_floats()");
  BlockPanel panel(of);
  panel.start(first, last);
  auto* to = reinterpret_cast<char*>(packed);
  for (std::int64_t column = 0; column < of.matrix.columns;) {
    panel.unpack();
    for (int n = 0; n < panel.chunks(); ++n, column += chunk_columns) {
      for (int v = 0; v < vectors; ++v, to += sizeof(Chunk)) __builtin_memcpy(to, &panel.chunk(v, n), sizeof(Chunk));
    }
  }
}

// Rows [first, last) of x, at most linear_rows, meet a packed panel.
template <bool Halves, bool Least>
void run_digits(const LinearOperands& a, std::int32_t from, std::int64_t first, std::int64_t last) {
  DigitRows<Halves, Least> x(a, first, last, from);
  x.start();
  const auto* chunk = reinterpret_cast<const Chunk*>(a.packed);
  for (std::int64_t number = 0; number < a.in / chunk_columns; ++number, chunk += vectors) {
    const Chunk* chunks[vectors];
    for (int v = 0; v < vectors; ++v) chunks[v] = chunk + v;
    x.add(number, chunks);
  }
  store_linear(a, first, last - first, 0, x.sums());
}

// body(whether halves have scales of their own, whether something is added), of constants.
template <class Body>
inline void by_kind(const BlockType& type, Body body) {
  const bool least = type.from == 0;
  if (type.halves) return least ? body.template operator()<true, true>() : body.template operator()<true, false>();
  return least ? body.template operator()<false, true>() : body.template operator()<false, false>();
}

// What Target::linear has, by products of bytes.
struct DigitBlocks {
  static void prepare(const float* x, std::int64_t columns, float* to) {
    auto* digits = reinterpret_cast<Digits*>(to);
    const std::int64_t count = columns / chunk_columns;
    bool far = false;
    for (std::int64_t i = 0; i < count; ++i) {
      write_digits(x + i * chunk_columns, digits[i]);
      far |= digits[i].scale < 0;
    }
    for (std::int64_t i = 0; far && i < count; ++i) digits[i].beside_far = 1;
  }
  static constexpr auto pack = pack_digits;
  static void run(const LinearOperands& a, QuantizedType type, std::int64_t first, std::int64_t last) {
    const BlockType of = type_of(type);
    by_kind(of, [&]<bool Halves, bool Least>() { run_digits<Halves, Least>(a, of.from, first, last); });
  }
  static void stream(const LinearOperands& a, const BlockMatrix& of, std::int64_t rows, std::int64_t begin,
                     std::int64_t end) {
    const QuantizedType type = of.matrix.type;
    if (rows == 1 && !static_cast<const Digits*>(a.x)->beside_far)
      return with_type(type, [&]<class Type>() { stream_digits_of_row<Type>(a, of, begin, end); });
    by_kind(type_of(type), [&]<bool Halves, bool Least>() { stream_digits<Halves, Least>(a, of, rows, begin, end); });
  }
  // Another target's: it needs products of floats.
  static constexpr void (*widen)(const BlockMatrix& of, std::int64_t first, std::int64_t last, float* to,
                                 std::int64_t stride) = nullptr;
};

}  // namespace
}  // namespace attend::inline v0::kernels
