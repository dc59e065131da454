// y = x W^T + b: outputs stand in lanes, the weights packed once, x is read through broadcasts.
#pragma once

#include "kernels/operand.h"

namespace attend::inline v1::kernels {
namespace {

// Inputs whose products are summed before they are added to the rest: with three vectors a step, 24 KiB of packed
// weights, which stay in the L1 cache while 64 rows pass by.
constexpr std::int64_t linear_steps = 128;

// Packed weights: for each panel of `width` outputs, [in or pairs of in][width], zeros beyond the last output.
template <class Dot>
std::int64_t linear_panel(std::int64_t in) {
  return (in + Dot::pair - 1) / Dot::pair * width;
}

// weight [out,in] f32, row-major.
template <class Dot>
void pack_linear(const float* weight, std::int64_t out, std::int64_t in, float* packed) {
  const std::int64_t panel = linear_panel<Dot>(in), panels = (out + width - 1) / width;
  for (std::int64_t i = 0; i < panels * panel; ++i) packed[i] = 0;
  for (std::int64_t o = 0; o < out; ++o) {
    float* column = packed + o / width * panel + o % width;
    for (std::int64_t i = 0; i < in; ++i) {
      if constexpr (Dot::pair == 1) {
        column[i * width] = weight[o * in + i];
      } else {
        store_scalar(DType::bf16, reinterpret_cast<char*>(column + i / 2 * width) + i % 2 * 2, weight[o * in + i]);
      }
    }
  }
}

// Of `outs` rows that lie `stride` floats apart `count` steps each, transposed: at most as many as a vector has lanes,
// and zeros beyond.
inline __attribute__((always_inline)) void load_square(F (&square)[lanes], const float* from, std::int64_t stride,
                                                       std::int64_t outs, std::int64_t count) {
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i) {
    const float* row = from + i * stride;
    square[i] = i >= outs ? Simd::zero() : count == lanes ? Simd::load(row) : Simd::load_first(row, count);
  }
  Simd::transpose(square);
}

// What a word of 32 bits of a weight's row is: one step of the products (a float, or a pair of bf16 for the bf16 dot),
// or two bf16 that are multiplied as floats, one after the other.
struct PlainWords {
  static constexpr int steps = 1;
};
struct WidenedWords {
  static constexpr int steps = 2;
};

// Words [lanes] of as many outputs as steps that follow each other: body(constant of the step, its vector).
template <class Form, class Body>
inline __attribute__((always_inline)) void for_each_step(const F (&words)[lanes], std::int64_t count, Body body) {
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i) {
    if (i >= count) break;
    if constexpr (Form::steps == 1) {
      body(i, words[i]);
    } else {
      body(2 * i, low_half(words[i])), body(2 * i + 1, high_half(words[i]));
    }
  }
}

// One panel of weights [out,in], row-major: outputs [first, last), at most `width` of them.
template <class Dot, class Form>
void pack_linear_rows(const void* weight, std::int64_t in, std::int64_t first, std::int64_t last, float* packed) {
  constexpr int in_word = Dot::pair * Form::steps;
  const std::int64_t words = (in + in_word - 1) / in_word;  // of bf16, pairs, whose number is even
  const auto* rows = static_cast<const float*>(weight) + first * words;
  for (std::int64_t block = 0; block < width; block += lanes) {
    for (std::int64_t word = 0; word < words; word += lanes) {
      const std::int64_t count = min_of<std::int64_t>(lanes, words - word);
      F tile[lanes];
      load_square(tile, rows + block * words + word, words, last - first - block, count);
      float* to = packed + word * Form::steps * width + block;
      const auto store = [=](int step, F x) { Simd::store(to + step * width, x); };
      count == lanes ? for_each_step<Form>(tile, lanes, store) : for_each_step<Form>(tile, count, store);
    }
  }
}

// As store_linear(), of a panel whose outputs are all there, as f32: without a copy.
inline void store_whole(const LinearOperands& a, std::int64_t first, std::int64_t rows, std::int64_t panel,
                        const float* sums, const float* bias) {
  F added[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) added[v] = a.bias ? Simd::load(bias + v * lanes) : Simd::set1(-0.0f);
  for (std::int64_t r = 0; r < rows; ++r, sums += width) {
    float* const to = static_cast<float*>(a.y) + (first + r) * a.y_stride + panel * width;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) Simd::store(to + v * lanes, Simd::add(Simd::load(sums + v * lanes), added[v]));
  }
}

