// Every target's kernels for quantized weights: the numbers are those of the package `gguf`, to the bit
// (tests/golden/make_blocks_golden.py), and products are those of these numbers.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "attend/io.h"

#include "tests/expect.h"
#include "tests/kernels/every_target.h"

namespace attend {
namespace {

using namespace test;

constexpr std::array types{QuantizedType::q4_0, QuantizedType::q4_1,   QuantizedType::q5_0, QuantizedType::q5_1,
                           QuantizedType::q8_0, QuantizedType::q2_k,   QuantizedType::q3_k, QuantizedType::q4_k,
                           QuantizedType::q5_k, QuantizedType::iq4_nl, QuantizedType::q6_k, QuantizedType::iq4_xs};
constexpr std::int64_t columns = 512;
constexpr std::array settings{Activations::exact, Activations::fast, Activations::int8};

const Tensor& golden(QuantizedType type, const char* what) {
  static const TensorMap all = read_safetensors(data("golden/blocks.safetensors")).tensors;
  return all.at(std::string(name_of(type)) + what);
}

// The golden rows over and over, in memory of just their bytes; and their numbers.
struct Matrix {
  Matrix(QuantizedType type, std::int64_t rows, std::int64_t interleaved_head = 0) : numbers({rows, columns}) {
    const Tensor &blocks = golden(type, ".blocks"), &values = golden(type, ".numbers");
    const auto bytes = static_cast<std::size_t>(blocks.size(1));
    memory.resize(bytes * static_cast<std::size_t>(rows));
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t source = row * row % 5;
      std::memcpy(memory.data() + in_file(row, interleaved_head) * blocks.size(1),
                  static_cast<const std::byte*>(blocks.raw()) + source * blocks.size(1), bytes);
      std::memcpy(numbers.data<float>() + row * columns, values.data<float>() + source * columns,
                  columns * sizeof(float));
    }
    const QuantizedView matrix{memory.data(), type, rows, columns, interleaved_head};
    of = {matrix, block_size(type), block_bytes(type), matrix.row_bytes()};
  }
  static std::int64_t in_file(std::int64_t row, std::int64_t head) {
    if (head == 0) return row;
    const std::int64_t half = head / 2, inside = row % head;
    return row - inside + (inside < half ? 2 * inside : 2 * (inside - half) + 1);
  }

