#include "attention/problem.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "attention/options.h"
#include "attention/positions.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

// Positions stay exact in a double, and sums of a few of them stay far from overflow.
constexpr std::int64_t largest_position = std::int64_t{1} << 53;

// Where there are no values, the keys stand in for them.
std::string shapes_of(const View& q, const View& k, const View& v) {
  if (&v == &k) return fmt::format("(q {}, k {})", q.shape(), k.shape());
  return fmt::format("(q {}, k {}, v {})", q.shape(), k.shape(), v.shape());
}

void check_dtypes(const char* function, const View& q, const View& k, const View& v) {
  if (!is_floating(q.dtype()))
    fail(ErrorCode::bad_dtype, function, "q is {}, expected f32, f64, bf16 or f16", q.dtype());
  if (k.dtype() != q.dtype()) fail(ErrorCode::bad_dtype, function, "k is {}, q is {}", k.dtype(), q.dtype());
  if (v.dtype() != q.dtype()) fail(ErrorCode::bad_dtype, function, "v is {}, q is {}", v.dtype(), q.dtype());
}

void check_ranks(const char* function, const View& q, const View& k, const View& v) {
  if (q.rank() < 2 || q.rank() > 4) {
    fail(ErrorCode::bad_shape, function, "q has {} axes, expected [B,H,Tq,D], [H,Tq,D] or [Tq,D] {}", q.rank(),
         shapes_of(q, k, v));
  }
  if (k.rank() != q.rank() || v.rank() != q.rank()) {
    fail(ErrorCode::bad_shape, function, "{} differ in their number of axes {}", &v == &k ? "q and k" : "q, k and v",
         shapes_of(q, k, v));
  }
}

// The sizes of the three, once they have four axes; the message shows them as they came.
void check_sizes(const char* function, Problem& p, const View& q, const View& k, const View& v) {
  const auto differ = [&](const char* name, const char* what, std::int64_t got, const char* other,
                          std::int64_t expected) {
    if (got == expected) return;
    fail(ErrorCode::bad_shape, function, "{} has {} {}, {} has {} {}", name, what, got, other, expected,
         shapes_of(q, k, v));
  };
  p.B = p.q.size(0), p.H = p.q.size(1), p.Tq = p.q.size(2), p.D = p.q.size(3);
  p.Hkv = p.k.size(1), p.Tk = p.k.size(2), p.Dv = p.v.size(3);
  differ("k", "batch size", p.k.size(0), "q", p.B);
  differ("v", "batch size", p.v.size(0), "q", p.B);
  differ("k", "head size", p.k.size(3), "q", p.D);
  differ("v", "heads", p.v.size(1), "k", p.Hkv);
  differ("v", "keys", p.v.size(2), "k", p.Tk);
  if (p.D < 1) fail(ErrorCode::bad_shape, function, "q has head size 0, expected at least 1 {}", shapes_of(q, k, v));
  if (p.Dv < 1) fail(ErrorCode::bad_shape, function, "v has head size 0, expected at least 1 {}", shapes_of(q, k, v));
  if (p.Hkv == 0 ? p.H != 0 : p.H % p.Hkv != 0) {
    fail(ErrorCode::bad_shape, function, "q has {} heads, expected a multiple of k's {} {}", p.H, p.Hkv,
         shapes_of(q, k, v));
  }
}

double check_scale(const char* function, const Problem& p, const AttentionOptions& options) {
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(p.D)));
  if (!std::isfinite(scale)) fail(ErrorCode::bad_value, function, "scale is {}, expected a finite number", scale);
  // The kernels multiply with it in f32: where that is infinite results would be NaN, where it is denormal wrong.
  if (p.q.dtype() != DType::f64 && scale != 0 && !std::isnormal(static_cast<float>(scale * std::numbers::log2e))) {
    fail(ErrorCode::bad_value, function, "scale is {}, expected 0 or a magnitude from 8.2e-39 to 2.3e38 for {}", scale,
         name_of(p.q.dtype()));
  }
  return scale;
}

