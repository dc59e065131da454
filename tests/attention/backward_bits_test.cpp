// What must hold of attention_backward(): when two calls give the same bits, what reaches which gradient, and what is
// written.
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include "tests/allocations.h"
#include "tests/attention/gradient.h"

namespace attend {
namespace {

using namespace test;

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

void expect_same_gradients(const AttentionGradients& actual, const AttentionGradients& expected,
                           const std::string& what) {
  const auto a = listed(actual), e = listed(expected);
  for (std::size_t n = 0; n < gradient_names.size(); ++n) {
    ASSERT_EQ(a[n].has_value(), e[n].has_value()) << what;
    if (a[n]) expect_same(*a[n], *e[n], what + " " + gradient_names[n]);
  }
}

// Large enough for several threads, work items, panels and tiles.
BackwardCall large_call(std::uint64_t seed, unsigned wanted) {
  constexpr Sizes sizes[] = {{2, 4, 2, 150, 200, 40, 24}, {1, 6, 2, 97, 321, 33, 48}, {3, 2, 2, 260, 130, 16, 17}};
  return backward_of(make_call(sizes[seed / 4 % 3], wanted, dtypes[seed % 4], seed), seed, seed % 5 != 0);
}

// ---- The same bits ----

TEST(AttentionBackwardBits, TheSameForAnyNumberOfThreadsAndEveryTime) {
  for (std::uint64_t seed = 60'000; seed < 60'012; ++seed) {
    Dice dice(seed);
    const BackwardCall c = large_call(seed, random_features(dice));
    const AttentionGradients expected = c.run();
    expect_same_gradients(c.run(), expected, c.x.what + " again");
    for (const int threads : {1, 2, 3, 8}) {
      const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads));
      tbb::task_arena(threads).execute(
          [&] { expect_same_gradients(c.run(), expected, c.x.what + " threads " + std::to_string(threads)); });
    }
  }
}

TEST(AttentionBackwardBits, TheSameForAnyLayoutInMemory) {
  for (std::uint64_t seed = 61'000; seed < 61'012; ++seed) {
    Dice dice(seed);
    const BackwardCall c = large_call(seed, random_features(dice) | with_layout);
    const AttentionGradients expected = c.run();
    // Every other element of every other row, from an odd address on.
    std::vector<std::vector<char>> memory;
    const auto spread = [&](const View& t) {
      Dims wide = t.shape();
      const int rank = wide.rank();
      for (const int axis : {rank - 2, rank - 1}) wide[axis] *= 2;
      std::vector<char>& bytes =
          memory.emplace_back(static_cast<std::size_t>(element_count(wide) * size_of(t.dtype()) + 1), -1);
      const MutableView all(bytes.data() + 1, t.dtype(), wide);
      const MutableView view = all.slice(rank - 2, 0, wide[rank - 2], 2).slice(rank - 1, 0, wide[rank - 1], 2);
      view.copy_from(t);
      return view;
    };
    BackwardOptions wanted = c.wanted;
    if (wanted.dlse) wanted.dlse = spread(*wanted.dlse);
    const AttentionGradients strided =
        attention_backward(spread(c.Dout), spread(c.x.Q), spread(c.x.K), spread(c.x.V), spread(c.forward.out),
                           spread(c.forward.lse), c.x.options, wanted);
    expect_same_gradients(strided, expected, c.x.what + " spread");
    const Tensor dout = c.Dout.clone(), q = c.x.Q.clone(), k = c.x.K.clone(), v = c.x.V.clone();
    expect_same_gradients(attention_backward(dout, q, k, v, c.forward.out, c.forward.lse, c.x.options, c.wanted),
                          expected, c.x.what + " packed");
  }
}

