// docs/numerics.md says when two calls give the same bits: each claim, once.
#include <fmt/format.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <functional>
#include <tuple>

#include "attention/problem.h"
#include "tests/expect.h"

namespace attend {
namespace {

using test::expect_close;
using test::expect_same;

// Arguments, and the tensors that options point to.
struct Call {
  Tensor q, k, v, mask, bias, slopes, sinks;
  AttentionOptions options;

  AttentionResult run() const { return attention(q, k, v, options); }
  AttentionPlan planned() const { return plan(q.shape(), k.shape(), v.shape(), q.dtype(), options); }
  // The queries [first, last) alone, against the keys [0, keys).
  AttentionResult run(std::int64_t first, std::int64_t last, std::int64_t keys) const {
    AttentionOptions part = options;
    part.offset = Offset(options.offset.value_or(Offset::top_left()).resolve(q.size(2), k.size(2)) + first);
    if (options.mask) part.mask = options.mask->slice(2, first, last).slice(3, 0, keys);
    if (options.bias) part.bias = options.bias->slice(2, first, last).slice(3, 0, keys);
    return attention(q.view().slice(2, first, last), k.view().slice(2, 0, keys), v.view().slice(2, 0, keys), part);
  }
};

void expect_same_result(const AttentionResult& actual, const AttentionResult& expected, const std::string& what) {
  expect_same(actual.out, expected.out, what + ", out");
  expect_same(actual.lse, expected.lse, what + ", lse");
}

// Rows [first, last) of the queries.
AttentionResult rows(const AttentionResult& whole, std::int64_t first, std::int64_t last) {
  return {whole.out.view().slice(2, first, last).clone(), whole.lse.view().slice(2, first, last).clone()};
}

Call make(DType dtype, Dims q, Dims kv, std::int64_t Dv) {
  Generator generator(8);
  Call call;
  // Scores that spread so far that rows are rescaled after their first keys.
  call.q = generator.normal(q, 0, 6).view().to(dtype);
  call.k = generator.randn(kv).view().to(dtype);
  kv[3] = Dv;
  call.v = generator.randn(kv).view().to(dtype);
  return call;
}

// Every option at once.
void add_options(Call& call) {
  Generator generator(9);
  const Dims pairs{1, call.q.size(1), call.q.size(2), call.k.size(2)};
  call.bias = generator.randn(pairs);
  const Tensor draw = generator.rand(pairs);
  call.mask = Tensor(pairs, DType::boolean);
  for (std::int64_t i = 0; i < draw.count(); ++i) call.mask.data<bool>()[i] = draw.data<float>()[i] < 0.8f;
  call.slopes = generator.rand({call.q.size(1)});
  call.sinks = generator.randn({call.q.size(1)});
  call.options = {.causal = true, .window = {90, -1}, .offset = Offset::bottom_right(), .softcap = 3};
  call.options.mask = call.mask;
  call.options.bias = call.bias;
  call.options.alibi_slopes = call.slopes;
  call.options.sinks = call.sinks;
}

constexpr DType kernel_dtypes[] = {DType::f32, DType::bf16, DType::f16};
constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

// oneTBB takes that many threads, whatever the machine has.
void with_threads(int threads, const std::function<void()>& body) {
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads));
  tbb::task_arena(threads).execute(body);
}

TEST(Bits, ThreadsDoNotMatter) {
  for (const DType dtype : dtypes) {
    Call fused = make(dtype, {2, 4, 150, 40}, {2, 2, 170, 40}, 24);
    add_options(fused);
    const Call decode = make(dtype, {1, 16, 1, 40}, {1, 4, 5000, 40}, 24);
    for (const Call& call : {std::cref(fused), std::cref(decode)}) {
      const AttentionResult expected = call.run();
      for (const int threads : {1, 2, 3, 8}) {
        with_threads(threads, [&] {
          if (dtype != DType::f64) {
            EXPECT_EQ(call.planned().threads, threads);
          }
          expect_same_result(call.run(), expected,
                             std::string(name_of(dtype)) + ", " + std::to_string(threads) + " threads");
        });
      }
    }
  }
}

