// lse_low: what rounding lse loses, and gradients that do not miss it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attend/attention.h"
#include "attend/random.h"
#include "core/element.h"
#include "tests/expect.h"

namespace attend {
namespace {

using test::expect_error;

constexpr double lowest = -std::numeric_limits<float>::max();

// Rows whose scores are all one constant: every visible key weighs the same.
struct EqualWeights {
  std::int64_t Tq, Tk;
  double constant;
  Tensor q, k, v, dout, bias;
  AttentionOptions options;

  EqualWeights(std::int64_t queries, std::int64_t keys, double c, DType dtype) : Tq(queries), Tk(keys), constant(c) {
    Generator generator(static_cast<std::uint64_t>(queries * 1000 + keys));
    const auto draw = [&](const Dims& shape) { return generator.normal(shape, 0, 1).view().to(dtype); };
    q = draw({Tq, 8}), k = draw({Tk, 8}), v = draw({Tk, 5}), dout = draw({Tq, 5});
    bias = Tensor({1}, DType::f64);
    bias.data<double>()[0] = c;
    options = {.offset = Offset(0), .bias = bias};
  }

  std::string what() const {
    return fmt::format("{} queries, {} keys, {}, constant {}", Tq, Tk, name_of(q.dtype()), constant);
  }

  // dv[j] = sum over i of dout[i] / Tk.
  Tensor dv() const {
    Tensor out({Tk, 5}, DType::f64);
    for (std::int64_t j = 0; j < Tk; ++j)
      for (std::int64_t d = 0; d < 5; ++d)
        for (std::int64_t i = 0; i < Tq; ++i) {
          out.data<double>()[j * 5 + d] += dout.item({i, d}) / static_cast<double>(Tk);
        }
    return out;
  }
  // dq[i] = scale * sum over j of (dout[i] . v[j] - their mean) / Tk * k[j].
  Tensor dq() const {
    Tensor out({Tq, 8}, DType::f64);
    for (std::int64_t i = 0; i < Tq; ++i) {
      std::vector<double> dweights(static_cast<std::size_t>(Tk));
      double mean = 0;
      for (std::int64_t j = 0; j < Tk; ++j) {
        double& dweight = dweights[static_cast<std::size_t>(j)];
        for (std::int64_t d = 0; d < 5; ++d) dweight += dout.item({i, d}) * v.item({j, d});
        mean += dweight / static_cast<double>(Tk);
      }
      for (std::int64_t j = 0; j < Tk; ++j)
        for (std::int64_t d = 0; d < 8; ++d) {
          out.data<double>()[i * 8 + d] += (dweights[static_cast<std::size_t>(j)] - mean) / static_cast<double>(Tk) *
                                           k.item({j, d}) / std::sqrt(8.0);
        }
    }
    return out;
  }
};

// 16-bit gradients are rounded once, and so are bf16's weights, and out.
double tolerance_of(DType dtype) {
  return dtype == DType::f64 ? 1e-13 : dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 4 * 0x1p-11 : 4 * 0x1p-8;
}

void expect_near(const View& actual, const Tensor& expected, double tolerance, const std::string& what) {
  double largest = 0, error = 0;
  const Tensor got = actual.to(DType::f64);
  for (std::int64_t n = 0; n < expected.count(); ++n) {
    const double difference = std::abs(got.data<double>()[n] - expected.data<double>()[n]);
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
    largest = std::max(largest, std::abs(expected.data<double>()[n]));
  }
  EXPECT_LE(error, tolerance * largest) << what;
}

// 4 rows are decoded, 40 are not.
TEST(AttentionLseLow, GradientsOfRowsThatShareALargeConstant) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const std::int64_t queries : {4, 40}) {
      for (const double constant : {-1e9, lowest, 1e12, -3e30}) {
        if (dtype == DType::f64 && std::abs(constant) < 1e20) continue;  // f64 tells the scores apart
        const EqualWeights x(queries, 70, constant, dtype);
        const AttentionResult forward = attention(x.q, x.k, x.v, x.options, {.lse_low = true});
        for (const bool given : {true, false}) {
          BackwardOptions wanted;
          if (given) wanted.lse_low = forward.lse_low;
          const AttentionGradients g =
              attention_backward(x.dout, x.q, x.k, x.v, forward.out, forward.lse, x.options, wanted);
          expect_near(g.dv, x.dv(), tolerance_of(dtype), x.what() + " dv");
          expect_near(g.dq, x.dq(), 4 * tolerance_of(dtype), x.what() + " dq");
        }
      }
    }
  }
}