TEST(AttentionBackwardBits, TheSameAloneAndWithinABatch) {
  for (std::uint64_t seed = 62'000; seed < 62'024; ++seed) {
    Dice dice(seed);
    Sizes sizes = random_sizes(dice, 130, 150);
    sizes.B = 4;
    const unsigned wanted = random_features(dice) & ~unsigned{with_starts | with_dropout};
    const BackwardCall c = backward_of(make_call(sizes, wanted, dtypes[seed % 4], seed), seed, dice.one_in(2));
    const AttentionGradients all = c.run();
    const Dims pairs{sizes.B, sizes.H, sizes.Tq, sizes.Tk};
    for (const std::int64_t b : {0, 1, 3}) {
      const auto item = [&](const View& x) { return x.slice(0, b, b + 1); };
      AttentionOptions options = c.x.options;
      if (options.mask) options.mask = item(options.mask->broadcast_to(pairs));
      if (options.bias) options.bias = item(options.bias->broadcast_to(pairs));
      if (options.key_lengths) options.key_lengths = item(*options.key_lengths);
      BackwardOptions given{.lse_low = item(*c.wanted.lse_low)};
      if (c.wanted.dlse) given.dlse = item(*c.wanted.dlse);
      const AttentionGradients one = attention_backward(item(c.Dout), item(c.x.Q), item(c.x.K), item(c.x.V),
                                                        item(c.forward.out), item(c.forward.lse), options, given);
      expect_same(one.dq, item(all.dq), c.x.what + " dq");
      expect_same(one.dk, item(all.dk), c.x.what + " dk");
      expect_same(one.dv, item(all.dv), c.x.what + " dv");
    }
  }
}

// What is not asked for changes nothing of what is.
TEST(AttentionBackwardBits, TheSameWhateverElseIsWanted) {
  for (std::uint64_t seed = 63'000; seed < 63'012; ++seed) {
    Dice dice(seed);
    const BackwardCall c = large_call(seed, random_features(dice) | with_bias | with_alibi | with_sinks);
    const AttentionGradients all = c.run();
    const AttentionGradients few =
        attention_backward(c.Dout, c.x.Q, c.x.K, c.x.V, c.forward.out, c.forward.lse, c.x.options,
                           {.dlse = c.wanted.dlse, .lse_low = c.wanted.lse_low});
    expect_same(few.dq, all.dq, c.x.what + " dq");
    expect_same(few.dk, all.dk, c.x.what + " dk");
    expect_same(few.dv, all.dv, c.x.what + " dv");
  }
}

// ---- Nothing, NaN and infinity ----

TEST(AttentionBackward, RowsThatSeeNothingAndKeysThatNobodySeesHaveGradient0) {
  for (const DType dtype : dtypes) {
    for (const unsigned sink : {0u, unsigned{with_sinks}}) {
      Call x = make_call({2, 4, 2, 70, 90, 8, 5}, sink, dtype, 3);
      Generator generator(4);
      x.mask = coins(generator, {2, 1, 70, 90}, 0.02);  // about a row and a key in four
      x.options.mask = x.mask.view();
      const BackwardCall c = backward_of(std::move(x), 5, true);
      const AttentionGradients g = c.run();
      std::int64_t rows = 0, keys = 0;
      const auto none = [&](std::int64_t b, int axis, std::int64_t at) {
        const View seen = c.x.mask.view().select(0, b).select(0, 0).select(axis, at);
        for (std::int64_t n = 0; n < seen.size(0); ++n)
          if (seen.item({n}) != 0) return false;
        return true;
      };
      const auto expect_zero = [&](const View& row) { expect_close(row, Tensor(row.shape(), dtype), 0, c.x.what); };
      for (std::int64_t b = 0; b < 2; ++b) {
        for (std::int64_t i = 0; i < 70; ++i)
          if (none(b, 0, i)) ++rows, expect_zero(g.dq.view().select(0, b).select(1, i));
        for (std::int64_t j = 0; j < 90; ++j)
          if (none(b, 1, j)) {
            ++keys;
            expect_zero(g.dk.view().select(0, b).select(1, j));
            expect_zero(g.dv.view().select(0, b).select(1, j));
          }
      }
      EXPECT_GT(rows, 10);
      EXPECT_GT(keys, 10);
    }
  }
}

MutableView writable(const View& x) {
  return MutableView(const_cast<void*>(x.raw()), x.dtype(), x.shape(), x.strides());
}

// One argument of the backward whose rows are poisoned; which gradients it enters through a pair that it is part of.
struct Poisoned {
  const char* name;
  View rows;  // [B,heads,T,...]
  bool of_keys;
  bool reaches_dv, reaches_dsinks;
};

