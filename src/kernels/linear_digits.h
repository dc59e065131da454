// y = x W^T + b where W is quantized, by products of bytes. Codes are multiplied as they are, for 32 columns with the
// same scale at once, by the digits of x. Sums within the 32 columns are exact; they are added up in f32. With three
// digits it takes a fifth of linear_blocks.h's instructions for one row. A row has the same bits whatever else is
// computed with it.
#pragma once

#include "kernels/digits.h"
#include "kernels/linear_blocks.h"

namespace attend::inline v1::kernels {
namespace {

// What the products need to know of a type when they are compiled: whether halves of 32 columns have scales of their
// own, whether something is added to numbers, and the largest code, of which no more than how many words fit in 16
// bits.
struct Kind {
  bool halves, least;
  int most;

  constexpr int words() const { return halves ? 4 : 8; }
};

constexpr int most_of(const Kind& type) {
  if (type.most > 63 || !(Simd::byte_pairs || Simd::signed_products)) return 255;
  return type.halves ? 63 : type.most <= 15 ? 15 : 31;
}

template <class Type>
constexpr Kind kind_of{Type::halves, Type::from == 0, most_of({Type::halves, false, Type::most})};

// Sums of products of codes with one of N digits, four to a lane, for the words that share a scale. Where the target
// has an instruction that sums two products in 16 bits, codes of up to 6 bits are summed there, as many words as fit.
// There larger ones meet a lone digit, from -127 to 127, less 128, as they do where instructions multiply signed bytes.
template <int N, Kind K, class S = Simd>
class ByteSums {
 public:
  // start: what total() begins with, less what the codes count from.
  inline __attribute__((always_inline)) void begin(F start) {
#pragma GCC unroll 4
    for (F& sum : sums_) sum = Simd::zero();
    if (!pairs && !lowered) sums_[0] = start;
  }
  inline __attribute__((always_inline)) void add(int w, F codes, F digits) {
    F& sum = sums_[w % K.words() / words_of_sum];
    if constexpr (pairs) {
      sum = S::dot_pairs(codes, digits, sum);
    } else if constexpr (lowered) {
      sum = S::dot_lowered(codes, digits, sum);
    } else {
      sum = S::dot_u8(codes, digits, sum);
    }
  }
  inline __attribute__((always_inline)) F total(F start) const {
    if constexpr (!pairs) {
      return sums_[0];
    } else {
      F all = start;
#pragma GCC unroll 4
      for (const F& sum : sums_) all = S::add_pairs(sum, all);
      return all;
    }
  }

 private:
  static constexpr bool pairs = S::byte_pairs && K.most <= 63;
  static constexpr bool lowered = K.most > 63 && N == 1 && (S::byte_pairs || S::signed_products);
  static constexpr int words_of_sum = pairs ? 32767 / (2 * 128 * K.most) : K.words();

  F sums_[(K.words() + words_of_sum - 1) / words_of_sum];
};

// The sums of N digits with the words that share a scale.
template <int N, Kind K>
class DigitProducts {
 public:
  // from: what the codes count from (blocks.h).
  inline __attribute__((always_inline)) void begin(const Digits<N>& x, int half, std::int32_t from) {
#pragma GCC unroll 3
    for (int n = 0; n < N; ++n) sums_[n].begin(start(x, n, half, from));
  }
  // The digits of word w for every lane.
  struct Word {
    inline __attribute__((always_inline)) Word(const Digits<N>& x, int w) {
#pragma GCC unroll 3
      for (int n = 0; n < N; ++n) digits[n] = Simd::spread(x.digit[n] + 4 * w);
    }
    F digits[N];
  };
  inline __attribute__((always_inline)) void add(int w, F codes, const Word& word) {
#pragma GCC unroll 3
    for (int n = 0; n < N; ++n) sums_[n].add(w, codes, word.digits[n]);
  }
  // The products of x and the codes, less what these count from, without their scales.
  inline __attribute__((always_inline)) F total(const Digits<N>& x, int half, std::int32_t from) const {
    const auto sum = [&](int n) { return sums_[n].total(start(x, n, half, from)); };
    if constexpr (N == 1) return Simd::from_i32(sum(0));
    const F below = (F)(((SignedWords)sum(N - 2) << 8) + (SignedWords)sum(N - 1));
    return N == 2 ? Simd::from_i32(below) : Simd::fma(Simd::from_i32(sum(0)), Simd::set1(65536), Simd::from_i32(below));
  }

