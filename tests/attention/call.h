// A call of attention() with some of its options, and the same call by the oracle, put together without the library's
// own checks and cuts: from the header's words alone.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/attention/plain.h"

namespace attend::test {

// The seeds of a sweep over random calls, from `first` to before `last`: all, or every fifth where ATTEND_TEST_SWEEPS
// is "fifth" (CONTRIBUTING.md). 5 shares no factor with 2, 3, 4 and 6, whose remainders choose dtypes and the like:
// each comes as often.
inline std::vector<std::uint64_t> sweep(std::uint64_t first, std::uint64_t last) {
  const char* part = std::getenv("ATTEND_TEST_SWEEPS");
  const std::uint64_t step = part && std::string_view(part) == "fifth" ? 5 : 1;
  std::vector<std::uint64_t> seeds;
  for (std::uint64_t seed = first; seed < last; seed += step) seeds.push_back(seed);
  return seeds;
}

struct Sizes {
  std::int64_t B = 1, H = 1, Hkv = 1, Tq = 1, Tk = 1, D = 1, Dv = 1;
};

enum Feature : unsigned {
  with_scale = 1,
  with_causal = 2,
  with_window = 4,
  with_offset = 8,
  with_mask = 16,
  with_bias = 32,
  with_alibi = 64,
  with_sinks = 128,
  with_softcap = 256,
  with_lengths = 512,
  with_starts = 1024,
  with_layout = 2048,  // [B,T,H,D] in memory
  with_dropout = 4096,
  with_distance = 8192,
};
constexpr int feature_count = 14;

inline Sizes random_sizes(Dice& dice, std::int64_t most_queries, std::int64_t most_keys) {
  constexpr std::int64_t groups[] = {1, 1, 2, 3};
  Sizes s;
  s.B = 1 + dice.below(2);
  s.Hkv = 1 + dice.below(2);
  s.H = s.Hkv * groups[dice.below(4)];
  s.Tq = 1 + dice.below(dice.one_in(3) ? 4 : most_queries);  // few: the decode path
  s.Tk = 1 + dice.below(most_keys);
  s.D = 1 + dice.below(24);
  s.Dv = 1 + dice.below(24);
  return s;
}

// About a third of the features.
inline unsigned random_features(Dice& dice) {
  unsigned out = 0;
  for (int f = 0; f < feature_count; ++f) out |= dice.one_in(3) ? 1u << f : 0;
  return out;
}

struct Call {
  Tensor q, k, v;  // in memory
  View Q, K, V;    // as they are passed
  Tensor mask, bias, distances, slopes, sinks, lengths, query_starts, key_starts;
  AttentionOptions options;
  std::string what;

