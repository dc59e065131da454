// Every target's decode kernel and what adds up its partial sums, each by itself: sizes around its lanes and teams, any
// cut of the keys, keys in one piece or in blocks, in scratch of just the bytes that it asks for, filled with NaN.
#include <cmath>
#include <deque>
#include <limits>
#include <optional>

#include "tests/kernels/every_target.h"

namespace attend {
namespace {

using namespace test;
using kernels::Target;
using kernels::tile_keys;

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};

// Keys or values [1,1,Tk,columns] again, in blocks of whole tiles: the head's elements in the middle of each row, NaN
// around them and from `length` on.
class Blocks {
 public:
  Blocks(const View& x, std::int64_t length, std::int64_t block_rows) : rows_(rows_of(x)) {
    const std::int64_t columns = x.size(3), width = columns + 5;
    rows_.block_rows = block_rows, rows_.offset = 3, rows_.row = width, rows_.column = 1, rows_.data = nullptr;
    for (std::int64_t first = 0; first < x.size(2); first += block_rows) {
      Guarded& block = blocks_.emplace_back(block_rows * width, x.dtype());
      pointers_.push_back(block.begin());
      for (std::int64_t r = first; r < std::min(length, first + block_rows); ++r) {
        MutableView(block.begin() + ((r - first) * width + 3) * size_of(x.dtype()), x.dtype(), {columns})
            .copy_from(x.select(0, 0).select(0, 0).select(0, r));
      }
    }
  }
  // For as long as this lives.
  kernels::Rows rows() const {
    kernels::Rows rows = rows_;
    rows.blocks = pointers_.data();
    return rows;
  }

 private:
  kernels::Rows rows_;
  std::vector<Guarded> blocks_;
  std::vector<const void*> pointers_;
};

// One group's queries, decoded in ranges of keys and put together again.
class Trial {
 public:
  Trial(const Target& target, const Call& x, Dice& dice)
      : target_(target), x_(x), made_(x), H_(x.Q.size(1)), Tq_(x.Q.size(2)), Dv_(x.V.size(3)) {
    if (!dice.one_in(2)) return;
    const std::int64_t block = tile_keys * (1 + dice.below(2)), length = made_.group.rules.key_length;
    made_.group.k = k_blocks_.emplace(x.K, length, block).rows();
    made_.group.v = v_blocks_.emplace(x.V, length, block).rows();
  }

  // Keys in ranges of so many tiles.
  void check(std::int64_t tiles, const std::string& what) {
    const kernels::Group& group = made_.group;
    const std::int64_t keys = group.rules.key_length, step = tiles * tile_keys;
    const std::int64_t ranges = std::max<std::int64_t>(1, (keys + step - 1) / step), stride = H_ * Tq_ * (2 + Dv_);
    Guarded partials(ranges * stride, DType::f32);
    for (std::int64_t n = 0; n < ranges; ++n) {
      Guarded scratch(target_.decode.bytes(group.sizes, group.features, H_ * Tq_));
      const kernels::DecodeGroup alone{group, partials.as<float>() + n * stride, n % 2 == 1};
      target_.decode.run(&alone, 1, 0, Tq_, n * step, std::min(keys, (n + 1) * step), scratch.begin());
      EXPECT_TRUE(scratch.intact()) << what;
    }
    const DType dtype = x_.Q.dtype();
    Guarded out(H_ * Tq_ * Dv_, dtype), lse(H_ * Tq_, DType::f32);
    const MutableView o(out.begin(), dtype, {1, H_, Tq_, Dv_}), l(lse.begin(), DType::f32, {1, H_, Tq_});
    const kernels::Results to{result_of(o), {l.raw(), DType::f32, Tq_, 1, 0}};
    target_.decode.combine(group, to, 0, Tq_, partials.as<float>(), stride, ranges);
    for (const Guarded* each : {&partials, &out, &lse}) EXPECT_TRUE(each->intact()) << what;
    expect_as_exact(x_, {o.clone(), l.clone()});
  }

