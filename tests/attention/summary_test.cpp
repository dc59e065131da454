// attention_summary() and attention_weights(): weights against the oracle's, and everything else against the same
// numbers made from those weights one by one, in double.
#include "attend/summary.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "attend/threads.h"
#include "tests/attention/call.h"

namespace attend {
namespace {

using namespace test;

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  return a.count() == 0 || std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.count() * size_of(a.dtype()))) == 0;
}

// A call, what its forward gave, and its weights in double, the oracle's.
struct Case {
  Call x;
  AttentionResult forward;
  std::optional<View> lse, lse_low;  // as they are given
  Tensor exact, visible;             // [B,H,Tq,Tk]
  std::int64_t B, H, Tq, Tk;

  double at(const Tensor& t, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return t.data<double>()[((b * H + h) * Tq + i) * Tk + j];
  }
};

// How lse is given: all of it, without its low part, not at all.
enum class Lse { both, high, none };

Case make_case(Call call, Lse given) {
  Case c{std::move(call), {}, {}, {}, {}, {}, 0, 0, 0, 0};
  c.forward = c.x.run({.lse_low = true});
  if (given != Lse::none) c.lse = c.forward.lse;
  if (given == Lse::both) c.lse_low = c.forward.lse_low->view();
  c.B = c.x.Q.size(0), c.H = c.x.Q.size(1), c.Tq = c.x.Q.size(2), c.Tk = c.x.K.size(2);
  c.exact = Tensor({c.B, c.H, c.Tq, c.Tk}, DType::f64), c.visible = Tensor({c.B, c.H, c.Tq, c.Tk}, DType::f64);
  kernels::Row row;
  for_each_oracle_row(c.x, [&](const OracleRow& at) {
    kernels::reference_row(at.head, at.row, row);
    const std::int64_t first = ((at.b * c.H + at.h) * c.Tq + at.i) * c.Tk + at.key_start;
    for (std::int64_t j = 0; j < at.head.Tk; ++j) {
      if (row.logits[j] == -INFINITY) continue;
      c.visible.data<double>()[first + j] = 1;
      c.exact.data<double>()[first + j] = std::exp(row.logits[j] - row.lse - row.lse_low);
    }
  });
  return c;
}

// The level key of a query, in its sequence, and where that begins along k's axis.
struct Place {
  std::int64_t level, key_start;
};
std::vector<Place> places_of(const Case& c, std::int64_t b) {
  std::vector<Place> places(static_cast<std::size_t>(c.Tq));
  for_each_oracle_row(c.x, [&](const OracleRow& at) {
    if (at.b == b) places[static_cast<std::size_t>(at.i)] = {at.row + at.head.rules.offset, at.key_start};
  });
  return places;
}

Case random_case(std::uint64_t seed) {
  Dice dice(seed + 5000);
  constexpr DType dtypes[] = {DType::f32, DType::f32, DType::bf16, DType::f16, DType::f64};
  // Beyond one stretch of keys, 768, and tiles of 64 queries, now and then.
  Sizes s = random_sizes(dice, dice.one_in(4) ? 150 : 40, dice.one_in(4) ? 1000 : 100);
  return make_case(make_call(s, random_features(dice), dtypes[dice.below(5)], seed), static_cast<Lse>(seed % 3));
}

Range random_part(Dice& dice, std::int64_t size) {
  const std::int64_t begin = dice.below(size + 1);
  return {begin, begin + dice.below(size - begin + 1)};
}

// ---- Weights ----

void expect_weights(const Case& c, const Tensor& weights) {
  // A logit is some D roundings of products near 1 to 16 off; bf16's exp2 adds 3e-6.
  const double relative = c.x.Q.dtype() == DType::f64 ? 1e-12 : 4e-5;
  for (std::int64_t n = 0; n < c.exact.count(); ++n) {
    const double exact = c.exact.data<double>()[n];
    const double got =
        weights.dtype() == DType::f64 ? weights.data<double>()[n] : static_cast<double>(weights.data<float>()[n]);
    ASSERT_NEAR(got, exact, relative * exact + 1e-37) << c.x.what << " element " << n;
  }
}

TEST(AttentionSummary, WeightsAreTheOracles) {
  for (const std::uint64_t seed : sweep(0, 150)) {
    const Case c = random_case(seed);
    expect_weights(c, attention_weights(c.x.Q, c.x.K, c.lse, c.x.options, {.lse_low = c.lse_low}));
    if (HasFatalFailure()) return;
  }
}