// The parts' keys: dk and dv side by side, dq and the weights' sum in two summands. From 1e14 on two f32 do not tell
// how many keys there were.
TEST(AttentionLseLow, GradientsOfMergedPartsThatShareALargeConstant) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t queries : {4, 40}) {
      const EqualWeights x(queries, 70, -1e9, dtype);
      const auto part = [&](const View& keys, int n) { return n == 0 ? keys.slice(0, 0, 50) : keys.slice(0, 50, 70); };
      const auto forward = [&](int n) {
        return attention(x.q, part(x.k, n), part(x.v, n), x.options, {.lse_low = true});
      };
      const AttentionResult both = merge(forward(0), forward(1));
      for (const int n : {0, 1}) {
        const AttentionGradients g = attention_backward(x.dout, x.q, part(x.k, n), part(x.v, n), both.out, both.lse,
                                                        x.options, {.lse_low = both.lse_low});
        const Tensor whole = x.dv();
        expect_near(g.dv, part(whole, n).clone(), 10 * tolerance_of(dtype), x.what() + " dv");
      }
    }
  }
}

// Sequences of one call take different paths.
TEST(AttentionLseLow, GradientsOfSequencesThatShareALargeConstant) {
  const EqualWeights few(4, 70, -1e9, DType::f32), many(40, 70, -1e9, DType::f32);
  const auto join = [](const Tensor& a, const Tensor& b) {
    Tensor out({1, 1, a.size(0) + b.size(0), a.size(1)});
    out.view().slice(2, 0, a.size(0)).copy_from(a.view().reshape({1, 1, a.size(0), a.size(1)}));
    out.view().slice(2, a.size(0), out.size(2)).copy_from(b.view().reshape({1, 1, b.size(0), b.size(1)}));
    return out;
  };
  const Tensor q = join(few.q, many.q), k = join(few.k, many.k), v = join(few.v, many.v);
  const Tensor dout = join(few.dout, many.dout);
  Tensor query_starts({3}, DType::i64), key_starts({3}, DType::i64);
  for (const int n : {1, 2}) {
    query_starts.data<std::int64_t>()[n] = n == 1 ? 4 : 44, key_starts.data<std::int64_t>()[n] = 70 * n;
  }
  AttentionOptions options = few.options;
  options.query_starts = query_starts, options.key_starts = key_starts;
  const AttentionResult forward = attention(q, k, v, options, {.lse_low = true});
  const AttentionGradients g =
      attention_backward(dout, q, k, v, forward.out, forward.lse, options, {.lse_low = forward.lse_low});
  expect_near(g.dv.view().slice(2, 0, 70).reshape({70, 5}), few.dv(), 1e-6, "few");
  expect_near(g.dv.view().slice(2, 70, 140).reshape({70, 5}), many.dv(), 1e-6, "many");
}

TEST(AttentionLseLow, IsTheRestOfTheLogarithm) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const std::int64_t queries : {3, 30}) {
      for (std::int64_t keys = 1; keys < 400; keys += keys / 3 + 1) {
        const Tensor q({queries, 4}, dtype), k({keys, 4}, dtype);
        const AttentionResult result = attention(q, k, k, {}, {.lse_low = true});
        for (std::int64_t i = 0; i < queries; ++i) {
          const double lse = result.lse.item({i}), low = result.lse_low->item({i});
          EXPECT_NEAR(lse + low, std::log(static_cast<double>(keys)), 0x1p-40) << name_of(dtype) << " " << keys;
          EXPECT_LE(std::abs(low), std::abs(lse) * 0x1p-24) << name_of(dtype) << " " << keys;
        }
      }
    }
  }
}