std::vector<Poisoned> arguments_of_rows(const BackwardCall& c) {
  std::vector<Poisoned> found{{"k", c.x.K, true, true, false},
                              {"v", c.x.V, true, false, false},
                              {"q", c.x.Q, false, true, false},
                              {"dout", c.Dout, false, true, true},
                              {"out", c.forward.out, false, false, true},
                              {"lse", c.forward.lse, false, true, true}};
  if (c.wanted.dlse) found.push_back({"dlse", *c.wanted.dlse, false, false, true});
  return found;
}

// 1 for every element of a gradient that a pair with a poisoned row is part of.
GradientSums reach_of(const BackwardCall& c, const Poisoned& poisoned, const std::vector<bool>& chosen) {
  GradientSums reached(c);
  const std::int64_t G = c.x.Q.size(1) / c.x.K.size(1), heads = poisoned.rows.size(1), T = poisoned.rows.size(2);
  const auto is_chosen = [&](std::int64_t b, std::int64_t h, std::int64_t t) {
    return chosen[static_cast<std::size_t>((b * heads + h) * T + t)];
  };
  kernels::Row exact;
  for_each_oracle_row(c.x, [&](const OracleRow& at) {
    const std::int64_t kv = at.h / G;
    kernels::reference_row(at.head, at.row, exact);
    const bool row = !poisoned.of_keys && is_chosen(at.b, at.h, at.i);
    if (row && poisoned.reaches_dsinks && c.wanted.dsinks) reached.sink(at.h) = 1;
    for (std::int64_t j = 0; j < at.head.Tk; ++j) {
      const std::int64_t key = at.key_start + j;
      if (exact.logits[j] == -INFINITY || !(row || (poisoned.of_keys && is_chosen(at.b, kv, key)))) continue;
      std::fill_n(reached.row(0, at.b, at.h, at.i), at.head.D, 1);
      std::fill_n(reached.row(1, at.b, kv, key), at.head.D, 1);
      if (poisoned.reaches_dv) std::fill_n(reached.row(2, at.b, kv, key), at.head.Dv, 1);
      if (c.wanted.dbias) reached.bias(at.b, at.h, at.i, key) = 1;
      if (c.wanted.ddistance_bias) reached.distance(at.h, distance_place(at.head, at.row, j)) = 1;
      if (c.wanted.dalibi_slopes) reached.alibi_slope(at.h) = 1;
    }
  });
  return reached;
}

void expect_reached_alone(const GradientSums& reached, const AttentionGradients& clean,
                          const AttentionGradients& result, bool all_nan, const std::string& what) {
  const auto before = listed(clean), after = listed(result);
  for (std::size_t n = 0; n < gradient_names.size(); ++n) {
    if (!before[n]) continue;
    std::string leaks, gone;
    const auto bytes = size_of(before[n]->dtype());
    for (std::int64_t e = 0; e < before[n]->count(); ++e) {
      const auto* a = static_cast<const std::byte*>(before[n]->raw()) + e * bytes;
      const auto* b = static_cast<const std::byte*>(after[n]->raw()) + e * bytes;
      const bool may = reached.tensors[n].data<double>()[e] != 0;
      if (!may && std::memcmp(a, b, static_cast<std::size_t>(bytes)) != 0) leaks += std::to_string(e) + " ";
      // Sinks: of a row whose result is always 0, NaN or not is not said.
      if (may && all_nan && n != 5 && !std::isnan(load_element(after[n]->dtype(), b))) gone += std::to_string(e) + " ";
    }
    EXPECT_EQ(leaks.substr(0, 200), "") << what << " leaked into " << gradient_names[n];
    EXPECT_EQ(gone.substr(0, 200), "") << what << " did not reach " << gradient_names[n];
  }
}

