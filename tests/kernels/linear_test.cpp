// Every target's linear kernel by itself: sizes around its panels and rows, in packed memory of just the floats that it
// asks for, and nothing read or written outside.
#include <cmath>
#include <cstring>

#include "core/element.h"
#include "tests/kernels/every_target.h"

namespace attend {
namespace {

using namespace test;

// x W^T + b with everything in guarded memory, rows of x and y further apart than they are long.
class Trial {
 public:
  Trial(const kernels::Target& target, std::int64_t rows, std::int64_t in, std::int64_t out, DType dtype, DType y_dtype,
        bool with_bias, std::uint64_t seed)
      : target_(target),
        rows_(rows),
        in_(in),
        out_(out),
        weight_(Generator(seed).normal({out, in}, 0, 1)),
        bias_(Generator(seed + 1).normal({out}, 0, 1)),
        x_(rows * (in + 2) - 2, dtype),
        y_(rows * (out + 3) - 3, y_dtype),
        packed_(target.linear.floats(dtype, out, in), DType::f32),
        rows_of_weight_(out * in, dtype) {
    const Tensor values = Generator(seed + 2).normal({rows, in}, 0, 1);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < in; ++i) store_element(dtype, x_at(dtype, r, i), values.item({r, i}));
    a_ = {.dtype = dtype,
          .weight_dtype = dtype,
          .y_dtype = y_dtype,
          .x = x_.begin(),
          .packed = packed_.as<float>(),
          .weight = rows_of_weight_.begin(),
          .bias = with_bias ? bias_.data<float>() : nullptr,
          .y = y_.begin(),
          .in = in,
          .out = out,
          .x_stride = in + 2,
          .y_stride = out + 3};
    target_.linear.pack(dtype, weight_.data<float>(), out, in, packed_.as<float>());
    MutableView(rows_of_weight_.begin(), dtype, {out, in}).copy_from(weight_);
  }

  // In pieces of at most so many rows.
  void check(std::int64_t piece, const std::string& what) {
    const std::int64_t width = target_.panel_rows;
    for (std::int64_t panel = 0; panel * width < out_; ++panel)
      for (std::int64_t first = 0; first < rows_; first += piece) {
        target_.linear.run(a_, first, std::min(rows_, first + piece), panel);
      }
    for (const Guarded* each : {&x_, &y_, &packed_}) EXPECT_TRUE(each->intact()) << what;
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t o = 0; o < out_; ++o) compare(r, o, what);
  }

  // From weights that are not packed, so many panels at a time: the same bits.
  void check_stream(std::int64_t panels_at_once, const std::string& what) {
    const std::vector<double> packed = results();
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t o = 0; o < out_; ++o) store_element(a_.y_dtype, y_at(r, o), -1e4);
    const std::int64_t panels = (out_ + target_.panel_rows - 1) / target_.panel_rows;
    for (std::int64_t begin = 0; begin < panels; begin += panels_at_once) {
      target_.linear.stream(a_, rows_, begin, std::min(panels, begin + panels_at_once));
    }
    for (const Guarded* each : {&x_, &y_, &rows_of_weight_}) EXPECT_TRUE(each->intact()) << what;
    EXPECT_EQ(packed, results()) << what;
  }

 private:
  std::byte* x_at(DType dtype, std::int64_t r, std::int64_t i) {
    return x_.begin() + (r * (in_ + 2) + i) * size_of(dtype);
  }

  std::byte* y_at(std::int64_t r, std::int64_t o) { return y_.begin() + (r * (out_ + 3) + o) * size_of(a_.y_dtype); }

  std::vector<double> results() {
    std::vector<double> all;
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t o = 0; o < out_; ++o) all.push_back(load_element(a_.y_dtype, y_at(r, o)));
    return all;
  }

  void compare(std::int64_t r, std::int64_t o, const std::string& what) {
    const bool narrow = a_.dtype == DType::bf16;
    double sum = a_.bias ? static_cast<double>(a_.bias[o]) : 0, magnitude = std::abs(sum);
    for (std::int64_t i = 0; i < in_; ++i) {
      const float weight = rounded(a_.dtype, weight_.data<float>()[o * in_ + i]);
      const double product = load_element(a_.dtype, x_at(a_.dtype, r, i)) * static_cast<double>(weight);
      sum += product, magnitude += std::abs(product);
    }
    // Each product and each addition rounds by 2^-24 of no more than the magnitude (`baseline` both); the bf16 dot may
    // cut instead of rounding. Then y is rounded.
    const double each = narrow ? 0x1p-23 : 0x1p-24, of_y = a_.y_dtype == DType::bf16 ? 0x1p-8 : 0;
    const double tolerance = 2 * static_cast<double>(in_ + 1) * each * magnitude + of_y * std::abs(sum) * 1.01;
    const double got = load_element(a_.y_dtype, y_at(r, o));
    EXPECT_NEAR(got, sum, tolerance) << what << " row " << r << " output " << o;
  }

  const kernels::Target& target_;
  std::int64_t rows_, in_, out_;
  Tensor weight_, bias_;
  Guarded x_, y_, packed_, rows_of_weight_;
  kernels::LinearOperands a_;
};

class LinearKernels : public EveryTarget {};

INSTANTIATE_TEST_SUITE_P(Every, LinearKernels, every_target(), name_of_target);

