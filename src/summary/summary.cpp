#include "summary/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/cached_problem.h"
#include "attention/compute.h"
#include "attention/output.h"
#include "core/axes.h"
#include "core/element.h"
#include "core/message.h"

namespace attend::inline v1 {

Range check_range(const char* function, const char* name, const std::optional<Range>& range, std::int64_t size) {
  if (!range) return {0, size};
  if (range->begin < 0 || range->end < range->begin || range->end > size) {
    fail(ErrorCode::bad_value, function, "{} are {} to {}, expected a part of 0 to {}", name, range->begin, range->end,
         size);
  }
  return *range;
}

namespace {

// ---- Checks ----

void check_map(const char* function, const MapSize& map) {
  if (map.rows >= 1 && map.columns >= 1) return;
  fail(ErrorCode::bad_value, function, "map of {} x {} blocks, expected at least 1 x 1", map.rows, map.columns);
}

// The rows that the part's problem keeps: more than 8, so that they take the path, and have the bits, of all.
Range rows_kept(const Problem& p, const Range& queries) {
  constexpr std::int64_t least = 9;
  if (!p.query_starts.empty() || p.Tq <= least) return {0, p.Tq};
  const std::int64_t begin = std::min(queries.begin, p.Tq - least);
  return {begin, std::max(queries.end, begin + least)};
}

Range part_of(const Range& range, std::int64_t start, std::int64_t size) {
  const std::int64_t begin = std::clamp<std::int64_t>(range.begin - start, 0, size);
  return {begin, std::clamp<std::int64_t>(range.end - start, begin, size)};
}

// ---- Results ----

MutableView four_axes(Tensor& x, const Dims& shape) {
  return x.view().reshape(shape);
}

AttentionSummary summarize(SummaryProblem& x, const SummaryOptions& wanted) {
  const Problem& p = x.forward;
  AttentionSummary s = x.want_rows_and_keys();
  Tensor seen({p.B, p.H, p.Tq}, x.dtype());
  x.to.seen = seen.view();
  if (wanted.map) {
    const Dims map{p.sequences(), p.H, std::min(wanted.map->rows, p.Tq), std::min(wanted.map->columns, p.Tk)};
    const Dims shown = p.query_starts.empty() ? p.trim(map) : map;
    const auto make = [&](std::optional<Tensor>& to) {
      return four_axes(to.emplace(Tensor::uninitialized(shown, x.dtype())), map);
    };
    x.to.map = make(s.map), x.to.map_max = make(s.map_max);
    if (x.key_sizes) x.to.carried_map = make(s.carried_map), x.to.carried_map_max = make(s.carried_map_max);
  }
  x.progress = wanted.progress;
  run_summary(x, make_summary_schedule(x));
  mark_nan_rows(x.to);
  return s;
}

void check_summary(const char* function, const SummaryOptions& summary) {
  if (summary.top < 0) fail(ErrorCode::bad_value, function, "top is {}, expected 0 or more", summary.top);
  if (summary.map) check_map(function, *summary.map);
}

// Weights [B,H,queries,keys] times sizes [B,H,keys]. What is hidden stays 0: its size may be no number.
template <class T>
void multiply_by(Tensor& weights, const Tensor& sizes) {
  const std::int64_t keys = sizes.size(2), rows = weights.count() / keys, of_head = rows / (sizes.count() / keys);
  for (std::int64_t row = 0; row < rows; ++row) {
    T* w = weights.data<T>() + row * keys;
    const T* size = sizes.data<T>() + row / of_head * keys;
    for (std::int64_t j = 0; j < keys; ++j) w[j] = w[j] == 0 ? 0 : w[j] * size[j];
  }
}
void carry(Tensor& weights, const Tensor& sizes) {
  if (sizes.dtype() == DType::f64) return multiply_by<double>(weights, sizes);
  multiply_by<float>(weights, sizes);
}

Tensor weights_in(SummaryProblem& x) {
  const Problem& p = x.forward;
  const Dims shape{p.B, p.H, x.queries.end - x.queries.begin, x.keys.end - x.keys.begin};
  Tensor weights(p.trim(shape), x.dtype());
  x.to.weights = four_axes(weights, shape);
  if (weights.count() == 0) return weights;
  if (!p.blocks.empty() && decodes_some(p))
    weigh_decoded(x);
  else
    run_summary(x, make_summary_schedule(x));
  if (x.key_sizes) carry(weights, x.key_sizes->view().slice(2, x.keys.begin, x.keys.end).clone());
  return weights;
}

// ---- Pairs ----

// Pairs of one tile come together: it is made once.
constexpr std::int64_t pair_rows = kernels::backward_tile_rows, pair_keys = kernels::backward_tile_keys;

struct Pair {
  std::int64_t query, key, place;  // place: in the list of pairs

