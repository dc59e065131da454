// attention() with every option, alone and together, against the oracle; and what must not change a bit of its results.
#include <tbb/global_control.h>

#include <cstring>

#include "tests/attention/call.h"

namespace attend {
namespace {

using namespace test;

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};

TEST(AttentionOptions, PairwiseAgainstTheOracle) {
  std::uint64_t seed = 0;
  for (int a = 0; a < feature_count; ++a)
    for (int b = a; b < feature_count; ++b)
      for (const DType dtype : dtypes) {
        Dice dice(++seed);
        const Call x = make_call(random_sizes(dice, 40, 140), 1u << a | 1u << b, dtype, seed);
        expect_as_exact(x, x.run());
      }
}

TEST(AttentionOptions, ManyTogetherAgainstTheOracle) {
  for (const std::uint64_t seed : sweep(10'000, 10'300)) {
    Dice dice(seed);
    const Sizes sizes = random_sizes(dice, 70, 200);
    const Call x = make_call(sizes, random_features(dice), dtypes[dice.below(3)], seed);
    expect_as_exact(x, x.run());
  }
}

// ---- What is masked ----

// Which rows differ in any bit, as flags in the order of for_each_oracle_row().
std::vector<bool> rows_that_differ(const Call& x, const AttentionResult& a, const AttentionResult& b) {
  std::vector<bool> differ;
  const std::int64_t Dv = x.V.size(3), H = x.Q.size(1), Tq = x.Q.size(2);
  const auto bytes = static_cast<std::size_t>(Dv * size_of(a.out.dtype()));
  for_each_oracle_row(x, [&](const OracleRow& at) {
    const std::int64_t row = (at.b * H + at.h) * Tq + at.i;
    const auto out = [&](const AttentionResult& r) { return element_at(r.out.raw(), r.out.dtype(), row * Dv); };
    const auto lse = [&](const AttentionResult& r) { return element_at(r.lse.raw(), r.lse.dtype(), row); };
    differ.push_back(std::memcmp(out(a), out(b), bytes) != 0 || std::memcmp(lse(a), lse(b), 4) != 0);
  });
  return differ;
}

// A tile of a bias that lies side by side is transposed where it lies, any other by way of rows of f32.
TEST(AttentionOptions, BiasOfAnyLayoutGivesTheSameBits) {
  const Call x = make_call({.B = 1, .H = 2, .Hkv = 2, .Tq = 50, .Tk = 150, .D = 24, .Dv = 20}, 0, DType::f32, 7);
  for (const float closed : {0.0f, -INFINITY}) {
    Tensor wide({1, 2, 50, 150}, DType::f32);
    for (std::int64_t i = 0; i < wide.count(); ++i) {
      wide.data<float>()[i] = i % 11 == 3 ? closed : static_cast<float>(i * 37 % 101) / 32;
    }
    for (const DType dtype : dtypes) {
      const Tensor bias = wide.view().to(dtype), turned = bias.view().transpose(2, 3).clone();
      const AttentionResult a = attention(x.Q, x.K, x.V, {.bias = bias.view()});
      const AttentionResult b = attention(x.Q, x.K, x.V, {.bias = turned.view().transpose(2, 3)});
      for (const bool differs : rows_that_differ(x, a, b)) EXPECT_FALSE(differs) << name_of(dtype);
    }
  }
}

// The keys that are poisoned, which rows attend to one of them, and which weigh one that dropout keeps.
struct Poison {
  std::vector<bool> keys;  // [B,Hkv,Tk]
  std::vector<bool> rows, weighing;
};

Poison choose_poison(const Call& x, Dice& dice, std::int64_t one_in) {
  const std::int64_t Hkv = x.K.size(1), Tk = x.K.size(2), G = x.Q.size(1) / Hkv;
  Poison poison;
  for (std::int64_t i = 0; i < x.K.size(0) * Hkv * Tk; ++i) poison.keys.push_back(dice.one_in(one_in));
  kernels::Row exact;
  for_each_oracle_row(x, [&](const OracleRow& at) {
    kernels::reference_row(at.head, at.row, exact);
    bool hit = false, weighs = false;
    for (std::int64_t j = 0; j < at.head.Tk; ++j) {
      const std::int64_t key = (at.b * Hkv + at.h / G) * Tk + at.key_start + j;
      const bool attends = poison.keys[static_cast<std::size_t>(key)] && exact.logits[j] != -INFINITY;
      hit |= attends;
      weighs |= attends && plain_dropout(at.head, at.row, j) != 0;
    }
    poison.rows.push_back(hit), poison.weighing.push_back(weighs);
  });
  return poison;
}

// `value` in every element of the poisoned keys' rows of k or v.
void put(const View& to, const std::vector<bool>& keys, double value) {
  const std::int64_t Hkv = to.size(1), Tk = to.size(2);
  const Dims& s = to.strides();
  for (std::int64_t b = 0; b < to.size(0); ++b)
    for (std::int64_t h = 0; h < Hkv; ++h)
      for (std::int64_t j = 0; j < Tk; ++j) {
        if (!keys[static_cast<std::size_t>((b * Hkv + h) * Tk + j)]) continue;
        for (std::int64_t d = 0; d < to.size(3); ++d) {
          const std::int64_t at = b * s[0] + h * s[1] + j * s[2] + d * s[3];
          store_element(to.dtype(), const_cast<std::byte*>(element_at(to.raw(), to.dtype(), at)), value);
        }
      }
}

void expect_only_attending_rows(const Call& x, const Poison& poison, const AttentionResult& clean, double in_k,
                                double in_v) {
  const std::string what = x.what + " k " + std::to_string(in_k) + " v " + std::to_string(in_v);
  put(x.K, poison.keys, in_k);
  put(x.V, poison.keys, in_v);
  const AttentionResult result = x.run();
  const std::vector<bool> differ = rows_that_differ(x, clean, result);
  std::size_t row = 0;
  std::string leaks, gone;
  for_each_oracle_row(x, [&](const OracleRow& at) {
    const bool attends = poison.rows[row], weighs = poison.weighing[row], changed = differ[row];
    ++row;
    if (!attends && changed) leaks += Dims{at.b, at.h, at.i}.str();
    // An infinite key may get the weight 0; a NaN, or a value that is not finite, must show.
    if (!weighs || std::isinf(in_k) || std::isfinite(in_k + in_v)) return;
    bool shows = !std::isnan(in_k) || std::isnan(result.lse.item({at.b, at.h, at.i}));
    for (std::int64_t d = 0; d < x.V.size(3); ++d) shows &= !std::isfinite(result.out.item({at.b, at.h, at.i, d}));
    if (!shows) gone += Dims{at.b, at.h, at.i}.str();
  });
  EXPECT_EQ(leaks, "") << what;
  EXPECT_EQ(gone, "") << what;
}

TEST(AttentionOptions, NothingOfAMaskedKeyReachesARowAndAllOfAnAttendedOneDoes) {
  constexpr unsigned hiding[] = {with_mask, with_bias, with_causal, with_window, with_lengths, with_starts};
  for (const std::uint64_t seed : sweep(20'000, 20'150)) {
    Dice dice(seed);
    Sizes sizes = random_sizes(dice, 40, 150);
    sizes.Dv = std::min<std::int64_t>(sizes.Dv, 9);
    unsigned chosen = (random_features(dice) & ~unsigned{with_scale}) | hiding[seed % 6];
    Call x = make_call(sizes, chosen, dtypes[dice.below(3)], seed);
    const Poison poison = choose_poison(x, dice, seed % 2 == 0 ? 3 : 40);
    put(x.K, poison.keys, 0);
    put(x.V, poison.keys, 0);
    const AttentionResult clean = x.run();
    expect_only_attending_rows(x, poison, clean, 0.5, NAN);
    expect_only_attending_rows(x, poison, clean, NAN, 0.5);
    expect_only_attending_rows(x, poison, clean, INFINITY, -INFINITY);
    expect_only_attending_rows(x, poison, clean, -INFINITY, NAN);
    expect_only_attending_rows(x, poison, clean, 0.5, INFINITY);
    expect_only_attending_rows(x, poison, clean, 1e4, -3e4);
  }
}

// ---- What must not change a bit ----

// Large enough for several threads, work items, panels and tiles.
Call large_call(std::uint64_t seed, unsigned wanted) {
  Dice dice(seed);
  constexpr Sizes sizes[] = {{2, 4, 2, 150, 200, 40, 24}, {1, 6, 2, 97, 321, 33, 48}, {3, 2, 2, 260, 130, 16, 17}};
  return make_call(sizes[seed % 3], wanted, dtypes[dice.below(3)], seed);
}

void expect_same_result(const AttentionResult& actual, const AttentionResult& expected, const std::string& what) {
  expect_same(actual.out, expected.out, what);
  expect_same(actual.lse, expected.lse, what + " lse");
}

// 16 units of roundoff: the rounding of the result, and that of the weights.
double close(DType dtype) {
  return 16 * (dtype == DType::f32 ? 0x1p-24 : dtype == DType::f16 ? 0x1p-11 : 0x1p-8) / (dtype == DType::f32 ? 1 : 4);
}

double largest(const View& x) {
  double most = 0;
  const Tensor wide = x.to(DType::f64);
  for (std::int64_t i = 0; i < wide.count(); ++i) most = std::max(most, std::abs(wide.data<double>()[i]));
  return most;
}

// The same bits where both calls take the same path; a few rows take the decode path, which adds up in another order.
void expect_part(const AttentionResult& part, const View& out, const View& lse, bool same_path, const View& values,
                 const std::string& what) {
  if (same_path) {
    expect_same(part.out, out, what);
    expect_same(part.lse, lse, what + " lse");
  } else {
    // Rounded weights change a mean by a part of the values, which may be large beside the mean.
    expect_close(part.out, out, close(out.dtype()) * largest(values) / largest(out), what);
    expect_close(part.lse, lse, 4e-6, what + " lse");
  }
}

Path path_of(const View& q, const View& k, const View& v, const AttentionOptions& options) {
  return plan(q.shape(), k.shape(), v.shape(), q.dtype(), options).path;
}

TEST(AttentionBits, TheSameForAnyNumberOfThreads) {
  for (std::uint64_t seed = 30'000; seed < 30'020; ++seed) {
    Dice dice(seed);
    const Call x = large_call(seed, random_features(dice));
    const AttentionResult expected = x.run();
    for (const std::size_t threads : {1U, 2U, 3U, 8U}) {
      const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
      expect_same_result(x.run(), expected, x.what + " threads " + std::to_string(threads));
    }
  }
}

TEST(AttentionBits, TheSameForAnyLayoutInMemory) {
  for (std::uint64_t seed = 31'000; seed < 31'020; ++seed) {
    Dice dice(seed);
    Call x = large_call(seed, random_features(dice) | with_layout);
    const AttentionResult expected = x.run();
    const Tensor q = x.Q.clone(), k = x.K.clone(), v = x.V.clone();
    expect_same_result(attention(q, k, v, x.options), expected, x.what + " packed");
    // Every other element of every other row, from an odd address on.
    const auto spread = [](const View& t, std::vector<char>& memory) {
      const std::int64_t B = t.size(0), H = t.size(1), T = t.size(2), D = t.size(3);
      memory.assign(static_cast<std::size_t>(4 * t.count() * size_of(t.dtype()) + 1), '\xFF');
      const MutableView wide(memory.data() + 1, t.dtype(), {B, H, 2 * T, 2 * D});
      const MutableView view = wide.slice(2, 0, 2 * T, 2).slice(3, 0, 2 * D, 2);
      view.copy_from(t);
      return view;
    };
    std::vector<char> a, b, c;
    expect_same_result(attention(spread(q, a), spread(k, b), spread(v, c), x.options), expected, x.what + " spread");
  }
}

// Item `b` of what is broadcast along the batch, or of what is not.
View batch_item(const View& x, const Dims& pairs, std::int64_t b) {
  return x.broadcast_to(pairs).slice(0, b, b + 1);
}

TEST(AttentionBits, TheSameAloneAndWithinABatchOfSeven) {
  for (std::uint64_t seed = 32'000; seed < 32'040; ++seed) {
    Dice dice(seed);
    Sizes sizes = random_sizes(dice, 130, 200);
    sizes.B = 7;
    // Dropout goes by the place in the batch.
    const unsigned wanted = random_features(dice) & ~unsigned{with_starts | with_dropout};
    const Call x = make_call(sizes, wanted, dtypes[dice.below(3)], seed);
    const AttentionResult all = x.run();
    const Dims pairs{7, sizes.H, sizes.Tq, sizes.Tk};
    for (const std::int64_t b : {0, 3, 6}) {
      AttentionOptions options = x.options;
      if (options.mask) options.mask = batch_item(*options.mask, pairs, b);
      if (options.bias) options.bias = batch_item(*options.bias, pairs, b);
      if (options.key_lengths) options.key_lengths = options.key_lengths->slice(0, b, b + 1);
      const AttentionResult one =
          attention(x.Q.slice(0, b, b + 1), x.K.slice(0, b, b + 1), x.V.slice(0, b, b + 1), options);
      expect_same(one.out, all.out.view().slice(0, b, b + 1), x.what);
      expect_same(one.lse, all.lse.view().slice(0, b, b + 1), x.what);
    }
  }
}

TEST(AttentionBits, TheSameForTheQueriesInSeveralCalls) {
  int same = 0;
  for (std::uint64_t seed = 33'000; seed < 33'060; ++seed) {
    Dice dice(seed);
    const Sizes sizes = random_sizes(dice, seed % 3 == 0 ? 8 : 150, 300);
    const unsigned wanted = random_features(dice) & ~unsigned{with_starts | with_lengths | with_offset | with_dropout};
    Call x = make_call(sizes, wanted, dtypes[dice.below(3)], seed);
    const std::int64_t offset = dice.below(sizes.Tk) - 5;
    x.options.offset = Offset(offset);
    const AttentionResult whole = x.run();
    const std::vector<std::int64_t> starts = cuts(dice, sizes.Tq, 4);
    const Dims pairs{sizes.B, sizes.H, sizes.Tq, sizes.Tk};
    for (std::size_t n = 0; n + 1 < starts.size(); ++n) {
      const std::int64_t first = starts[n], last = starts[n + 1];
      AttentionOptions options = x.options;
      options.offset = Offset(offset + first);
      if (options.mask) options.mask = options.mask->broadcast_to(pairs).slice(2, first, last);
      if (options.bias) options.bias = options.bias->broadcast_to(pairs).slice(2, first, last);
      const View queries = x.Q.slice(2, first, last);
      const bool same_path = path_of(queries, x.K, x.V, options) == path_of(x.Q, x.K, x.V, x.options);
      same += same_path && first < last;
      expect_part(attention(queries, x.K, x.V, options), whole.out.view().slice(2, first, last),
                  whole.lse.view().slice(2, first, last), same_path, x.V, x.what);
    }
  }
  EXPECT_GT(same, 60);
}

TEST(AttentionBits, SequencesAreCallsOfTheirOwn) {
  for (std::uint64_t seed = 34'000; seed < 34'040; ++seed) {
    Dice dice(seed);
    const unsigned wanted = (random_features(dice) | with_starts) & ~unsigned{with_lengths | with_dropout};
    const Sizes sizes = random_sizes(dice, 200, 300);
    const Call x = make_call(sizes, wanted, dtypes[dice.below(3)], seed);
    const AttentionResult packed = x.run();
    const Dims pairs{1, sizes.H, sizes.Tq, sizes.Tk};
    for (std::int64_t n = 0; n + 1 < x.query_starts.count(); ++n) {
      const std::int64_t q = x.query_starts.data<std::int64_t>()[n], q_end = x.query_starts.data<std::int64_t>()[n + 1];
      const std::int64_t k = x.key_starts.data<std::int64_t>()[n], k_end = x.key_starts.data<std::int64_t>()[n + 1];
      AttentionOptions options = x.options;
      options.query_starts = options.key_starts = std::nullopt;
      const auto own = [&](const View& t) { return t.broadcast_to(pairs).slice(2, q, q_end).slice(3, k, k_end); };
      if (options.mask) options.mask = own(*options.mask);
      if (options.bias) options.bias = own(*options.bias);
      const View queries = x.Q.slice(2, q, q_end), keys = x.K.slice(2, k, k_end), values = x.V.slice(2, k, k_end);
      const AttentionResult one = attention(queries, keys, values, options);
      expect_same(one.out, packed.out.view().slice(2, q, q_end), x.what);
      expect_same(one.lse, packed.lse.view().slice(2, q, q_end), x.what);
    }
  }
}

// A sum that underflowed to -0 would become +0 by the zeros of a tile that the row does not see.
TEST(AttentionBits, TheSignOfZeroDoesNotDependOnMaskedKeys) {
  const Tensor q = Tensor::from({2, 1}, {1, 1});
  Tensor k({200, 1}), v({200, 1});
  std::fill_n(v.data<float>(), 66, -0.0f);
  v.data<float>()[0] = v.data<float>()[64] = -1e-45f;  // the smallest
  k.data<float>()[65] = 20;                            // leaves nothing of the others
  Tensor mask({2, 200}, DType::boolean);
  std::fill_n(mask.data<bool>(), 66, true);
  std::fill_n(mask.data<bool>() + 200, 200, true);
  const AttentionResult all = attention(q, k, v, {.mask = mask});
  const AttentionResult seen = attention(q, k.view().slice(0, 0, 66), v.view().slice(0, 0, 66));
  expect_same(all.out.view().slice(0, 0, 1), seen.out.view().slice(0, 0, 1));
}

// ---- What may change the last bits alone ----

// The keys in another order, along one axis.
Tensor reordered(const View& x, int axis, const std::vector<std::int64_t>& order) {
  Tensor out = Tensor::uninitialized(x.shape(), x.dtype());
  for (std::int64_t to = 0; to < std::ssize(order); ++to) {
    const std::int64_t from = order[static_cast<std::size_t>(to)];
    out.view().slice(axis, to, to + 1).copy_from(x.slice(axis, from, from + 1));
  }
  return out;
}

TEST(AttentionMetamorphic, KeysInAnyOrder) {
  for (std::uint64_t seed = 40'000; seed < 40'020; ++seed) {
    Dice dice(seed);
    const Sizes sizes = random_sizes(dice, 30, 200);
    const unsigned wanted =
        random_features(dice) & (with_scale | with_mask | with_bias | with_sinks | with_softcap | with_layout);
    const Call x = make_call(sizes, wanted, dtypes[dice.below(3)], seed);
    std::vector<std::int64_t> order(static_cast<std::size_t>(sizes.Tk));
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = static_cast<std::int64_t>(i);
      std::swap(order[i], order[static_cast<std::size_t>(dice.below(static_cast<std::int64_t>(i) + 1))]);
    }
    const Dims pairs{sizes.B, sizes.H, sizes.Tq, sizes.Tk};
    AttentionOptions options = x.options;
    Tensor mask, bias;
    if (options.mask) mask = reordered(options.mask->broadcast_to(pairs), 3, order), options.mask = mask.view();
    if (options.bias) bias = reordered(options.bias->broadcast_to(pairs), 3, order), options.bias = bias.view();
    const AttentionResult result = attention(x.Q, reordered(x.K, 2, order), reordered(x.V, 2, order), options);
    const AttentionResult expected = x.run();
    expect_close(result.out, expected.out, close(x.Q.dtype()), x.what);
    expect_close(result.lse, expected.lse, 4e-6, x.what + " lse");
  }
}