 private:
  // What the codes count from is taken off the sums of the lowest digits, and of three of the highest.
  static inline __attribute__((always_inline)) F start(const Digits<N>& x, int n, int half, std::int32_t from) {
    if (!K.least && n == N - 1) return (F)(SignedWords{} - from * x.of(x.sums.rest, half));
    if constexpr (N == 3 && !K.least)
      if (n == 0) return (F)(SignedWords{} - from * x.of(x.sums.high, half));
    return Simd::zero();
  }

  ByteSums<N, K> sums_[N];
};

// sum + what far digits make of a half of a chunk, or of all of it: `products` are those of digits and codes.
template <int N, Kind K>
__attribute__((noinline)) F add_far(const Digits<N>& x, int half, const Chunk& chunk, std::int32_t from, F products,
                                    F sum) {
  const F scale = chunk.scale[half], least = K.least ? chunk.least[half] : Simd::set1(-0.0f);
  if (x.scale == -infinity) {  // each by itself: they may differ in sign, and a weight be 0
    const auto* codes = reinterpret_cast<const unsigned char*>(chunk.codes);
    for (int i = 16 * half; i < (K.halves ? 16 * half + 16 : 32); ++i) {
      if (x.digit[0][i] == 0) continue;
      SignedWords code;
      for (int lane = 0; lane < lanes; ++lane) code[lane] = codes[(i / 4 * lanes + lane) * 4 + i % 4] - from;
      const F weight = Simd::fma(Simd::from_i32((F)code), scale, least);
      sum = Simd::fma(weight, Simd::set1(static_cast<float>(x.digit[0][i]) * infinity), sum);
    }
    return sum;
  }
  const F undo = Simd::set1(undo_far(-x.scale));
  sum = Simd::fma(Simd::mul(products, undo), Simd::mul(scale, Simd::set1(-x.scale)), sum);
  if constexpr (K.least) sum = Simd::fma(Simd::mul(least, undo), Simd::set1(x.sum[K.halves ? half : 2]), sum);
  return sum;
}

// sums += what R rows of x, `stride` from one to the next, make of a chunk of each of V vectors of outputs.
template <int N, Kind K, bool Far, int R, int V>
inline __attribute__((always_inline)) void add_products(const Digits<N>* x, std::int64_t stride, const Chunk* chunks,
                                                        std::int32_t from, F (&sums)[R][V]) {
  constexpr int words = K.words();
#pragma GCC unroll 2
  for (int half = 0; half < (K.halves ? 2 : 1); ++half) {
    const int number = K.halves ? half : both;
    DigitProducts<N, K> products[R][V];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) products[r][v].begin(x[r * stride], number, from);
    }
#pragma GCC unroll 8
    for (int w = half * words; w < half * words + words; ++w) {
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const typename DigitProducts<N, K>::Word word(x[r * stride], w);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) products[r][v].add(w, (F)chunks[v].codes[w], word);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const Digits<N>& row = x[r * stride];
      if (Far && row.scale < 0) {
        for (int v = 0; v < V; ++v)
          sums[r][v] = add_far<N, K>(row, half, chunks[v], from, products[r][v].total(row, number, from), sums[r][v]);
        continue;
      }
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        const F scale = Simd::mul(chunks[v].scale[half], Simd::set1(row.scale));
        sums[r][v] = Simd::fma(products[r][v].total(row, number, from), scale, sums[r][v]);
        if constexpr (K.least)
          sums[r][v] = Simd::fma(chunks[v].least[half], Simd::set1(row.sum[K.halves ? half : 2]), sums[r][v]);
      }
    }
  }
}

// The same of sums [R,width] in memory, and `count` chunks of a panel's vectors [count][vectors].
template <int N, Kind K, bool Far, int R>
__attribute__((noinline)) void add_to_rows(const Digits<N>* x, std::int64_t stride, const Chunk* chunks, int count,
                                           std::int32_t from, float* to) {
  F sums[R][vectors];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[r][v] = Simd::load(to + r * width + v * lanes);
  }
  for (int n = 0; n < count; ++n, ++x, chunks += vectors) add_products<N, K, Far>(x, stride, chunks, from, sums);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) Simd::store(to + r * width + v * lanes, sums[r][v]);
  }
}

// The rows of x, and their sums with the outputs of one panel.
template <int N, Kind K>
class DigitRows {
 public:
  DigitRows(const LinearOperands& a, std::int64_t first, std::int64_t last, std::int32_t from)
      : x_(static_cast<const Digits<N>*>(a.x) + first * (a.x_stride / chunk_columns)),
        stride_(a.x_stride / chunk_columns),
        rows_(last - first),
        from_(from) {}