  // Its first query and key.
  std::pair<std::int64_t, std::int64_t> tile() const {
    return {query / pair_rows * pair_rows, key / pair_keys * pair_keys};
  }
};

std::vector<Pair> check_pairs(const char* function, const View& pairs, const Problem& p) {
  if (pairs.dtype() != DType::i64) fail(ErrorCode::bad_dtype, function, "pairs are {}, expected i64", pairs.dtype());
  if (pairs.rank() != 2 || pairs.size(1) != 2) {
    fail(ErrorCode::bad_shape, function, "pairs have shape {}, expected [P,2]", pairs.shape());
  }
  const Tensor numbers = pairs.clone();
  std::vector<Pair> list;
  for (std::int64_t n = 0; n < pairs.size(0); ++n) {
    const std::int64_t i = numbers.data<std::int64_t>()[2 * n], j = numbers.data<std::int64_t>()[2 * n + 1];
    if (i < 0 || i >= p.Tq || j < 0 || j >= p.Tk) {
      fail(ErrorCode::bad_value, function, "pairs[{}] is query {} and key {}, expected 0 to {} and 0 to {}", n, i, j,
           p.Tq - 1, p.Tk - 1);
    }
    list.push_back({i, j, n});
  }
  std::stable_sort(list.begin(), list.end(), [](const Pair& a, const Pair& b) { return a.tile() < b.tile(); });
  return list;
}

}  // namespace

SummaryProblem SummaryProblem::check(const char* function, const View& q, const View& k, const std::optional<View>& lse,
                                     const std::optional<View>& lse_low, const AttentionOptions& options,
                                     const std::optional<Range>& queries, const std::optional<Range>& keys) {
  return check(function, Problem::check(function, q, k, k, options).without_values(), options.offset.has_value(), lse,
               lse_low, queries, keys);
}

SummaryProblem SummaryProblem::check(const char* function, const Problem& p, bool has_offset,
                                     const std::optional<View>& lse, const std::optional<View>& lse_low,
                                     const std::optional<Range>& queries, const std::optional<Range>& keys) {
  const Dims all_rows = p.trim({p.B, p.H, p.Tq});
  const DType dtype = statistics_dtype(p.q.dtype());
  if (lse) check_kind(function, "lse", *lse, all_rows, dtype);
  if (lse_low) check_kind(function, "lse_low", *lse_low, all_rows, dtype);
  if (lse_low && !lse) fail(ErrorCode::bad_value, function, "lse_low is given without lse");
  const Range rows = check_range(function, "queries", queries, p.Tq), kept = rows_kept(p, rows);
  const bool whole = kept.end - kept.begin == p.Tq;
  SummaryProblem x{whole ? p : p.slice_rows(kept.begin, kept.end), {}, {}, {}, {}, {}};
  x.has_distance = has_offset;
  if (!x.has_distance) {
    x.has_distance = true;
    for (std::int64_t n = 0; n < p.sequences(); ++n) x.has_distance &= p.sequence(n).Tq == p.sequence(n).Tk;
  }
  x.keys = check_range(function, "keys", keys, p.Tk);
  x.queries = {rows.begin - kept.begin, rows.end - kept.begin};
  const auto slice = [&](const View& all) { return with_axes(all, 3).slice(2, kept.begin, kept.end); };
  if (lse) x.lse = slice(*lse);
  if (lse_low) x.lse_low = slice(*lse_low);
  return x;
}

namespace {

void mark_nan_lists(const SummaryViews& to, const MutableView& top_keys, const MutableView& top_weights) {
  if (!top_keys.raw() || top_keys.count() == 0) return;
  const std::int64_t top = top_keys.size(3), rows = top_keys.count() / top;
  const auto* keys = top_keys.data<std::int64_t>();
  const std::int64_t size = size_of(to.seen.dtype());
  auto* weights = static_cast<std::byte*>(top_weights.raw());
  const auto* seen = static_cast<const std::byte*>(to.seen.raw());
  for (std::int64_t row = 0; row < rows; ++row) {
    if (keys[row * top] >= 0 || load_element(to.seen.dtype(), seen + row * size) == 0) continue;
    for (std::int64_t n = 0; n < top; ++n) store_element(to.seen.dtype(), weights + (row * top + n) * size, NAN);
  }
}

}  // namespace

void mark_nan_rows(const SummaryViews& to) {
  mark_nan_lists(to, to.top_keys, to.top_weights);
  mark_nan_lists(to, to.carried_top_keys, to.carried_top_weights);
}

void SummaryProblem::take_key_sizes(const char* function, const std::optional<View>& sizes) {
  if (!sizes) return;
  const Problem& p = forward;
  check_kind(function, "key_sizes", *sizes, p.trim({p.B, p.H, p.Tk}), dtype());
  key_sizes = with_axes(*sizes, 3).clone();
  const auto check = [&](const auto* size) {
    const auto* end = size + key_sizes->count();
    const auto* found = std::find_if(size, end, [](auto x) { return x < 0; });
    if (found != end)
      fail(ErrorCode::bad_value, function, "key_sizes have {} at element {}, expected 0 or more", *found, found - size);
  };
  dtype() == DType::f64 ? check(key_sizes->data<double>()) : check(key_sizes->data<float>());
}

void SummaryProblem::want_top(const char* function, std::int64_t count) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();  // the kernels' lists have 32 bits for a key
  if (count > most) fail(ErrorCode::bad_value, function, "top is {}, expected at most {}", count, most);
  if (count > 0 && forward.Tk > most)
    fail(ErrorCode::bad_shape, function, "k has {} keys, expected at most {} for top keys", forward.Tk, most);
  top = count;
}