// The sums of a panel's rows, with the bias, as y.
void store_linear(const LinearOperands& a, std::int64_t first, std::int64_t rows, std::int64_t panel, float* sums) {
  const std::int64_t outs = min_of<std::int64_t>(width, a.out - panel * width);
  alignas(64) float bias[width] = {};
  for (std::int64_t i = 0; a.bias && i < outs; ++i) bias[i] = a.bias[panel * width + i];
  if (outs == width && a.y_dtype == DType::f32) return store_whole(a, first, rows, panel, sums, bias);
  for (std::int64_t r = 0; r < rows; ++r, sums += width) {
    const std::int64_t at_y = (first + r) * a.y_stride + panel * width;
    for (std::int64_t i = 0; a.bias && i < width; i += lanes) {
      Simd::store(sums + i, Simd::add(Simd::load(sums + i), Simd::load(bias + i)));
    }
    store_row(sums, static_cast<char*>(a.y) + at_y * bytes_of(a.y_dtype), {a.y_dtype, 1, outs});
  }
}

template <class Dot>
class LinearPanel {
 public:
  LinearPanel(const LinearOperands& a, std::int64_t first, std::int64_t last, std::int64_t panel)
      : a_(a), first_(first), rows_(last - first), panel_(panel), whole_((panel + 1) * width <= a.out) {
    for (std::int64_t i = 0; whole_ && i < width; ++i) bias_[i] = a.bias ? a.bias[panel * width + i] : -0.0f;
  }

  void run() {
    const std::int64_t steps = (a_.in + Dot::pair - 1) / Dot::pair;
    const float* weights = a_.packed + panel_ * linear_panel<Dot>(a_.in);
    for (std::int64_t step = 0; step < steps; step += linear_steps) {
      const std::int64_t count = min_of(linear_steps, steps - step);
      writes_ = whole_ && step + count == steps;
      std::int64_t r = 0;
      for (; r + height <= rows_; r += height) rows<height>(r, step, count, weights + step * width);
      for (; r + 4 <= rows_; r += 4) rows<4>(r, step, count, weights + step * width);
      for (; r < rows_; ++r) rows<1>(r, step, count, weights + step * width);
    }
    if (!whole_) store_linear(a_, first_, rows_, panel_, sums_);
  }

 private:
  template <int R>
  __attribute__((noinline)) void rows(std::int64_t r, std::int64_t step, std::int64_t count, const float* weights) {
    F sums[R][vectors];
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[i][v] = Simd::zero();
    }
    const std::int64_t bytes = a_.x_stride * bytes_of(a_.dtype);
    const char* x = static_cast<const char*>(a_.x) + (first_ + r) * bytes + step * 4;
    multiply<Dot, R, 0, vectors, vectors>(sums, reinterpret_cast<const float*>(x), bytes / 4, 1, weights, count);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        float* to = sums_ + (r + i) * width + v * lanes;
        const F sum = step == 0 ? sums[i][v] : Simd::add(Simd::load(to), sums[i][v]);
        if (writes_) {
          write(r + i, v, sum);
        } else {
          Simd::store(to, sum);
        }
      }
    }
  }

  // As store_linear(), while the products of other rows go on: y is in no cache, and waiting for it took a tenth of the
  // time of MiniLM's products.
  inline __attribute__((always_inline)) void write(std::int64_t r, int v, F sum) const {
    const std::int64_t at = (first_ + r) * a_.y_stride + panel_ * width + v * lanes;
    sum = Simd::add(sum, Simd::load(bias_ + v * lanes));
    if (a_.y_dtype == DType::f32) {
      Simd::store(static_cast<float*>(a_.y) + at, sum);
    } else {
      Simd::store_bf16(static_cast<std::uint16_t*>(a_.y) + at, sum);
    }
  }

  const LinearOperands& a_;
  std::int64_t first_, rows_, panel_;
  bool whole_, writes_ = false;  // a panel of `width` outputs; its last step
  alignas(64) float bias_[width];
  alignas(64) float sums_[linear_rows * width];
};

// Weights [out,in] that lie row by row and are multiplied where they pass by: squares of vectors are transposed in
// registers and meet the rows of x there. The products are added up as LinearPanel does.
template <class Dot, class Form>
class LinearStream {
 public:
  LinearStream(const LinearOperands& a, std::int64_t rows)
      : a_(a), rows_(rows), words_((a.in + in_word - 1) / in_word), weight_(static_cast<const float*>(a.weight)) {}