TEST(AttentionMetamorphic, KeysInTwoPartsAndMerged) {
  for (std::uint64_t seed = 41'000; seed < 41'040; ++seed) {
    Dice dice(seed);
    const Sizes sizes = random_sizes(dice, 60, 200);
    const unsigned wanted = random_features(dice) & ~unsigned{with_lengths | with_starts | with_offset | with_dropout};
    Call x = make_call(sizes, wanted, dtypes[dice.below(3)], seed);
    const std::int64_t offset = dice.below(sizes.Tk);
    x.options.offset = Offset(offset);
    const Dims pairs{sizes.B, sizes.H, sizes.Tq, sizes.Tk};
    const std::int64_t cut = 1 + dice.below(sizes.Tk);
    const auto part = [&](std::int64_t first, std::int64_t last) {
      AttentionOptions options = x.options;
      options.offset = Offset(offset - first);
      if (options.mask) options.mask = options.mask->broadcast_to(pairs).slice(3, first, last);
      if (options.bias) options.bias = options.bias->broadcast_to(pairs).slice(3, first, last);
      if (first > 0) options.sinks = std::nullopt;
      return attention(x.Q, x.K.slice(2, first, last), x.V.slice(2, first, last), options);
    };
    const AttentionResult a = part(0, cut), b = part(cut, sizes.Tk);
    const AttentionResult both = merge(a.out, a.lse, b.out, b.lse), swapped = merge(b.out, b.lse, a.out, a.lse);
    const AttentionResult expected = x.run();
    expect_close(both.out, expected.out, close(x.Q.dtype()), x.what);
    expect_close(both.lse, expected.lse, 4e-6, x.what + " lse");
    expect_same_result(swapped, both, x.what);
  }
}