// A sink of any magnitude: where it is far above the scores lse is the sink, and all of dlse goes to it; far below it
// counts nothing. Query 0 sees no key, only the sink.
TEST(AttentionLseLow, SinksOfEveryMagnitude) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const std::int64_t queries : {4, 40}) {
      const EqualWeights x(queries, 4, 0, dtype);
      const DType statistics = dtype == DType::f64 ? DType::f64 : DType::f32;
      AttentionOptions options{.offset = Offset(-1)};
      options.causal = true;
      const AttentionResult without = attention(x.q, x.k, x.v, options, {.lse_low = true});
      for (int n = 0; n < 160; ++n) {
        const float magnitude =
            n == 0 ? std::numeric_limits<float>::max() : std::pow(10.0f, static_cast<float>(n) / 4 - 1);
        for (const float sink : {magnitude, -magnitude}) {
          if (!std::isfinite(sink) || std::abs(sink) < 200) continue;
          const Tensor sinks = Tensor::from({1}, {sink});
          options.sinks = sinks;
          const AttentionResult forward = attention(x.q, x.k, x.v, options, {.lse_low = true});
          Tensor dlse({queries}, statistics);
          double expected = 0;
          for (std::int64_t i = 0; i < queries; ++i) {
            const bool alone = i == 0 || sink > 0;
            const std::string what = fmt::format("{}, {} queries, sink {}, query {}", name_of(dtype), queries, sink, i);
            EXPECT_EQ(forward.lse.item({i}), alone ? double{sink} : without.lse.item({i})) << what;
            EXPECT_NEAR(forward.lse_low->item({i}), alone ? 0 : without.lse_low->item({i}),
                        0x1p-24 + 0x1p-40 * std::abs(sink))
                << what;
            store_element(statistics, static_cast<std::byte*>(dlse.raw()) + i * size_of(statistics),
                          static_cast<double>(1 + i));
            if (alone) expected += static_cast<double>(1 + i);
          }
          for (const bool given : {true, false}) {
            BackwardOptions wanted{.dlse = dlse, .dsinks = true};
            if (given) wanted.lse_low = forward.lse_low;
            const AttentionGradients g =
                attention_backward(x.dout, x.q, x.k, x.v, forward.out, forward.lse, options, wanted);
            EXPECT_NEAR(g.dsinks->item({0}), expected, 1e-6 * expected)
                << name_of(dtype) << " " << queries << " " << sink;
          }
        }
      }
    }
  }
}

TEST(AttentionLseLow, OfNothingIsZero) {
  const Tensor q({2, 4}), none({0, 4});
  const AttentionResult result = attention(q, none, none, {}, {.lse_low = true});
  EXPECT_EQ(result.lse.item({1}), -INFINITY);
  EXPECT_EQ(result.lse_low->item({1}), 0);
  const Tensor k({3, 4});
  const AttentionResult some = attention(q, k, k, {}, {.lse_low = true});
  for (const AttentionResult& both : {merge(result, some), merge(some, result)}) {
    test::expect_same(both.lse, some.lse, "lse"), test::expect_same(*both.lse_low, *some.lse_low, "lse_low");
  }
  EXPECT_FALSE(attention(q, k, k).lse_low);
}