kernels::MapBlocks SummaryProblem::blocks_of(const Sequence& s, const MutableView& map) const {
  const Range rows = queries_of(s), columns = keys_of(s);
  const std::int64_t R = map.size(2), C = map.size(3), row = C;
  if (grid) {
    return {.first_row = grid->first_row,
            .rows = grid->rows,
            .R = R,
            .first_key = grid->first_key,
            .keys = grid->keys,
            .C = C,
            .rows_begin = rows.begin,
            .row = row};
  }
  const std::int64_t Tq = rows.end - rows.begin, Tk = columns.end - columns.begin;
  return {.first_row = rows.begin,
          .rows = Tq,
          .R = std::min(R, Tq),
          .first_key = columns.begin,
          .keys = Tk,
          .C = std::min(C, Tk),
          .rows_begin = rows.begin,
          .row = row};
}
Range SummaryProblem::queries_of(const Sequence& s) const {
  return part_of(queries, s.query_start, s.Tq);
}
Range SummaryProblem::keys_of(const Sequence& s) const {
  return part_of(keys, s.key_start, s.Tk);
}

AttentionSummary attention_summary(const View& q, const View& k, const std::optional<View>& lse,
                                   const AttentionOptions& options, const SummaryOptions& summary) {
  constexpr const char* function = "attention_summary";
  return with_memory(function, q, k, [&] {
    check_summary(function, summary);
    SummaryProblem x = SummaryProblem::check(function, q, k, lse, summary.lse_low, options);
    x.take_key_sizes(function, summary.key_sizes);
    x.want_top(function, summary.top);
    return summarize(x, summary);
  });
}

AttentionPlan plan_summary(const Dims& q, const Dims& k, DType dtype, const AttentionOptions& options,
                           const SummaryOptions& summary, bool has_lse) {
  constexpr const char* function = "plan_summary";
  const View Q(nullptr, dtype, q), K(nullptr, dtype, k);
  return with_memory(function, Q, K, [&] {
    check_summary(function, summary);
    SummaryProblem x = SummaryProblem::check(function, Q, K, {}, {}, options);
    const Problem& p = x.forward;
    x.want_top(function, summary.top);
    if (has_lse) x.lse = Q;
    const SummarySchedule s = make_summary_schedule(x);
    AttentionPlan plan = attend::plan(q, k, k, dtype, options);
    plan.path = s.path, plan.target = s.target ? s.target->name : "";
    plan.tile_queries = s.target ? kernels::backward_tile_rows : 1;
    plan.tile_keys = s.target ? kernels::backward_tile_keys : p.Tk;
    plan.key_ranges = s.items.empty() ? 1 : s.items.back().stretch + 1;
    plan.work_items = std::ssize(s.items), plan.threads = s.workers;
    plan.scratch_bytes = s.scratch_bytes + p.B * p.H * p.Tq * size_of(x.dtype());
    plan.flops /= has_lse ? 2 : 1;
    plan.reason = s.target ? "weights are made from q, k and lse in tiles: nothing of Tq * Tk is stored"
                           : "f64 is computed by the plain path, in double precision";
    return plan;
  });
}

