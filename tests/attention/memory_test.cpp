// What attention() allocates: as much as plan() says; what attention_backward() does; and where that fails, an error
// and nothing else.
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>

#include <mutex>
#include <set>
#include <thread>

#include "core/parallel.h"
#include "tests/allocations.h"
#include "tests/attention/call.h"

namespace attend {
namespace {

using namespace test;

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

AttentionPlan plan_of(const Call& x) {
  return plan(x.Q.shape(), x.K.shape(), x.V.shape(), x.Q.dtype(), x.options);
}

// Tensor rounds up to its alignment.
std::int64_t rounded_up(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// Each allocation in turn fails: an error, and the results are as they were; until none is left to fail.
TEST(AttentionMemory, EveryAllocationMayFail) {
  for (const DType dtype : dtypes) {
    for (const unsigned wanted :
         {0u, with_mask | with_bias | with_lengths | with_causal | with_alibi | with_sinks, unsigned{with_starts}}) {
      const Call x = make_call({2, 4, 2, 60, 70, 16, 16}, wanted, dtype, 1);
      const AttentionResult expected = x.run();
      Tensor out, lse;
      bool failed = true;
      std::int64_t n = 0;
      for (; failed && n < 500; ++n) {
        out = Tensor(expected.out.shape(), dtype), lse = Tensor(expected.lse.shape(), expected.lse.dtype());
        bool threw = false;
        ErrorCode code{};
        {
          CountAllocations fail(n);
          try {
            attention_into(out.view(), lse.view(), x.Q, x.K, x.V, x.options);
          } catch (const Error& error) {
            threw = true;
            code = error.code();
          }
          failed = fail.failed();
        }
        if (!threw) continue;  // none failed, or one that could be done without
        EXPECT_EQ(static_cast<int>(code), static_cast<int>(ErrorCode::out_of_memory)) << x.what << " allocation " << n;
        expect_same(out, Tensor(out.shape(), dtype), x.what + " out, allocation " + std::to_string(n));
        expect_same(lse, Tensor(lse.shape(), lse.dtype()), x.what + " lse, allocation " + std::to_string(n));
      }
      EXPECT_LT(n, 500);
      expect_same(out, expected.out, x.what);
      EXPECT_GT(n, 1) << x.what;
    }
  }
}

TEST(AttentionMemory, NoMemoryForTheResultIsNamed) {
  const Tensor q({1, 1, 5, 6});
  const CountAllocations fail(0);
  try {
    attention(q, q, q);
    FAIL() << "worked without memory";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(ErrorCode::out_of_memory));
  }
}

TEST(AttentionMemory, MergeWithoutMemoryIsAnError) {
  const Tensor out({2, 5, 4}), lse({2, 5});
  for (int n = 0; n < 6; ++n) {
    bool is_error = false;
    {
      const CountAllocations fail(n);
      try {
        merge(out, lse, out, lse);
      } catch (const Error& error) {
        is_error = error.code() == ErrorCode::out_of_memory;
      }
    }
    EXPECT_TRUE(is_error) << n;
  }
}

TEST(AttentionMemory, IsWhatPlanSays) {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    Dice dice(seed);
    Sizes s{1 + dice.below(3), 4, 2, 1 + dice.below(200), 1 + dice.below(200), 1 + dice.below(70), 1 + dice.below(70)};
    unsigned wanted = 0;
    // key_lengths and starts are read into lists by way of a tensor, which would be counted too.
    for (const unsigned f : {with_causal, with_mask, with_bias, with_alibi, with_sinks, with_softcap})
      wanted |= dice.one_in(2) ? f : 0u;
    const Call x = make_call(s, wanted, dtypes[dice.below(3)], seed);
    const bool wants_lse = dice.one_in(2);
    const std::size_t threads = 1 + seed % 4;
    const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
    const AttentionPlan said = plan_of(x);
    EXPECT_NE(said.path, Path::reference);
    EXPECT_LE(said.threads, static_cast<int>(threads));
    Tensor out({s.B, s.H, s.Tq, s.Dv}, x.Q.dtype()), lse({s.B, s.H, s.Tq});
    std::int64_t allocated = 0;
    {
      const CountAllocations count;
      attention_into(out.view(), wants_lse ? std::optional(lse.view()) : std::nullopt, x.Q, x.K, x.V, x.options);
      allocated = count.tensor_bytes();
    }
    EXPECT_EQ(allocated, rounded_up(said.scratch_bytes)) << x.what;
    EXPECT_GT(said.scratch_bytes, 0);
  }
}

TEST(AttentionMemory, OfThePlainPathIsWhatPlanSays) {
  const Call x = make_call({2, 2, 2, 50, 90, 20, 30}, 0, DType::f64, 1);
  const AttentionPlan said = plan_of(x);
  Tensor out({2, 2, 50, 30}, DType::f64), lse({2, 2, 50}, DType::f64);
  std::int64_t allocated = 0;
  {
    const CountAllocations count;
    attention_into(out.view(), lse.view(), x.Q, x.K, x.V);
    allocated = count.list_bytes();
  }
  EXPECT_GE(allocated, said.scratch_bytes);
  EXPECT_LE(allocated, said.scratch_bytes + 2048);  // the lists' heads, and what starts the loop
}

TEST(AttentionMemory, GrowsWithTheSequenceAndNotWithItsSquare) {
  const auto scratch = [](std::int64_t T, DType dtype) {
    AttentionOptions options{.causal = true};
    const float zero = 0;
    options.bias = View(&zero, DType::f32, {T, T}, {0, 0});
    return plan({1, 8, T, 64}, {1, 8, T, 64}, {1, 8, T, 64}, dtype, options).scratch_bytes;
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    EXPECT_LE(scratch(1 << 17, dtype), 2 * scratch(1 << 12, dtype));
    EXPECT_LE(scratch(1 << 17, dtype), std::int64_t{64} << 20);
  }
}

// The threads that work in an arena.
class Workers : public tbb::task_scheduler_observer {
 public:
  explicit Workers(tbb::task_arena& arena) : tbb::task_scheduler_observer(arena) { observe(true); }
  ~Workers() override { observe(false); }
  void on_scheduler_entry(bool) override {
    const std::lock_guard lock(mutex_);
    seen_.insert(std::this_thread::get_id());
  }
  int count() {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(seen_.size());
  }

