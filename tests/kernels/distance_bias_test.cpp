// distance_bias by itself, on every target: the forward, decode and backward give the bits that they give for the same
// numbers written out as a bias, and the gradient is the sum of that bias's gradients.
#include <algorithm>
#include <cmath>

#include "kernels/reference.h"
#include "tests/attention/plain.h"
#include "tests/kernels/every_target.h"

namespace attend {
namespace {

using namespace test;

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};

// A call in two forms of one group: with a table of distances, and with a bias that says the same.
struct Pair {
  Call x;
  std::int64_t H, Tq, Tk, D, Dv, reach;
  Tensor table;    // [1,H,1,2 * reach + 1], its columns `stride` apart
  Tensor written;  // [1,H,Tq,Tk] f32
  GroupOfCall with_table, with_bias;

  Pair(Call call, std::int64_t R, DType dtype, Dice& dice, std::int64_t stride)
      : x(std::move(call)),
        H(x.Q.size(1)),
        Tq(x.Q.size(2)),
        Tk(x.K.size(2)),
        D(x.Q.size(3)),
        Dv(x.V.size(3)),
        reach(R),
        table(draw(dice, dtype, H * (2 * R + 1) * stride)),
        written({1, H, Tq, Tk}),
        with_table(x),
        with_bias(x) {
    kernels::Group &g = with_table.group, &other = with_bias.group;
    g.distance_bias = {table.raw(), dtype, (2 * R + 1) * stride, 0, stride};
    g.reach = R, g.features.distance_bias = true;
    write_out(g);
    other.bias = operand_of(written), other.features.bias = true;
  }

  static Tensor draw(Dice& dice, DType dtype, std::int64_t count) {
    Generator generator(static_cast<std::uint64_t>(dice.below(1'000'000)));
    Tensor values = generator.normal({count + 16}, 0, 2);
    for (std::int64_t i = 0; i < count; ++i) {
      if (dice.one_in(40)) values.data<float>()[i] = -INFINITY;
      if (dice.one_in(40)) values.data<float>()[i] = -3e38f;  // with a bias of as much the sum is beyond f32
    }
    return values.view().to(dtype);
  }

  float at(std::int64_t h, std::int64_t i, std::int64_t j) const {
    const kernels::Operand& d = with_table.group.distance_bias;
    const std::int64_t entry = kernels::distance_entry(i + with_table.group.rules.offset, j, reach);
    return static_cast<float>(load_element(d.dtype, element_at(d.data, d.dtype, h * d.head + entry * d.column)));
  }

