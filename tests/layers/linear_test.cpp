#include <cmath>
#include <limits>
#include <vector>

#include "tests/layers/golden.h"

namespace attend {
namespace {

using test::expect_close;
using test::expect_error;
using test::expect_same;
using test::filled;

Linear golden_linear(const std::string& name) {
  const TensorMap& all = test::layers_golden();
  const auto bias = all.find(name + ".bias");
  return Linear(test::golden(name + ".weight"),
                bias == all.end() ? std::nullopt : std::optional<View>(bias->second.view()));
}

// Row-major and transposed, of sizes around the kernels' panels and rows.
TEST(Linear, BorrowedHasTheBitsOfItsOwn) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t in : {1, 2, 7, 16, 37, 130, 300}) {
      for (const std::int64_t out : {1, 15, 48, 49, 200}) {
        const std::string what = Dims{in, out}.str() + std::string(name_of(dtype));
        const Tensor weight = Generator(1).normal({out, in}, 0, 1).view().to(dtype);
        const Tensor columns = weight.view().transpose(0, 1).clone(), bias = Generator(2).normal({out}, 0, 1);
        const Linear own = Linear(weight, bias).to(dtype), rows = Linear::borrow(weight, bias),
                     turned = Linear::borrow(columns.view().transpose(0, 1), bias);
        EXPECT_EQ(rows.weight().raw(), weight.raw());
        for (const std::int64_t count : {0, 1, 5, 64, 600}) {
          const Tensor x = Generator(3).normal({count, in}, 0, 1);
          const Tensor y = own.forward(x), wide = own.forward(x, DType::f32);
          for (const Linear* each : {&rows, &turned}) {
            expect_same(each->forward(x), y, what);
            expect_same(each->forward(x, DType::f32), wide, what);
          }
          if (dtype == DType::bf16) expect_same(wide.view().to(DType::bf16), y, what);
        }
        const Tensor x = Generator(4).normal({9, in}, 0, 1), dy = Generator(5).normal({9, out}, 0, 1);
        const LinearGradients expected = own.backward(dy, x), actual = turned.backward(dy, x);
        expect_same(actual.dx, expected.dx, what), expect_same(actual.dweight, expected.dweight, what);
        expect_same(turned.to(DType::f32).forward(x), Linear(weight, bias).forward(x), what);
      }
    }
  }
  const Tensor weight({6, 4});
  expect_error(
      ErrorCode::bad_shape, [&] { Linear::borrow(weight.view().slice(0, 0, 6, 2)); }, "in one piece");
  expect_error(
      ErrorCode::bad_dtype, [&] { Linear::borrow(weight.view().to(DType::f16)); }, "expected f32 or bf16");
  expect_error(
      ErrorCode::bad_dtype, [&] { Linear(weight).forward(Tensor({4}), DType::bf16); }, "y_dtype is bf16");
}

// Layers that keep, borrow and borrow columns, of sizes that are cut into one item and into many, side by side.
TEST(Linear, EachOfSeveralHasItsOwnBits) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor small = Generator(1).normal({5, 300}, 0, 1).view().to(dtype);
    const Tensor large = Generator(2).normal({2'000, 300}, 0, 1).view().to(dtype),
                 bias = Generator(3).normal({2'000}, 0, 1);
    const Tensor columns = large.view().transpose(0, 1).clone();
    const Linear kept = Linear(large).to(dtype), rows = Linear::borrow(small), more_rows = Linear::borrow(large, bias),
                 turned = Linear::borrow(columns.view().transpose(0, 1));
    const std::vector<const Linear*> layers{&kept, &rows, &more_rows, &turned};
    for (const std::int64_t count : {0, 1, 8, 9, 65}) {
      const Tensor x = Generator(4).normal({count, 300}, 0, 1);
      const std::vector<Tensor> each = Linear::forward_each(layers, x);
      ASSERT_EQ(each.size(), layers.size());
      for (std::size_t n = 0; n < layers.size(); ++n) {
        expect_same(each[n], layers[n]->forward(x), std::string(name_of(dtype)) + " layer " + std::to_string(n));
        expect_same(each[n], Linear(layers[n]->weight(), layers[n]->bias()).to(dtype).forward(x), "of its own");
      }
    }
  }
  EXPECT_TRUE(Linear::forward_each({}, Tensor({2, 3})).empty());
  const Linear three(Tensor({4, 3})), four(Tensor({4, 4})), narrow = three.to(DType::bf16);
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        Linear::forward_each({&three, &four}, Tensor({2, 3}));
      },
      "the layer takes 4");
  expect_error(
      ErrorCode::bad_dtype,
      [&] {
        Linear::forward_each({&three, &narrow}, Tensor({2, 3}));
      },
      "layers are f32 and bf16");
}

