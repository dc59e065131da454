// distance_bias, held against the bias tensor that it stands for.
#include "tests/attention/gradient.h"

namespace attend::test {
namespace {

constexpr unsigned beside_a_bias = with_scale | with_causal | with_window | with_offset | with_mask | with_bias |
                                   with_alibi | with_sinks | with_softcap | with_lengths | with_starts | with_layout |
                                   with_dropout;

// The number that distance_bias gives to a pair, from the header's words: body(b, h, i, j, its column).
template <class Body>
void for_each_pair(const Call& x, Body body) {
  const std::int64_t reach = x.options.distance_bias->size(1) / 2;
  for_each_oracle_row(x, [&](const OracleRow& at) {
    for (std::int64_t j = 0; j < at.head.Tk; ++j) {
      const std::int64_t distance = j - (at.row + at.head.rules.offset);
      body(at.b, at.h, at.i, at.key_start + j, std::min(std::max(distance, -reach), reach) + reach);
    }
  });
}

// The call's options with one bias [B,H,Tq,Tk] for both, kept in `bias`.
AttentionOptions with_explicit_bias(const Call& x, Tensor& bias) {
  const Dims pairs{x.Q.size(0), x.Q.size(1), x.Q.size(2), x.K.size(2)};
  bias = x.options.bias ? x.options.bias->broadcast_to(pairs).to(DType::f64) : Tensor(pairs, DType::f64);
  for_each_pair(x, [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, std::int64_t column) {
    double& both = bias.data<double>()[((b * pairs[1] + h) * pairs[2] + i) * pairs[3] + j];
    both += x.options.distance_bias->item({h, column});
  });
  AttentionOptions options = x.options;
  options.bias = bias.view();
  options.distance_bias.reset();
  return options;
}

double tolerance_of(DType dtype) {
  return dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 2e-5 : dtype == DType::f16 ? 4e-3 : 3e-2;
}

// Relative to the largest element.
void expect_near(const View& ours, const View& expected, double tolerance, const std::string& what) {
  const Tensor a = ours.to(DType::f64), b = expected.to(DType::f64);
  double largest = 1;
  for (std::int64_t i = 0; i < b.count(); ++i) {
    if (std::isfinite(b.data<double>()[i])) largest = std::max(largest, std::abs(b.data<double>()[i]));
  }
  for (std::int64_t i = 0; i < b.count(); ++i) {
    const double x = a.data<double>()[i], y = b.data<double>()[i];
    if (x == y) continue;
    ASSERT_LE(std::abs(x - y), tolerance * largest) << what << " element " << i;
  }
}

constexpr DType dtypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

TEST(AttentionDistanceBias, IsTheBiasThatItStandsFor) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const DType dtype = dtypes[seed % std::size(dtypes)];
    Dice dice(seed);
    const Sizes sizes = random_sizes(dice, 40, 90);
    const Call x = make_call(sizes, (random_features(dice) & beside_a_bias) | with_distance, dtype, seed);
    Tensor bias;
    const AttentionResult ours = x.run(), expected = attention(x.Q, x.K, x.V, with_explicit_bias(x, bias));
    expect_near(ours.out, expected.out, tolerance_of(dtype), x.what);
    expect_near(ours.lse, expected.lse, tolerance_of(dtype), x.what);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(AttentionDistanceBias, GradientIsThatBiassSummedAlongDiagonals) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const DType dtype = dtypes[seed % std::size(dtypes)];
    Dice dice(seed);
    const Sizes sizes = random_sizes(dice, 40, 90);
    const bool with_dlse = dice.one_in(2);
    const BackwardCall c = backward_of(
        make_call(sizes, (random_features(dice) & beside_a_bias) | with_distance, dtype, seed), seed, with_dlse);
    const Call& x = c.x;
    Tensor bias;
    BackwardOptions wanted{.dlse = c.wanted.dlse, .lse_low = c.wanted.lse_low};
    wanted.dbias = true;
    const AttentionGradients got = c.run(),
                             expected = attention_backward(c.Dout, x.Q, x.K, x.V, c.forward.out, c.forward.lse,
                                                           with_explicit_bias(x, bias), wanted);
    Tensor sums(x.options.distance_bias->shape(), DType::f64);
    for_each_pair(x, [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, std::int64_t column) {
      sums.data<double>()[h * sums.size(1) + column] += expected.dbias->item({b, h, i, j});
    });
    const double tolerance = std::max(tolerance_of(dtype), tolerance_of(x.distances.dtype()));
    EXPECT_EQ(got.ddistance_bias->dtype(), x.distances.dtype());
    expect_near(*got.ddistance_bias, sums, tolerance, x.what + " ddistance_bias");
    expect_near(got.dq, expected.dq, 4 * tolerance_of(dtype), x.what + " dq");
    expect_near(got.dk, expected.dk, 4 * tolerance_of(dtype), x.what + " dk");
    expect_near(got.dv, expected.dv, 4 * tolerance_of(dtype), x.what + " dv");
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(AttentionDistanceBias, StepsShowIt) {
  const Call x = make_call({1, 2, 1, 5, 7, 4, 3}, with_distance | with_causal, DType::f32, 3);
  const AttentionSteps ours = attention_steps(x.Q, x.K, x.V, x.options);
  Tensor bias;
  const AttentionSteps expected = attention_steps(x.Q, x.K, x.V, with_explicit_bias(x, bias));
  expect_near(ours.logits, expected.logits, 1e-6, "logits");
  expect_near(ours.weights, expected.weights, 1e-6, "weights");
}

TEST(AttentionDistanceBias, OffsetMustBeSaidWhereTheLengthsDiffer) {
  const Tensor q({2, 3, 4}), k({2, 5, 4}), table({2, 3});
  AttentionOptions options;
  options.distance_bias = table;
  expect_error(
      ErrorCode::bad_value, [&] { attention(q, k, k, options); },
      "attention: 3 queries and 5 keys with causal, window, distance_bias or alibi_slopes need an offset");
  options.offset = Offset::bottom_right();
  attention(q, k, k, options);
}

TEST(AttentionDistanceBias, HasAnOddNumberOfColumnsForEachQueryHead) {
  const Tensor x({2, 3, 4});
  for (const Dims& shape : {Dims{2, 4}, Dims{2, 0}, Dims{1, 3}, Dims{3}, Dims{1, 2, 3}}) {
    const Tensor table(shape);
    AttentionOptions options;
    options.distance_bias = table;
    expect_error(
        ErrorCode::bad_shape, [&] { attention(x, x, x, options); },
        "attention: distance_bias has shape " + shape.str() + ", expected [H,2R+1]");
  }
}

TEST(AttentionDistanceBias, TakesMemoryForItsOwnElementsAlone) {
  const Dims q{1, 4, 8192, 64};
  const Tensor table({4, 257});
  AttentionOptions options;
  const std::int64_t forward = plan(q, q, q, DType::f32, options).scratch_bytes;
  const std::int64_t backward = plan_backward(q, q, q, DType::f32, options).scratch_bytes;
  options.distance_bias = table;
  BackwardOptions wanted;
  wanted.ddistance_bias = true;
  const int threads = num_threads();
  EXPECT_LE(plan(q, q, q, DType::f32, options).scratch_bytes, forward + threads * (table.count() * 8 + 65536));
  EXPECT_LE(plan_backward(q, q, q, DType::f32, options, wanted).scratch_bytes,
            backward + threads * (2 * table.count() * 8 + 65536));
}

}  // namespace
}  // namespace attend::test
