// ring_attention() over ranks that are threads, beside attention() of the whole: equal bits, and the oracle.
#include "tests/ring/ranks.h"

namespace attend {
namespace {

using namespace test;

void expect_same_result(const AttentionResult& actual, const AttentionResult& expected, const std::string& what) {
  expect_same(actual.out, expected.out, what + ", out");
  expect_same(actual.lse, expected.lse, what + ", lse");
  expect_same(*actual.lse_low, *expected.lse_low, what + ", lse_low");
}

std::vector<RingSharding> both(int ranks, const Call& x) {
  return {RingSharding::contiguous(ranks, x.Q.size(2), x.K.size(2)),
          RingSharding::zigzag(ranks, x.Q.size(2), x.K.size(2))};
}

TEST(RingForward, HasTheBitsOfOneProcessForAnyNumberOfRanks) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const unsigned wanted : {0u, unsigned{with_causal}}) {
      const Call x = make_call({1, 2, 1, 1600, 1600, 16, 16}, wanted, dtype, 5);
      const AttentionResult expected = x.run({.lse_low = true});
      for (const int ranks : {1, 2, 3, 4, 8}) {
        for (const RingSharding& sharding : both(ranks, x)) {
          for (const std::int64_t piece : {0, 192}) {
            const AttentionResult actual = ring_forward(x, sharding, {.piece_keys = piece});
            expect_same_result(actual, expected, x.what + " on " + std::to_string(ranks));
          }
        }
      }
    }
  }
}

// Every option, alone and with each other one.
TEST(RingForward, HasThemWithEveryPairOfOptions) {
  std::uint64_t seed = 100;
  for (int a = 0; a < feature_count; ++a) {
    for (int b = a; b < feature_count; ++b) {
      unsigned wanted = 1u << a | 1u << b;
      if (wanted & with_starts) continue;  // their sequences begin within tiles
      const Sizes sizes{1 + static_cast<std::int64_t>(seed % 2), 4, 2, 400, 500, 12, 9};
      const Call x = make_call(sizes, wanted, seed % 3 == 0 ? DType::bf16 : DType::f32, seed);
      const AttentionResult expected = x.run({.lse_low = true});
      const int ranks = 2 + static_cast<int>(seed % 3);
      const RingSharding sharding = both(ranks, x)[seed % 2];
      expect_same_result(ring_forward(x, sharding), expected, x.what + " on " + std::to_string(ranks));
      ++seed;
    }
  }
}

// Where tiles are cut, and sequences cross ranks: as exact as one process is.
TEST(RingForward, IsAsExactForAnySharding) {
  Dice dice(7);
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Sizes sizes = random_sizes(dice, 150, 300);
    const Call x = make_call(sizes, random_features(dice) | (seed % 3 == 0 ? unsigned{with_starts} : 0),
                             seed % 4 == 0 ? DType::bf16 : DType::f32, seed);
    const RingSharding sharding = uneven(dice, 1 + static_cast<int>(dice.below(5)), sizes.Tq, sizes.Tk);
    expect_as_exact(x, ring_forward(x, sharding));
  }
}

// NaN in hidden keys and values reaches no row; in an attended value it reaches the rows that see it, as in one
// process.
TEST(RingForward, HandlesWhatIsNoNumberAsOneProcessDoes) {
  Call x = make_call({1, 2, 1, 700, 700, 16, 16}, with_causal | with_lengths, DType::f32, 8);
  const Tensor length = whole_numbers({500});
  x.options.key_lengths = length.view(), x.options.offset = Offset::top_left();
  const auto fill = [](Tensor& t, std::int64_t from, std::int64_t to, float value) {
    for (std::int64_t i = from * 16; i < to * 16; ++i) t.data<float>()[i] = value;
  };
  fill(x.k, 500, 700, NAN), fill(x.v, 500, 700, NAN);  // beyond the length
  fill(x.k, 450, 451, INFINITY), fill(x.v, 450, 451, NAN), fill(x.v, 200, 201, INFINITY);
  const AttentionResult expected = x.run({.lse_low = true});
  EXPECT_TRUE(std::isfinite(expected.out.item({0, 0, 199, 0})));
  EXPECT_FALSE(std::isfinite(expected.out.item({0, 0, 200, 0})));
  EXPECT_TRUE(std::isfinite(expected.lse.item({0, 0, 449})));
  for (const int ranks : {2, 3})
    for (const RingSharding& sharding : both(ranks, x))
      expect_same_result(ring_forward(x, sharding, {.piece_keys = 192}), expected, x.what);
}

TEST(RingForward, HasTheSameBitsRunAfterRun) {
  Dice dice(3);
  const Call x = make_call({1, 2, 1, 300, 300, 16, 16}, with_causal, DType::f32, 9);
  const RingSharding sharding = uneven(dice, 4, 300, 300);
  const AttentionResult first = ring_forward(x, sharding);
  for (int n = 0; n < 5; ++n) expect_same_result(ring_forward(x, sharding), first, "again");
}

}  // namespace
}  // namespace attend