 private:
  std::mutex mutex_;
  std::set<std::thread::id> seen_;
};

TEST(AttentionMemory, NoMoreThreadsThanPlanSays) {
  for (const DType dtype : dtypes) {
    for (const std::int64_t T : {4, 40, 300}) {
      for (const int threads : {1, 2}) {
        tbb::task_arena arena(threads);
        Workers workers(arena);
        const Call x = make_call({1, 2, 2, T, T, 16, 16}, 0, dtype, 1);
        int said = 0;
        arena.execute([&] {
          said = plan_of(x).threads;
          x.run();
        });
        EXPECT_LE(workers.count(), said) << x.what;
        EXPECT_LE(said, threads) << x.what;
        if (T == 4) {
          EXPECT_EQ(said, 1);
        }
        if (T == 300) {
          EXPECT_EQ(said, std::min(threads, num_threads()));
        }
      }
    }
  }
}

// In a window, so that it takes a moment; the memory is that of any call with as many queries and keys.
TEST(AttentionBackwardMemory, GrowsWithTheSequenceAndNotWithItsSquare) {
  const auto beyond = [](std::int64_t T, DType dtype, bool with_options) {
    const Tensor q({1, 1, T, 64}, dtype), lse({1, 1, T}), bias({T}), slopes({1});
    Tensor dq(q.shape(), dtype), dk(q.shape(), dtype), dv(q.shape(), dtype), dbias({T}), dslopes({1}), dsinks({1});
    AttentionOptions options{.causal = true, .window = {64, -1}};
    AttentionGradientViews to{dq.view(), dk.view(), dv.view()};
    if (with_options) {
      options.softcap = 3, options.dropout = {0.1, 1};
      options.bias = bias, options.alibi_slopes = slopes, options.sinks = slopes;
      to.dbias = dbias.view(), to.dalibi_slopes = dslopes.view(), to.dsinks = dsinks.view();
    }
    const CountAllocations count;
    attention_backward_into(to, q, q, q, q, q, lse, options);
    return count.tensor_bytes() + count.list_bytes();
  };
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, 2);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const bool with_options : {false, true}) {
      const std::int64_t bytes = beyond(1 << 16, dtype, with_options);
      EXPECT_LE(bytes, std::int64_t{64} << 20) << name_of(dtype);
      EXPECT_LE(bytes, 17 * beyond(1 << 12, dtype, with_options)) << name_of(dtype);
    }
  }
}