void check_numbers(const char* function, Problem& p, const AttentionOptions& options) {
  p.common.scale = check_scale(function, p, options);
  check_number_options(function, options, p.common);
  if (!(options.dropout.p >= 0 && options.dropout.p < 1)) {
    fail(ErrorCode::bad_value, function, "dropout p is {}, expected 0 <= p < 1", options.dropout.p);
  }
  p.common.dropout = {.p = options.dropout.p, .seed = options.dropout.seed};
  for (const std::int64_t side : {options.window.left, options.window.right})
    if (side < -1) fail(ErrorCode::bad_value, function, "window side {}, expected -1 (open) or more", side);
  const Window window = visible_window(options);
  p.common.window_left = window.left, p.common.window_right = window.right;
  for (std::int64_t* side : {&p.common.window_left, &p.common.window_right})
    if (*side > largest_position) *side = -1;  // farther than any two positions are apart
}

std::vector<double> per_head(const char* function, const char* name, const std::optional<View>& x, const Problem& p) {
  std::vector<double> out;
  for (std::int64_t h = 0; x && h < p.H; ++h) {
    out.push_back(x->item({h}));
    if (!std::isfinite(out.back())) {
      fail(ErrorCode::bad_value, function, "{}[{}] is {}, expected a finite number", name, h, out.back());
    }
  }
  return out;
}

void check_tensors(const char* function, Problem& p, const AttentionOptions& options) {
  const Dims pairs{p.B, p.H, p.Tq, p.Tk};
  check_tensor_options(function, options, pairs);
  if (options.mask) p.mask = options.mask->broadcast_to(pairs);
  if (options.bias) p.bias = options.bias->broadcast_to(pairs);
  if (const std::optional<View>& x = options.distance_bias) {
    p.distance_bias.emplace(x->raw(), x->dtype(), Dims{p.B, p.H, p.Tq, x->size(1)},
                            Dims{0, x->strides()[0], 0, x->strides()[1]});
  }
  p.alibi_slopes = per_head(function, "alibi_slopes", options.alibi_slopes, p);
  p.sinks = per_head(function, "sinks", options.sinks, p);
}

std::vector<std::int64_t> numbers_of(const View& x) {
  const Tensor packed = x.clone();
  const std::int64_t* values = packed.data<std::int64_t>();
  return {values, values + packed.count()};
}

void check_key_lengths(const char* function, Problem& p, const std::optional<View>& lengths) {
  if (!lengths) return;
  p.key_lengths = numbers_of(*lengths);
  for (std::int64_t b = 0; b < p.B; ++b) {
    const std::int64_t length = p.key_lengths[static_cast<std::size_t>(b)];
    if (length < 0 || length > p.Tk) {
      fail(ErrorCode::bad_value, function, "key_lengths[{}] is {}, expected 0 to Tk = {}", b, length, p.Tk);
    }
  }
}

// Cumulative starts: 0, never falling, the last one `total`.
std::vector<std::int64_t> check_starts(const char* function, const char* name, const View& starts, const char* axis,
                                       std::int64_t total) {
  std::vector<std::int64_t> values = numbers_of(starts);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t least = i == 0 ? 0 : values[i - 1];
    const std::int64_t most = i == 0 ? 0 : total;
    if (values[i] < least || values[i] > most) {
      fail(ErrorCode::bad_value, function,
           "{}[{}] is {}, expected {} to {} (starts begin at 0, never fall and end at {})", name, i, values[i], least,
           most, axis);
    }
  }
  if (values.back() != total) {
    fail(ErrorCode::bad_value, function, "{} ends at {}, expected {} = {}", name, values.back(), axis, total);
  }
  return values;
}

void check_sequences(const char* function, Problem& p, const AttentionOptions& options) {
  if (!options.query_starts && !options.key_starts) return;
  if (!options.query_starts || !options.key_starts) {
    fail(ErrorCode::bad_value, function, "{} is given without {}", options.query_starts ? "query_starts" : "key_starts",
         options.query_starts ? "key_starts" : "query_starts");
  }
  if (p.B != 1) {
    fail(ErrorCode::bad_shape, function, "q has batch size {}, expected 1 where query_starts cut one long axis", p.B);
  }
  if (options.key_lengths) fail(ErrorCode::bad_value, function, "key_lengths and key_starts contradict each other");
  p.query_starts = check_starts(function, "query_starts", *options.query_starts, "Tq", p.Tq);
  p.key_starts = check_starts(function, "key_starts", *options.key_starts, "Tk", p.Tk);
  if (p.query_starts.size() != p.key_starts.size()) {
    fail(ErrorCode::bad_shape, function, "query_starts has {} entries, key_starts {}", p.query_starts.size(),
         p.key_starts.size());
  }
}

