#include <climits>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "tests/layers/golden.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using test::backward_golden;
using test::expect_close;
using test::expect_error;
using test::expect_same;
using test::filled;

// a [rows,inner], b [inner,columns] of any strides -> a b, in double.
Tensor product(const View& a, const View& b) {
  Tensor out({a.size(0), b.size(1)}, DType::f64);
  for (std::int64_t r = 0; r < a.size(0); ++r) {
    for (std::int64_t c = 0; c < b.size(1); ++c) {
      double sum = 0;
      for (std::int64_t i = 0; i < a.size(1); ++i) sum += a.item({r, i}) * b.item({i, c});
      out.data<double>()[r * b.size(1) + c] = sum;
    }
  }
  return out;
}

TEST(LinearBackward, EqualsTorch) {
  for (const std::string name : {"linear", "linear_no_bias", "linear_one"}) {
    const std::optional<View> bias = test::golden_if_any(name + ".bias");
    const Linear layer(test::golden(name + ".weight"), bias);
    const LinearGradients out = layer.backward(backward_golden().at(name + ".doutput"), test::golden(name + ".x"));
    // Sums of at most 37 products in f32, against f64 rounded to f32.
    expect_close(out.dx, backward_golden().at(name + ".dx"), 5e-7, name);
    expect_close(out.dweight, backward_golden().at(name + ".dweight"), 5e-7, name);
    ASSERT_EQ(out.dbias.has_value(), bias.has_value());
    if (bias) expect_close(*out.dbias, backward_golden().at(name + ".dbias"), 0x1p-23, name);
  }
}

// Whole numbers from -8 to 8, whose products and sums are exact in f32, and who are exact in bf16.
Tensor whole(const Dims& shape, std::int64_t step) {
  Tensor out(shape);
  for (std::int64_t i = 0; i < out.count(); ++i) out.data<float>()[i] = static_cast<float>(i * step % 17 - 8);
  return out;
}

// Every size around the kernel's rows, lanes and blocks, and beyond one block of the sum over rows: exact.
TEST(LinearBackward, EverySize) {
  for (const std::int64_t rows : {1, 2, 63, 130}) {
    for (const std::int64_t in : {1, 16, 47, 49}) {
      for (const std::int64_t out : {1, 8, 17, 65}) {
        const Tensor x = whole({rows, in}, 3), dy = whole({rows, out}, 5), weight = whole({out, in}, 7);
        const Tensor dx = product(dy, weight).view().to(DType::f32);
        const Tensor dweight = product(dy.view().transpose(0, 1), x).view().to(DType::f32);
        const Tensor ones = Tensor::from({1, 1}, {1});
        const Tensor dbias = product(ones.view().broadcast_to({1, rows}), dy).view().to(DType::f32);
        for (const DType dtype : {DType::f32, DType::bf16}) {
          const LinearGradients gradients = Linear(weight, Tensor({out})).to(dtype).backward(dy, x);
          const std::string sizes = Dims{rows, in, out}.str();
          expect_same(gradients.dx, dx.view().to(dtype), sizes);
          expect_same(gradients.dweight, dweight, sizes);
          expect_same(gradients.dbias->view().reshape({1, out}), dbias, sizes);
        }
      }
    }
  }
}

// More rows and outputs than one packed panel serves, the last part of them ragged.
TEST(LinearBackward, ManyRowsAndOutputs) {
  const Tensor x = whole({1101, 3}, 3), dy = whole({1101, 530}, 5), weight = whole({530, 3}, 7);
  const LinearGradients gradients = Linear(weight).backward(dy, x);
  expect_same(gradients.dx, product(dy, weight).view().to(DType::f32));
  expect_same(gradients.dweight, product(dy.view().transpose(0, 1), x).view().to(DType::f32));
}

// The same rounded numbers in f32 give the same gradients, up to the rounding of dx: where in or out is odd too, and
// where the target has no bf16 products.
TEST(LinearBackward, BF16RoundsWeightsAndArgumentsAndDx) {
  for (const std::int64_t rows : {1, 2, 77}) {
    for (const std::int64_t out : {1, 6, 50, 51}) {
      const Tensor weight = filled({out, 37}, 0.37), x = filled({rows, 37}, 0.13), dy = filled({rows, out}, 0.29);
      const Tensor x16 = x.view().to(DType::bf16), dy16 = dy.view().to(DType::bf16);
      const Linear layer = Linear(weight, Tensor({out})).to(DType::bf16);
      const LinearGradients narrow = layer.backward(dy, x);
      const LinearGradients wide = Linear(layer.weight(), Tensor({out})).backward(dy16, x16);
      const std::string sizes = Dims{rows, out}.str();
      EXPECT_EQ(narrow.dx.dtype(), DType::bf16);
      EXPECT_EQ(narrow.dweight.dtype(), DType::f32);
      expect_close(narrow.dx, wide.dx, 0x1p-8, sizes);
      expect_close(narrow.dweight, wide.dweight, 5e-7, sizes);
      expect_same(*narrow.dbias, *wide.dbias, sizes);
      const LinearGradients again = layer.backward(dy16, x16);
      expect_same(again.dx, narrow.dx, sizes);
      expect_same(again.dweight, narrow.dweight, sizes);
    }
  }
}