  AttentionResult run(const ForwardOptions& wanted = {}) const { return attention(Q, K, V, options, wanted); }
};

inline Tensor whole_numbers(const std::vector<std::int64_t>& values) {
  Tensor out({std::ssize(values)}, DType::i64);
  std::copy(values.begin(), values.end(), out.data<std::int64_t>());
  return out;
}

// True with this probability.
inline Tensor coins(Generator& generator, const Dims& shape, double probability) {
  const Tensor draws = generator.rand(shape);
  Tensor out(shape, DType::boolean);
  for (std::int64_t i = 0; i < out.count(); ++i)
    out.data<bool>()[i] = static_cast<double>(draws.data<float>()[i]) < probability;
  return out;
}

// One of the shapes that broadcast to [B,H,Tq,Tk]; the last one is to be transposed.
inline Dims pairs_shape(Dice& dice, const Sizes& s, bool& transposed) {
  const std::int64_t kind = dice.below(10);
  transposed = kind == 9;
  switch (kind) {
    case 0:
      return {s.Tq, s.Tk};
    case 1:
      return {s.B, 1, 1, s.Tk};
    case 2:
      return {s.H, s.Tq, 1};
    case 3:
      return {1, s.H, 1, s.Tk};
    case 4:
      return {s.B, s.H, s.Tq, s.Tk};
    case 5:
      return {1};
    case 6:
      return {s.Tk};
    case 7:
      return {s.Tq, 1};
    case 8:
      return {s.B, s.H, 1, 1};
    default:
      return {s.B, s.H, s.Tk, s.Tq};
  }
}

inline void add_mask(Call& x, const Sizes& s, Dice& dice, Generator& generator) {
  bool transposed = false;
  const Dims shape = pairs_shape(dice, s, transposed);
  x.mask = coins(generator, shape, 0.6);
  x.options.mask = transposed ? x.mask.view().transpose(2, 3) : x.mask.view();
  x.what += " mask" + shape.str();
}

inline void add_bias(Call& x, const Sizes& s, Dice& dice, Generator& generator) {
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
  bool transposed = false;
  const Dims shape = pairs_shape(dice, s, transposed);
  Tensor values = generator.normal(shape, 0, 1);
  const Tensor closed = coins(generator, shape, 0.15);
  for (std::int64_t i = 0; i < values.count(); ++i)
    if (closed.data<bool>()[i]) values.data<float>()[i] = -INFINITY;
  x.bias = values.view().to(dtypes[dice.below(4)]);
  x.options.bias = transposed ? x.bias.view().transpose(2, 3) : x.bias.view();
  x.what += " bias" + shape.str() + std::string(name_of(x.bias.dtype()));
}

inline void add_distances(Call& x, const Sizes& s, Dice& dice, Generator& generator) {
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
  const std::int64_t reach = dice.one_in(4) ? 0 : dice.one_in(4) ? s.Tq + s.Tk : dice.below(20);
  const bool transposed = dice.one_in(3);
  const Dims shape = transposed ? Dims{2 * reach + 1, s.H} : Dims{s.H, 2 * reach + 1};
  Tensor values = generator.normal(shape, 0, 1);
  const Tensor closed = coins(generator, shape, 0.1);
  for (std::int64_t i = 0; i < values.count(); ++i)
    if (closed.data<bool>()[i]) values.data<float>()[i] = -INFINITY;
  x.distances = values.view().to(dtypes[dice.below(4)]);
  x.options.distance_bias = transposed ? x.distances.view().transpose(0, 1) : x.distances.view();
  x.what += " distances" + shape.str() + std::string(name_of(x.distances.dtype()));
}

// Cuts [0,total] into `parts`, some of them perhaps empty.
inline std::vector<std::int64_t> cuts(Dice& dice, std::int64_t total, int parts) {
  std::vector<std::int64_t> starts{0, total};
  for (int i = 1; i < parts; ++i) starts.push_back(dice.below(total + 1));
  std::sort(starts.begin(), starts.end());
  return starts;
}

inline void add_lists(Call& x, const Sizes& s, unsigned wanted, Dice& dice) {
  if (wanted & with_lengths) {
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < s.B; ++b) lengths.push_back(dice.below(s.Tk + 1));
    x.lengths = whole_numbers(lengths);
    x.options.key_lengths = x.lengths.view();
    x.what += " lengths";
  }
  if (wanted & with_starts) {
    x.query_starts = whole_numbers(cuts(dice, s.Tq, 3));
    x.key_starts = whole_numbers(cuts(dice, s.Tk, 3));
    x.options.query_starts = x.query_starts.view();
    x.options.key_starts = x.key_starts.view();
    x.what += " starts";
  }
}

inline void add_position(Call& x, const Sizes& s, unsigned wanted, Dice& dice) {
  if (wanted & with_causal) x.options.causal = true, x.what += " causal";
  if (wanted & with_window) {
    const std::int64_t kind = dice.below(3);
    x.options.window = {kind == 0 ? -1 : dice.below(s.Tk), kind == 1 ? -1 : dice.below(s.Tk / 2 + 1)};
    x.what += " window " + std::to_string(x.options.window.left) + "," + std::to_string(x.options.window.right);
  }
  if (wanted & with_offset) {
    const std::int64_t kind = dice.below(4);
    const std::int64_t value = dice.below(s.Tq + s.Tk) - s.Tq;
    x.options.offset = kind == 0 ? Offset::top_left() : kind == 1 ? Offset::bottom_right() : Offset(value);
    x.what += " offset " + (kind == 1 ? "bottom_right" : std::to_string(kind == 0 ? 0 : value));
  } else if (wanted & (with_causal | with_window | with_alibi | with_distance)) {
    x.options.offset = Offset::bottom_right();  // some offset must be given where the lengths differ
  }
}