void check_offset(const char* function, Problem& p, const AttentionOptions& options) {
  const bool positional = is_positional(options);
  p.offset = options.offset.value_or(Offset::top_left());
  if (!positional && !options.offset) return;
  // Without lengths and starts all sequences are alike.
  const bool alike = p.key_lengths.empty() && p.query_starts.empty();
  for (std::int64_t n = 0; n < (alike ? std::min<std::int64_t>(1, p.B) : p.sequences()); ++n) {
    const Sequence sequence = p.sequence(n);
    if (positional && !options.offset && sequence.Tq != sequence.Tk) {
      fail(
          ErrorCode::bad_value, function,
          "{} queries and {} keys with {} need an offset: top_left (query 0 at key 0, as PyTorch) or bottom_right (the "
          "last query at the last key, as in decoding)",
          sequence.Tq, sequence.Tk, positional_names());
    }
    if (sequence.offset > largest_position || sequence.offset < -largest_position) {
      fail(ErrorCode::bad_value, function, "offset is {}, expected at most 2^53 in magnitude", sequence.offset);
    }
  }
}

}  // namespace

Problem Problem::check(const char* function, const View& q, const View& k, const View& v,
                       const AttentionOptions& options) {
  check_dtypes(function, q, k, v);
  check_ranks(function, q, k, v);
  Problem p;
  p.rank = q.rank();
  p.q = with_four_axes(q);
  p.k = with_four_axes(k);
  p.v = with_four_axes(v);
  check_sizes(function, p, q, k, v);
  check_numbers(function, p, options);
  check_tensors(function, p, options);
  check_key_lengths(function, p, options.key_lengths);
  check_sequences(function, p, options);
  check_offset(function, p, options);
  return p;
}

std::vector<kernels::Rules> check_positions(const char* function, const View& q, const View& k, const View& v,
                                            const AttentionOptions& options) {
  const Problem p = Problem::check(function, q, k, v, options);
  std::vector<kernels::Rules> rules;
  for (std::int64_t b = 0; b < p.B; ++b) rules.push_back(p.rules(p.sequence(b), 0));
  return rules;
}

Dims Problem::trim(const Dims& shape) const {
  if (rank == 4) return shape;
  return Dims(std::span(shape.begin() + (4 - rank), shape.end()));
}

Sequence Problem::sequence(std::int64_t n) const {
  Sequence s;
  const auto at = static_cast<std::size_t>(n);
  if (!parts.empty()) return parts[at];
  if (query_starts.empty()) {
    s.b = n, s.Tq = Tq, s.Tk = Tk;
    s.key_length = key_lengths.empty() ? Tk : key_lengths[at];
  } else {
    s.query_start = query_starts[at], s.key_start = key_starts[at];
    s.Tq = query_starts[at + 1] - s.query_start;
    s.key_length = s.Tk = key_starts[at + 1] - s.key_start;
  }
  s.offset = offset.resolve(rows_before + s.Tq + rows_after, s.key_length) + rows_before;
  s.query_place = s.query_start, s.key_place = s.key_start;
  return s;
}

Problem Problem::slice_rows(std::int64_t begin, std::int64_t end) const {
  Problem part = *this;
  part.rows_before += begin, part.rows_after += Tq - end, part.Tq = end - begin;
  part.q = q.slice(2, begin, end);
  for (std::optional<View>* x : {&part.mask, &part.bias})
    if (*x) *x = (*x)->slice(2, begin, end);
  if (distance_bias) part.distance_bias = distance_bias->slice(2, begin, end);
  return part;
}

Problem Problem::without_values() const {
  Problem part = *this;
  part.v = k.slice(3, 0, 0), part.Dv = 0;
  for (KeyBlocks& each : part.blocks) each.v = each.k, each.v_scales = each.k_scales;
  return part;
}

Problem Problem::with_doubles(const double* panels, const View& values) const {
  Problem same = *this;
  same.key_panels = panels, same.v = values;
  return same;
}

Problem Problem::in_blocks(int axes, const View& keys, const View& values, std::vector<KeyBlocks> all) const {
  Problem same = *this;
  same.rank = axes, same.k = keys, same.v = values, same.blocks = std::move(all);
  return same;
}

KeyBlocks Problem::blocks_of(const Sequence& s) const {
  if (blocks.empty()) return {};
  return blocks[blocks.size() == 1 ? 0 : static_cast<std::size_t>(s.b)];
}

}  // namespace attend::inline v1