TEST(LinearBackward, TakesAnyStridesAndFloatingDtypes) {
  const Linear layer(filled({5, 6}, 0.3), filled({5}, 0.7));
  const Tensor x = filled({6, 4, 3}, 0.11), dy = filled({4, 3, 5}, 0.17);
  const View permuted_x = x.view().permute({2, 1, 0}), permuted_dy = dy.view().permute({1, 0, 2});  // [3,4,.]
  const LinearGradients strided = layer.backward(permuted_dy, permuted_x);
  ASSERT_EQ(strided.dx.shape(), Dims({3, 4, 6}));
  for (const LinearGradients& other : {layer.backward(permuted_dy.clone(), permuted_x.clone()),
                                       layer.backward(permuted_dy.to(DType::f64), permuted_x.to(DType::f64))}) {
    expect_same(strided.dx, other.dx);
    expect_same(strided.dweight, other.dweight);
    expect_same(*strided.dbias, *other.dbias);
  }
  EXPECT_EQ(layer.backward(filled({5}, 1), filled({6}, 1)).dx.shape(), Dims({6}));
}

TEST(LinearBackward, TheSameBitsForAnyNumberOfThreads) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Linear layer = Linear(filled({150, 170}, 0.3), filled({150}, 0.7)).to(dtype);
    const Tensor x = filled({260, 170}, 0.11), dy = filled({260, 150}, 0.17);
    const auto with = [&](int threads) {
      const test::ThreadsAtMost limit(threads);
      return layer.backward(dy, x);
    };
    const LinearGradients one = with(1), many = with(INT_MAX);
    expect_same(one.dx, many.dx);
    expect_same(one.dweight, many.dweight);
    expect_same(*one.dbias, *many.dbias);
  }
}

TEST(LinearBackward, NoRows) {
  const LinearGradients out = Linear(filled({4, 3}, 1), filled({4}, 1)).backward(Tensor({2, 0, 4}), Tensor({2, 0, 3}));
  EXPECT_EQ(out.dx.shape(), Dims({2, 0, 3}));
  expect_same(out.dweight, Tensor({4, 3}));
  expect_same(*out.dbias, Tensor({4}));
}

TEST(LinearBackward, Errors) {
  const Linear layer(filled({3, 64}, 1));
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        layer.backward(Tensor({2, 4, 3}), Tensor({2, 5, 64}));
      },
      "Linear: dy has shape [2,4,3], expected [2,5,3]");
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        layer.backward(Tensor({2, 3}), Tensor({2, 65}));
      },
      "Linear: x has 65 features (x [2,65]), the layer takes 64");
  expect_error(
      ErrorCode::bad_dtype,
      [&] {
        layer.backward(Tensor({2, 3}, DType::u8), Tensor({2, 64}));
      },
      "Linear: dy is u8, expected floating point");
}

TEST(EmbeddingBackward, EqualsTorch) {
  const Tensor& ids = backward_golden().at("embedding.ids");
  const std::span<const std::int64_t> span(ids.data<std::int64_t>(), static_cast<std::size_t>(ids.count()));
  const Embedding layer(Tensor({7, 3}).view());
  const View dy = backward_golden().at("embedding.doutput");
  expect_same(layer.backward(dy, span), backward_golden().at("embedding.dweight"));
  expect_same(layer.backward(dy.to(DType::f64), span), backward_golden().at("embedding.dweight"));
  expect_same(layer.backward(dy.clone().view().reshape({1, 7, 3}), span), backward_golden().at("embedding.dweight"));
}