inline Tensor draw(Generator& generator, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t d, DType dtype,
                   bool permuted) {
  return (permuted ? generator.normal({b, t, h, d}, 0, 1) : generator.normal({b, h, t, d}, 0, 1)).view().to(dtype);
}

inline Call make_call(Sizes s, unsigned wanted, DType dtype, std::uint64_t seed) {
  Generator generator(seed);
  Dice dice(seed + (std::uint64_t{1} << 40));
  Call x;
  x.what = "seed " + std::to_string(seed) + " " + std::string(name_of(dtype)) + " ";
  if (wanted & with_starts) s.B = 1, wanted &= ~unsigned{with_lengths};
  x.what += Dims{s.B, s.H, s.Hkv, s.Tq, s.Tk, s.D, s.Dv}.str();
  const bool permuted = (wanted & with_layout) != 0;
  x.q = draw(generator, s.B, s.H, s.Tq, s.D, dtype, permuted);
  x.k = draw(generator, s.B, s.Hkv, s.Tk, s.D, dtype, permuted);
  x.v = draw(generator, s.B, s.Hkv, s.Tk, s.Dv, dtype, permuted);
  const auto passed = [&](const Tensor& t) { return permuted ? t.view().transpose(1, 2) : t.view(); };
  x.Q = passed(x.q), x.K = passed(x.k), x.V = passed(x.v);
  constexpr double scales[] = {0.3, -0.7, 0, 2.5};
  if (wanted & with_scale) x.options.scale = scales[dice.below(4)], x.what += " scale";
  add_position(x, s, wanted, dice);
  if (wanted & with_mask) add_mask(x, s, dice, generator);
  if (wanted & with_bias) add_bias(x, s, dice, generator);
  if (wanted & with_distance) add_distances(x, s, dice, generator);
  if (wanted & with_alibi) {
    x.slopes = generator.uniform({s.H}, -0.05, 0.5);
    x.options.alibi_slopes = x.slopes.view(), x.what += " alibi";
  }
  if (wanted & with_sinks) {
    x.sinks = generator.normal({s.H}, 0, 3);
    x.options.sinks = x.sinks.view(), x.what += " sinks";
  }
  if (wanted & with_softcap) x.options.softcap = dice.one_in(2) ? 0.4 : 8, x.what += " softcap";
  if (wanted & with_dropout) x.options.dropout = {dice.one_in(2) ? 0.2 : 0.7, seed * 77}, x.what += " dropout";
  add_lists(x, s, wanted, dice);
  return x;
}

// One query row as the oracle takes it, and where it stands in the results.
struct OracleRow {
  std::int64_t b, h, i;  // in the results
  std::int64_t row;      // in `head`
  std::int64_t key_start;
  kernels::Head head;
};

// The last two axes of x [B,H,rows,columns] at one head, from (row, column) on.
inline kernels::Matrix matrix_of(const View& x, std::int64_t b, std::int64_t h, std::int64_t row,
                                 std::int64_t column = 0) {
  const Dims& s = x.strides();
  return {element_at(x.raw(), x.dtype(), b * s[0] + h * s[1] + row * s[2] + column * s[3]), x.dtype(), s[2], s[3]};
}

