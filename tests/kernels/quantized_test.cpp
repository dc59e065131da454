// Every target's forward and decode over keys and values of 8 bits: the oracle's numbers over what they stand for, for
// any sizes and options, in scratch of just the bytes that they ask for, filled with NaN.
#include <optional>

#include "tests/kernels/every_target.h"

namespace attend {
namespace {

using namespace test;
using kernels::tile_keys;

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};

class Quantized : public EveryTarget {
 protected:
  // A random call with its keys in 8 bits. `computed`: what the kernel makes of them.
  void make(std::uint64_t seed, std::int64_t most_rows, unsigned never, bool decodes) {
    Dice dice(seed);
    const std::int64_t n = target().lanes, sizes[] = {1, 3, n, 2 * n, 2 * n + 1, 4 * n, 8 * n, 70};
    const std::int64_t keys[] = {1, 2, 63, 64, 65, 128, 200, 321};
    Sizes s{1, 1 + dice.below(3), 1, 1, keys[dice.below(8)], sizes[dice.below(8)], sizes[dice.below(8)]};
    s.Tq = 1 + dice.below(most_rows / s.H);
    const DType dtype = dtypes[seed % 3];
    x_ = make_call(s, random_features(dice) & ~never, dtype, seed);
    x_.what.append(" ").append(target().name);
    const bool halves = !decodes && dtype == DType::bf16 && target().bf16_dot;
    const std::int64_t length = oracle_head(x_, 0, 0, 0, s.Tq, 0, s.Tk).rules.key_length;
    keys_.emplace(x_, length, tile_keys * (1 + dice.below(2)), halves ? DType::bf16 : DType::f32);
    made_.emplace(x_);
    keys_->give(made_->group);
    out_.emplace(s.H * s.Tq * s.Dv, dtype), lse_.emplace(s.H * s.Tq, DType::f32);
  }

  kernels::Results results() {
    const MutableView o = out();
    return {result_of(o), {lse_->begin(), DType::f32, o.size(2), 1, 0}};
  }
  MutableView out() { return MutableView(out_->begin(), x_.Q.dtype(), {1, x_.Q.size(1), x_.Q.size(2), x_.V.size(3)}); }
  void check(bool whole_numbers) {
    EXPECT_TRUE(out_->intact() && lse_->intact()) << x_.what;
    const View lse(lse_->begin(), DType::f32, {1, x_.Q.size(1), x_.Q.size(2)});
    expect_as_exact(x_, {out().clone(), lse.clone()}, whole_numbers);
  }

  Call x_;
  std::optional<QuantizedCall> keys_;
  std::optional<GroupOfCall> made_;
  std::optional<Guarded> out_, lse_;
};

INSTANTIATE_TEST_SUITE_P(Every, Quantized, every_target(), name_of_target);

TEST_P(Quantized, DecodeWithEveryOption) {
  for (std::uint64_t seed = 82'000; seed < 82'120; ++seed) {
    make(seed, 9, with_starts | with_dropout, true);
    const kernels::Group& group = made_->group;
    const std::int64_t rows = group.sizes.G * x_.Q.size(2);
    Guarded partial(rows * (2 + group.sizes.Dv), DType::f32);
    Guarded scratch(target().decode.bytes(group.sizes, group.features, rows));
    const kernels::DecodeGroup alone{group, partial.as<float>()};
    target().decode.run(&alone, 1, 0, x_.Q.size(2), 0, group.rules.key_length, scratch.begin());
    target().decode.combine(group, results(), 0, x_.Q.size(2), partial.as<float>(), 0, 1);
    EXPECT_TRUE(scratch.intact() && partial.intact()) << x_.what;
    check(true);
  }
}

TEST_P(Quantized, ForwardWithEveryOption) {
  for (std::uint64_t seed = 83'000; seed < 83'060; ++seed) {
    make(seed, 100, with_starts, false);
    const kernels::Group& group = made_->group;
    Guarded scratch(target().forward.bytes(group.sizes, group.features, group.sizes.G * x_.Q.size(2)));
    target().forward.run({group, results(), 0, x_.Q.size(2)}, nullptr, scratch.begin());
    EXPECT_TRUE(scratch.intact()) << x_.what;
    check(false);
  }
}

}  // namespace
}  // namespace attend