// 2^24 in f32 swallows a 1 that comes after it.
TEST(EmbeddingBackward, ManyEqualIdsAddUp) {
  Tensor dy({1001, 2});
  for (std::int64_t i = 0; i < dy.count(); ++i) dy.data<float>()[i] = i < 2 ? 0x1p24f : 1.0f;
  const std::vector<std::int64_t> ids(1001, 1);
  expect_same(Embedding(Tensor({3, 2}).view()).backward(dy, ids),
              Tensor::from({3, 2}, {0, 0, 16778216, 16778216, 0, 0}));
}

TEST(EmbeddingBackward, TheSameBitsForAnyNumberOfThreads) {
  const Embedding layer(Tensor({300, 500}).view());
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 700; ++i) ids.push_back(i * i % 300);
  const Tensor dy = filled({700, 500}, 0.7);
  const auto with = [&](int threads) {
    const test::ThreadsAtMost limit(threads);
    return layer.backward(dy, ids);
  };
  expect_same(with(1), with(INT_MAX));
}

TEST(EmbeddingBackward, NoIdsAndErrors) {
  const Embedding layer(filled({5, 3}, 0.4));
  expect_same(layer.backward(Tensor({0, 3}), {}), Tensor({5, 3}));
  const std::vector<std::int64_t> ids = {0, 5};
  expect_error(
      ErrorCode::bad_value,
      [&] {
        layer.backward(Tensor({2, 3}), ids);
      },
      "Embedding: ids[1] is 5, expected 0 to 4");
  for (const Dims& shape : {Dims{3, 3}, Dims{2, 4}, Dims{6}}) {
    expect_error(
        ErrorCode::bad_shape, [&] { layer.backward(Tensor(shape), ids); },
        "Embedding: dy has shape " + shape.str() + ", expected [2,3]");
  }
  expect_error(
      ErrorCode::bad_dtype,
      [&] {
        layer.backward(Tensor({2, 3}, DType::i64), ids);
      },
      "Embedding: dy is i64");
}

// input_gradient() is backward()'s dx, not rounded; of weights that lie otherwise the same numbers.
TEST(LinearBackward, InputGradientAlone) {
  for (const std::int64_t rows : {1, 9, 70}) {
    const Tensor weight = whole({65, 130}, 7), dy = whole({rows, 65}, 5), x = whole({rows, 130}, 3);
    const Tensor expected = product(dy, weight).view().to(DType::f32);
    expect_same(Linear(weight).input_gradient(dy), expected);
    expect_same(Linear::borrow(weight).input_gradient(dy), expected);
    const Tensor turned = weight.view().transpose(0, 1).clone();
    expect_same(Linear::borrow(turned.view().transpose(0, 1)).input_gradient(dy), expected);
    // Sums beyond 2^8 are no numbers of bf16, and stay.
    expect_same(Linear(weight).to(DType::bf16).input_gradient(dy), expected);
    const Tensor narrow = weight.view().to(DType::bf16);
    expect_same(Linear::borrow(narrow).input_gradient(dy), expected);
    expect_same(Linear(weight).to(DType::bf16).backward(dy, x).dx, expected.view().to(DType::bf16));
  }
  EXPECT_EQ(Linear(whole({3, 4}, 1)).input_gradient(Tensor({0, 3})).shape(), (Dims{0, 4}));
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        Linear(whole({3, 4}, 1)).input_gradient(Tensor({2, 4}));
      },
      "dy has shape [2,4], expected [2,3]");
}

// Of a quantized weight strip by strip, the last one narrower: the bits of its numbers in f32.
TEST(LinearBackward, InputGradientOfBlocks) {
  for (const auto& [type, rows, columns] :
       {std::tuple(QuantizedType::q4_k, 8200, 512), std::tuple(QuantizedType::q8_0, 20000, 224),
        std::tuple(QuantizedType::q5_0, 6, 96), std::tuple(QuantizedType::q4_k, 300, 768),
        std::tuple(QuantizedType::q8_0, 700, 224)}) {
    QuantizedView blocks{nullptr, type, rows, columns};
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(rows * blocks.row_bytes()));
    const Tensor random = Generator(9).uniform({std::ssize(bytes)}, 0, 48);  // f16 scales without infinity
    for (std::size_t n = 0; n < bytes.size(); ++n) bytes[n] = static_cast<std::uint8_t>(random.data<float>()[n]);
    blocks.data = bytes.data();
    const Tensor numbers = dequantize(blocks);
    for (const std::int64_t count : {1, 3, 70}) {
      const Tensor dy = Generator(8).normal({count, rows}, 0, 1);
      expect_same(Linear::borrow(blocks).input_gradient(dy), Linear(numbers).input_gradient(dy), std::to_string(rows));
    }
  }
}

}  // namespace
}  // namespace attend
