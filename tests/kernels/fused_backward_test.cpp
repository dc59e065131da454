// Every target's backward by itself: sizes around its lanes and register tiles, in scratch of just the bytes that it
// asks for, filled with NaN.
#include <algorithm>
#include <cstddef>

#include "tests/attention/gradient.h"
#include "tests/kernels/every_target.h"

namespace attend {
namespace {

using namespace test;
using kernels::BackwardGroup;
using kernels::Target;

kernels::MutableRows result_rows(const MutableView& x) {
  return {x.raw(), x.dtype(), x.strides()[2], x.strides()[3]};
}
kernels::Operand statistics(const View& x) {
  return {x.raw(), x.dtype(), x.strides()[1], x.strides()[2], 0};
}

// One key head of one batch item, as the schedule would run it in one thread.
class Trial {
 public:
  Trial(const Target& target, const BackwardCall& c)
      : target_(target),
        c_(c),
        H_(c.x.Q.size(1)),
        Tq_(c.x.Q.size(2)),
        Tk_(c.x.K.size(2)),
        D_(c.x.Q.size(3)),
        forward_(c.x) {
    group_.forward = forward_.group;
    group_.forward.features.dlogits = c.wanted.dbias || c.wanted.ddistance_bias || c.wanted.dalibi_slopes;
    group_.out = operand_of(c.forward.out), group_.lse = statistics(c.forward.lse);
    group_.lse_low = statistics(*c.forward.lse_low);
    const AttentionPlan plan = attend::plan(c.x.Q.shape(), c.x.K.shape(), c.x.V.shape(), c.x.Q.dtype(), c.x.options);
    group_.forward.features.decoded = plan.path == Path::decode;
    group_.queries = Tq_;
    group_.dout = operand_of(c.Dout);
    if (c.wanted.dlse) group_.dlse = statistics(*c.wanted.dlse);
  }

  void check(const std::string& what) {
    const DType dtype = c_.x.Q.dtype();
    const std::int64_t row = (D_ + target_.lanes - 1) / target_.lanes * target_.lanes;
    const auto bytes = [](std::int64_t count, DType of) { return static_cast<std::size_t>(count * size_of(of)); };
    Guarded sums(bytes(H_ * Tq_ * row, DType::f32)), of_rows(bytes(H_ * Tq_ * 3, DType::f32));
    Guarded dq(bytes(H_ * Tq_ * D_, dtype)), dk(bytes(Tk_ * D_, dtype)), dv(bytes(Tk_ * c_.x.V.size(3), dtype));
    Tensor dbias({1, H_, Tq_, Tk_});
    std::vector<double> dslopes(static_cast<std::size_t>(H_));
    std::vector<double> ddistances(static_cast<std::size_t>(H_ * (2 * group_.forward.reach + 1)));
    const MutableView q(dq.begin(), dtype, c_.x.Q.shape()), k(dk.begin(), dtype, c_.x.K.shape()),
        v(dv.begin(), dtype, c_.x.V.shape());
    group_.dq_out = {q.raw(), dtype, q.strides()[1], q.strides()[2], q.strides()[3]};
    group_.dk = result_rows(k), group_.dv = result_rows(v);
    group_.dq = reinterpret_cast<float*>(sums.begin()), group_.dq_head = Tq_ * row, group_.dq_row = row;
    group_.statistics = reinterpret_cast<float*>(of_rows.begin());
    if (c_.wanted.dbias) {
      group_.dbias = dbias.data<float>();
      group_.dbias_head = Tq_ * Tk_, group_.dbias_row = Tk_, group_.dbias_column = 1;
    }
    if (c_.wanted.ddistance_bias) group_.ddistance_bias = ddistances.data();
    if (c_.wanted.dalibi_slopes) group_.dalibi_slopes = dslopes.data();
    Guarded scratch(target_.backward.bytes(group_.forward.sizes, group_.forward.features));
    run(scratch.begin());
    for (const Guarded* each : {&sums, &of_rows, &dq, &dk, &dv, &scratch}) EXPECT_TRUE(each->intact()) << what;
    AttentionGradients gradients{{}, q.clone(), k.clone(), v.clone()};
    if (c_.wanted.dbias) gradients.dbias = dbias.view().to(c_.x.options.bias->dtype());
    if (c_.wanted.ddistance_bias) {
      const View& of = *c_.x.options.distance_bias;
      gradients.ddistance_bias = View(ddistances.data(), DType::f64, of.shape()).to(of.dtype());
    }
    if (c_.wanted.dalibi_slopes) {
      gradients.dalibi_slopes = View(dslopes.data(), DType::f64, {H_}).to(c_.x.options.alibi_slopes->dtype());
    }
    expect_as_exact(c_, gradients);
  }

 private:
  void run(void* scratch) {
    const kernels::BackwardKernels& kernels = target_.backward;
    const std::int64_t keys = kernels.keys(group_.forward.sizes);
    for (std::int64_t begin = 0; begin < Tk_; begin += keys) {
      group_.keys_begin = begin, group_.keys_end = std::min(Tk_, begin + keys);
      kernels::BackwardItem& item = kernels.begin(group_, scratch);
      for (std::int64_t first = 0; first < Tq_; first += kernels::backward_tile_rows) {
        const std::int64_t last = std::min(Tq_, first + kernels::backward_tile_rows);
        for (std::int64_t head = 0; head < H_; ++head) {
          if (begin == 0) kernels.start_rows(item, head, first, last);
          kernels.rows(item, head, first, last);
          if (group_.keys_end == Tk_) kernels.finish_rows(item, head, first, last);
        }
      }
      kernels.end(item);
    }
  }

  const Target& target_;
  const BackwardCall& c_;
  std::int64_t H_, Tq_, Tk_, D_;
  GroupOfCall forward_;
  BackwardGroup group_;
};

class FusedBackward : public EveryTarget {};

INSTANTIATE_TEST_SUITE_P(Every, FusedBackward, every_target(), name_of_target);

TEST_P(FusedBackward, SizesAroundTilesWithEveryOption) {
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  // Sinks are of the schedule; starts and lengths of items of a batch too, but for one length.
  constexpr unsigned here = ~unsigned{with_starts | with_sinks};
  const std::int64_t n = target().lanes, w = target().panel_rows;
  const std::int64_t sizes[] = {1, n - 1, n, n + 1, w - 1, w, w + 1, 47, 48, 49, 63, 64, 65, 96, 129};
  const std::int64_t last = std::ssize(sizes);
  for (std::uint64_t seed = 70'000; seed < 70'060; ++seed) {
    Dice dice(seed);
    Sizes s{1, 1 + dice.below(3), 1, sizes[dice.below(last)], sizes[dice.below(last)], 1, 1};
    s.D = dice.one_in(2) ? 1 + dice.below(70) : sizes[dice.below(last)];
    s.Dv = dice.one_in(2) ? s.D : 1 + dice.below(70);
    if (dice.one_in(20)) s.Tk = 2 * target().backward.keys({.D = s.D, .Dv = s.Dv}) + 5;
    Call x = make_call(s, random_features(dice) & here, dtypes[seed % 3], seed);
    if (x.options.bias) x.options.bias = x.options.bias->broadcast_to({1, s.H, s.Tq, s.Tk});
    x.what.append(" ").append(target().name);
    const BackwardCall c = backward_of(std::move(x), seed, dice.one_in(3));
    Trial(target(), c).check(c.x.what);
  }
}

}  // namespace
}  // namespace attend