  std::vector<std::byte> memory;
  Tensor numbers;
  kernels::BlockMatrix of;
};

class BlockKernels : public EveryTarget {};

INSTANTIATE_TEST_SUITE_P(Every, BlockKernels, every_target(), name_of_target);

TEST_P(BlockKernels, NumbersAreThoseOfGguf) {
  for (const QuantizedType type : types) {
    for (const std::int64_t head : {0, 2, 8, 38}) {
      const Matrix matrix(type, 38 * 2 + (head == 0 ? 1 : 0), head == 8 ? 4 : head);
      for (const auto& [first, last] : {std::pair{0, 76}, {3, 4}, {10, 29}, {60, 76}}) {
        Guarded out((last - first) * (columns + 3) - 3, DType::f32);
        target().linear.widen(matrix.of, first, last, out.as<float>(), columns + 3);
        for (std::int64_t row = first; row < last; ++row) {
          EXPECT_EQ(0,
                    std::memcmp(out.begin() + (row - first) * (columns + 3) * 4,
                                static_cast<const std::byte*>(matrix.numbers.raw()) + row * columns * 4, columns * 4))
              << name_of(type) << " row " << row << " head " << head;
        }
        EXPECT_TRUE(out.intact());
      }
    }
  }
}

// x as products with blocks take it.
Tensor prepared(const kernels::BlockKernels& blocks, const Tensor& x) {
  if (!blocks.prepare) return x.clone();
  Tensor out({x.count() / 32, blocks.prepared_bytes}, DType::i8);
  blocks.prepare(x.data<float>(), x.count(), out.raw());
  return out;
}

// All products of x [rows,columns], which is prepared, and blocks: where they lie, for up to linear_stream_rows.
Tensor streamed(const kernels::Target& target, const kernels::BlockKernels& blocks, kernels::LinearOperands a,
                const Matrix& matrix, const Tensor& x, std::int64_t rows) {
  Guarded y(rows * (a.out + 3) - 3, DType::f32);
  a.x = x.raw(), a.y = y.begin(), a.y_stride = a.out + 3;
  blocks.stream(a, matrix.of, rows, 0, 1);
  blocks.stream(a, matrix.of, rows, 1, (a.out + target.panel_rows - 1) / target.panel_rows);
  EXPECT_TRUE(y.intact());
  Tensor out({rows, a.out});
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(out.data<float>() + row * a.out, y.as<float>() + row * (a.out + 3), std::size_t(a.out) * sizeof(float));
  return out;
}

kernels::LinearOperands operands(std::int64_t out, const float* bias) {
  return {.bias = bias, .in = columns, .out = out, .x_stride = columns, .y_stride = out};
}

void expect_same_bits(const Tensor& a, const float* b, const std::string& what) {
  EXPECT_EQ(0, std::memcmp(a.raw(), b, static_cast<std::size_t>(a.count()) * sizeof(float))) << what;
}

// Rows of x: one whose numbers are far apart, one of zeros, tiny and huge ones.
Tensor rows_of_every_size() {
  Tensor x = Generator(3).normal({kernels::linear_stream_rows, columns}, 0, 1);
  auto* row = x.data<float>();
  for (std::int64_t i = 0; i < columns; ++i) {
    row[columns + i] *= i % 7 == 0 ? 1000.0f : 0.01f;
    row[2 * columns + i] = 0;
    row[3 * columns + i] *= 0x1p-80f;
    row[4 * columns + i] *= 0x1p80f;
  }
  return x;
}

TEST_P(BlockKernels, AnyRowsAndAnyRoadGiveTheSameBits) {
  const std::int64_t w = target().panel_rows, out = 2 * w + target().lanes + 1;
  const Tensor bias = Generator(4).normal({out}, 0, 1);
  for (const QuantizedType type : types) {
    const Matrix matrix(type, out);
    const kernels::LinearOperands a = operands(out, bias.data<float>());
    for (const Activations activations : settings) {
      const kernels::BlockKernels blocks = target().linear.blocks(type, activations);
      const Tensor x = prepared(blocks, rows_of_every_size());
      const std::string what = std::string(name_of(type)) + " " + std::string(name_of(activations));
      const Tensor all = streamed(target(), blocks, a, matrix, x, kernels::linear_stream_rows);
      for (std::int64_t rows = 1; rows < kernels::linear_stream_rows; ++rows) {
        const Tensor some = streamed(target(), blocks, a, matrix, x, rows);
        expect_same_bits(some, all.data<float>(), what + " rows " + std::to_string(rows));
      }
      Tensor y({kernels::linear_stream_rows, out});
      for (std::int64_t first = 0; first < out; first += w) {
        Guarded packed(target().linear.floats(DType::f32, w, columns), DType::f32);
        const std::int64_t last = std::min(first + w, out);
        blocks.pack(matrix.of, first, last, packed.as<float>());
        EXPECT_TRUE(packed.intact());
        kernels::LinearOperands part = a;
        part.x = x.raw(), part.packed = packed.as<float>(), part.out = last - first, part.bias += first;
        part.y = y.data<float>() + first, part.y_stride = out;
        blocks.run(part, 0, 3);
        blocks.run(part, 3, kernels::linear_stream_rows);
      }
      expect_same_bits(all, y.data<float>(), what + " packed");
    }
  }
}

// How far y is from the products in double: of each row, the largest error and the root of the mean of all squared
// ones. Errors are in units of what x's digits may be off, 2^-23 of the largest of 32 numbers, times all of the 32
// weights.
struct Errors {
  double largest = 0, rms = 0;
};
Errors errors(const float* y, std::int64_t out, const float* x, const Tensor& weights) {
  Errors all;
  for (std::int64_t o = 0; o < out; ++o) {
    const float* w = weights.data<float>() + o * columns;
    double exact = 0, unit = 1e-300;
    for (std::int64_t block = 0; block < columns; block += 32) {
      double largest_x = 0, largest_w = 0;
      for (std::int64_t i = block; i < block + 32; ++i) {
        exact += double{x[i]} * double{w[i]};
        largest_x = std::max(largest_x, double{std::fabs(x[i])}),
        largest_w = std::max(largest_w, double{std::fabs(w[i])});
      }
      unit += 32 * 0x1p-23 * largest_x * largest_w;
    }
    const double off = std::fabs(double{y[o]} - exact) / unit;
    all.largest = std::max(all.largest, off), all.rms += off * off / static_cast<double>(out);
  }
  all.rms = std::sqrt(all.rms);
  return all;
}

// Products of f32 by the target, to compare with.
Tensor products_of_f32(const kernels::Target& target, const Matrix& matrix, const Tensor& x, std::int64_t out) {
  Tensor y({x.size(0), out});
  kernels::LinearOperands a = operands(out, nullptr);
  a.x = x.raw(), a.weight = matrix.numbers.raw(), a.y = y.raw();
  target.linear.stream(a, x.size(0), 0, (out + target.panel_rows - 1) / target.panel_rows);
  return y;
}

// Products of f32 have the bits of the target's products with the numbers. Those of bytes are as near to the exact
// numbers: each product is off by half a unit at most, and 2 * 16 sums and what is added round by as much less.
TEST_P(BlockKernels, ProductsAreThoseOfTheirNumbers) {
  const std::int64_t out = 2 * target().panel_rows + target().lanes + 1, rows = kernels::linear_stream_rows;
  const Tensor x = rows_of_every_size();
  double rms = 0, rms_of_f32 = 0;
  for (const QuantizedType type : types) {
    const Matrix matrix(type, out);
    const kernels::BlockKernels blocks = target().linear.blocks(type, Activations::exact);
    const Tensor y = streamed(target(), blocks, operands(out, nullptr), matrix, prepared(blocks, x), rows);
    const Tensor expected = products_of_f32(target(), matrix, x, out);
    if (!blocks.prepare) {
      expect_same_bits(y, expected.data<float>(), std::string(name_of(type)));
      continue;
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      const Errors own = errors(y.data<float>() + row * out, out, x.data<float>() + row * columns, matrix.numbers);
      const Errors f32 =
          errors(expected.data<float>() + row * out, out, x.data<float>() + row * columns, matrix.numbers);
      EXPECT_LE(own.largest, 1) << name_of(type) << " row " << row << ", f32 " << f32.largest;
      rms += own.rms, rms_of_f32 += f32.rms;
    }
  }
  EXPECT_LE(rms, 1.25 * rms_of_f32);
}

// A row of x, each 32 of them rounded to whole numbers from -most to most times a scale.
Tensor rounded(const Tensor& x, float most) {
  Tensor out = x.clone();
  for (std::int64_t block = 0; block < x.count(); block += 32) {
    float largest = 0, *const at = out.data<float>() + block;
    for (std::int64_t i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(at[i]));
    for (std::int64_t i = 0; largest > 0 && i < 32; ++i)
      at[i] = std::nearbyint(at[i] * (most / largest)) * (largest / most);
  }
  return out;
}

// With 8 bits, products are those of x rounded to these, as exact as of x itself; with 16 bits likewise, where they are
// not computed exactly, as some types are on some targets.
TEST_P(BlockKernels, RoundedRowsAreRoundedAsTheyShould) {
  const std::int64_t out = target().panel_rows + target().lanes + 1, rows = kernels::linear_stream_rows;
  const Tensor x = rows_of_every_size();
  for (const QuantizedType type : types) {
    const Matrix matrix(type, out);
    for (const Activations activations : {Activations::fast, Activations::int8}) {
      const kernels::BlockKernels blocks = target().linear.blocks(type, activations);
      ASSERT_TRUE(blocks.prepare || activations == Activations::fast);
      const Tensor near = !blocks.prepare ? x.clone() : rounded(x, activations == Activations::int8 ? 127 : 127 * 257);
      const Tensor y = streamed(target(), blocks, operands(out, nullptr), matrix, prepared(blocks, x), rows);
      for (std::int64_t row = 0; row < rows; ++row) {
        const Errors own = errors(y.data<float>() + row * out, out, near.data<float>() + row * columns, matrix.numbers);
        EXPECT_LE(own.largest, 1) << name_of(type) << " " << name_of(activations) << " row " << row;
      }
    }
  }
}

// Whether y is as near to the exact products as its digits are (`unit` of the largest), and f32 reaches: its steps near
// 0 are 2^-149. How many of them are within f32 on the way.
int expect_near(const float* y, std::int64_t out, const float* x, const Matrix& matrix, const std::string& what,
                double unit = 0x1p-23) {
  int held = 0;
  for (std::int64_t o = 0; o < out; ++o) {
    const float* w = matrix.numbers.data<float>() + o * columns;
    double exact = 0, size = 0, error = columns * 0x1p-149;
    for (std::int64_t block = 0; block < columns; block += 32) {
      double largest_x = 0, largest_w = 0;
      for (std::int64_t i = block; i < block + 32; ++i) {
        exact += double{x[i]} * double{w[i]}, size += std::fabs(double{x[i]} * double{w[i]});
        largest_x = std::max(largest_x, double{std::fabs(x[i])});
        largest_w = std::max(largest_w, double{std::fabs(w[i])});
      }
      error += 32 * unit * largest_x * largest_w;
    }
    if (size > 1e38) continue;
    ++held;
    EXPECT_LE(std::fabs(double{y[o]} - exact), error) << what << " output " << o;
  }
  return held;
}

// Rows of numbers of about 2^exponent: alone, as one of the chunks of a row whose others are about 1, and beside
// numbers at the other end.
Tensor rows_of_size(int exponent) {
  Tensor x = Generator(6).uniform({3, columns}, -1, 1);
  auto* row = x.data<float>();
  for (std::int64_t i = 0; i < columns; ++i) {
    row[i] = std::ldexp(row[i], exponent);
    if (i / 32 % 3 == 1) row[columns + i] = std::ldexp(row[columns + i], exponent);
    row[2 * columns + i] = std::ldexp(row[2 * columns + i], i / 32 % 2 == 0 ? exponent : std::min(-exponent, 126));
  }
  return x;
}

TEST_P(BlockKernels, NumbersOfEveryMagnitude) {
  const std::int64_t out = target().lanes + 1;
  for (const QuantizedType type : types) {
    Matrix matrix(type, out);
    const kernels::BlockKernels blocks = target().linear.blocks(type, Activations::exact);
    int held = 0;
    for (int exponent = -149; exponent <= 128; exponent += exponent > -84 && exponent < 112 ? 7 : 1) {
      const Tensor x = rows_of_size(exponent);
      const Tensor y = streamed(target(), blocks, operands(out, nullptr), matrix, prepared(blocks, x), 3);
      for (std::int64_t row = 0; row < 3; ++row) {
        const std::string what =
            std::string(name_of(type)) + " 2^" + std::to_string(exponent) + " row " + std::to_string(row);
        held += expect_near(y.data<float>() + row * out, out, x.data<float>() + row * columns, matrix, what);
      }
    }
    EXPECT_GT(held, 200 * out) << name_of(type);
  }
}

// Rounded rows too hold numbers of every magnitude: a 100th of the largest products, where exact ones hold 2^-23.
TEST_P(BlockKernels, RoundedNumbersOfEveryMagnitude) {
  const std::int64_t out = target().lanes + 1;
  for (const QuantizedType type : {QuantizedType::q8_0, QuantizedType::q4_k, QuantizedType::q6_k}) {
    Matrix matrix(type, out);
    for (const Activations activations : {Activations::fast, Activations::int8}) {
      const kernels::BlockKernels blocks = target().linear.blocks(type, activations);
      int held = 0;
      for (int exponent = -149; exponent <= 128; exponent += exponent > -84 && exponent < 92 ? 7 : 1) {
        const Tensor x = rows_of_size(exponent);
        const Tensor y = streamed(target(), blocks, operands(out, nullptr), matrix, prepared(blocks, x), 3);
        for (std::int64_t row = 0; row < 3; ++row) {
          const std::string what = std::string(name_of(type)) + " " + std::string(name_of(activations)) + " 2^" +
                                   std::to_string(exponent) + " row " + std::to_string(row);
          held += expect_near(y.data<float>() + row * out, out, x.data<float>() + row * columns, matrix, what, 0.01);
        }
      }
      EXPECT_GT(held, 200 * out) << name_of(type);
    }
  }
}

// The smallest scale of a block, 2^-24, where it and that of x are small together.
TEST_P(BlockKernels, TinyWeightsOfEveryMagnitude) {
  const std::int64_t out = target().lanes + 1;
  Matrix matrix(QuantizedType::q8_0, out);
  for (std::size_t block = 0; block < matrix.memory.size(); block += 34) {
    matrix.memory[block] = std::byte{1}, matrix.memory[block + 1] = std::byte{0};
    for (std::size_t i = 0; i < 32; ++i) {
      const auto code = static_cast<std::int8_t>(matrix.memory[block + 2 + i]);
      matrix.numbers.data<float>()[block / 34 * 32 + i] = std::ldexp(static_cast<float>(code), -24);
    }
  }
  for (const Activations activations : settings) {
    const kernels::BlockKernels blocks = target().linear.blocks(QuantizedType::q8_0, activations);
    for (int exponent = -149; exponent <= 128; ++exponent) {
      const Tensor x = rows_of_size(exponent);
      const Tensor y = streamed(target(), blocks, operands(out, nullptr), matrix, prepared(blocks, x), 1);
      const std::string what = std::string(name_of(activations)) + " 2^" + std::to_string(exponent);
      const double unit = activations == Activations::exact ? 0x1p-23 : 0.01;
      EXPECT_GT(expect_near(y.data<float>(), out, x.data<float>(), matrix, what, unit), 0) << what;
    }
  }
}

// What is not finite spoils its own row, as products of f32 do, and no other.
TEST_P(BlockKernels, WhatIsNotFiniteStays) {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::int64_t out = target().panel_rows;
  Tensor x = Generator(5).normal({7, columns}, 0, 1);
  const auto put = [&](std::int64_t row, std::int64_t column, float value) {
    x.data<float>()[row * columns + column] = value;
  };
  put(1, 40, infinity);
  put(2, 300, nan);
  put(3, 40, -infinity), put(3, 200, -infinity);
  put(4, 64, infinity), put(4, 90, infinity);
  put(5, 64, infinity), put(5, 90, -infinity);
  put(6, 64, infinity), put(6, 90, nan);
  for (const QuantizedType type : types) {
    const Matrix matrix(type, out);
    const Tensor expected = products_of_f32(target(), matrix, x, out);
    for (const Activations activations : settings) {
      const kernels::BlockKernels blocks = target().linear.blocks(type, activations);
      const Tensor y = streamed(target(), blocks, operands(out, nullptr), matrix, prepared(blocks, x), 7);
      for (std::int64_t i = 0; i < 7 * out; ++i) {
        const float own = y.data<float>()[i], theirs = expected.data<float>()[i];
        const std::string what = std::string(name_of(type)) + " row " + std::to_string(i / out);
        EXPECT_EQ(std::isfinite(own), i < out) << what;
        EXPECT_TRUE(i < out || own == theirs || (std::isnan(own) && std::isnan(theirs)))
            << what << own << " " << theirs;
      }
    }
  }
}

}  // namespace
}  // namespace attend
