// ring_attention_backward() over ranks that are threads, beside attention_backward() of the whole: equal bits, and as
// exact for any sharding.
#include "tests/attention/gradient.h"
#include "tests/ring/ranks.h"

namespace attend {
namespace {

using namespace test;

struct Gradients {
  Tensor dq, dk, dv;
  std::optional<Tensor> dbias, dslopes, dsinks, ddistances;
};

BackwardOptions wanted_of(const Call& x) {
  return {.dbias = x.options.bias.has_value(),
          .dalibi_slopes = x.options.alibi_slopes.has_value(),
          .dsinks = x.options.sinks.has_value(),
          .ddistance_bias = x.options.distance_bias.has_value()};
}

Tensor draw_dout(const Call& x) {
  Generator generator(11);
  Dims shape = x.Q.shape();
  shape[3] = x.V.size(3);
  return generator.normal(shape, 0, 1).view().to(x.Q.dtype());
}

AttentionGradients whole_backward(const Call& x, const Tensor& dout, const AttentionResult& result) {
  BackwardOptions wanted = wanted_of(x);
  wanted.lse_low = result.lse_low->view();
  return attention_backward(dout, x.Q, x.K, x.V, result.out, result.lse, x.options, wanted);
}

// Forward and backward on ranks; options' gradients summed over them.
Gradients ring_backward(const Call& x, const Tensor& dout, const RingSharding& sharding, const RingOptions& ring = {}) {
  const auto count = static_cast<std::size_t>(sharding.ranks());
  std::vector<Tensor> dq(count), dk(count), dv(count), dbias(count);
  Gradients whole;
  run_all(sharding.ranks(), [&](RingTransport& ranks) {
    const Share share(x, sharding, ranks.rank());
    const Tensor own_dout = ring_shard(dout, 2, sharding.queries, ranks.rank());
    const AttentionResult result = ring_attention(ranks, share.q, share.k, share.v, sharding, share.options);
    BackwardOptions wanted = wanted_of(x);
    wanted.lse_low = result.lse_low->view();
    AttentionGradients g = ring_attention_backward(ranks, own_dout, share.q, share.k, share.v, result.out, result.lse,
                                                   sharding, share.options, wanted, ring);
    for (auto* shared : {&g.dalibi_slopes, &g.dsinks, &g.ddistance_bias})
      if (*shared) ring_sum(ranks, (*shared)->view());
    const auto at = static_cast<std::size_t>(ranks.rank());
    const std::optional<View>& bias = x.options.bias;
    const bool has_rows = bias && bias->rank() >= 2 && bias->size(-2) == x.Q.size(2) && x.Q.size(2) > 1;  // of its own
    if (g.dbias && !has_rows) ring_sum(ranks, g.dbias->view());
    if (has_rows)
      dbias[at] = std::move(*g.dbias);
    else if (g.dbias && ranks.rank() == 0)
      whole.dbias = std::move(g.dbias);
    dq[at] = std::move(g.dq), dk[at] = std::move(g.dk), dv[at] = std::move(g.dv);
    if (ranks.rank() == 0) {
      whole.dslopes = std::move(g.dalibi_slopes), whole.dsinks = std::move(g.dsinks);
      whole.ddistances = std::move(g.ddistance_bias);
    }
  });
  if (x.options.bias && !whole.dbias) whole.dbias = ring_unshard(views(dbias), -2, sharding.queries);
  whole.dq = ring_unshard(views(dq), 2, sharding.queries);
  whole.dk = ring_unshard(views(dk), 2, sharding.keys);
  whole.dv = ring_unshard(views(dv), 2, sharding.keys);
  return whole;
}

std::vector<RingSharding> both(int ranks, const Call& x) {
  return {RingSharding::contiguous(ranks, x.Q.size(2), x.K.size(2)),
          RingSharding::zigzag(ranks, x.Q.size(2), x.K.size(2))};
}

void expect_same_bits(const Gradients& actual, const AttentionGradients& expected, const std::string& what) {
  expect_same(actual.dq, expected.dq, what + ", dq");
  expect_same(actual.dk, expected.dk, what + ", dk");
  expect_same(actual.dv, expected.dv, what + ", dv");
}

TEST(RingBackward, HasTheBitsOfOneProcessForAnyNumberOfRanks) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const unsigned wanted : {0u, unsigned{with_causal}}) {
      const Call x = make_call({1, 2, 1, 1600, 1600, 16, 16}, wanted, dtype, 5);
      const Tensor dout = draw_dout(x);
      const AttentionGradients expected = whole_backward(x, dout, x.run({.lse_low = true}));
      for (const int ranks : {1, 2, 3, 4, 8}) {
        for (const RingSharding& sharding : both(ranks, x))
          expect_same_bits(ring_backward(x, dout, sharding, {.piece_keys = ranks % 2 == 0 ? 192 : 0}), expected,
                           x.what + " on " + std::to_string(ranks));
      }
    }
  }
}