TEST(AttentionBackward, PoisonReachesWhatSeesItAndNothingElse) {
  constexpr unsigned hiding[] = {with_mask, with_bias, with_causal, with_window, with_lengths, with_starts};
  for (std::uint64_t seed = 64'000; seed < 64'072; ++seed) {
    Dice dice(seed);
    const unsigned wanted = (random_features(dice) & ~unsigned{with_scale}) | hiding[seed % 6];
    const BackwardCall c =
        backward_of(make_call(random_sizes(dice, 40, 100), wanted, dtypes[seed / 6 % 4], seed), seed, dice.one_in(2));
    const AttentionGradients clean = c.run();
    for (const Poisoned& poisoned : arguments_of_rows(c)) {
      const Dims& shape = poisoned.rows.shape();
      std::vector<bool> chosen(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]));
      for (std::size_t n = 0; n < chosen.size(); ++n) chosen[n] = dice.one_in(seed % 2 == 0 ? 3 : 30);
      const GradientSums reached = reach_of(c, poisoned, chosen);
      const Tensor saved = poisoned.rows.clone();
      for (const float value : {NAN, INFINITY, -INFINITY, 1e4f}) {
        for (std::size_t n = 0; n < chosen.size(); ++n) {
          if (!chosen[n]) continue;
          const auto at = static_cast<std::int64_t>(n);
          const View row = poisoned.rows.select(0, at / shape[2] / shape[1])
                               .select(0, at / shape[2] % shape[1])
                               .select(0, at % shape[2]);
          writable(row).copy_from(Tensor::from({1}, {value}).view().reshape(Dims{}).broadcast_to(row.shape()));
        }
        // What dropout drops need not show.
        expect_reached_alone(reached, clean, c.run(), std::isnan(value) && !(wanted & with_dropout),
                             c.x.what + " " + poisoned.name + " = " + std::to_string(value));
        writable(poisoned.rows).copy_from(saved);
      }
    }
  }
}

// Its out and lse are then NaN as well.
TEST(AttentionBackward, PoisonThatTheForwardSawReachesNobodyElse) {
  for (const DType dtype : dtypes) {
    const auto with_key_40 = [&](float value) {
      Call x = make_call({1, 4, 2, 90, 90, 24, 24}, with_causal, dtype, 65'000);
      for (const View& rows : {x.K, x.V})
        for (const std::int64_t h : {0, 1})
          writable(rows.select(0, 0).select(0, h).select(0, 40))
              .copy_from(Tensor::from({1}, {value}).view().broadcast_to({24}));
      return backward_of(std::move(x), 65'000, false);
    };
    const AttentionGradients clean = with_key_40(0.5f).run(), result = with_key_40(NAN).run();
    // Queries before key 40 don't see it.
    expect_same(result.dq.view().slice(2, 0, 40), clean.dq.view().slice(2, 0, 40), std::string(name_of(dtype)));
    for (const View& g : {result.dq.view(), result.dk.view(), result.dv.view()}) {
      EXPECT_TRUE(std::isnan(g.item({0, 1, 40, 3})));
    }
    EXPECT_TRUE(std::isnan(result.dq.item({0, 3, 89, 0})));
  }
}

// ---- Memory of the caller ----

// With bytes of its own before, between and behind.
struct Memory {
  std::vector<char> bytes = std::vector<char>(1 << 16, 'x');
  bool untouched() const {
    return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 'x'; });
  }
};