// A panel at a time, of weights that lie row by row: the same floats, and nothing read or written outside.
TEST_P(LinearKernels, PanelsOfRowsAreThoseOfAll) {
  const std::int64_t w = target().panel_rows;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (dtype == DType::bf16 && !target().bf16_dot) continue;
    for (const std::int64_t in : {2, 4, 30, 32, 34, 64, 66, 130}) {
      for (const std::int64_t out : {std::int64_t{1}, w - 1, w, w + 3}) {
        const Tensor weight = Generator(9).normal({out, in}, 0, 1);
        Tensor packed({target().linear.floats(dtype, out, in)});
        target().linear.pack(dtype, weight.data<float>(), out, in, packed.data<float>());
        Guarded rows(out * in, dtype), panel(target().linear.floats(dtype, w, in), DType::f32);
        MutableView(rows.begin(), dtype, {out, in}).copy_from(weight);
        for (std::int64_t first = 0; first < out; first += w) {
          const std::int64_t floats = target().linear.floats(dtype, w, in);
          target().linear.pack_rows(dtype, rows.begin(), dtype, in, first, std::min(out, first + w), panel.as<float>());
          EXPECT_EQ(0, std::memcmp(panel.begin(), packed.data<float>() + first / w * floats,
                                   static_cast<std::size_t>(floats) * sizeof(float)))
              << Dims{in, out}.str() << name_of(dtype);
        }
        EXPECT_TRUE(rows.intact() && panel.intact());
      }
    }
  }
}

// Weights of bf16 beside x in f32 have the panels of their numbers in f32.
TEST_P(LinearKernels, PanelsOfHalvesAreThoseOfTheirNumbers) {
  const std::int64_t w = target().panel_rows, lanes = target().lanes;
  for (const std::int64_t in : {std::int64_t{2}, std::int64_t{30}, 2 * lanes, 2 * lanes + 2, std::int64_t{258}}) {
    for (const std::int64_t out : {std::int64_t{1}, w - 1, w, w + 3}) {
      const Tensor halves = Generator(9).normal({out, in}, 0, 1).view().to(DType::bf16);
      const Tensor numbers = halves.view().to(DType::f32);
      const std::int64_t floats = target().linear.floats(DType::f32, w, in);
      Guarded rows(out * in, DType::bf16), panel(floats, DType::f32), expected(floats, DType::f32);
      MutableView(rows.begin(), DType::bf16, {out, in}).copy_from(halves);
      for (std::int64_t first = 0; first < out; first += w) {
        const std::int64_t last = std::min(out, first + w);
        target().linear.pack_rows(DType::f32, rows.begin(), DType::bf16, in, first, last, panel.as<float>());
        target().linear.pack_rows(DType::f32, numbers.raw(), DType::f32, in, first, last, expected.as<float>());
        EXPECT_EQ(0, std::memcmp(panel.begin(), expected.begin(), static_cast<std::size_t>(floats) * sizeof(float)))
            << Dims{in, out}.str();
      }
      EXPECT_TRUE(rows.intact() && panel.intact());
    }
  }
}

// And the products with these, bit by bit.
TEST_P(LinearKernels, HalvesThatPassByAreTheirNumbers) {
  const std::int64_t w = target().panel_rows, lanes = target().lanes;
  for (const std::int64_t in : {std::int64_t{2}, 2 * lanes, 2 * lanes + 6, std::int64_t{128}, std::int64_t{300}}) {
    for (const std::int64_t out : {std::int64_t{1}, w - 1, w + lanes, 2 * w + 3}) {
      for (const std::int64_t rows : {1, 2, 5, 8}) {
        const Tensor x = Generator(5).normal({rows, in}, 0, 1);
        const Tensor halves = Generator(9).normal({out, in}, 0, 1).view().to(DType::bf16);
        const Tensor numbers = halves.view().to(DType::f32), bias = Generator(6).normal({out}, 0, 1);
        Guarded weight(out * in, DType::bf16), y(rows * out, DType::f32);
        MutableView(weight.begin(), DType::bf16, {out, in}).copy_from(halves);
        Tensor expected({rows, out});
        kernels::LinearOperands a;
        a.x = x.raw(), a.bias = bias.data<float>();
        a.in = a.x_stride = in, a.out = a.y_stride = out;
        const std::int64_t panels = (out + w - 1) / w;
        a.weight = numbers.raw(), a.y = expected.raw();
        target().linear.stream(a, rows, 0, panels);
        a.weight = weight.begin(), a.weight_dtype = DType::bf16, a.y = y.begin();
        target().linear.stream(a, rows, 0, panels);
        EXPECT_EQ(0, std::memcmp(y.begin(), expected.raw(), static_cast<std::size_t>(rows * out) * sizeof(float)))
            << Dims{rows, in, out}.str();
        EXPECT_TRUE(weight.intact() && y.intact());
      }
    }
  }
}

TEST_P(LinearKernels, SizesAroundPanelsAndRows) {
  const std::int64_t w = target().panel_rows, n = target().lanes;
  const std::int64_t outs[] = {1, n - 1, n, n + 1, w - 1, w, w + 1, 2 * w, 2 * w + n - 1};
  const std::int64_t ins[] = {1, 2, 3, 8, 37, 127, 128, 129, 256, 258, 300};
  const std::int64_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 63, 64};
  Dice dice(95'000);
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const DType dtype = target().bf16_dot && dice.one_in(2) ? DType::bf16 : DType::f32;
    const DType y_dtype = dice.one_in(2) ? DType::bf16 : DType::f32;
    std::int64_t in = ins[dice.below(std::ssize(ins))];
    if (dtype == DType::bf16) in += in % 2;
    const std::int64_t count = rows[dice.below(std::ssize(rows))], out = outs[dice.below(std::ssize(outs))];
    const std::string what = Dims{count, in, out}.str() + std::string(name_of(dtype)) + std::string(name_of(y_dtype));
    Trial trial(target(), count, in, out, dtype, y_dtype, dice.one_in(2), seed);
    trial.check(1 + dice.below(kernels::linear_rows), what);
    if (count <= kernels::linear_stream_rows) trial.check_stream(1 + dice.below(3), what);
  }
}

}  // namespace
}  // namespace attend