  void write_out(const kernels::Group& g) {
    for (std::int64_t h = 0; h < H; ++h)
      for (std::int64_t i = 0; i < Tq; ++i)
        for (std::int64_t j = 0; j < Tk; ++j) {
          const float distance = at(h, i, j);
          const kernels::Operand& b = g.bias;
          const std::int64_t place = h * b.head + i * b.row + j * b.column;
          const float bias = b.data ? static_cast<float>(load_element(b.dtype, element_at(b.data, b.dtype, place))) : 0;
          const bool closed = distance == -INFINITY || bias == -INFINITY;
          const float sum = std::clamp(distance + bias, -3.40282347e38f, 3.40282347e38f);
          written.data<float>()[(h * Tq + i) * Tk + j] = closed ? -INFINITY : b.data ? sum : distance;
        }
  }
};

Call draw_call(Dice& dice, std::uint64_t seed, unsigned without) {
  const std::int64_t keys[] = {1, 5, 47, 48, 64, 65, 130, 200}, queries[] = {1, 3, 9, 49, 70};
  const Sizes s{1, 1 + dice.below(3), 1, queries[dice.below(5)], keys[dice.below(8)], 1 + dice.below(40), 0};
  Sizes sizes = s;
  sizes.Dv = 1 + dice.below(40);
  return make_call(sizes, random_features(dice) & ~(without | with_distance), dtypes[seed % 3], seed);
}

Pair draw_pair(std::uint64_t seed, unsigned without) {
  Dice dice(seed);
  Call x = draw_call(dice, seed, without | with_starts);
  const std::int64_t reaches[] = {0, 1, 3, 20, 64, 300};
  const std::int64_t reach = reaches[dice.below(6)];
  const DType table = dice.one_in(2) ? DType::f32 : dice.one_in(2) ? DType::bf16 : DType::f64;
  const std::int64_t stride = dice.one_in(3) ? 2 : 1;
  return Pair(std::move(x), reach, table, dice, stride);
}

class DistanceBias : public EveryTarget {};

INSTANTIATE_TEST_SUITE_P(Every, DistanceBias, every_target(), name_of_target);

// out and lse of all rows, one after another.
Tensor forward(const kernels::Target& target, const Pair& p, const kernels::Group& group) {
  const DType dtype = p.x.Q.dtype();
  Guarded out(p.H * p.Tq * p.Dv, dtype), lse(p.H * p.Tq, DType::f32);
  const kernels::Results to{result_of(MutableView(out.begin(), dtype, {1, p.H, p.Tq, p.Dv})),
                            {lse.begin(), DType::f32, p.Tq, 1, 0}};
  Guarded scratch(target.forward.bytes(group.sizes, group.features, p.H * p.Tq));
  target.forward.run({group, to, 0, p.Tq}, nullptr, scratch.begin());
  EXPECT_TRUE(scratch.intact() && out.intact() && lse.intact()) << p.x.what;
  Tensor both({p.H * p.Tq * (p.Dv + 1)});
  both.view().slice(0, 0, p.H * p.Tq * p.Dv).copy_from(View(out.begin(), dtype, {p.H * p.Tq * p.Dv}));
  both.view().slice(0, p.H * p.Tq * p.Dv, both.count()).copy_from(View(lse.begin(), DType::f32, {p.H * p.Tq}));
  return both;
}

Tensor decode(const kernels::Target& target, const Pair& p, const kernels::Group& group) {
  Guarded partial(p.H * p.Tq * (2 + p.Dv), DType::f32);
  Guarded scratch(target.decode.bytes(group.sizes, group.features, p.H * p.Tq));
  const kernels::DecodeGroup alone{group, partial.as<float>()};
  target.decode.run(&alone, 1, 0, p.Tq, 0, group.rules.key_length, scratch.begin());
  EXPECT_TRUE(scratch.intact() && partial.intact()) << p.x.what;
  return View(partial.begin(), DType::f32, {p.H * p.Tq * (2 + p.Dv)}).clone();
}

TEST_P(DistanceBias, ForwardAndDecodeAreThoseOfTheBiasWrittenOut) {
  for (std::uint64_t seed = 90'000; seed < 90'150; ++seed) {
    const Pair p = draw_pair(seed, seed % 2 == 0 ? 0u : unsigned{with_dropout});
    const std::string what = p.x.what + " reach " + std::to_string(p.reach);
    expect_same(forward(target(), p, p.with_table.group), forward(target(), p, p.with_bias.group), what);
    if (p.with_table.group.features.dropout || p.with_table.group.rules.key_length == 0) continue;
    expect_same(decode(target(), p, p.with_table.group), decode(target(), p, p.with_bias.group), what);
  }
}

// The gradients of one group: those of q, k and v as bits, and of the table or of the bias.
struct Gradients {
  Tensor qkv;
  std::vector<double> table;
  Tensor bias;
};

Gradients backward(const kernels::Target& target, const Pair& p, const kernels::Group& forward_group, bool with_table) {
  const DType dtype = p.x.Q.dtype();
  const std::int64_t rows = p.H * p.Tq, row = (p.D + target.lanes - 1) / target.lanes * target.lanes;
  kernels::BackwardGroup b;
  b.forward = forward_group, b.forward.features.dlogits = true;
  b.queries = p.Tq;
  Guarded out(rows * p.Dv, dtype), lse(rows, DType::f32);
  const kernels::Results to{result_of(MutableView(out.begin(), dtype, {1, p.H, p.Tq, p.Dv})),
                            {lse.begin(), DType::f32, p.Tq, 1, 0}};
  Guarded forward_scratch(target.forward.bytes(forward_group.sizes, forward_group.features, rows));
  target.forward.run({forward_group, to, 0, p.Tq}, nullptr, forward_scratch.begin());
  Generator generator(5);
  const Tensor dout = generator.normal({1, p.H, p.Tq, p.Dv}, 0, 1).view().to(dtype);
  b.out = operand_of(View(out.begin(), dtype, {1, p.H, p.Tq, p.Dv})), b.dout = operand_of(dout);
  b.lse = {lse.begin(), DType::f32, p.Tq, 1, 0};
  Guarded sums(rows * row, DType::f32), statistics(rows * 3, DType::f32);
  Guarded all(rows * p.D + p.Tk * (p.D + p.Dv), dtype);
  std::byte* next = all.begin();
  b.dq_out = {next, dtype, p.Tq * p.D, p.D, 1}, next += rows * p.D * size_of(dtype);
  b.dk = {next, dtype, p.D, 1}, next += p.Tk * p.D * size_of(dtype);
  b.dv = {next, dtype, p.Dv, 1};
  b.dq = sums.as<float>(), b.dq_head = p.Tq * row, b.dq_row = row, b.statistics = statistics.as<float>();
  Gradients g{{}, std::vector<double>(static_cast<std::size_t>(p.H * (2 * p.reach + 1))), Tensor({1, p.H, p.Tq, p.Tk})};
  if (with_table) {
    b.ddistance_bias = g.table.data();
  } else {
    b.dbias = g.bias.data<float>(), b.dbias_head = p.Tq * p.Tk, b.dbias_row = p.Tk, b.dbias_column = 1;
  }
  Guarded scratch(target.backward.bytes(b.forward.sizes, b.forward.features));
  b.keys_begin = 0;
  for (const std::int64_t keys = target.backward.keys(b.forward.sizes); b.keys_begin < p.Tk; b.keys_begin += keys) {
    b.keys_end = std::min(p.Tk, b.keys_begin + keys);
    kernels::BackwardItem& item = target.backward.begin(b, scratch.begin());
    for (std::int64_t first = 0; first < p.Tq; first += kernels::backward_tile_rows)
      for (std::int64_t h = 0; h < p.H; ++h) {
        const std::int64_t last = std::min(p.Tq, first + kernels::backward_tile_rows);
        if (b.keys_begin == 0) target.backward.start_rows(item, h, first, last);
        target.backward.rows(item, h, first, last);
        if (b.keys_end == p.Tk) target.backward.finish_rows(item, h, first, last);
      }
    target.backward.end(item);
  }
  for (const Guarded* each : {&sums, &statistics, &all, &scratch}) EXPECT_TRUE(each->intact()) << p.x.what;
  g.qkv = View(all.begin(), dtype, {rows * p.D + p.Tk * (p.D + p.Dv)}).clone();
  return g;
}

TEST_P(DistanceBias, ItsGradientIsTheSumOfTheBiassGradients) {
  for (std::uint64_t seed = 91'000; seed < 91'100; ++seed) {
    const Pair p = draw_pair(seed, with_sinks);
    const std::string what = p.x.what + " reach " + std::to_string(p.reach);
    const Gradients ours = backward(target(), p, p.with_table.group, true);
    const Gradients other = backward(target(), p, p.with_bias.group, false);
    expect_same(ours.qkv, other.qkv, what);
    std::vector<double> sums(ours.table.size()), sizes(ours.table.size());
    for (std::int64_t h = 0; h < p.H; ++h)
      for (std::int64_t i = 0; i < p.Tq; ++i)
        for (std::int64_t j = 0; j < p.Tk; ++j) {
          const std::int64_t entry = kernels::distance_entry(i + p.with_table.group.rules.offset, j, p.reach);
          const auto at = static_cast<std::size_t>(h * (2 * p.reach + 1) + entry);
          const double each = other.bias.item({0, h, i, j});
          sums[at] += each, sizes[at] += std::abs(each);
        }
    // The same numbers, added in doubles in another order.
    for (std::size_t n = 0; n < sums.size(); ++n) {
      if (std::isnan(sums[n]) && std::isnan(ours.table[n])) continue;
      EXPECT_NEAR(ours.table[n], sums[n], 0x1p-53 * static_cast<double>(p.Tq * p.Tk) * sizes[n]) << what << " " << n;
    }
  }
}

// The oracle's rule is its own: j - (i + offset), kept within the reach.
TEST(DistanceBiasOfTheOracle, AddsWhatABiasAdds) {
  for (std::uint64_t seed = 92'000; seed < 92'040; ++seed) {
    const Pair p = draw_pair(seed, with_bias);
    for (std::int64_t h = 0; h < p.H; ++h) {
      kernels::Head table = oracle_head(p.x, 0, h, 0, p.Tq, 0, p.Tk), written = table;
      const kernels::Operand& d = p.with_table.group.distance_bias;
      table.distance_bias = {element_at(d.data, d.dtype, h * d.head), d.dtype, 0, d.column}, table.reach = p.reach;
      written.bias = matrix_of(p.written, 0, h, 0);
      kernels::Row ours, other;
      for (std::int64_t i = 0; i < p.Tq; ++i) {
        kernels::reference_row(table, i, ours), kernels::reference_row(written, i, other);
        for (std::int64_t j = 0; j < std::ssize(ours.logits); ++j)
          EXPECT_EQ(ours.logits[j], other.logits[j]) << p.x.what;
        EXPECT_EQ(ours.lse, other.lse) << p.x.what;
      }
    }
  }
}

}  // namespace
}  // namespace attend