TEST(AttentionSummary, PartsHaveTheBitsOfTheWhole) {
  for (const std::uint64_t seed : sweep(200, 300)) {
    const Case c = random_case(seed);
    Dice dice(seed);
    const Tensor whole = attention_weights(c.x.Q, c.x.K, c.lse, c.x.options, {.lse_low = c.lse_low});
    const Range queries = random_part(dice, c.Tq), keys = random_part(dice, c.Tk);
    const Tensor some =
        attention_weights(c.x.Q, c.x.K, c.lse, c.x.options, {.lse_low = c.lse_low, .queries = queries, .keys = keys});
    const Tensor cut = whole.view().slice(2, queries.begin, queries.end).slice(3, keys.begin, keys.end).clone();
    EXPECT_TRUE(same_bits(some, cut)) << c.x.what << " queries " << queries.begin << " to " << queries.end << " keys "
                                      << keys.begin << " to " << keys.end;
    Tensor pairs({7, 2}, DType::i64);
    for (int n = 0; n < 7; ++n) {
      pairs.data<std::int64_t>()[2 * n] = dice.below(c.Tq), pairs.data<std::int64_t>()[2 * n + 1] = dice.below(c.Tk);
    }
    const Tensor of_pairs = attention_weights_of(pairs, c.x.Q, c.x.K, c.lse, c.x.options, c.lse_low);
    for (std::int64_t n = 0; n < 7 * c.B * c.H; ++n) {
      const std::int64_t b = n / 7 / c.H, h = n / 7 % c.H, at = n % 7;
      EXPECT_EQ(of_pairs.item({b, h, at}), whole.item({b, h, static_cast<std::int64_t>(pairs.item({at, 0})),
                                                       static_cast<std::int64_t>(pairs.item({at, 1}))}))
          << c.x.what;
    }
  }
}

// ---- Summaries ----

// Everything that a summary has, from the weights.
class FromWeights {
 public:
  FromWeights(const Case& c, const Tensor& weights) : c_(c), weights_(weights.view().to(DType::f64)) {
    for (std::int64_t row = 0; row < c.B * c.H * c.Tq; ++row) {
      const double* visible = c.visible.data<double>() + row * c.Tk;
      seen_.push_back(std::accumulate(visible, visible + c.Tk, 0.0));
    }
  }

  double weight(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return c_.at(weights_, b, h, i, j);
  }
  bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return c_.at(c_.visible, b, h, i, j) != 0;
  }
  double seen(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return seen_[static_cast<std::size_t>((b * c_.H + h) * c_.Tq + i)];
  }

  std::vector<std::int64_t> top(std::int64_t b, std::int64_t h, std::int64_t i) const {
    std::vector<std::int64_t> keys;
    for (std::int64_t j = 0; j < c_.Tk; ++j)
      if (sees(b, h, i, j)) keys.push_back(j);
    std::stable_sort(keys.begin(), keys.end(), [&](auto a, auto d) { return weight(b, h, i, a) > weight(b, h, i, d); });
    return keys;
  }

 private:
  const Case& c_;
  Tensor weights_;
  std::vector<double> seen_;
};

void expect_top(const Case& c, const FromWeights& w, const Tensor& top_keys, const Tensor& top_weights,
                std::int64_t top) {
  for (std::int64_t row = 0; row < c.B * c.H * c.Tq; ++row) {
    const std::int64_t b = row / c.Tq / c.H, h = row / c.Tq % c.H, i = row % c.Tq;
    const auto keys = w.top(b, h, i);
    for (std::int64_t n = 0; n < top; ++n) {
      const bool is_there = n < std::ssize(keys);
      const std::int64_t key = is_there ? keys[static_cast<std::size_t>(n)] : -1;
      ASSERT_EQ(static_cast<std::int64_t>(top_keys.item({b, h, i, n})), key) << c.x.what << " row " << i;
      ASSERT_EQ(top_weights.item({b, h, i, n}), is_there ? w.weight(b, h, i, key) : 0) << c.x.what;
    }
  }
}

void expect_rows(const Case& c, const FromWeights& w, const AttentionSummary& s, std::int64_t top) {
  for (std::int64_t b = 0; b < c.B; ++b) {
    const std::vector<Place> places = places_of(c, b);
    for (std::int64_t h = 0; h < c.H; ++h) {
      for (std::int64_t i = 0; i < c.Tq; ++i) {
        const auto keys = w.top(b, h, i);
        double entropy = 0, distance = 0, total = 0;
        for (const std::int64_t j : keys) {
          const double weight = w.weight(b, h, i, j);
          const Place& place = places[static_cast<std::size_t>(i)];
          entropy -= weight > 0 ? weight * std::log(weight) : 0;
          distance += weight * std::abs(static_cast<double>(place.level - (j - place.key_start)));
          total += weight;
        }
        ASSERT_NEAR(s.entropy.item({b, h, i}), entropy, 2e-5 * (1 + entropy)) << c.x.what;
        if (s.distance) {
          ASSERT_NEAR(s.distance->item({b, h, i}), distance, 2e-5 * (1 + distance)) << c.x.what;
        }
        if (c.x.options.sinks) {
          ASSERT_NEAR(s.sink_weights->item({b, h, i}), 1 - total, 2e-5) << c.x.what;
        }
      }
    }
  }
  expect_top(c, w, s.top_keys, s.top_weights, top);
}

