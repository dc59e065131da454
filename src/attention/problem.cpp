#include "attention/problem.h"

#include <cmath>

#include "core/element.h"
#include "core/message.h"

namespace attend {

namespace {

// Positions stay exact in a double, and sums of a few of them stay far from overflow.
constexpr std::int64_t largest_position = std::int64_t{1} << 53;

std::string shapes_of(const View& q, const View& k, const View& v) {
  return fmt::format("(q {}, k {}, v {})", q.shape(), k.shape(), v.shape());
}

void check_dtypes(const char* function, const View& q, const View& k, const View& v) {
  if (!is_floating(q.dtype()))
    fail(ErrorCode::bad_dtype, "{}: q is {}, expected f32, f64, bf16 or f16", function, q.dtype());
  if (k.dtype() != q.dtype()) fail(ErrorCode::bad_dtype, "{}: k is {}, q is {}", function, k.dtype(), q.dtype());
  if (v.dtype() != q.dtype()) fail(ErrorCode::bad_dtype, "{}: v is {}, q is {}", function, v.dtype(), q.dtype());
}

void check_ranks(const char* function, const View& q, const View& k, const View& v) {
  if (q.rank() < 2 || q.rank() > 4) {
    fail(ErrorCode::bad_shape, "{}: q has {} axes, expected [B,H,Tq,D], [H,Tq,D] or [Tq,D] {}", function, q.rank(),
         shapes_of(q, k, v));
  }
  if (k.rank() != q.rank() || v.rank() != q.rank()) {
    fail(ErrorCode::bad_shape, "{}: q, k and v differ in their number of axes {}", function, shapes_of(q, k, v));
  }
}

// The sizes of the three, once they have four axes; the message shows them as they came.
void check_sizes(const char* function, Problem& p, const std::string& shapes) {
  const auto differ = [&](const char* name, const char* what, std::int64_t got, const char* other,
                          std::int64_t expected) {
    if (got == expected) return;
    fail(ErrorCode::bad_shape, "{}: {} has {} {}, {} has {} {}", function, name, what, got, other, expected, shapes);
  };
  p.B = p.q.size(0), p.H = p.q.size(1), p.Tq = p.q.size(2), p.D = p.q.size(3);
  p.Hkv = p.k.size(1), p.Tk = p.k.size(2), p.Dv = p.v.size(3);
  differ("k", "batch size", p.k.size(0), "q", p.B);
  differ("v", "batch size", p.v.size(0), "q", p.B);
  differ("k", "head size", p.k.size(3), "q", p.D);
  differ("v", "heads", p.v.size(1), "k", p.Hkv);
  differ("v", "keys", p.v.size(2), "k", p.Tk);
  if (p.D < 1) fail(ErrorCode::bad_shape, "{}: q has head size 0, expected at least 1 {}", function, shapes);
  if (p.Dv < 1) fail(ErrorCode::bad_shape, "{}: v has head size 0, expected at least 1 {}", function, shapes);
  if (p.Hkv == 0 ? p.H != 0 : p.H % p.Hkv != 0) {
    fail(ErrorCode::bad_shape, "{}: q has {} heads, expected a multiple of k's {} {}", function, p.H, p.Hkv, shapes);
  }
}

void check_numbers(const char* function, Problem& p, const AttentionOptions& options) {
  p.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(p.D)));
  if (!std::isfinite(p.scale))
    fail(ErrorCode::bad_value, "{}: scale is {}, expected a finite number", function, p.scale);
  p.softcap = options.softcap;
  if (!(p.softcap >= 0) || !std::isfinite(p.softcap)) {
    fail(ErrorCode::bad_value, "{}: softcap is {}, expected 0 (none) or a positive number", function, p.softcap);
  }
  p.causal = options.causal;
  p.window = options.window;
  for (std::int64_t* side : {&p.window.left, &p.window.right}) {
    if (*side < -1) fail(ErrorCode::bad_value, "{}: window side {}, expected -1 (open) or more", function, *side);
    *side = std::min(*side, largest_position);
  }
}

View broadcast_pairs(const char* function, const char* name, const View& x, const Problem& p) {
  const Dims pairs{p.B, p.H, p.Tq, p.Tk};
  try {
    return x.broadcast_to(pairs);
  } catch (const Error&) {
    fail(ErrorCode::bad_shape, "{}: {} has shape {}, expected one that broadcasts to [B,H,Tq,Tk] = {}", function, name,
         x.shape(), pairs);
  }
}

std::vector<double> per_head(const char* function, const char* name, const std::optional<View>& x, const Problem& p) {
  std::vector<double> out;
  if (!x) return out;
  if (!is_floating(x->dtype()))
    fail(ErrorCode::bad_dtype, "{}: {} is {}, expected floating point", function, name, x->dtype());
  if (x->shape() != Dims{p.H}) {
    fail(ErrorCode::bad_shape, "{}: {} has shape {}, expected [H] = [{}]", function, name, x->shape(), p.H);
  }
  for (std::int64_t h = 0; h < p.H; ++h) {
    out.push_back(x->item({h}));
    if (!std::isfinite(out.back())) {
      fail(ErrorCode::bad_value, "{}: {}[{}] is {}, expected a finite number", function, name, h, out.back());
    }
  }
  return out;
}