TEST(Bits, TheBatchAroundAnItemDoesNotMatter) {
  for (const DType dtype : dtypes) {
    for (const std::int64_t Tq : {1, 60}) {
      Call call = make(dtype, {7, 4, Tq, 40}, {7, 2, 700, 40}, 24);
      add_options(call);
      const AttentionResult whole = call.run();
      for (std::int64_t b = 0; b < 7; ++b) {
        const auto item = [&](const View& x) { return x.slice(0, b, b + 1); };
        expect_same_result(attention(item(call.q), item(call.k), item(call.v), call.options),
                           {item(whole.out).clone(), item(whole.lse).clone()}, std::to_string(b));
      }
    }
  }
}

TEST(Bits, PaddingBehindKeyLengthsDoesNotMatter) {
  for (const DType dtype : dtypes) {
    for (const std::int64_t Tq : {1, 60}) {
      Call call = make(dtype, {3, 4, Tq, 40}, {3, 2, 700, 40}, 24);
      Tensor lengths({3}, DType::i64);
      const std::int64_t length[] = {700, 61, 523};
      std::copy(length, length + 3, lengths.data<std::int64_t>());
      call.options = {.causal = true, .offset = Offset::bottom_right()};
      AttentionOptions padded = call.options;
      padded.key_lengths = lengths;
      const AttentionResult whole = attention(call.q, call.k, call.v, padded);
      for (std::int64_t b = 0; b < 3; ++b) {
        const auto item = [&](const View& x) { return x.slice(0, b, b + 1); };
        expect_same_result(attention(item(call.q), item(call.k).slice(2, 0, length[b]),
                                     item(call.v).slice(2, 0, length[b]), call.options),
                           {item(whole.out).clone(), item(whole.lse).clone()}, std::to_string(b));
      }
    }
  }
}

TEST(Bits, SequencesOneAfterAnotherAreThoseAlone) {
  for (const DType dtype : dtypes) {
    for (const std::vector<std::int64_t>& starts :
         {std::vector<std::int64_t>{0, 2, 3, 7}, {0, 20, 31, 100}, {0, 2, 60, 61}}) {
      const std::int64_t key_starts[] = {0, 90, 700, 800};
      const Call call = make(dtype, {1, 2, starts.back(), 40}, {1, 2, 800, 40}, 24);
      Tensor queries({4}, DType::i64), keys({4}, DType::i64);
      std::copy(starts.begin(), starts.end(), queries.data<std::int64_t>());
      std::copy(key_starts, key_starts + 4, keys.data<std::int64_t>());
      AttentionOptions options{.causal = true, .offset = Offset::bottom_right()};
      AttentionOptions several = options;
      several.query_starts = queries, several.key_starts = keys;
      const AttentionResult whole = attention(call.q, call.k, call.v, several);
      for (std::size_t n = 0; n < 3; ++n) {
        const auto part = [&](const View& x) { return x.slice(2, key_starts[n], key_starts[n + 1]); };
        expect_same_result(
            attention(call.q.view().slice(2, starts[n], starts[n + 1]), part(call.k), part(call.v), options),
            rows(whole, starts[n], starts[n + 1]), std::to_string(n));
      }
    }
  }
}

TEST(Bits, QueriesMayBeSplitIntoCalls) {
  for (const DType dtype : dtypes) {
    Call call = make(dtype, {2, 4, 150, 40}, {2, 2, 170, 40}, 24);
    for (const bool all_options : {false, true}) {
      if (all_options) add_options(call);
      const AttentionResult whole = call.run();
      for (const std::vector<std::int64_t>& cuts : {std::vector<std::int64_t>{0, 5, 150}, {0, 49, 100, 143, 150}}) {
        for (std::size_t n = 0; n + 1 < cuts.size(); ++n) {
          expect_same_result(call.run(cuts[n], cuts[n + 1], 170), rows(whole, cuts[n], cuts[n + 1]),
                             std::string(name_of(dtype)) + " from " + std::to_string(cuts[n]));
        }
      }
    }
  }
}