TEST(Linear, EqualsTorch) {
  for (const std::string name : {"linear", "linear_no_bias", "linear_one"}) {
    const Tensor y = golden_linear(name).forward(test::golden(name + ".x"));
    EXPECT_EQ(y.dtype(), DType::f32);
    expect_close(y, test::golden(name + ".output"), 5e-7, name);
    // Sums in f32, as torch's.
    expect_close(y, test::golden(name + ".output_f64"), 5e-7, name);
  }
}

TEST(Linear, DrawsAsTorch) {
  for (const auto& [text, seed] : test::seeds()) {
    Generator generator(seed);
    const Linear layer(16, 24, generator);
    expect_same(layer.weight(), test::drawn("linear", text, "weight"), text);
    expect_same(*layer.bias(), test::drawn("linear", text, "bias"), text);
    expect_same(generator.rand({2}), test::drawn("linear", text, "next"), text);

    generator.seed(seed);
    const Linear bare(3, 2, generator, {.bias = false});
    EXPECT_FALSE(bare.bias());
    expect_same(bare.weight(), test::drawn("linear_no_bias", text, "weight"), text);
    expect_same(generator.rand({2}), test::drawn("linear_no_bias", text, "next"), text);
  }
}

TEST(Linear, TakesAnyStridesAndFloatingDtypes) {
  const Linear layer(filled({5, 6}, 0.3), filled({5}, 0.7));
  const Tensor x = filled({6, 4, 3}, 0.11);
  const View permuted = x.view().permute({2, 1, 0});  // [3,4,6]
  const Tensor y = layer.forward(permuted);
  expect_same(y, layer.forward(permuted.clone()));
  expect_same(y, layer.forward(permuted.to(DType::f64)));
  for (const DType narrow : {DType::bf16, DType::f16}) {
    const Tensor rounded = permuted.to(narrow);
    expect_same(layer.forward(rounded), layer.forward(rounded.view().to(DType::f32)));
  }
  expect_same(layer.forward(filled({1, 6}, 0.2).view().broadcast_to({3, 6})).view().select(0, 2),
              layer.forward(filled({6}, 0.2)));
}

TEST(Linear, ParametersOfAnyWidthAndStrides) {
  const Tensor weight = filled({4, 3}, 0.9);
  const Tensor half = weight.view().to(DType::f16);
  expect_same(Linear(half.view().transpose(0, 1)).weight(), half.view().transpose(0, 1).to(DType::f32));
  EXPECT_EQ(Linear(weight).in_size(), 3);
  EXPECT_EQ(Linear(weight).out_size(), 4);
}

// Every size around the kernel's rows, lanes and blocks, against one plain loop; each row alone gives the same bits.
TEST(Linear, EverySizeAndEveryCutOfTheRowsGivesTheSameBits) {
  for (const std::int64_t in : {1, 3, 4, 5, 8, 37}) {
    for (const std::int64_t out : {1, 63, 64, 65, 130}) {
      const Tensor weight = filled({out, in}, 0.37);
      const Linear layer(weight);
      const Tensor x = filled({70, in}, 0.13);
      const Tensor y = layer.forward(x);
      Tensor expected({70, out}, DType::f64);
      for (std::int64_t r = 0; r < 70; ++r) {
        expect_same(layer.forward(x.view().select(0, r)), y.view().select(0, r));
        for (std::int64_t o = 0; o < out; ++o) {
          for (std::int64_t i = 0; i < in; ++i) {
            expected.data<double>()[r * out + o] += x.item({r, i}) * weight.item({o, i});
          }
        }
      }
      expect_close(y, expected, 5e-7);
    }
  }
}