void check_tensors(const char* function, Problem& p, const AttentionOptions& options) {
  if (options.mask) {
    if (options.mask->dtype() != DType::boolean) {
      fail(ErrorCode::bad_dtype, "{}: mask is {}, expected bool (true = may attend); a floating-point mask is a bias",
           function, options.mask->dtype());
    }
    p.mask = broadcast_pairs(function, "mask", *options.mask, p);
  }
  if (options.bias) {
    if (!is_floating(options.bias->dtype())) {
      fail(ErrorCode::bad_dtype, "{}: bias is {}, expected floating point", function, options.bias->dtype());
    }
    p.bias = broadcast_pairs(function, "bias", *options.bias, p);
  }
  p.alibi_slopes = per_head(function, "alibi_slopes", options.alibi_slopes, p);
  p.sinks = per_head(function, "sinks", options.sinks, p);
}

void check_key_lengths(const char* function, Problem& p, const std::optional<View>& lengths) {
  p.key_lengths.assign(static_cast<std::size_t>(p.B), p.Tk);
  if (!lengths) return;
  if (lengths->dtype() != DType::i64) {
    fail(ErrorCode::bad_dtype, "{}: key_lengths is {}, expected i64", function, lengths->dtype());
  }
  if (lengths->shape() != Dims{p.B}) {
    fail(ErrorCode::bad_shape, "{}: key_lengths has shape {}, expected [B] = [{}]", function, lengths->shape(), p.B);
  }
  const Tensor packed = lengths->clone();
  for (std::int64_t b = 0; b < p.B; ++b) {
    const std::int64_t length = packed.data<std::int64_t>()[b];
    if (length < 0 || length > p.Tk) {
      fail(ErrorCode::bad_value, "{}: key_lengths[{}] is {}, expected 0 to Tk = {}", function, b, length, p.Tk);
    }
    p.key_lengths[static_cast<std::size_t>(b)] = length;
  }
}

void check_offset(const char* function, Problem& p, const AttentionOptions& options) {
  const bool positional = p.causal || p.window.left >= 0 || p.window.right >= 0 || !p.alibi_slopes.empty();
  if (positional && !options.offset && p.Tq != p.Tk) {
    fail(
        ErrorCode::bad_value,
        "{}: {} queries and {} keys with causal, window or alibi_slopes need an offset: top_left (query 0 at key 0, as "
        "PyTorch) or bottom_right (the last query at the last key, as in decoding)",
        function, p.Tq, p.Tk);
  }
  const Offset offset = options.offset.value_or(Offset::top_left());
  for (const std::int64_t length : p.key_lengths) {
    p.offsets.push_back(offset.resolve(p.Tq, length));
    if (p.offsets.back() > largest_position || p.offsets.back() < -largest_position) {
      fail(ErrorCode::bad_value, "{}: offset is {}, expected at most 2^53 in magnitude", function, p.offsets.back());
    }
  }
}

// The last two axes of x [B,H,rows,columns] at one head.
kernels::Matrix matrix_at(const View& x, std::int64_t b, std::int64_t h) {
  const std::int64_t at = b * x.strides()[0] + h * x.strides()[1];
  return {element_at(x.raw(), x.dtype(), at), x.dtype(), x.strides()[2], x.strides()[3]};
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
  check_sizes(function, p, shapes_of(q, k, v));
  check_numbers(function, p, options);
  check_tensors(function, p, options);
  check_key_lengths(function, p, options.key_lengths);
  check_offset(function, p, options);
  return p;
}

View with_four_axes(const View& x) {
  Dims shape, strides;
  for (int i = x.rank(); i < 4; ++i) {
    shape.push_back(1);
    strides.push_back(0);
  }
  for (int i = 0; i < x.rank(); ++i) {
    shape.push_back(x.shape()[i]);
    strides.push_back(x.strides()[i]);
  }
  return View(x.raw(), x.dtype(), shape, strides);
}

Dims Problem::trim(const Dims& shape) const {
  return Dims(std::span(shape.begin() + (4 - rank), shape.end()));
}

kernels::Head Problem::head(std::int64_t b, std::int64_t h) const {
  kernels::Head head;
  head.Tk = Tk, head.D = D, head.Dv = Dv;
  const std::int64_t kv_head = h / (H / Hkv);
  head.q = matrix_at(q, b, h);
  head.k = matrix_at(k, b, kv_head);
  head.v = matrix_at(v, b, kv_head);
  if (mask) head.mask = matrix_at(*mask, b, h);
  if (bias) head.bias = matrix_at(*bias, b, h);
  head.scale = scale;
  head.softcap = softcap;
  if (!alibi_slopes.empty()) head.alibi_slope = alibi_slopes[static_cast<std::size_t>(h)];
  if (!sinks.empty()) head.sink = sinks[static_cast<std::size_t>(h)];
  head.offset = offsets[static_cast<std::size_t>(b)];
  head.causal = causal;
  head.window_left = window.left;
  head.window_right = window.right;
  head.key_length = key_lengths[static_cast<std::size_t>(b)];
  return head;
}

}  // namespace attend