  void start() {
    for (std::int64_t i = 0; i < rows_ * width; ++i) sums_[i] = 0;
    far_ = false;
    for (std::int64_t r = 0; r < rows_; ++r) far_ |= x_[r * stride_].beside_far != 0;
  }

  // `count` chunks, of which the first stands at 32 times `number`.
  void add(std::int64_t number, const Chunk* chunks, int count) {
    std::int64_t r = 0;
    for (; !far_ && r + at_once <= rows_; r += at_once) add_rows<false, at_once>(r, number, chunks, count);
    for (; !far_ && r < rows_; ++r) add_rows<false, 1>(r, number, chunks, count);
    for (; r < rows_; ++r) add_rows<true, 1>(r, number, chunks, count);
  }

  float* sums() { return sums_; }

 private:
  // Of three digits two rows: with three GCC keeps sums in memory (512 rows: 113 GFLOP/s of Q4_1, 110 with three and 96
  // with four; f32 has 109).
  static constexpr int at_once = Simd::lanes == 16 ? (N == 1 ? 4 : 2) : (N == 1 ? 2 : 1);

  template <bool Far, int R>
  void add_rows(std::int64_t r, std::int64_t number, const Chunk* chunks, int count) {
    add_to_rows<N, K, Far, R>(x_ + r * stride_ + number, stride_, chunks, count, from_, sums_ + r * width);
  }

  const Digits<N>* x_;
  std::int64_t stride_, rows_;
  std::int32_t from_;
  bool far_ = false;  // whether some of the digits may be
  alignas(64) float sums_[linear_rows * width];
};