void expect_keys(const Case& c, const FromWeights& w, const AttentionSummary& s) {
  for (std::int64_t b = 0; b < c.B; ++b) {
    for (std::int64_t h = 0; h < c.H; ++h) {
      for (std::int64_t j = 0; j < c.Tk; ++j) {
        double received = 0, uniform = 0;
        for (std::int64_t i = 0; i < c.Tq; ++i) {
          received += w.weight(b, h, i, j);
          if (w.sees(b, h, i, j)) uniform += 1 / w.seen(b, h, i);
        }
        ASSERT_NEAR(s.received.item({b, h, j}), received, 2e-6 * received + 1e-37) << c.x.what << " key " << j;
        const double lift = uniform > 0 ? received / uniform : 0;
        ASSERT_NEAR(s.lift.item({b, h, j}), lift, 2e-6 * lift + 1e-37) << c.x.what << " key " << j;
      }
    }
  }
}

// Of a part of a sequence, at one head: a map's cells.
void expect_map(const Case& c, const FromWeights& w, const View& map, const View& most, std::int64_t b, std::int64_t h,
                Range queries, Range keys) {
  if (map.count() == 0) return;
  const std::int64_t rows = queries.end - queries.begin, columns = keys.end - keys.begin;
  const std::int64_t R = std::min(map.size(0), rows), C = std::min(map.size(1), columns);
  std::vector<double> sums(static_cast<std::size_t>(map.count())), largest(sums.size()), seeing(sums.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t r = i * R / rows;
    seeing[static_cast<std::size_t>(r)] += w.seen(b, h, queries.begin + i) > 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      const auto cell = static_cast<std::size_t>(r * map.size(1) + j * C / columns);
      const double weight = w.weight(b, h, queries.begin + i, keys.begin + j);
      sums[cell] += weight, largest[cell] = std::max(largest[cell], weight);
    }
  }
  for (std::int64_t r = 0; r < map.size(0); ++r) {
    for (std::int64_t k = 0; k < map.size(1); ++k) {
      const auto cell = static_cast<std::size_t>(r * map.size(1) + k);
      const double mean = sums[cell] / std::max(1.0, r < R ? seeing[static_cast<std::size_t>(r)] : 0);
      ASSERT_NEAR(map.item({r, k}), mean, 2e-6 * mean + 1e-37) << c.x.what << " cell " << r << "," << k;
      ASSERT_EQ(most.item({r, k}), largest[cell]) << c.x.what << " cell " << r << "," << k;
    }
  }
}

void expect_maps(const Case& c, const FromWeights& w, const Tensor& map, const Tensor& most) {
  std::vector<Range> queries{{0, c.Tq}}, keys{{0, c.Tk}};
  if (c.x.options.query_starts) {
    queries.clear(), keys.clear();
    const auto* q = c.x.query_starts.data<std::int64_t>();
    const auto* k = c.x.key_starts.data<std::int64_t>();
    for (std::int64_t n = 0; n + 1 < c.x.query_starts.count(); ++n) {
      queries.push_back({q[n], q[n + 1]}), keys.push_back({k[n], k[n + 1]});
    }
  }
  for (std::int64_t n = 0; n < map.size(0); ++n) {
    const std::int64_t b = c.x.options.query_starts ? 0 : n;
    const auto at = static_cast<std::size_t>(c.x.options.query_starts ? n : 0);
    for (std::int64_t h = 0; h < c.H; ++h) {
      expect_map(c, w, map.view().select(0, n).select(0, h), most.view().select(0, n).select(0, h), b, h, queries[at],
                 keys[at]);
    }
  }
}