TEST(Linear, BF16RoundsWeightsInputAndResult) {
  for (const std::int64_t in : {1, 2, 37, 300}) {
    const Tensor weight = filled({70, in}, 0.37), bias = filled({70}, 0.2), x = filled({21, in}, 0.13);
    const Linear wide(weight.view().to(DType::bf16), bias);
    const Linear layer = Linear(weight, bias).to(DType::bf16);
    const Tensor y = layer.forward(x);
    EXPECT_EQ(y.dtype(), DType::bf16);
    EXPECT_EQ(layer.dtype(), DType::bf16);
    // The same numbers in f32: what is left is the rounding of the result.
    expect_close(y, wide.forward(x.view().to(DType::bf16)), 0x1p-8);
    for (std::int64_t r = 0; r < 21; ++r) {
      expect_same(layer.forward(x.view().select(0, r)), y.view().select(0, r));
    }
  }
  expect_error(
      ErrorCode::bad_dtype,
      [] {
        (void)Linear(filled({4, 3}, 1)).to(DType::f16);
      },
      "dtype is f16, expected f32 or bf16");
}

TEST(Linear, NoRows) {
  EXPECT_EQ(Linear(filled({4, 3}, 1)).forward(Tensor({2, 0, 3})).shape(), Dims({2, 0, 4}));
}

TEST(Linear, Errors) {
  const Linear layer(filled({3, 64}, 1));
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        layer.forward(Tensor({2, 5, 80}));
      },
      "Linear: x has 80 features (x [2,5,80]), the layer takes 64");
  expect_error(
      ErrorCode::bad_shape, [&] { layer.forward(Tensor(Dims{})); }, "Linear: x has no axes");
  expect_error(
      ErrorCode::bad_dtype, [&] { layer.forward(Tensor({64}, DType::i64)); }, "Linear: x is i64");
  expect_error(
      ErrorCode::bad_shape, [] { Linear(Tensor({3}).view()); }, "weight has shape [3]", "[out,in]");
  expect_error(
      ErrorCode::bad_shape,
      [] {
        Linear(Tensor({3, 4}).view(), Tensor({4}).view());
      },
      "bias has shape [4], expected [3] (weight [3,4])");
  expect_error(
      ErrorCode::bad_dtype,
      [] {
        Linear(Tensor({3, 4}, DType::u8).view());
      },
      "weight is u8");
  Generator generator;
  expect_error(
      ErrorCode::bad_value, [&] { Linear(0, 4, generator); }, "in_size is 0");
}

TEST(Embedding, ReadsRows) {
  const Embedding layer(filled({5, 3}, 0.4));
  const std::vector<std::int64_t> ids = {4, 0, 4, 2};
  const Tensor out = layer.forward(ids);
  ASSERT_EQ(out.shape(), Dims({4, 3}));
  for (std::int64_t i = 0; i < 4; ++i) {
    expect_same(out.view().select(0, i), layer.weight().view().select(0, ids[static_cast<std::size_t>(i)]));
  }
  EXPECT_EQ(layer.forward({}).shape(), Dims({0, 3}));
}

TEST(Embedding, DrawsAsTorch) {
  for (const auto& [text, seed] : test::seeds()) {
    Generator generator(seed);
    const Embedding layer(6, 5, generator);
    expect_close(layer.weight(), test::drawn("embedding", text, "weight"), 5e-7, text);
    expect_same(generator.rand({2}), test::drawn("embedding", text, "next"), text);
  }
}

TEST(Embedding, EqualsTheDocuments) {
  const struct {
    const char* file;
    std::uint64_t seed;
    std::int64_t count;
  } documents[] = {{"golden/document_000.npz", 123, 6},
                   {"golden/document_002.npz", 123, 6},
                   {"golden/document_003.npz", 0, 10},
                   {"golden/document_004.npz", 123, 6}};
  for (const auto& [file, seed, count] : documents) {
    const TensorMap document = read_npz(test::data(file));
    Generator generator(seed);
    const Embedding layer(count, 16, generator);
    const Tensor& ids = document.at("ids");
    expect_close(layer.forward({ids.data<std::int64_t>(), static_cast<std::size_t>(ids.count())}), document.at("x"),
                 5e-7, file);
  }
}

TEST(Embedding, Errors) {
  const Embedding layer(filled({5, 3}, 0.4));
  for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{5}, std::numeric_limits<std::int64_t>::max()}) {
    expect_error(
        ErrorCode::bad_value,
        [&] {
          layer.forward(std::vector<std::int64_t>{0, 1, id});
        },
        "Embedding: ids[2] is " + std::to_string(id), "0 to 4", "5 embeddings");
  }
  expect_error(
      ErrorCode::bad_shape, [] { Embedding(Tensor({3}).view()); }, "[3]", "[count,E]");
  expect_error(
      ErrorCode::bad_dtype,
      [] {
        Embedding(Tensor({3, 4}, DType::i64).view());
      },
      "i64");
}

}  // namespace
}  // namespace attend