// All rows of x, at most linear_stream_rows, meet the panels [begin, end) where they lie.
template <int N, Kind K>
void stream_digits(const LinearOperands& a, const BlockMatrix& of, std::int32_t from, std::int64_t rows,
                   std::int64_t begin, std::int64_t end) {
  BlockPanel<true> weights(of);
  AskAhead ahead(of, begin, end, a.in / chunk_columns);
  DigitRows<N, K> x(a, 0, rows, from);
  for (std::int64_t panel = begin; panel < end; ++panel) {
    weights.start(panel * width, a.out);
    x.start();
    for (std::int64_t number = 0; number < a.in / chunk_columns; number += weights.count()) {
      weights.unpack();
      for (int n = 0; n < weights.count(); ++n) {
        ahead.ask();
        x.add(number + n, weights.chunks() + n * vectors, 1);
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
template <int N, class Type>
class RowSum {
 public:
  static constexpr bool bytes = true;
  static constexpr Kind kind = kind_of<Type>;

  RowSum(const char* const* rows, std::int64_t block_bytes, std::int64_t ahead)
      : rows_(rows), block_bytes_(block_bytes), ahead_(ahead) {}

  // The chunks that come next meet these digits; `at`: where their bytes begin in a row.
  inline __attribute__((always_inline)) void start(const Digits<N>* x, std::int64_t at) {
    x_ = x, at_ = at + ahead_;
#pragma GCC unroll 4
    for (int n = 0; n < Type::chunks; ++n) products_[n].begin(x_[n], Type::halves ? 0 : both, Type::from);
  }

  inline __attribute__((always_inline)) void codes(int n, int w, Words words) {
    products_[n].add(w, (F)words, {x_[n], w});
    ask(n, w);
  }
  // Of four chunks one half comes after the other: added in the order of the columns, as other rows' are.
  inline __attribute__((always_inline)) void end(int n, int half, F scale, F least = Simd::zero()) {
    const Digits<N>& x = x_[n];
    const Part part = {products_[n].total(x, half, Type::from), Simd::mul(scale, Simd::set1(x.scale)), least};
    if (Type::halves && half == 0) {
      first_[n] = part;
      return products_[n].begin(x, 1, Type::from);
    }
    if constexpr (Type::halves) add(first_[n], x.sum[0]);
    add(part, x.sum[Type::halves ? 1 : 2]);
  }

  F sum() const {
    return sum_;
  }

 private:
  // What a half of a chunk, or both, add.
  struct Part {
    F products, scale, least;
  };

  inline __attribute__((always_inline)) void add(const Part& part, float sum) {
    sum_ = Simd::fma(part.products, part.scale, sum_);
    if constexpr (kind.least) sum_ = Simd::fma(part.least, Simd::set1(sum), sum_);
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
      __builtin_prefetch(rows_[number % lanes] + at_, 0, 2);
      if constexpr (lanes == 16) __builtin_prefetch(rows_[8 + number] + at_, 0, 2);
    }
  }

  const char* const* rows_;
  const Digits<N>* x_ = nullptr;
  std::int64_t block_bytes_, ahead_, at_ = 0;
  F sum_ = Simd::zero();
  DigitProducts<N, kind> products_[Type::chunks];
  Part first_[Type::halves ? Type::chunks : 1] = {};
};

// As stream_digits(), of one row without far digits.
template <int N, class Type>
void stream_digits_of_row(const LinearOperands& a, const BlockMatrix& of, std::int64_t begin, std::int64_t end) {
  const std::int64_t last = min_of(end * width, a.out);
  const std::int64_t rows_ahead = (1023 + of.row_bytes) / of.row_bytes * lanes;
  alignas(64) float sums[width];
  for (std::int64_t panel = begin; panel < end; ++panel) {
    for (int v = 0; v < vectors; ++v) {
      const std::int64_t first = panel * width + v * lanes;
      const char* rows[lanes];
      rows_of(of, first, a.out, lanes, rows);
      RowSum<N, Type> sum(rows, of.block_bytes, first + rows_ahead < last ? rows_ahead * of.row_bytes : 0);
      const auto* x = static_cast<const Digits<N>*>(a.x);
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

template <int N, class Type>
void stream_digits_by_type(const LinearOperands& a, const BlockMatrix& of, std::int64_t rows, std::int64_t begin,
                           std::int64_t end) {
  if (Simd::multiplies_in_registers && rows == 1 && !static_cast<const Digits<N>*>(a.x)->beside_far)
    return stream_digits_of_row<N, Type>(a, of, begin, end);
  stream_digits<N, kind_of<Type>>(a, of, Type::from, rows, begin, end);
}

// One panel as run_digits() reads it: outputs [first, last), at most `width`, [in / 32][vectors] Chunk.
void pack_digits(const BlockMatrix& of, std::int64_t first, std::int64_t last, float* packed) {
  static_assert(sizeof(Chunk[vectors]) <= sizeof(float[chunk_columns * width]), "a panel of linear_floats()");
  BlockPanel<true> panel(of);
  panel.start(first, last);
  AskAhead ahead(of, first / width, (of.matrix.rows + width - 1) / width,
                 of.matrix.columns / chunk_columns / panel.count());
  const std::size_t bytes = static_cast<std::size_t>(panel.count()) * sizeof(Chunk[vectors]);
  auto* to = reinterpret_cast<char*>(packed);
  for (std::int64_t column = 0; column < of.matrix.columns; column += panel.count() * chunk_columns, to += bytes) {
    panel.unpack();
    ahead.ask();
    __builtin_memcpy(to, panel.chunks(), bytes);
  }
}

// Rows [first, last) of x, at most linear_rows, meet a packed panel: four chunks, which stay in the L1 cache, pass by.
template <int N, Kind K>
void run_digits(const LinearOperands& a, std::int32_t from, std::int64_t first, std::int64_t last) {
  DigitRows<N, K> x(a, first, last, from);
  x.start();
  const auto* chunks = reinterpret_cast<const Chunk*>(a.packed);
  for (std::int64_t number = 0; number < a.in / chunk_columns; number += chunks_at_once) {
    const std::int64_t count = min_of<std::int64_t>(chunks_at_once, a.in / chunk_columns - number);
    x.add(number, chunks + number * vectors, static_cast<int>(count));
  }
  store_linear(a, first, last - first, 0, x.sums());
}

template <int N, class Type>
void run_digits_by_type(const LinearOperands& a, std::int64_t first, std::int64_t last) {
  run_digits<N, kind_of<Type>>(a, Type::from, first, last);
}

template <int N, class Type>
constexpr BlockKernels digit_blocks{.prepared_bytes = sizeof(Digits<N>),
                                    .prepare = prepare_digits<N>,
                                    .pack = pack_digits,
                                    .run = run_digits_by_type<N, Type>,
                                    .stream = stream_digits_by_type<N, Type>};

// LinearKernels::blocks. Several digits are faster than products of floats where an instruction sums products of bytes
// in 32 bits, or in 16 those of codes of up to 6 bits.
inline BlockKernels blocks_of(QuantizedType type, Activations activations) {
  BlockKernels found{};
  with_type(type, [&]<class Type>() {
    if (activations == Activations::int8) {
      found = digit_blocks<1, Type>;
    } else if constexpr (Simd::byte_products || (Simd::byte_pairs && Type::most <= 63)) {
      found = activations == Activations::fast ? digit_blocks<2, Type> : digit_blocks<3, Type>;
    } else {
      found = float_blocks;
    }
  });
  return found;
}

}  // namespace
}  // namespace attend::inline v1::kernels