// ---- Scores that are hard to add up ----

// One head of size 1, so that scores are the keys: `score(j)` for key j.
template <class Score>
Call with_scores(DType dtype, std::int64_t keys, Score score) {
  Call x;
  Generator generator(5);
  x.q = Tensor({1, 1, 5, 1}), x.k = Tensor({1, 1, keys, 1});
  std::fill_n(x.q.data<float>(), 5, 1.0f);
  for (std::int64_t j = 0; j < keys; ++j) x.k.data<float>()[j] = static_cast<float>(score(j));
  x.q = x.q.view().to(dtype), x.k = x.k.view().to(dtype);
  x.v = generator.normal({1, 1, keys, 9}, 0, 1).view().to(dtype);
  x.Q = x.q, x.K = x.k, x.V = x.v;
  x.options.scale = 1;
  x.what = std::string(name_of(dtype));
  return x;
}

TEST(AttentionOptions, ScoresThatRiseFallAndReachFar) {
  for (const DType dtype : dtypes) {
    const auto check = [&](const char* name, auto score) {
      Call x = with_scores(dtype, 203, score);
      x.what += std::string(" ") + name;
      expect_as_exact(x, x.run());
      Generator generator(6);
      x.mask = coins(generator, {203}, 0.5);
      x.options.mask = x.mask.view();
      expect_as_exact(x, x.run());
    };
    const auto d = [](std::int64_t j) { return static_cast<double>(j); };
    for (const double step : {6.0, 9.0, 40.0, 300.0}) {
      check("rising", [&](std::int64_t j) { return std::floor(d(j) / 3) * step; });
      check("falling", [&](std::int64_t j) { return -std::floor(d(j) / 3) * step; });
      check("rising from far below", [&](std::int64_t j) { return d(j) * step - 30'000; });
      check("back and forth", [&](std::int64_t j) { return d(j % 7) * step * (j % 2 == 0 ? 1 : -1); });
    }
    // Half of the slack, again and again.
    check("rising slowly", [&](std::int64_t j) { return d(j) * 0.7; });
    for (const double all : {0.0, 1e4, -1e4, 6e4, -6e4}) check("equal", [&](std::int64_t) { return all; });
    if (dtype == DType::f16) continue;  // ends at 65504
    for (const double all : {1e8, -1e8, 1e30, -1e30}) {
      check("equal and huge", [&](std::int64_t) { return all; });
      check("one far above", [&](std::int64_t j) { return j == 77 ? all : all < 0 ? 2 * all : all / 2; });
    }
  }
}

TEST(AttentionOptions, TheLowestFiniteBiasIsNotMinusInfinity) {
  for (const DType dtype : dtypes) {
    Call x = with_scores(dtype, 70, [](std::int64_t j) { return static_cast<double>(j % 5); });
    for (const double lowest : {-3.4028234663852886e38, -3.3895313892515355e38, -1e300, -65504.0}) {
      x.bias = Tensor({5, 70}, DType::f64);
      for (std::int64_t i = 0; i < 5 * 70; ++i) x.bias.data<double>()[i] = i == 70 + 69 || i < 2 ? 0 : lowest;
      for (std::int64_t j = 0; j < 70; ++j) x.bias.data<double>()[3 * 70 + j] = -INFINITY;
      x.options.bias = x.bias.view();
      const AttentionResult result = x.run();
      const Tensor mean = attention(Tensor({1, 1, 1, 1}, dtype), x.K, x.V).out;
      // Row 0 sees keys 0 and 1, row 1 key 69; row 2 gives all its keys the same bias, row 3 is closed.
      expect_same(result.out.view().select(2, 1), x.V.select(2, 69), x.what);
      if (lowest < -1e38) {
        expect_close(result.out.view().select(2, 2), mean.view().select(2, 0), close(dtype), x.what);
      }
      EXPECT_EQ(result.out.item({0, 0, 3, 0}), 0);
      EXPECT_EQ(result.lse.item({0, 0, 3}), -INFINITY);
      EXPECT_LT(result.lse.item({0, 0, 2}), -1e4);
    }
  }
}

TEST(AttentionOptions, NumbersBeyondF32) {
  for (const DType dtype : dtypes) {
    Call x = with_scores(dtype, 70, [](std::int64_t j) { return static_cast<double>(j % 5); });
    const AttentionResult plain = x.run();
    Tensor sink({1}, DType::f64);
    sink.data<double>()[0] = -1e300;
    expect_same_result(attention(x.Q, x.K, x.V, {.scale = 1, .sinks = sink}), plain, "a sink far below");
    sink.data<double>()[0] = 1e300;
    const AttentionResult drowned = attention(x.Q, x.K, x.V, {.scale = 1, .sinks = sink});
    EXPECT_EQ(drowned.out.item({0, 0, 4, 3}), 0);
    EXPECT_EQ(drowned.lse.item({0, 0, 4}), INFINITY);
    for (const double cap : {1e30, 1e38, 1e300}) {
      expect_close(attention(x.Q, x.K, x.V, {.scale = 1, .softcap = cap}).out, plain.out, close(dtype), "no cap");
    }
    const Tensor mean = attention(x.Q, x.K, x.V, {.scale = 0}).out;
    for (const double cap : {1e-20, 1e-38, 1e-300}) {
      expect_close(attention(x.Q, x.K, x.V, {.scale = 1, .softcap = cap}).out, mean, close(dtype), "all equal");
    }
  }
}

// Hidden scores stay -infinity, also where the scale that multiplies them is the least that is taken.
TEST(AttentionOptions, TheSmallestScales) {
  for (const DType dtype : dtypes) {
    const Call x = with_scores(dtype, 70, [](std::int64_t j) { return static_cast<double>(j % 5); });
    for (const std::int64_t queries : {5, 70}) {
      const View Q = x.Q.slice(2, 0, 1).broadcast_to({1, 1, queries, 1});
      const AttentionOptions causal{.scale = 0, .causal = true, .offset = Offset(0)};
      AttentionOptions tiny = causal;
      const AttentionResult expected = attention(Q, x.K, x.V, causal);
      for (const double scale : {1e-30, 8.2e-39, -8.2e-39}) {
        tiny.scale = scale;
        expect_close(attention(Q, x.K, x.V, tiny).out, expected.out, close(dtype), x.what);
      }
    }
  }
}

TEST(AttentionOptions, AWindowWiderThanAnyDistanceIsOpen) {
  const Call x = with_scores(DType::f32, 70, [](std::int64_t j) { return static_cast<double>(j % 5); });
  const AttentionOptions open{.scale = 1, .offset = Offset(std::int64_t{1} << 53)};
  AttentionOptions wide = open;
  wide.window = {INT64_MAX, INT64_MAX};
  expect_same_result(attention(x.Q, x.K, x.V, wide), attention(x.Q, x.K, x.V, open), "open");
}

// What is lost where a sink of this size becomes f32 is more than 2 to it, which f32 holds.
void check_large_sinks(DType dtype, std::int64_t queries) {
  const Call x = with_scores(dtype, 70, [](std::int64_t j) { return static_cast<double>(j % 5); });
  const View Q = x.Q.slice(2, 0, 1).broadcast_to({1, 1, queries, 1});
  const AttentionResult plain = attention(Q, x.K, x.V, x.options);
  const Tensor one = Tensor::from({1}, {1}).view().to(dtype), zero(plain.out.shape(), dtype);
  for (const double size : {1e8, 3e9, 1e10, 1.2345678912e10, 7.7e15, 1e20, 3.3333333e30, 1e38}) {
    SCOPED_TRACE(x.what + " a sink of " + std::to_string(size));
    Tensor sink({1}, DType::f64);
    const AttentionOptions options{.scale = 1, .sinks = sink};
    sink.data<double>()[0] = -size;
    expect_same_result(attention(Q, x.K, x.V, options), plain, "below");
    sink.data<double>()[0] = size;
    const AttentionResult drowned = attention(Q, x.K, x.V, options);
    expect_same(drowned.out, zero);
    for (std::int64_t i = 0; i < queries; ++i) EXPECT_NEAR(drowned.lse.item({0, 0, i}), size, size * 0x1p-23);
    const AttentionGradients gradients = attention_backward(one.view().broadcast_to(zero.shape()), Q, x.K, x.V,
                                                            drowned.out, drowned.lse, options, {.dsinks = true});
    expect_same(gradients.dq, Tensor(Q.shape(), dtype));
    expect_same(gradients.dv, Tensor(x.V.shape(), dtype));
    EXPECT_EQ(gradients.dsinks->item({0}), 0);
  }
}

TEST(AttentionOptions, SinksOfAnyMagnitude) {
  for (const DType dtype : dtypes) {
    check_large_sinks(dtype, 5);
    check_large_sinks(dtype, 70);
  }
}

TEST(AttentionOptions, RowsThatSeeNothing) {
  for (const DType dtype : dtypes) {
    for (const unsigned sink : {0u, unsigned{with_sinks}}) {
      Call x = make_call({2, 4, 2, 70, 90, 8, 5}, sink, dtype, 3);
      Generator generator(4);
      x.mask = coins(generator, {2, 1, 70, 90}, 0.02);  // about a row in six
      x.options.mask = x.mask.view();
      const AttentionResult result = x.run();
      expect_as_exact(x, result);
      std::int64_t empty = 0;
      kernels::Row exact;
      for_each_oracle_row(x, [&](const OracleRow& at) {
        kernels::reference_row(at.head, at.row, exact);
        if (*std::max_element(exact.logits.begin(), exact.logits.end()) != -INFINITY) return;
        ++empty;
        for (std::int64_t d = 0; d < 5; ++d) EXPECT_EQ(result.out.item({at.b, at.h, at.i, d}), 0);
        if (sink == 0) {
          EXPECT_EQ(result.lse.item({at.b, at.h, at.i}), -INFINITY);
        }
      });
      EXPECT_GT(empty, 20);
    }
  }
}

}  // namespace
}  // namespace attend