// 196 rows are one item of a head and not two where there are many heads; one head keeps several threads busy.
TEST(Bits, RowsThatJoinTheFirstItemAreThoseAlone) {
  const auto items = [](std::int64_t heads, std::int64_t rows, std::int64_t keys) {
    return plan({1, heads, rows, 16}, {1, heads, keys, 16}, {1, heads, keys, 16}, DType::f32).work_items;
  };
  with_threads(2, [&] {
    EXPECT_EQ(items(32, 192, 60), 32);
    EXPECT_EQ(items(32, 196, 60), 32);
    EXPECT_EQ(items(32, 192 + 17, 60), 64);
    EXPECT_GT(items(1, 60, 8192), 1);
  });
  const Call call = make(DType::f32, {1, 32, 196, 16}, {1, 32, 60, 16}, 16);
  const Tensor out = call.run().out;
  expect_same(out.view().slice(2, 0, 190).clone(), call.run(0, 190, 60).out, "the first rows");
  expect_same(out.view().slice(2, 186, 196).clone(), call.run(186, 196, 60).out, "the last rows");
}

// Keys that come later than every query of the call may as well not be there yet.
TEST(Bits, PrefillMayComeInPieces) {
  for (const DType dtype : dtypes) {
    Call call = make(dtype, {1, 4, 600, 40}, {1, 2, 600, 40}, 24);
    call.options.causal = true;
    const AttentionResult whole = call.run();
    std::optional<KvCache> cache;
    if (dtype != DType::f64) cache.emplace(1, 2, 40, 24, dtype);
    const std::int64_t cuts[] = {0, 5, 77, 333, 595, 600};
    for (int n = 0; n < 5; ++n) {
      const AttentionResult expected = rows(whole, cuts[n], cuts[n + 1]);
      expect_same_result(call.run(cuts[n], cuts[n + 1], cuts[n + 1]), expected, "to " + std::to_string(cuts[n + 1]));
      const auto piece = [&](const View& x) { return x.slice(2, cuts[n], cuts[n + 1]); };
      if (dtype == DType::f64) continue;  // no KvCache of f64
      cache->append(piece(call.k), piece(call.v));
      expect_same_result(attention(piece(call.q), *cache, {.causal = true}), expected, "KvCache");
    }
  }
}

TEST(Bits, DecodeQueriesMayBeSplitIntoCallsWhereTheKeysAreCutAlike) {
  struct Case {
    std::int64_t keys;
    AttentionOptions options;
  };
  const Case cases[] = {{9001, {}},
                        {8190, {.causal = true, .offset = Offset::bottom_right()}},
                        {9001, {.window = {418, 20}, .offset = Offset::bottom_right()}}};
  for (const DType dtype : kernel_dtypes) {
    for (const Case& c : cases) {
      Call call = make(dtype, {1, 2, 8, 40}, {1, 2, c.keys, 40}, 24);
      call.options = c.options;
      ASSERT_EQ(call.planned().path, Path::decode);
      const AttentionResult whole = call.run();
      for (const auto& [first, last] : {std::pair<std::int64_t, std::int64_t>{0, 3}, {3, 4}, {4, 8}})
        expect_same_result(call.run(first, last, c.options.causal ? c.keys - 8 + last : c.keys),
                           rows(whole, first, last), std::to_string(first));
    }
  }
}

TEST(Bits, DecodeAndPrefillAreCloseAndNoMore) {
  Call call = make(DType::f32, {1, 4, 300, 64}, {1, 4, 300, 64}, 64);
  call.options.causal = true;
  const AttentionResult whole = call.run();
  // Scores here reach 200, so that a weight is good to 200 * 2^-24 in either.
  expect_close(call.run(299, 300, 300).out, rows(whole, 299, 300).out, 0x1p-15);
}