 private:
  const Target& target_;
  const Call& x_;
  GroupOfCall made_;
  std::int64_t H_, Tq_, Dv_;
  std::optional<Blocks> k_blocks_, v_blocks_;
};

class DecodeKernels : public EveryTarget {};

INSTANTIATE_TEST_SUITE_P(Every, DecodeKernels, every_target(), name_of_target);

TEST_P(DecodeKernels, SizesAroundLanesWithEveryOption) {
  // A batch's starts are of the schedule, and dropout is never decoded.
  constexpr unsigned here = ~unsigned{with_starts | with_dropout};
  const std::int64_t n = target().lanes;
  const std::int64_t sizes[] = {1, 2, n - 1, n, n + 1, 2 * n, 2 * n + 1, 4 * n - 1, 4 * n + 3, 8 * n + 1, 70};
  const std::int64_t keys[] = {1, 2, 3, n, n + 1, 63, 64, 65, 127, 128, 200, 321};
  for (std::uint64_t seed = 80'000; seed < 80'200; ++seed) {
    Dice dice(seed);
    Sizes s{1, 1 + dice.below(9), 1, 1, keys[dice.below(std::ssize(keys))], 1, 1};
    s.Tq = 1 + dice.below(9 / s.H + 1);
    s.D = sizes[dice.below(std::ssize(sizes))], s.Dv = sizes[dice.below(std::ssize(sizes))];
    Call x = make_call(s, random_features(dice) & here, dtypes[seed % 3], seed);
    x.what.append(" ").append(target().name);
    Trial(target(), x, dice).check(1 + dice.below(6), x.what);
  }
}

TEST_P(DecodeKernels, TheQueriesOfOneCallAreDecodedAlone) {
  // Rows 2 and 3 of five, for each of two heads: the same numbers as of all five.
  for (const DType dtype : dtypes) {
    const Call x = make_call({1, 2, 1, 5, 100, 20, 12}, with_causal | with_bias, dtype, 7);
    const kernels::Group group = GroupOfCall(x).group;
    const auto decoded = [&](std::int64_t first, std::int64_t last) {
      const std::int64_t rows = 2 * (last - first);
      Guarded partial(rows * 14, DType::f32), scratch(target().decode.bytes(group.sizes, group.features, rows));
      const kernels::DecodeGroup alone{group, partial.as<float>()};
      target().decode.run(&alone, 1, first, last, 0, 100, scratch.begin());
      EXPECT_TRUE(partial.intact() && scratch.intact());
      return View(partial.begin(), DType::f32, {2, last - first, 14}).clone();
    };
    expect_same(decoded(2, 4), decoded(0, 5).view().slice(1, 2, 4));
  }
}

TEST_P(DecodeKernels, GroupsThatShareKeysHaveTheNumbersThatTheyHaveAlone) {
  for (const DType dtype : dtypes) {
    for (const std::int64_t G : {1, 3}) {
      // The keys of the first; queries, bias and slopes of their own.
      constexpr std::int64_t count = 5, Tq = 2, row = 2 + 12;
      std::deque<Call> calls;
      std::deque<GroupOfCall> made;
      std::deque<Guarded> partials;
      std::vector<kernels::DecodeGroup> groups;
      for (std::int64_t n = 0; n < count; ++n) {
        const unsigned features = with_causal | with_bias | with_alibi | with_mask;
        kernels::Group& group = made.emplace_back(calls.emplace_back(make_call({1, G, 1, Tq, 200, 20, 12}, features,
                                                                               dtype, 50 + calls.size())))
                                    .group;
        group.k = made[0].group.k, group.v = made[0].group.v, group.rules.offset = 198 - 60 * n;
        groups.push_back({group, partials.emplace_back(G * Tq * row, DType::f32).as<float>()});
      }
      const auto run = [&](std::int64_t first, std::int64_t groups_taken) {
        const kernels::Group& group = groups[0].group;
        Guarded scratch(target().decode.bytes(group.sizes, group.features, groups_taken * G * Tq));
        target().decode.run(groups.data() + first, groups_taken, 0, Tq, 64, 200, scratch.begin());
        EXPECT_TRUE(scratch.intact());
      };
      const auto all = [&] {
        Tensor out({count, G, Tq, row});
        std::int64_t n = 0;
        for (Guarded& partial : partials) {
          out.view().select(0, n++).copy_from(View(partial.begin(), DType::f32, {G, Tq, row}));
          EXPECT_TRUE(partial.intact());
        }
        return out;
      };
      run(0, count);
      const Tensor together = all();
      for (std::int64_t n = 0; n < count; ++n) run(n, 1);
      expect_same(together, all());
    }
  }
}

// ---- What adds up partial sums ----

struct Parts {
  std::int64_t G, Tq, Dv, ranges;
  std::vector<float> numbers;  // [ranges][G * Tq][2 + Dv], and NaN between
  std::int64_t stride;
};

// m as far apart as scores are; some parts saw nothing, some rows not in any part.
Parts draw_parts(std::int64_t G, std::int64_t Tq, std::int64_t Dv, std::int64_t ranges, Dice& dice) {
  Parts p{G, Tq, Dv, ranges, {}, G * Tq * (2 + Dv) + 3};
  Generator generator(static_cast<std::uint64_t>(dice.below(1'000'000)));
  p.numbers.assign(static_cast<std::size_t>(ranges * p.stride), std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t r = 0; r < G * Tq; ++r) {
    const bool blind = dice.one_in(6);
    for (std::int64_t n = 0; n < ranges; ++n) {
      float* part = p.numbers.data() + n * p.stride + r * (2 + Dv);
      const bool saw = !blind && !dice.one_in(4);
      part[0] = saw ? static_cast<float>(dice.below(400) - 200) : -std::numeric_limits<float>::max();
      part[1] = saw ? 1 + static_cast<float>(dice.below(1000)) / 16 : 0;
      const Tensor values = generator.normal({Dv + 16}, 0, 1);
      for (std::int64_t d = 0; d < Dv; ++d) part[2 + d] = saw ? values.data<float>()[d] * part[1] : 0;
    }
  }
  return p;
}

// out and lse of one row, from their definition.
struct Combined {
  std::vector<long double> out, magnitude;
  long double lse;
};
Combined combined(const Parts& p, std::int64_t row, const double* sink) {
  long double sum = sink ? std::exp(static_cast<long double>(*sink)) : 0;
  Combined c{std::vector<long double>(static_cast<std::size_t>(p.Dv)), {}, 0};
  c.magnitude = c.out;
  for (std::int64_t n = 0; n < p.ranges; ++n) {
    const float* part = p.numbers.data() + n * p.stride + row * (2 + p.Dv);
    if (part[1] == 0) continue;
    const long double weight = std::exp2(static_cast<long double>(part[0]));
    sum += weight * static_cast<long double>(part[1]);
    for (std::int64_t d = 0; d < p.Dv; ++d) {
      const long double value = weight * static_cast<long double>(part[2 + d]);
      c.out[static_cast<std::size_t>(d)] += value, c.magnitude[static_cast<std::size_t>(d)] += std::abs(value);
    }
  }
  if (sum > 0) {
    for (long double& each : c.out) each /= sum;
    for (long double& each : c.magnitude) each /= sum;
  }
  c.lse = std::log(sum);
  return c;
}

void check_combined(const Target& target, const Parts& p, DType dtype, const std::vector<double>& sinks) {
  const std::int64_t width = p.Dv + 2;
  Guarded out(p.G * p.Tq * width, dtype), lse(p.G * p.Tq, DType::f32);
  // Each row's elements stand apart, and what is between stays as it is.
  const MutableView o(out.begin(), dtype, {1, p.G, p.Tq, p.Dv}, {0, p.Tq * width, width, 1});
  const kernels::Results to{result_of(o), {lse.begin(), DType::f32, p.Tq, 1, 0}};
  kernels::Group group{.sizes = {p.G, 1, p.Dv, dtype}};
  group.sinks = sinks.empty() ? nullptr : sinks.data();
  target.decode.combine(group, to, 0, p.Tq, p.numbers.data(), p.stride, p.ranges);
  ASSERT_TRUE(out.intact() && lse.intact());
  // One rounding to f32, one to the dtype, and the least number that it holds; the sums themselves are in double.
  const double u = dtype == DType::f32 ? 0 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  const double least = dtype == DType::f16 ? 0x1p-25 : dtype == DType::bf16 ? 0x1p-134 : 0x1p-150;
  for (std::int64_t r = 0; r < p.G * p.Tq; ++r) {
    const std::int64_t h = r / p.Tq, i = r % p.Tq;
    const Combined exact = combined(p, r, sinks.empty() ? nullptr : &sinks[static_cast<std::size_t>(h)]);
    for (std::int64_t d = 0; d < p.Dv; ++d) {
      const auto wanted = static_cast<double>(exact.out[static_cast<std::size_t>(d)]);
      const double of_sums = 1e-14 * static_cast<double>(exact.magnitude[static_cast<std::size_t>(d)]);
      EXPECT_NEAR(View(o).item({0, h, i, d}), wanted, (0x1p-24 + u) * 1.001 * std::abs(wanted) + of_sums + least);
    }
    const auto wanted = static_cast<double>(exact.lse), got = static_cast<double>(lse.as<float>()[r]);
    if (std::isinf(wanted)) {
      EXPECT_EQ(got, wanted);
    } else {
      EXPECT_NEAR(got, wanted, 0x1p-24 * std::abs(wanted) + 2e-11 * std::max(1.0, std::abs(wanted)));
    }
  }
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(out.begin());
  for (std::int64_t r = 0; r < p.G * p.Tq; ++r)
    for (std::int64_t at = (r * width + p.Dv) * size_of(dtype); at < (r + 1) * width * size_of(dtype); ++at)
      EXPECT_EQ(bytes[at], 0xFF) << "between the rows";
}

class CombineKernels : public EveryTarget {};

INSTANTIATE_TEST_SUITE_P(Every, CombineKernels, every_target(), name_of_target);

TEST_P(CombineKernels, AnyNumberOfPartsWithAndWithoutSinks) {
  Dice dice(90'000);
  const std::int64_t n = target().lanes;
  for (const std::int64_t Dv :
       {std::int64_t{1}, n - 1, n, n + 1, std::int64_t{63}, std::int64_t{64}, std::int64_t{65}, std::int64_t{130}}) {
    for (const std::int64_t ranges : {1, 2, 3, 7}) {
      for (const DType dtype : dtypes) {
        const Parts parts = draw_parts(1 + dice.below(3), 1 + dice.below(4), Dv, ranges, dice);
        check_combined(target(), parts, dtype, {});
        // As large as scores, below all of them, and above.
        check_combined(target(), parts, dtype, {1.5, -1e4, 300});
      }
    }
  }
}

TEST_P(CombineKernels, WithoutLse) {
  Dice dice(90'001);
  const Parts p = draw_parts(1, 2, 6, 2, dice);
  Guarded out(12, DType::f32);
  const MutableView o(out.begin(), DType::f32, {1, 1, 2, 6});
  const kernels::Group group{.sizes = {1, 1, 6, DType::f32}};
  target().decode.combine(group, {result_of(o), {}}, 0, 2, p.numbers.data(), p.stride, p.ranges);
  EXPECT_TRUE(out.intact());
  const Combined exact = combined(p, 1, nullptr);
  for (std::int64_t d = 0; d < 6; ++d) {
    EXPECT_NEAR(View(o).item({0, 0, 1, d}), static_cast<double>(exact.out[static_cast<std::size_t>(d)]), 1e-6);
  }
}

}  // namespace
}  // namespace attend