// sized: of what keys carry.
void expect_maps_of_parts(std::uint64_t first, std::uint64_t last, bool sized) {
  for (const std::uint64_t seed : sweep(first, last)) {
    const Case c = random_case(seed);
    if (c.x.options.query_starts) continue;  // refused
    Dice dice(seed);
    const Tensor sizes = key_sizes_of(c.visible, c.x.Q.dtype(), seed);
    const std::optional<View> given = sized ? std::optional(sizes.view()) : std::nullopt;
    const WeightsOptions part{c.lse_low, random_part(dice, c.Tq), random_part(dice, c.Tk), given};
    const AttentionMap maps =
        attention_map({1 + dice.below(30), 1 + dice.below(30)}, c.x.Q, c.x.K, c.lse, c.x.options, part);
    const FromWeights w(
        c, attention_weights(c.x.Q, c.x.K, c.lse, c.x.options, {.lse_low = c.lse_low, .key_sizes = given}));
    for (std::int64_t n = 0; n < c.B * c.H; ++n) {
      const std::int64_t b = n / c.H, h = n % c.H;
      expect_map(c, w, maps.map.view().select(0, b).select(0, h), maps.map_max.view().select(0, b).select(0, h), b, h,
                 *part.queries, *part.keys);
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(AttentionSummary, MapsOfPartsAreWhatTheWeightsGive) {
  expect_maps_of_parts(500, 600, false);
}

TEST(AttentionSummary, IsWhatTheWeightsGive) {
  for (const std::uint64_t seed : sweep(300, 500)) {
    const Case c = random_case(seed);
    Dice dice(seed);
    const std::int64_t top = dice.one_in(4) ? dice.below(20) : 8;
    const MapSize map{1 + dice.below(40), 1 + dice.below(40)};
    const AttentionSummary s =
        attention_summary(c.x.Q, c.x.K, c.lse, c.x.options, {.lse_low = c.lse_low, .top = top, .map = map});
    const FromWeights w(c, attention_weights(c.x.Q, c.x.K, c.lse, c.x.options, {.lse_low = c.lse_low}));
    expect_rows(c, w, s, top);
    expect_keys(c, w, s);
    expect_maps(c, w, *s.map, *s.map_max);
    if (HasFatalFailure()) return;
  }
}

// ---- By norm ----

TEST(AttentionSummary, CarriedIsWeightsTimesSizes) {
  for (const std::uint64_t seed : sweep(700, 850)) {
    const Case c = random_case(seed);
    Dice dice(seed);
    const std::int64_t top = dice.one_in(4) ? dice.below(20) : 8;
    const MapSize map{1 + dice.below(40), 1 + dice.below(40)};
    const Tensor sizes = key_sizes_of(c.visible, c.x.Q.dtype(), seed);
    const SummaryOptions plain{.lse_low = c.lse_low, .top = top, .map = map};
    SummaryOptions sized = plain;
    sized.key_sizes = sizes.view();
    const AttentionSummary by_weight = attention_summary(c.x.Q, c.x.K, c.lse, c.x.options, plain);
    const AttentionSummary s = attention_summary(c.x.Q, c.x.K, c.lse, c.x.options, sized);
    for (const SummaryStatistic& statistic : summary_statistics()) {
      const Tensor* expected = statistic.in(by_weight);
      if (expected) {
        ASSERT_TRUE(same_bits(*statistic.in(s), *expected)) << c.x.what << " " << statistic.name;
      }
    }

    const Tensor carried =
        attention_weights(c.x.Q, c.x.K, c.lse, c.x.options, {.lse_low = c.lse_low, .key_sizes = sizes.view()});
    const Tensor weights = attention_weights(c.x.Q, c.x.K, c.lse, c.x.options, {.lse_low = c.lse_low});
    for (std::int64_t n = 0; n < carried.count(); ++n) {
      const std::int64_t j = n % c.Tk, of_head = n / c.Tq / c.Tk;
      const std::array at{of_head / c.H, of_head % c.H, n / c.Tk % c.Tq, j};
      const double size = sizes.item({at[0], at[1], j}), weight = weights.item({at[0], at[1], at[2], j});
      const double product = weight == 0 ? 0 : weight * size;
      ASSERT_NEAR(carried.item({at[0], at[1], at[2], j}), product, 1e-7 * product + 1e-37) << c.x.what;
    }
    const FromWeights w(c, carried);
    expect_top(c, w, *s.carried_top_keys, *s.carried_top_weights, top);
    expect_maps(c, w, *s.carried_map, *s.carried_map_max);
    for (std::int64_t n = 0; n < s.received.count(); ++n) {
      const std::array at{n / c.Tk / c.H, n / c.Tk % c.H, n % c.Tk};
      const double received = s.received.item({at[0], at[1], at[2]}), size = sizes.item({at[0], at[1], at[2]});
      ASSERT_NEAR(s.carried_received.value().item({at[0], at[1], at[2]}), received == 0 ? 0 : received * size,
                  1e-6 * received * (std::isnan(size) ? 1 : size) + 1e-37)
          << c.x.what;
    }
    if (HasFatalFailure()) return;
  }
}

TEST(AttentionSummary, MapsOfPartsByNorm) {
  expect_maps_of_parts(850, 900, true);
}

}  // namespace
}  // namespace attend