TEST(Bits, StridesDoNotMatter) {
  for (const DType dtype : dtypes) {
    for (const std::int64_t Tq : {1, 60}) {
      const Call call = make(dtype, {2, 4, Tq, 40}, {2, 2, 130, 40}, 24);
      // [D,B,T,H] in memory.
      const auto shuffled = [](const View& x) { return x.permute({3, 0, 2, 1}).clone(); };
      const auto back = [](const Tensor& x) { return x.view().permute({1, 3, 2, 0}); };
      const Tensor q = shuffled(call.q), k = shuffled(call.k), v = shuffled(call.v);
      expect_same_result(attention(back(q), back(k), back(v)), call.run(), "");
    }
  }
}

TEST(Bits, GroupedHeadsAreThoseWithKeysRepeatedOnTheSamePath) {
  for (const DType dtype : dtypes) {
    const Call call = make(dtype, {1, 6, 50, 40}, {1, 2, 130, 40}, 24);
    const auto repeated = [](const View& x) {
      return x.reshape({1, 2, 1, 130, x.size(3)}).broadcast_to({1, 2, 3, 130, x.size(3)}).clone();
    };
    const Tensor k = repeated(call.k), v = repeated(call.v);
    const auto heads = [](const Tensor& x) { return x.view().reshape({1, 6, 130, x.size(4)}); };
    expect_same_result(attention(call.q, heads(k), heads(v)), call.run(), "");
  }
}

TEST(Bits, F16IsF32RoundedOnce) {
  for (const std::int64_t Tq : {1, 100}) {
    const Call call = make(DType::f16, {1, 2, Tq, 40}, {1, 2, 1300, 40}, 24);
    const auto wide = [](const Tensor& x) { return x.view().to(DType::f32); };
    const AttentionResult result = attention(wide(call.q), wide(call.k), wide(call.v));
    expect_same_result(call.run(), {result.out.view().to(DType::f16), result.lse.clone()}, std::to_string(Tq));
  }
}

// One problem: the same work in the same order, and so the same bits.
TEST(Bits, CausalIsAWindowWithoutLaterKeys) {
  for (const DType dtype : dtypes) {
    for (const std::int64_t queries : {1, 3, 70, 300}) {  // decoded and not
      for (const std::int64_t left : {-1, 20}) {
        Call call = make(dtype, {2, 4, queries, 16}, {2, 2, 300, 16}, 8);
        const AttentionOptions causal{.causal = true, .window = {left, -1}, .offset = Offset::bottom_right()};
        const AttentionOptions window{.window = {left, 0}, .offset = Offset::bottom_right()};
        const auto with = [&](const AttentionOptions& options) -> const Call& { return call.options = options, call; };
        const std::string what = fmt::format("{}, {} queries, left {}", name_of(dtype), queries, left);
        const AttentionResult expected = with(causal).run(), result = with(window).run();
        expect_same_result(result, expected, what);
        for (const AttentionOptions& options : {causal, window}) {
          const Problem p = Problem::check("attention", call.q, call.k, call.v, options);
          EXPECT_EQ(p.common.window_left, left) << what;
          EXPECT_EQ(p.common.window_right, 0) << what;
        }
        const AttentionPlan a = with(causal).planned(), b = with(window).planned();
        EXPECT_EQ(std::tie(a.path, a.reason, a.work_items, a.key_ranges, a.scratch_bytes, a.flops),
                  std::tie(b.path, b.reason, b.work_items, b.key_ranges, b.scratch_bytes, b.flops));
        const auto gradients = [&](const AttentionOptions& options) {
          return attention_backward(result.out, call.q, call.k, call.v, result.out, result.lse, options);
        };
        const AttentionGradients x = gradients(causal), y = gradients(window);
        expect_same(x.dq, y.dq, what), expect_same(x.dk, y.dk, what), expect_same(x.dv, y.dv, what);
      }
    }
  }
}

}  // namespace
}  // namespace attend