TEST(RingBackward, HasThemWithEveryPairOfOptions) {
  std::uint64_t seed = 100;
  for (int a = 0; a < feature_count; ++a) {
    for (int b = a; b < feature_count; ++b) {
      const unsigned wanted = 1u << a | 1u << b;
      if (wanted & with_starts) continue;  // their sequences begin within tiles
      const Sizes sizes{1 + static_cast<std::int64_t>(seed % 2), 4, 2, 400, 500, 12, 9};
      const Call x = make_call(sizes, wanted, seed % 3 == 0 ? DType::bf16 : DType::f32, seed);
      const Tensor dout = draw_dout(x);
      const AttentionGradients expected = whole_backward(x, dout, x.run({.lse_low = true}));
      const int ranks = 2 + static_cast<int>(seed % 3);
      const Gradients actual = ring_backward(x, dout, both(ranks, x)[seed % 2], {.piece_keys = 192});
      const std::string what = x.what + " on " + std::to_string(ranks);
      expect_same_bits(actual, expected, what);
      if (expected.dsinks) expect_close(*actual.dsinks, *expected.dsinks, 1e-5, what + ", dsinks");
      if (expected.dalibi_slopes) expect_close(*actual.dslopes, *expected.dalibi_slopes, 1e-4, what + ", dslopes");
      if (expected.ddistance_bias)
        expect_close(*actual.ddistances, expected.ddistance_bias->view().to(actual.ddistances->dtype()), 1e-2,
                     what + ", ddistance_bias");
      ++seed;
    }
  }
}

// Where tiles are cut, and sequences cross ranks: as exact as one process is.
TEST(RingBackward, IsAsExactForAnySharding) {
  Dice dice(7);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Sizes sizes = random_sizes(dice, 120, 200);
    const unsigned wanted = random_features(dice) | (seed % 3 == 0 ? unsigned{with_starts} : 0);
    const BackwardCall c =
        backward_of(make_call(sizes, wanted, seed % 4 == 0 ? DType::bf16 : DType::f32, seed), seed, false);
    const RingSharding sharding = uneven(dice, 1 + static_cast<int>(dice.below(5)), sizes.Tq, sizes.Tk);
    Gradients g = ring_backward(c.x, c.Dout.clone(), sharding);
    AttentionGradients whole{{}, std::move(g.dq), std::move(g.dk), std::move(g.dv)};
    whole.dalibi_slopes = std::move(g.dslopes), whole.dsinks = std::move(g.dsinks);
    whole.ddistance_bias = std::move(g.ddistances), whole.dbias = std::move(g.dbias);
    expect_as_exact(c, whole);
  }
}

// dbias of each rank's rows; summed where they share an element.
TEST(RingBackward, GivesTheBiasesGradient) {
  for (const Dims& shape : {Dims{2, 4, 400, 500}, Dims{400, 500}, Dims{2, 1, 1, 500}}) {
    Call x = make_call({2, 4, 2, 400, 500, 16, 8}, with_causal, DType::f32, 3);
    Generator generator(4);
    x.bias = generator.normal(shape, 0, 1), x.options.bias = x.bias.view();
    const Tensor dout = draw_dout(x);
    const AttentionGradients expected = whole_backward(x, dout, x.run({.lse_low = true}));
    const RingSharding sharding = RingSharding::zigzag(3, 400, 500);
    const Gradients actual = ring_backward(x, dout, sharding);
    expect_close(*actual.dbias, *expected.dbias, 1e-5, "dbias " + shape.str());
  }
}

}  // namespace
}  // namespace attend