  // Panels [begin, end).
  void run(std::int64_t begin, std::int64_t end) {
    end_ = min_of(end * width, a_.out);
    ahead_ = {begin * width, 0, 0};
    for (int i = 0; i < squares_ahead; ++i) advance();
    for (std::int64_t panel = begin; panel < end; ++panel) {
      for (std::int64_t word = 0; word < words_; word += part_words) add_part(panel * width, word);
      store_linear(a_, 0, rows_, panel, sums_);
    }
  }

 private:
  static constexpr int in_word = Dot::pair * Form::steps;
  static constexpr std::int64_t part_words = linear_steps / Form::steps;

  // Outputs [first + block, ...) and words [word, ...), as many as a vector has lanes, in the order in which they are
  // multiplied: side by side, so that there are as many chains of sums.
  struct Square {
    std::int64_t first, word, block;
  };

  // linear_steps, or what is left of them, of the panel whose first output is `first`.
  void add_part(std::int64_t first, std::int64_t begin) {
    const std::int64_t end = min_of(begin + part_words, words_), floats = rows_ * width;
    for (std::int64_t i = 0; i < floats; ++i) part_[i] = 0;
    for (std::int64_t word = begin; word < end; word += lanes) {
      for (std::int64_t block = 0; block < width; block += lanes) {
        ask_ahead();
        add_square({first, word, block}, min_of<std::int64_t>(lanes, end - word));
      }
    }
    for (std::int64_t i = 0; i < floats; i += lanes) {
      const F part = Simd::load(part_ + i);
      Simd::store(sums_ + i, begin == 0 ? part : Simd::add(Simd::load(sums_ + i), part));
    }
  }

  void add_square(const Square& at, std::int64_t count) {
    F w[lanes];
    const std::int64_t out = at.first + at.block;
    load_square(w, weight_ + out * words_ + at.word, words_, end_ - out, count);
    std::int64_t r = 0;
    for (; r + 4 <= rows_; r += 4) add_rows<4>(w, at, r, count);
    for (; r < rows_; ++r) add_rows<1>(w, at, r, count);
  }

  // R chains of sums side by side.
  template <int R>
  inline __attribute__((always_inline)) void add_rows(const F (&w)[lanes], const Square& at, std::int64_t r,
                                                      std::int64_t count) {
    const std::int64_t bytes = a_.x_stride * bytes_of(a_.dtype);
    const char* x = static_cast<const char*>(a_.x) + r * bytes + at.word * in_word * bytes_of(a_.dtype);
    float* place = part_ + r * width + at.block;
    F sums[R];
#pragma GCC unroll 8
    for (int n = 0; n < R; ++n) sums[n] = Simd::load(place + n * width);
    for_each_step<Form>(w, count, [&](int step, F weights) {
#pragma GCC unroll 8
      for (int n = 0; n < R; ++n) {
        float scalar;
        __builtin_memcpy(&scalar, x + n * bytes + step * 4, sizeof scalar);  // x may be misaligned
        sums[n] = Dot::fma(Simd::set1(scalar), weights, sums[n]);
      }
    });
#pragma GCC unroll 8
    for (int n = 0; n < R; ++n) Simd::store(place + n * width, sums[n]);
  }

  // Rows lie apart, and each gives but a line of the cache: the processor's own prefetch does not follow. It drops what
  // it is asked for while too much is under way, so that each line is asked for twice: 5 to 15 % in f32.
  void ask_ahead() {
    const float* from = weight_ + (ahead_.first + ahead_.block) * words_ + ahead_.word;
    const std::int64_t rows = min_of<std::int64_t>(lanes, end_ - ahead_.first - ahead_.block);
    for (std::int64_t i = 0; i < rows; ++i) {
      __builtin_prefetch(from + i * words_, 0, 2);
      __builtin_prefetch(from + i * words_ - 3 * lanes, 0, 2);
    }
    advance();
  }

  void advance() {
    ahead_.block += lanes;
    if (ahead_.block < width) return;
    ahead_.block = 0, ahead_.word += lanes;
    if (ahead_.word < words_) return;
    ahead_.word = 0, ahead_.first += width;
  }

  static constexpr int squares_ahead = 24;

  const LinearOperands& a_;
  std::int64_t rows_, words_, end_ = 0;
  const float* weight_;
  Square ahead_{};
  alignas(64) float part_[linear_stream_rows * width];
  alignas(64) float sums_[linear_stream_rows * width];
};

}  // namespace
}  // namespace attend::inline v1::kernels