Tensor attention_weights(const View& q, const View& k, const std::optional<View>& lse, const AttentionOptions& options,
                         const WeightsOptions& part) {
  constexpr const char* function = "attention_weights";
  return with_memory(function, q, k, [&] {
    SummaryProblem x = SummaryProblem::check(function, q, k, lse, part.lse_low, options, part.queries, part.keys);
    x.take_key_sizes(function, part.key_sizes);
    return weights_in(x);
  });
}

Tensor attention_weights(const View& q, const KvCache& cache, const std::optional<View>& lse,
                         const AttentionOptions& options, const WeightsOptions& part) {
  constexpr const char* function = "attention_weights";
  const View k(nullptr, cache.dtype(), {cache.batch(), cache.heads(), cache.length(), cache.d_k()});
  return with_memory(function, q, k, [&] {
    const CachedProblem cached = CachedProblem::check(function, q, cache, options);
    SummaryProblem x = SummaryProblem::check(function, cached.problem.without_values(), true, lse, part.lse_low,
                                             part.queries, part.keys);
    x.take_key_sizes(function, part.key_sizes);
    return weights_in(x);
  });
}

Tensor attention_weights_of(const View& pairs, const View& q, const View& k, const std::optional<View>& lse,
                            const AttentionOptions& options, const std::optional<View>& lse_low,
                            const std::optional<View>& key_sizes) {
  constexpr const char* function = "attention_weights_of";
  return with_memory(function, q, k, [&] {
    const Problem p = Problem::check(function, q, k, k, options);
    const std::vector<Pair> list = check_pairs(function, pairs, p);
    Tensor result(p.trim({p.B, p.H, std::ssize(list)}), statistics_dtype(q.dtype()));
    const MutableView to = result.view().reshape({p.B * p.H, std::ssize(list)});
    for (auto first = list.begin(); first != list.end();) {
      const std::pair tile_at = first->tile();
      const auto [row, key] = tile_at;
      const Range queries{row, std::min(p.Tq, row + pair_rows)}, keys{key, std::min(p.Tk, key + pair_keys)};
      const auto last = std::find_if(first, list.end(), [&](const Pair& x) { return x.tile() != tile_at; });
      SummaryProblem x = SummaryProblem::check(function, q, k, lse, lse_low, options, queries, keys);
      x.take_key_sizes(function, key_sizes);
      const Tensor tile = weights_in(x);
      const View from = tile.view().reshape({p.B * p.H, queries.end - queries.begin, keys.end - keys.begin});
      for (; first != last; ++first) {
        to.slice(1, first->place, first->place + 1)
            .reshape({p.B * p.H})
            .copy_from(from.select(2, first->key - key).select(1, first->query - row));
      }
    }
    return result;
  });
}

AttentionMap attention_map(MapSize blocks, const View& q, const View& k, const std::optional<View>& lse,
                           const AttentionOptions& options, const WeightsOptions& part) {
  constexpr const char* function = "attention_map";
  return with_memory(function, q, k, [&] {
    check_map(function, blocks);
    if (options.query_starts) {
      fail(ErrorCode::bad_value, function, "query_starts are given: a map is of one sequence, so slice q and k");
    }
    SummaryProblem x = SummaryProblem::check(function, q, k, lse, part.lse_low, options, part.queries, part.keys);
    x.take_key_sizes(function, part.key_sizes);
    const Problem& p = x.forward;
    const Dims shape{p.B, p.H, std::min(blocks.rows, x.queries.end - x.queries.begin),
                     std::min(blocks.columns, x.keys.end - x.keys.begin)};
    const auto make = [&] { return Tensor::uninitialized(p.trim(shape), x.dtype()); };
    AttentionMap result{make(), make()};
    Tensor seen({p.B, p.H, p.Tq}, x.dtype());
    x.to.seen = seen.view();
    (x.key_sizes ? x.to.carried_map : x.to.map) = four_axes(result.map, shape);
    (x.key_sizes ? x.to.carried_map_max : x.to.map_max) = four_axes(result.map_max, shape);
    if (result.map.count() > 0) run_summary(x, make_summary_schedule(x));
    return result;
  });
}

}  // namespace attend::inline v1