// The axes in another order, gaps between the elements, or backwards; from an address that is not aligned.
MutableView placed(Memory& memory, const View& like, int layout) {
  Dims strides = like.shape();
  std::int64_t step = layout == 2 ? 2 : 1;
  const int rank = like.rank();
  for (int n = 0; n < rank; ++n) {
    const int axis = layout == 1 ? n : rank - 1 - n;  // 1: the first axis is the innermost
    strides[axis] = layout == 3 ? -step : step;
    step = step * like.shape()[axis] + (layout == 2 ? 3 : 0);
  }
  return MutableView(memory.bytes.data() + 30'001, like.dtype(), like.shape(), strides);
}

TEST(AttentionBackwardInto, WritesTheSameBitsIntoAnyLayoutAndNothingElse) {
  for (const DType dtype : dtypes) {
    const BackwardCall c = backward_of(
        make_call({2, 4, 2, 13, 17, 9, 11}, with_bias | with_distance | with_alibi | with_sinks, dtype, 66'003), 1,
        true);
    const AttentionGradients expected = c.run();
    const auto e = listed(expected);
    for (int layout = 0; layout < 4; ++layout) {
      const std::string what = c.x.what + " layout " + std::to_string(layout);
      std::array<Memory, gradient_names.size()> memory;
      std::vector<MutableView> to;
      for (std::size_t n = 0; n < gradient_names.size(); ++n) to.push_back(placed(memory[n], *e[n], layout));
      attention_backward_into({to[0], to[1], to[2], to[3], to[4], to[5], to[6]}, c.Dout, c.x.Q, c.x.K, c.x.V,
                              c.forward.out, c.forward.lse, c.x.options, c.wanted.dlse, c.wanted.lse_low);
      for (std::size_t n = 0; n < gradient_names.size(); ++n) {
        expect_same(to[n], *e[n], what + " " + gradient_names[n]);
        const Memory clean;  // with the elements taken back, nothing has changed
        to[n].copy_from(View(clean.bytes.data(), to[n].dtype(), to[n].shape()));
        EXPECT_TRUE(memory[n].untouched()) << what << " " << gradient_names[n];
      }
    }
  }
}

TEST(AttentionBackwardInto, LeadingAxesMayBeLeftOut) {
  Generator generator(2);
  const Tensor q = generator.randn({5, 4}), k = generator.randn({7, 4}), v = generator.randn({7, 3});
  const auto [out, lse, lse_low] = attention(q, k, v);
  const Tensor dout = generator.randn({5, 3});
  const AttentionGradients g = attention_backward(dout, q, k, v, out, lse);
  const auto four = [](const View& x) { return x.reshape({1, 1, x.size(0), x.size(1)}); };
  const AttentionGradients expected =
      attention_backward(four(dout), four(q), four(k), four(v), four(out), lse.view().reshape({1, 1, 5}));
  expect_same(four(g.dq), expected.dq);
  expect_same(four(g.dk), expected.dk);
  expect_same(four(g.dv), expected.dv);
}

TEST(AttentionBackward, WrongShapesAndDTypesAreNamed) {
  const Tensor q({2, 4, 5, 6}), k({2, 2, 7, 6}), v({2, 2, 7, 3}), out({2, 4, 5, 3}), lse({2, 4, 5});
  const Tensor half({2, 4, 5, 3}, DType::bf16), wide({2, 4, 5}, DType::f64), transposed({2, 5, 4, 3}), slopes({4});
  const auto shape = ErrorCode::bad_shape, dtype = ErrorCode::bad_dtype, value = ErrorCode::bad_value;
  const auto call = [&](const View& dout, const View& o, const View& l, const AttentionOptions& options = {},
                        const BackwardOptions& backward = {}) {
    return [=, &q, &k, &v] { attention_backward(dout, q, k, v, o, l, options, backward); };
  };
  expect_error(shape, call(transposed, out, lse), "attention_backward: dout has shape [2,5,4,3], expected [2,4,5,3]");
  expect_error(shape, call(out, q, lse), "attention_backward: out has shape [2,4,5,6], expected [2,4,5,3]");
  expect_error(shape, call(out, out, slopes), "attention_backward: lse has shape [4], expected [2,4,5]");
  expect_error(shape, call(out, out, lse, {}, {.dlse = out}), "dlse has shape [2,4,5,3], expected [2,4,5]");
  expect_error(dtype, call(half, out, lse), "attention_backward: dout is bf16, expected f32");
  expect_error(dtype, call(out, half, lse), "attention_backward: out is bf16, expected f32");
  expect_error(dtype, call(out, out, wide), "attention_backward: lse is f64, expected f32");
  expect_error(dtype, call(out, out, lse, {}, {.dlse = wide}), "dlse is f64, expected f32");
  expect_error(value, call(out, out, lse, {}, {.dbias = true}), "attention_backward: dbias is wanted", "not given");
  expect_error(value, call(out, out, lse, {}, {.dalibi_slopes = true}), "dalibi_slopes is wanted");
  expect_error(value, call(out, out, lse, {}, {.dsinks = true}), "dsinks is wanted");
  expect_error(value, call(out, out, lse, {.causal = true}), "attention_backward: ", "top_left");
  expect_error(
      shape, [&] { attention_backward(out, q, q, v, out, lse); }, "attention_backward: ");
}

TEST(AttentionBackwardInto, WrongMemoryIsRefusedAndLeftAsItWas) {
  // Far apart, so that what meets one meets no other.
  std::vector<float> floats(9 * 1000);
  int blocks = 0;
  const auto block = [&](Dims shape) { return View(floats.data() + 1000 * blocks++ + 400, DType::f32, shape); };
  const View q = block({1, 2, 5, 6}), k = block({1, 2, 7, 6}), v = block({1, 2, 7, 3}), bias = block({5, 7}),
             sinks = block({2}), dout = block({1, 2, 5, 3}), out = block({1, 2, 5, 3}), lse = block({1, 2, 5}),
             dlse = block({1, 2, 5});
  const AttentionOptions options{.bias = bias, .sinks = sinks};
  Memory memory;
  const auto at = [&](std::int64_t place, Dims shape, DType dtype = DType::f32) {
    return MutableView(memory.bytes.data() + place, dtype, shape);
  };
  const AttentionGradientViews good{at(0, {1, 2, 5, 6}), at(1000, {1, 2, 7, 6}), at(2000, {1, 2, 7, 3}),
                                    at(3000, {5, 7}),    std::nullopt,           at(4000, {2})};
  const auto refused = [&](ErrorCode code, auto change, const auto&... texts) {
    AttentionGradientViews to = good;
    change(to);
    expect_error(
        code, [&] { attention_backward_into(to, dout, q, k, v, out, lse, options, dlse); },
        "attention_backward_into: ", texts...);
  };
  const auto shape = ErrorCode::bad_shape, dtype = ErrorCode::bad_dtype, value = ErrorCode::bad_value;
  using To = AttentionGradientViews;
  refused(
      shape,
      [&](To& to) {
        to.dq = at(0, {1, 2, 6, 5});
      },
      "dq has shape [1,2,6,5], expected [1,2,5,6]");
  refused(
      shape,
      [&](To& to) {
        to.dv = at(0, {1, 2, 7, 6});
      },
      "dv has shape [1,2,7,6], expected [1,2,7,3]");
  refused(
      shape,
      [&](To& to) {
        to.dbias = at(0, {1, 2, 5, 7});
      },
      "dbias has shape [1,2,5,7], expected [5,7]");
  refused(
      dtype,
      [&](To& to) {
        to.dk = at(0, {1, 2, 7, 6}, DType::f16);
      },
      "dk is f16, expected f32");
  refused(
      dtype, [&](To& to) { to.dsinks = at(0, {2}, DType::f64); }, "dsinks is f64, expected f32");
  refused(
      value, [&](To& to) { to.dalibi_slopes = at(5000, {2}); }, "dalibi_slopes is wanted");
  refused(
      value,
      [&](To& to) {
        to.dk = MutableView(memory.bytes.data(), DType::f32, {1, 2, 7, 6}, {84, 42, 0, 1});
      },
      "dk has strides [84,42,0,1]", "elements share memory");
  const std::pair<const char*, View> read[] = {{"q", q},       {"k", k},       {"v", v},
                                               {"dout", dout}, {"out", out},   {"lse", lse},
                                               {"dlse", dlse}, {"bias", bias}, {"sinks", sinks}};
  for (const auto& [name, x] : read) {
    // One element of it is enough.
    const std::string text = std::string(" shares memory with ") + name;
    const auto* first = static_cast<const float*>(x.raw());
    refused(
        value,
        [&](To& to) {
          to.dq = MutableView(const_cast<float*>(first) - 59, DType::f32, {1, 2, 5, 6});
        },
        "dq" + text);
    refused(
        value, [&](To& to) { to.dsinks = MutableView(const_cast<float*>(first) + x.count() - 1, DType::f32, {2}); },
        "dsinks" + text);
  }
  refused(
      value,
      [&](To& to) {
        to.dk = at(100, {1, 2, 7, 6});
      },
      "dk shares memory with dq");
  refused(
      value, [&](To& to) { to.dsinks = at(2000 + 4 * 41, {2}); }, "dsinks shares memory with dv");
  EXPECT_TRUE(memory.untouched());
}

TEST(AttentionBackward, EveryAxisMayBeEmptyButTheHeadSizes) {
  for (const DType dtype : dtypes) {
    const DType lse_dtype = dtype == DType::f64 ? DType::f64 : DType::f32;
    for (const std::int64_t B : {0, 2})
      for (const std::int64_t H : {0, 4})
        for (const std::int64_t Tq : {0, 3})
          for (const std::int64_t Tk : {0, 5}) {
            if (B * H * Tq * Tk != 0) continue;
            const Tensor q({B, H, Tq, 4}, dtype), k({B, H / 2, Tk, 4}, dtype), v({B, H / 2, Tk, 3}, dtype);
            const Tensor bias({Tq, Tk}), sinks({H});
            Tensor dout({B, H, Tq, 3}, dtype), dlse({B, H, Tq}, lse_dtype);
            for (std::int64_t n = 0; n < dlse.count(); ++n)
              store_element(lse_dtype, static_cast<std::byte*>(dlse.raw()) + n * size_of(lse_dtype), 1);
            const AttentionOptions options{.offset = Offset(0), .bias = bias, .alibi_slopes = sinks, .sinks = sinks};
            const AttentionResult result = attention(q, k, v, options);
            const AttentionGradients g =
                attention_backward(dout, q, k, v, result.out, result.lse, options, {dlse, true, true, true});
            for (const View& x : {g.dq.view(), g.dk.view(), g.dv.view(), g.dbias->view(), g.dalibi_slopes->view()}) {
              expect_close(x, Tensor(x.shape(), x.dtype()), 0);
            }
            // Without keys, lse is the sink.
            for (std::int64_t h = 0; h < H; ++h) EXPECT_EQ(g.dsinks->item({h}), static_cast<double>(B * Tq));
          }
  }
}

// Each allocation in turn fails: an error, and the gradients are as they were; until none is left to fail.
TEST(AttentionBackwardInto, EveryAllocationMayFail) {
  for (const DType dtype : dtypes) {
    for (const unsigned wanted :
         {0u, with_mask | with_bias | with_distance | with_lengths | with_causal | with_alibi | with_sinks,
          unsigned{with_starts}}) {
      BackwardCall c = backward_of(make_call({2, 4, 2, 60, 70, 16, 16}, wanted, dtype, 1), 1, true);
      c.wanted.lse_low.reset();  // the pass for the sums has memory too
      const AttentionGradients expected = c.run();
      const auto e = listed(expected);
      bool failed = true;
      std::int64_t n = 0;
      for (; failed && n < 500; ++n) {
        std::array<Tensor, gradient_names.size()> to;
        for (std::size_t g = 0; g < gradient_names.size(); ++g)
          if (e[g]) to[g] = Tensor(e[g]->shape(), e[g]->dtype());
        const auto view = [&](std::size_t g) { return e[g] ? std::optional(to[g].view()) : std::nullopt; };
        const AttentionGradientViews views{to[0].view(), to[1].view(), to[2].view(), view(3),
                                           view(4),      view(5),      view(6)};
        bool threw = false;
        ErrorCode code{};
        {
          CountAllocations fail(n);
          try {
            attention_backward_into(views, c.Dout, c.x.Q, c.x.K, c.x.V, c.forward.out, c.forward.lse, c.x.options,
                                    c.wanted.dlse);
          } catch (const Error& error) {
            threw = true;
            code = error.code();
          }
          failed = fail.failed();
        }
        if (threw) {
          EXPECT_EQ(static_cast<int>(code), static_cast<int>(ErrorCode::out_of_memory))
              << c.x.what << " allocation " << n;
        }
        for (std::size_t g = 0; g < gradient_names.size(); ++g) {
          if (!e[g]) continue;
          expect_same(to[g], threw ? Tensor(e[g]->shape(), e[g]->dtype()).view() : *e[g],
                      c.x.what + " " + gradient_names[g] + ", allocation " + std::to_string(n));
        }
      }
      EXPECT_LT(n, 500);
      EXPECT_GT(n, 1) << c.x.what;
    }
  }
}

// ---- Keys in two parts ----

// The backward over each part, with what merge() gave, is the part of the backward over all.
TEST(AttentionBackward, KeysInTwoPartsWithMergedResults) {
  for (std::uint64_t seed = 67'000; seed < 67'030; ++seed) {
    Dice dice(seed);
    const DType dtype = seed % 2 == 0 ? DType::f64 : DType::f32;
    const Sizes sizes = random_sizes(dice, 60, 150);
    const unsigned features =
        random_features(dice) & ~unsigned{with_lengths | with_starts | with_offset | with_dropout};
    Call x = make_call(sizes, features, dtype, seed);
    const std::int64_t offset = dice.below(sizes.Tk), cut = 1 + dice.below(sizes.Tk);
    const Dims pairs{sizes.B, sizes.H, sizes.Tq, sizes.Tk};
    x.options.offset = Offset(offset);
    if (x.options.mask) x.options.mask = x.options.mask->broadcast_to(pairs);
    if (x.options.bias) x.options.bias = x.options.bias->broadcast_to(pairs);
    // A gradient that is rounded to 16 bits can't be added up from parts.
    if (x.options.distance_bias)
      x.distances = x.options.distance_bias->to(dtype), x.options.distance_bias = x.distances;
    BackwardCall c = backward_of(std::move(x), seed, dice.one_in(2));
    const auto part = [&](std::int64_t first, std::int64_t last) {
      AttentionOptions options = c.x.options;
      options.offset = Offset(offset - first);
      if (options.mask) options.mask = options.mask->slice(3, first, last);
      if (options.bias) options.bias = options.bias->slice(3, first, last);
      if (first > 0) options.sinks = std::nullopt;
      return options;
    };
    const auto keys = [](const View& t, std::int64_t first, std::int64_t last) { return t.slice(2, first, last); };
    const auto forward = [&](std::int64_t first, std::int64_t last) {
      return attention(c.x.Q, keys(c.x.K, first, last), keys(c.x.V, first, last), part(first, last), {.lse_low = true});
    };
    const AttentionResult a = forward(0, cut), b = forward(cut, sizes.Tk), both = merge(a, b);
    const auto backward = [&](std::int64_t first, std::int64_t last) {
      BackwardOptions wanted = c.wanted;
      wanted.lse_low = both.lse_low;
      if (first > 0) wanted.dsinks = false;
      return attention_backward(c.Dout, c.x.Q, keys(c.x.K, first, last), keys(c.x.V, first, last), both.out, both.lse,
                                part(first, last), wanted);
    };
    AttentionGradients sum = backward(0, cut);
    const AttentionGradients rest = backward(cut, sizes.Tk);
    const auto add = [&](Tensor& to, const Tensor& from) {
      for (std::int64_t n = 0; n < to.count(); ++n) {
        if (to.dtype() == DType::f64) to.data<double>()[n] += from.data<double>()[n];
        if (to.dtype() == DType::f32) to.data<float>()[n] += from.data<float>()[n];
      }
    };
    const auto join = [&](const View& first, const View& second, int axis) {
      Dims shape = first.shape();
      shape[axis] = sizes.Tk;
      Tensor whole(shape, first.dtype());
      whole.view().slice(axis, 0, cut).copy_from(first);
      whole.view().slice(axis, cut, sizes.Tk).copy_from(second);
      return whole;
    };
    add(sum.dq, rest.dq);
    sum.dk = join(sum.dk, rest.dk, 2), sum.dv = join(sum.dv, rest.dv, 2);
    if (sum.dbias) sum.dbias = join(*sum.dbias, *rest.dbias, 3);
    if (sum.dalibi_slopes) add(*sum.dalibi_slopes, *rest.dalibi_slopes);
    if (sum.ddistance_bias) add(*sum.ddistance_bias, *rest.ddistance_bias);
    if (dtype == DType::f32) {
      expect_as_exact(c, sum);
      continue;
    }
    const AttentionGradients expected = c.run();
    const auto s = listed(sum), e = listed(expected);
    const GradientOracle oracle(c);
    for (std::size_t n = 0; n < gradient_names.size(); ++n) {
      if (!e[n]) continue;
      const Tensor difference = s[n]->to(DType::f64), whole = e[n]->to(DType::f64);
      double largest = 0, terms = 0;
      for (std::int64_t i = 0; i < difference.count(); ++i) {
        largest = std::max(largest, std::abs(difference.data<double>()[i] - whole.data<double>()[i]));
        terms = std::max(terms, std::sqrt(oracle.squares.tensors[n].data<double>()[i]));
      }
      // As the floor of f32; options' gradients in narrower dtypes are rounded once for each part and once for both.
      const double tolerance = (8 + 2 * oracle.largest_logit) * 0x1p-53 + 4 * roundoff(e[n]->dtype());
      EXPECT_LE(largest, tolerance * terms) << c.x.what << " " << gradient_names[n];
    }
  }
}

}  // namespace
}  // namespace attend
