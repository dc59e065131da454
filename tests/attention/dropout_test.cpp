// Dropout: which weights it drops, and that every path drops the same.
#include <array>

#include "tests/expect.h"

namespace attend {
namespace {

using namespace test;

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

struct Pairs {
  std::int64_t B, H, Tq, Tk;
  std::int64_t count() const { return B * H * Tq * Tk; }
};

// [B,H,T,T] of ones on the diagonal.
Tensor identity(std::int64_t B, std::int64_t H, std::int64_t T, DType dtype) {
  Tensor x({B, H, T, T});
  for (std::int64_t n = 0; n < B * H * T; ++n) x.data<float>()[n * T + n % T] = 1;
  return x.view().to(dtype);
}

// Whether each weight of [B,H,Tq,Tk] is kept, by attention_steps().
std::vector<bool> kept_of(const View& weights) {
  const Tensor wide = weights.to(DType::f64);
  std::vector<bool> kept;
  for (std::int64_t n = 0; n < wide.count(); ++n) kept.push_back(wide.data<double>()[n] != 0);
  return kept;
}
std::vector<bool> kept(const Pairs& s, const AttentionOptions& options) {
  const Tensor q({s.B, s.H, s.Tq, 1}), k({s.B, s.H, s.Tk, 1});
  return kept_of(attention_steps(q, k, k, options).weights);
}

// With values that are the identity, out is the weights; with dout that is the identity, dv is the weights transposed.
TEST(AttentionDropout, EveryPathDropsTheSame) {
  for (const Pairs& s : {Pairs{2, 3, 5, 9}, Pairs{1, 2, 70, 150}, Pairs{2, 2, 1, 600}}) {
    for (const DType dtype : dtypes) {
      const AttentionOptions options{.dropout = {0.3, 5}};
      const Tensor q({s.B, s.H, s.Tq, 1}, dtype), k({s.B, s.H, s.Tk, 1}, dtype), v = identity(s.B, s.H, s.Tk, dtype);
      const std::vector<bool> expected = kept(s, options);
      const AttentionResult result = attention(q, k, v, options);
      EXPECT_EQ(kept_of(result.out), expected) << name_of(dtype) << " out";
      EXPECT_NEAR(result.lse.item({0, 0, 0}), std::log(static_cast<double>(s.Tk)), 4e-6) << "lse knows of no dropout";
      const Tensor values({s.B, s.H, s.Tk, s.Tq}, dtype), dout = identity(s.B, s.H, s.Tq, dtype);
      const AttentionResult forward = attention(q, k, values, options);
      const AttentionGradients g = attention_backward(dout, q, k, values, forward.out, forward.lse, options);
      EXPECT_EQ(kept_of(g.dv.view().transpose(2, 3)), expected) << name_of(dtype) << " dv";
      // Those that are kept count 1 / (1 - p).
      const Tensor weights = attention_steps(q, k, v, options).weights;
      const double u = dtype == DType::f32 || dtype == DType::f64 ? 0x1p-20 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
      expect_close(result.out, weights, u, "out");
      expect_close(g.dv.view().transpose(2, 3), weights, u, "dv");
    }
  }
}

// By (seed, b, h, i, j) alone: not by how many there are of each, nor by what else is asked for.
TEST(AttentionDropout, GoesByThePlaceOfAPairAlone) {
  const Dropout dropout{0.4, 77};
  const Pairs large{3, 4, 50, 90}, small{2, 2, 31, 64};
  const std::vector<bool> all = kept(large, {.dropout = dropout});
  const std::vector<bool> part = kept(small, {.scale = 3, .softcap = 2, .dropout = dropout});
  Tensor starts({3}, DType::i64), key_starts({3}, DType::i64);
  starts.data<std::int64_t>()[1] = 20, starts.data<std::int64_t>()[2] = 50;
  key_starts.data<std::int64_t>()[1] = 33, key_starts.data<std::int64_t>()[2] = 90;
  AttentionOptions packed{.query_starts = starts, .key_starts = key_starts, .dropout = dropout};
  const std::vector<bool> sequences = kept({1, 4, 50, 90}, packed);
  std::int64_t n = 0;
  for (std::int64_t b = 0; b < large.B; ++b)
    for (std::int64_t h = 0; h < large.H; ++h)
      for (std::int64_t i = 0; i < large.Tq; ++i)
        for (std::int64_t j = 0; j < large.Tk; ++j, ++n) {
          const bool one = all[static_cast<std::size_t>(n)];
          const auto at = [&](const Pairs& s) {
            return static_cast<std::size_t>(((b * s.H + h) * s.Tq + i) * s.Tk + j);
          };
          if (b < small.B && h < small.H && i < small.Tq && j < small.Tk) {
            ASSERT_EQ(part[at(small)], one);
          }
          if (b == 0 && (i < 20) == (j < 33)) {
            ASSERT_EQ(sequences[at({1, 4, 50, 90})], one);
          }
        }
}

// A binomial count is within five deviations of its mean but once in 1.7 million draws.
void expect_count(std::int64_t count, std::int64_t draws, double p, const std::string& what) {
  const auto n = static_cast<double>(draws);
  EXPECT_NEAR(static_cast<double>(count), n * p, 5 * std::sqrt(n * p * (1 - p)) + 1) << what;
}

TEST(AttentionDropout, DropsThatManyIndependently) {
  const Pairs s{2, 4, 128, 256};
  // How far apart two places are that should know nothing of each other.
  const std::int64_t steps[] = {1, 2, 64, s.Tk, 2 * s.Tk, s.Tk + 1, s.Tq * s.Tk, s.H * s.Tq * s.Tk};
  for (const double p : {0.001, 0.1, 0.5, 0.9}) {
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
      const std::string what = "p " + std::to_string(p) + " seed " + std::to_string(seed);
      const std::vector<bool> one = kept(s, {.dropout = {p, seed}}), other = kept(s, {.dropout = {p, seed + 1}});
      const auto draws = std::ssize(one);
      expect_count(draws - std::count(one.begin(), one.end(), true), draws, p, what);
      std::int64_t both = 0;
      for (std::size_t n = 0; n < one.size(); ++n) both += !one[n] && !other[n];
      expect_count(both, draws, p * p, what + ", two seeds");
      for (const std::int64_t step : steps) {
        both = 0;
        for (std::int64_t n = 0; n + step < draws; ++n)
          both += !one[static_cast<std::size_t>(n)] && !one[static_cast<std::size_t>(n + step)];
        expect_count(both, draws - step, p * p, what + ", step " + std::to_string(step));
      }
    }
  }
}

TEST(AttentionDropout, ProbabilitiesThatAreNoneAreNamed) {
  const Tensor x({1, 1, 3, 2}), lse({1, 1, 3});
  for (const double p : {-0.1, 1.0, 1.5, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    const AttentionOptions options{.dropout = {p, 1}};
    const auto value = ErrorCode::bad_value;
    expect_error(
        value, [&] { attention(x, x, x, options); }, "attention: dropout p is ", "expected 0 <= p < 1");
    expect_error(
        value, [&] { attention_steps(x, x, x, options); }, "attention_steps: dropout p is ");
    expect_error(
        value, [&] { attention_backward(x, x, x, x, x, lse, options); }, "attention_backward: dropout p is ");
  }
  expect_same(attention(x, x, x, {.dropout = {0, 9}}).out, attention(x, x, x).out);
}

}  // namespace
}  // namespace attend
