#include "attention/piecewise.h"

#include <algorithm>
#include <utility>

#include "attention/compute.h"
#include "attention/schedule.h"
#include "core/element.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

// A view of that shape through which nobody reads: one element everywhere.
View shaped(const View& like, const Dims& shape) {
  Dims strides;
  for (int axis = 0; axis < shape.rank(); ++axis) strides.push_back(0);
  return View(like.raw(), like.dtype(), shape, strides);
}

Range overlap_of(const Range& a, const Range& b) {
  return {std::max(a.begin, b.begin), std::max(std::max(a.begin, b.begin), std::min(a.end, b.end))};
}

// Without what is about positions, which are not those of the whole here.
AttentionOptions of_rows(AttentionOptions options) {
  options.key_lengths = options.query_starts = options.key_starts = {};
  options.offset = Offset(0);
  return options;
}

kernels::Rules rules_of(const kernels::Rules& common, const Sequence& s) {
  kernels::Rules rules = common;
  rules.offset = s.offset, rules.key_length = s.key_length;
  return rules;
}

}  // namespace

// Queries are halved until their keys' ends stay, or move by one with each. There may be more of them than can be
// counted one by one.
double visible_pairs(const kernels::Rules& rules, std::int64_t first, std::int64_t last) {
  if (kernels::visible_keys(rules, first, last).hi == 0) return 0;
  const auto [first_lo, first_hi] = kernels::visible_keys(rules, first);
  const auto [last_lo, last_hi] = kernels::visible_keys(rules, last - 1);
  const auto even = [&](std::int64_t rise) { return rise == 0 || rise == last - 1 - first; };
  if (first_hi > 0 && last_hi > 0 && even(last_lo - first_lo) && even(last_hi - first_hi)) {
    const double keys = static_cast<double>(first_hi - first_lo) + static_cast<double>(last_hi - last_lo);
    return keys / 2 * static_cast<double>(last - first);
  }
  const std::int64_t middle = first + (last - first) / 2;
  return visible_pairs(rules, first, middle) + visible_pairs(rules, middle, last);
}

// ---- Positions ----

Positions Positions::check(const char* function, const Dims& q, const Dims& k, const Dims& v, DType dtype,
                           const AttentionOptions& options) {
  AttentionOptions positional = options;
  positional.mask = positional.bias = positional.distance_bias = positional.alibi_slopes = positional.sinks = {};
  // They make the offset matter, and nothing else here.
  const Tensor one(Dims{q.rank() > 2 ? q[q.rank() - 3] : 1});
  if (options.alibi_slopes || options.distance_bias) positional.alibi_slopes = one;
  const View nothing(nullptr, dtype, Dims{0});
  const Problem p = Problem::check(function, shaped(nothing, q), shaped(nothing, k), shaped(nothing, v), positional);
  Positions positions{{}, p.common};
  for (std::int64_t n = 0; n < p.sequences(); ++n) positions.sequences.push_back(p.sequence(n));
  return positions;
}

// What of a sequence meets, for queries that stand at 0 on; none: no key is seen.
std::optional<Sequence> Positions::part(const Sequence& s, const Range& queries, const Range& keys) const {
  const Range rows = overlap_of(queries, {s.query_start, s.query_start + s.Tq});
  const Range own = overlap_of(keys, {s.key_start, s.key_start + s.Tk});
  if (rows.begin == rows.end || own.begin == own.end) return {};
  const Sequence part{
      .b = s.b,
      .query_start = rows.begin - queries.begin,
      .key_start = own.begin - keys.begin,
      .Tq = rows.end - rows.begin,
      .Tk = own.end - own.begin,
      .key_length = std::clamp<std::int64_t>(s.key_start + s.key_length - own.begin, 0, own.end - own.begin),
      .offset = s.offset + (rows.begin - s.query_start) - (own.begin - s.key_start),
      .query_place = rows.begin,
      .key_place = own.begin};
  if (kernels::visible_keys(rules_of(common, part), 0, part.Tq).hi == 0) return {};
  return part;
}

void Positions::add_parts(const Range& queries, std::int64_t first_row, const Range& keys,
                          std::vector<Sequence>& to) const {
  for (const Sequence& s : sequences) {
    std::optional<Sequence> met = part(s, queries, keys);
    if (!met) continue;
    met->query_start += first_row;
    to.push_back(*met);
  }
}

