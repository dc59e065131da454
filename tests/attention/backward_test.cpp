// attention_backward() with every option, alone and together: against finite differences, and against the oracle.
#include "tests/attention/gradient.h"

namespace attend {
namespace {

using namespace test;

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};

// ---- Finite differences, in double ----

// Element n of a view, row-major, to be changed.
double& element(const View& x, std::int64_t n) {
  std::int64_t place = 0;
  for (int axis = x.rank() - 1; axis >= 0; --axis) {
    place += n % x.shape()[axis] * x.strides()[axis];
    n /= x.shape()[axis];
  }
  return const_cast<double*>(x.data<double>())[place];
}

// A number that has these gradients: the sum of dout * out and dlse * lse. Its terms in magnitude go to `size`.
double loss(const BackwardCall& c, double& size) {
  const AttentionResult result = c.x.run();
  double sum = 0;
  size = 0;
  const auto add = [&](double term) { sum += term, size += std::abs(term); };
  const std::int64_t Dv = c.x.V.size(3);
  const Tensor dout = c.Dout.clone();
  for (std::int64_t n = 0; n < dout.count(); ++n) add(dout.data<double>()[n] * result.out.data<double>()[n]);
  for (std::int64_t n = 0; n < dout.count() / Dv; ++n) {
    const double lse = result.lse.data<double>()[n];
    if (c.wanted.dlse && lse != -INFINITY) add(c.dlse.data<double>()[n] * lse);
  }
  return sum;
}

// With a step of 1e-4, D(h) = (L(x + h) - L(x - h)) / 2h is off by h^2 L'''/6, about 1e-9 L'''. (4 D(h) - D(2h)) / 3 is
// without that term, and nearer to the truth than |D(h) - D(2h)|, three times as much. L itself is known to a few
// roundings of its terms, 8 2^-53, which D divides by h.
void expect_slope(const BackwardCall& c, double& x, double gradient, const std::string& what) {
  const double start = x, h = 1e-4;
  double size = 0, slopes[2];
  for (const int steps : {1, 2}) {
    x = start + steps * h;
    const double above = loss(c, size);
    x = start - steps * h;
    slopes[steps - 1] = (above - loss(c, size)) / (2 * h * steps);
  }
  x = start;
  const double slope = (4 * slopes[0] - slopes[1]) / 3;
  const double tolerance = std::abs(slopes[0] - slopes[1]) + 8 * 0x1p-53 * size / h;
  EXPECT_NEAR(gradient, slope, tolerance) << what;
  EXPECT_LT(tolerance, 1e-4 * (1 + std::abs(slope))) << what;  // else the test says nothing
}

void expect_slopes(std::uint64_t seed, unsigned wanted, bool with_dlse) {
  Dice dice(seed);
  const Sizes sizes{1 + dice.below(2), 4, 2, 1 + dice.below(5), 1 + dice.below(6), 1 + dice.below(3),
                    1 + dice.below(3)};
  Call x = make_call(sizes, wanted, DType::f64, seed);
  // Options of other dtypes would round the steps away.
  const auto widen = [](std::optional<View>& option, Tensor& tensor) {
    if (!option) return;
    Tensor wide = option->to(DType::f64);
    option = (tensor = std::move(wide)).view();
  };
  widen(x.options.bias, x.bias), widen(x.options.distance_bias, x.distances), widen(x.options.alibi_slopes, x.slopes),
      widen(x.options.sinks, x.sinks);
  const BackwardCall c = backward_of(std::move(x), seed, with_dlse);
  const AttentionGradients gradients = c.run();
  const auto ours = listed(gradients), of = arguments(c);
  for (std::size_t n = 0; n < gradient_names.size(); ++n) {
    ASSERT_EQ(ours[n].has_value(), of[n].has_value());
    if (!of[n]) continue;
    ASSERT_EQ(ours[n]->shape().str(), of[n]->shape().str());
    for (std::int64_t e = 0; e < of[n]->count(); ++e) {
      expect_slope(c, element(*of[n], e), ours[n]->data<double>()[e],
                   c.x.what + " " + gradient_names[n] + "[" + std::to_string(e) + "]");
    }
  }
}

TEST(AttentionBackward, EveryOptionAloneAndInPairsIsTheSlope) {
  std::uint64_t seed = 50'000;
  for (int a = 0; a < feature_count; ++a)
    for (int b = a; b < feature_count; ++b)
      for (int times = 0; times < (a == b ? 4 : 1); ++times) {
        ++seed;
        expect_slopes(seed, 1u << a | 1u << b, seed % 3 != 0);
      }
  expect_slopes(++seed, 0, false);
}

TEST(AttentionBackward, ManyOptionsTogetherAreTheSlope) {
  for (std::uint64_t seed = 51'000; seed < 51'040; ++seed) {
    Dice dice(seed);
    expect_slopes(seed, random_features(dice), dice.one_in(2));
  }
}

// ---- The oracle ----

TEST(AttentionBackward, PairwiseAgainstTheOracle) {
  std::uint64_t seed = 52'000;
  for (int a = 0; a < feature_count; ++a)
    for (int b = a; b < feature_count; ++b)
      for (const DType dtype : dtypes) {
        Dice dice(++seed);
        const BackwardCall c =
            backward_of(make_call(random_sizes(dice, 40, 140), 1u << a | 1u << b, dtype, seed), seed, dice.one_in(3));
        expect_as_exact(c, c.run());
      }
}

TEST(AttentionBackward, ManyTogetherAgainstTheOracle) {
  for (const std::uint64_t seed : sweep(53'000, 53'100)) {
    Dice dice(seed);
    const Sizes sizes = random_sizes(dice, 70, 200);
    const unsigned wanted = random_features(dice);
    const BackwardCall c = backward_of(make_call(sizes, wanted, dtypes[dice.below(3)], seed), seed, dice.one_in(2));
    expect_as_exact(c, c.run());
  }
}

// Around lanes, register tiles, panels and tiles.
constexpr std::int64_t lengths[] = {1,  2,  3,  4,  5,  7,  8,  9,  15, 16,  17,  31,
                                    33, 47, 48, 49, 63, 64, 65, 95, 97, 127, 128, 129};

TEST(AttentionBackward, LengthsAroundLanesAndTiles) {
  std::uint64_t seed = 54'000;
  for (const std::int64_t Tq : lengths)
    for (const bool causal : {false, true}) {
      Dice dice(++seed);
      const std::int64_t Tk = lengths[dice.below(std::size(lengths))];
      const Sizes sizes{1, 2, 1, causal ? Tk : Tq, causal ? Tq : Tk, 1 + dice.below(24), 1 + dice.below(24)};
      const BackwardCall c =
          backward_of(make_call(sizes, causal ? unsigned{with_causal} : 0u, dtypes[seed % 3], seed), seed, false);
      expect_as_exact(c, c.run());
    }
}

TEST(AttentionBackward, HeadSizes) {
  constexpr std::int64_t most[] = {31, 32, 33, 40, 47, 48, 64, 80, 96, 128, 160, 256};
  std::uint64_t seed = 55'000;
  for (std::int64_t n = 1; n <= 24 + std::ssize(most); ++n) {
    const std::int64_t D = n <= 24 ? n : most[n - 25];
    for (const bool alike : {true, false}) {
      Dice dice(++seed);
      const Sizes sizes{1, 2, 2, 20 + dice.below(40), 20 + dice.below(70), D, alike ? D : 1 + dice.below(100)};
      const BackwardCall c = backward_of(
          make_call(sizes, dice.one_in(2) ? with_layout : with_mask, dtypes[seed / 2 % 3], seed), seed, false);
      expect_as_exact(c, c.run());
    }
  }
}

}  // namespace
}  // namespace attend