TEST(AttentionBackwardMemory, IsWhatPlanBackwardSays) {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    Dice dice(seed);
    const std::int64_t keys = 1 + dice.below(dice.one_in(6) ? 900 : 150);
    Sizes s{1 + dice.below(3), 4, 2, 1 + dice.below(200), keys, 1 + dice.below(70), 1 + dice.below(70)};
    unsigned options = 0;
    // key_lengths and starts are read into lists by way of a tensor, which would be counted too.
    for (const unsigned f : {with_causal, with_mask, with_bias, with_alibi, with_sinks, with_softcap, with_dropout})
      options |= dice.one_in(2) ? f : 0u;
    const Call x = make_call(s, options, dtypes[dice.below(4)], seed);
    const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, 1 + seed % 4);
    const AttentionResult forward = x.run();
    BackwardOptions wanted{{}, (options & with_bias) != 0, (options & with_alibi) != 0, false};
    if (dice.one_in(2)) wanted.lse_low = forward.lse;  // of its shape
    const AttentionPlan said = plan_backward(x.Q.shape(), x.K.shape(), x.V.shape(), x.Q.dtype(), x.options, wanted);
    Tensor dq(x.Q.shape(), x.Q.dtype()), dk(x.K.shape(), x.K.dtype()), dv(x.V.shape(), x.V.dtype()), dbias, dslopes;
    AttentionGradientViews to{dq.view(), dk.view(), dv.view()};
    if (wanted.dbias) to.dbias = (dbias = x.options.bias->clone()).view();
    if (wanted.dalibi_slopes) to.dalibi_slopes = (dslopes = x.slopes.clone()).view();
    std::int64_t allocated = 0;
    {
      const CountAllocations count;
      attention_backward_into(to, forward.out, x.Q, x.K, x.V, forward.out, forward.lse, x.options, {}, wanted.lse_low);
      allocated = count.tensor_bytes() + count.list_bytes();
    }
    EXPECT_GE(allocated, said.scratch_bytes) << x.what;
    EXPECT_LE(allocated, said.scratch_bytes + 4096)
        << x.what;  // short lists, what starts threads, roundings to 64 bytes
  }
}

TEST(AttentionPlan, F64TakesThePlainPath) {
  EXPECT_EQ(plan({5, 4}, {5, 4}, {5, 4}, DType::f64).target, "");
  EXPECT_EQ(plan({5, 4}, {5, 4}, {5, 4}, DType::f64).path, Path::reference);
}

TEST(AttentionPlan, ThrowsWhatAttentionThrows) {
  expect_error(
      ErrorCode::bad_shape,
      [] {
        plan({5, 4}, {7, 3}, {7, 4});
      },
      "plan: k has head size 3, q has 4");
  expect_error(
      ErrorCode::bad_dtype,
      [] {
        plan({5, 4}, {7, 4}, {7, 4}, DType::i64);
      },
      "plan: q is i64");
  expect_error(
      ErrorCode::bad_value,
      [] {
        plan({5, 4}, {7, 4}, {7, 4}, DType::f32, {.causal = true});
      },
      "top_left");
  const std::int64_t huge = std::int64_t{1} << 58;
  expect_error(
      ErrorCode::out_of_memory,
      [&] {
        plan({1, huge}, {1, huge}, {1, 4});
      },
      "no memory");
}

}  // namespace
}  // namespace attend