bool Positions::meet(const Range& queries, const Range& keys) const {
  return std::any_of(sequences.begin(), sequences.end(),
                     [&](const Sequence& s) { return part(s, queries, keys).has_value(); });
}

double Positions::pairs(const Range& queries, const Range& keys) const {
  double sum = 0;
  for (const Sequence& s : sequences)
    if (const auto met = part(s, queries, keys)) sum += visible_pairs(rules_of(common, *met), 0, met->Tq);
  return sum;
}

void Positions::add_rows(const Range& queries, std::int64_t first_row, std::vector<Sequence>& to) const {
  for (const Sequence& s : sequences) {
    const Range rows = overlap_of(queries, {s.query_start, s.query_start + s.Tq});
    if (rows.begin == rows.end) continue;
    to.push_back({.b = s.b,
                  .query_start = first_row + rows.begin - queries.begin,
                  .Tq = rows.end - rows.begin,
                  .query_place = rows.begin});
  }
}

// ---- Rows ----

OwnRows OwnRows::check(const char* function, const View& q, const View& k, const View& v, std::int64_t Tk,
                       const AttentionOptions& options) {
  const auto all = [&](const View& x) {
    Dims shape = x.shape();
    if (shape.rank() >= 2) shape[shape.rank() - 2] = Tk;
    return shaped(x, shape);
  };
  return {Problem::check(function, q, all(k), all(v), of_rows(options))};
}

BackwardProblem OwnRows::check_backward(const char* function, const View& dout, const View& out, const View& lse,
                                        const AttentionOptions& options, const BackwardOptions& backward) const {
  const auto given = [&](const View& x) {
    return View(x.raw(), x.dtype(), base.trim(x.shape()), base.trim(x.strides()));
  };
  return BackwardProblem::check(function, dout, given(base.q), given(base.k), given(base.v), out, lse, of_rows(options),
                                backward);
}

Problem OwnRows::with(const View& k, const View& v, const Range& keys, std::vector<Sequence> parts) const {
  Problem part = base;
  part.k = k, part.v = v, part.Tk = keys.end - keys.begin, part.parts = std::move(parts);
  for (std::optional<View>* x : {&part.mask, &part.bias})
    if (*x) *x = (*x)->slice(3, keys.begin, keys.end);
  return part;
}

// ---- The forward ----

Tensor begin_sums(const OwnRows& rows) {
  const Problem& p = rows.base;
  const std::int64_t row = p.Dv + kernels::carried_numbers;
  Tensor sums = Tensor::uninitialized({p.B, p.H, p.Tq, row});
  for (std::int64_t i = 0; i < p.B * p.H * p.Tq; ++i)
    sums.data<float>()[i * row + p.Dv + 1] = -1;  // the sum of weights
  return sums;
}

void add_keys(const Problem& part, const MutableView& sums) {
  const MutableView nothing(nullptr, part.q.dtype(), {part.B, part.H, part.Tq, 0});
  const Schedule schedule = make_schedule(part);
  Tensor scratch = Tensor::uninitialized({schedule.scratch_bytes()}, DType::u8);
  run_schedule(part, schedule, {.out = nothing, .lse = {}, .sums = sums}, scratch.raw());
}

void finish_sums(const Problem& part, const MutableView& sums, const ResultViews& to) {
  ResultViews with_sums = to;
  with_sums.sums = sums;
  const Schedule schedule = make_schedule(part);
  Tensor scratch = Tensor::uninitialized({schedule.scratch_bytes()}, DType::u8);
  run_schedule(part, schedule, with_sums, scratch.raw());
}

// ---- The backward ----

void store_key_gradients(const MutableView& sums, float factor, const MutableView& to) {
  const std::int64_t heads = sums.size(0) * sums.size(1), each = sums.size(2) * sums.size(3);
  for (std::int64_t head = 0; head < heads; ++head) {
    float* from = sums.data<float>() + head * each;
    for (std::int64_t i = 0; i < each; ++i) from[i] *= factor;
    const std::int64_t place = head / sums.size(1) * to.strides()[0] + head % sums.size(1) * to.strides()[1];
    kernels::target().rows.convert(from, DType::f32, element_at(to.raw(), to.dtype(), place), to.dtype(), each);
  }
}

}  // namespace attend::inline v1