// Parts beyond f32: their shares come from lse_low.
TEST(AttentionLseLow, MergesPartsOfLargeLse) {
  const EqualWeights x(5, 70, 1e7, DType::f32);
  const auto part = [&](std::int64_t from, std::int64_t to) {
    return attention(x.q, x.k.view().slice(0, from, to), x.v.view().slice(0, from, to), x.options, {.lse_low = true});
  };
  const AttentionResult both = merge(part(0, 64), part(64, 70)),
                        whole = attention(x.q, x.k, x.v, x.options, {.lse_low = true});
  expect_near(both.out, whole.out.view().to(DType::f64), 1e-6, "out");
}

TEST(AttentionLseLow, IntoMemoryOfTheCaller) {
  const EqualWeights x(5, 20, 3, DType::f32);
  const AttentionResult expected = attention(x.q, x.k, x.v, x.options, {.lse_low = true});
  Tensor out({5, 5}), lse({5}), low({5});
  attention_into(out.view(), lse.view(), x.q, x.k, x.v, x.options, low.view());
  test::expect_same(low, *expected.lse_low, "lse_low");
  attention_into(out.view(), {}, x.q, x.k, x.v, x.options, lse.view());
  test::expect_same(lse, *expected.lse_low, "lse_low alone");
  expect_error(
      ErrorCode::bad_value, [&] { attention_into(out.view(), lse.view(), x.q, x.k, x.v, x.options, lse.view()); },
      "attention_into: lse and lse_low share memory");
  Tensor wrong({4});
  expect_error(
      ErrorCode::bad_shape, [&] { attention_into(out.view(), lse.view(), x.q, x.k, x.v, x.options, wrong.view()); },
      "attention_into: lse_low has shape [4], expected [5]");
}

TEST(AttentionLseLow, ErrorsNameWhatCame) {
  const EqualWeights x(5, 20, 3, DType::f32);
  const AttentionResult a = attention(x.q, x.k, x.v, x.options, {.lse_low = true});
  const Tensor wrong({4}), wide({5}, DType::f64);
  const auto backward = [&](const View& low) {
    return [&] { attention_backward(x.dout, x.q, x.k, x.v, a.out, a.lse, x.options, {.lse_low = low}); };
  };
  expect_error(ErrorCode::bad_shape, backward(wrong), "attention_backward: lse_low has shape [4], expected [5]");
  expect_error(ErrorCode::bad_dtype, backward(wide), "attention_backward: lse_low is f64, expected f32");
  expect_error(
      ErrorCode::bad_value, [&] { attend::merge(a.out, a.lse, a.out, a.lse, a.lse_low->view()); },
      "merge: lse_low_a is given, but not lse_low_b");
  Tensor dq(x.q.shape()), dk(x.k.shape()), dv(x.v.shape());
  expect_error(
      ErrorCode::bad_value,
      [&] {
        attention_backward_into({dq.view(), dk.view(), dv.view()}, x.dout, x.q, x.k, x.v, a.out, a.lse, x.options, {},
                                dq.view().reshape({40}).slice(0, 0, 5));
      },
      "attention_backward_into: dq shares memory with lse_low");
}

// A row that sees no key gives 0, whatever its sink: NaN in its dout is nobody's.
TEST(AttentionLseLow, DoutOfARowWithoutKeysReachesNoSink) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const std::int64_t queries : {3, 30}) {
      const EqualWeights x(queries, 4, 0, dtype);
      Tensor sinks({1}, dtype), dout = x.dout.clone();
      AttentionOptions options{.offset = Offset(-1), .sinks = sinks};
      options.causal = true;  // query 0 sees nothing
      const AttentionResult forward = attention(x.q, x.k, x.v, options, {.lse_low = true});
      const auto dsinks = [&] {
        return attention_backward(dout, x.q, x.k, x.v, forward.out, forward.lse, options, {.dsinks = true}).dsinks;
      };
      const auto clean = dsinks();
      dout.view().slice(0, 0, 1).copy_from(Tensor::from({1}, {NAN}).view().broadcast_to({1, 5}));
      test::expect_same(*dsinks(), *clean, "dsinks");
    }
  }
}

}  // namespace
}  // namespace attend