inline kernels::Head oracle_head(const Call& x, std::int64_t b, std::int64_t h, std::int64_t query_start,
                                 std::int64_t queries, std::int64_t key_start, std::int64_t keys) {
  const AttentionOptions& o = x.options;
  kernels::Head head;
  head.D = x.Q.size(3), head.Dv = x.V.size(3);
  kernels::Rules& rules = head.rules;
  head.Tk = rules.key_length = o.key_lengths ? static_cast<std::int64_t>(o.key_lengths->item({b})) : keys;
  const std::int64_t kv = h / (x.Q.size(1) / x.K.size(1));
  head.q = matrix_of(x.Q, b, h, query_start);
  head.k = matrix_of(x.K, b, kv, key_start), head.v = matrix_of(x.V, b, kv, key_start);
  const Dims pairs{x.Q.size(0), x.Q.size(1), x.Q.size(2), x.K.size(2)};
  if (o.mask) head.mask = matrix_of(o.mask->broadcast_to(pairs), b, h, query_start, key_start);
  if (o.bias) head.bias = matrix_of(o.bias->broadcast_to(pairs), b, h, query_start, key_start);
  rules.scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(head.D)));
  rules.softcap = o.softcap;
  if (o.distance_bias) {
    head.distance_bias = matrix_of(o.distance_bias->reshape({1, x.Q.size(1), 1, o.distance_bias->size(1)}), 0, h, 0);
    head.reach = o.distance_bias->size(1) / 2;
  }
  if (o.alibi_slopes) head.alibi_slope = o.alibi_slopes->item({h});
  if (o.sinks) head.sink = o.sinks->item({h});
  rules.window_left = o.window.left, rules.window_right = o.causal ? 0 : o.window.right;
  rules.offset = o.offset ? o.offset->resolve(queries, rules.key_length) : 0;
  rules.dropout = {o.dropout.p, o.dropout.seed, b, h, query_start, key_start};
  return head;
}

template <class Body>
void for_each_oracle_row(const Call& x, Body body) {
  std::vector<std::int64_t> queries{0, x.Q.size(2)}, keys{0, x.K.size(2)};
  if (x.options.query_starts) {
    const auto list = [](const View& starts) {
      return std::vector<std::int64_t>(starts.data<std::int64_t>(), starts.data<std::int64_t>() + starts.count());
    };
    queries = list(*x.options.query_starts), keys = list(*x.options.key_starts);
  }
  for (std::int64_t b = 0; b < x.Q.size(0); ++b)
    for (std::int64_t h = 0; h < x.Q.size(1); ++h)
      for (std::size_t n = 0; n + 1 < queries.size(); ++n) {
        const std::int64_t Tq = queries[n + 1] - queries[n];
        const kernels::Head head = oracle_head(x, b, h, queries[n], Tq, keys[n], keys[n + 1] - keys[n]);
        for (std::int64_t i = 0; i < Tq; ++i) body(OracleRow{b, h, queries[n] + i, i, keys[n], head});
      }
}

// Compares a result with the oracle, row by row. whole_numbers: it was decoded over keys of 8 bits.
inline void expect_as_exact(const Call& x, const AttentionResult& result, bool whole_numbers = false) {
  Errors errors(x.Q.dtype());
  kernels::Row exact;
  for_each_oracle_row(x, [&](const OracleRow& at) {
    kernels::reference_row(at.head, at.row, exact);
    if (whole_numbers) errors.rounds_to_16_bits(at.head, at.row);
    errors.add(
        exact, plain_row(at.head, at.row, exact, x.Q.dtype()),
        [&](std::int64_t d) {
          return result.out.item({at.b, at.h, at.i, d});
        },
        static_cast<float>(result.lse.item({at.b, at.h, at.i})));
  });
  errors.check(x.what);
}

// Sizes of keys [B,H,Tk], of visible pairs [B,H,Tq,Tk]: some are 0, some far larger than others, and those of keys that
// nobody sees are no numbers.
inline Tensor key_sizes_of(const View& visible, DType q_dtype, std::uint64_t seed) {
  const std::int64_t B = visible.size(0), H = visible.size(1), Tq = visible.size(2), Tk = visible.size(3);
  Dice dice(seed + 77);
  Tensor sizes({B, H, Tk}, DType::f64);
  for (std::int64_t n = 0; n < sizes.count(); ++n) {
    const std::int64_t b = n / Tk / H, h = n / Tk % H, j = n % Tk;
    double& size = sizes.data<double>()[n];
    size = dice.one_in(8) ? 0 : static_cast<double>(1 + dice.below(1000)) * (dice.one_in(10) ? 0.1 : 0.001);
    bool seen = false;
    for (std::int64_t i = 0; i < Tq; ++i) seen |= visible.item({b, h, i, j}) != 0;
    if (!seen) size = NAN;
  }
  return sizes.view().to(q_dtype == DType::f64 ? DType::f64 : DType::f32);
}

}  // namespace attend::test
