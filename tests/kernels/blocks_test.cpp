// Every target's kernels for quantized weights: the numbers are those of the package `gguf`, to the bit
// (tests/golden/make_blocks_golden.py), and products are those of these numbers in f32, to the bit.
#include <array>
#include <cstring>

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
    of = {{memory.data(), type, rows, columns, interleaved_head}, block_size(type), block_bytes(type)};
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

TEST_P(BlockKernels, PanelsAreThoseOfTheirNumbers) {
  const std::int64_t w = target().panel_rows;
  for (const QuantizedType type : types) {
    const std::int64_t rows = w + 3;
    const Matrix matrix(type, rows);
    for (const std::int64_t first : {std::int64_t{0}, w}) {
      const std::int64_t last = std::min(first + w, rows);
      Tensor expected({target().linear.floats(DType::f32, w, columns)});
      target().linear.pack_rows(DType::f32, matrix.numbers.raw(), columns, first, last, expected.data<float>());
      Guarded packed(expected.count(), DType::f32);
      target().linear.pack_blocks(matrix.of, first, last, packed.as<float>());
      for (std::int64_t column = 0; column < columns; ++column) {
        EXPECT_EQ(0, std::memcmp(packed.begin() + column * w * 4, expected.data<float>() + column * w,
                                 static_cast<std::size_t>(last - first) * sizeof(float)))
            << name_of(type) << " column " << column;
      }
      EXPECT_TRUE(packed.intact());
    }
  }
}

TEST_P(BlockKernels, ProductsAreThoseOfTheirNumbers) {
  const std::int64_t out = 2 * target().panel_rows + target().lanes + 1, panels = 3;
  const Tensor x = Generator(3).normal({kernels::linear_stream_rows, columns + 5}, 0, 1);
  const Tensor bias = Generator(4).normal({out}, 0, 1);
  for (const QuantizedType type : types) {
    const Matrix matrix(type, out);
    for (std::int64_t rows = 1; rows <= kernels::linear_stream_rows; ++rows) {
      Guarded y(rows * (out + 3) - 3, DType::f32), expected(rows * (out + 3) - 3, DType::f32);
      kernels::LinearOperands a{.x = x.raw(),
                                .weight = matrix.numbers.raw(),
                                .bias = rows % 2 == 0 ? bias.data<float>() : nullptr,
                                .y = expected.begin(),
                                .in = columns,
                                .out = out,
                                .x_stride = columns + 5,
                                .y_stride = out + 3};
      target().linear.stream(a, rows, 0, panels);
      a.y = y.begin(), a.weight = nullptr;
      target().linear.stream_blocks(a, matrix.of, rows, 0, 1);
      target().linear.stream_blocks(a, matrix.of, rows, 1, panels);
      EXPECT_EQ(
          0, std::memcmp(y.begin(), expected.begin(), static_cast<std::size_t>(rows * (out + 3) - 3) * sizeof(float)))
          << name_of(type) << " rows " << rows;
      EXPECT_TRUE(y.intact());
    }
  }
}

}  // namespace
}  // namespace attend
