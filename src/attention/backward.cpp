#include "attention/backward.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "attention/backward_schedule.h"
#include "attention/compute.h"
#include "attention/output.h"
#include "core/element.h"
#include "core/message.h"
#include "core/parallel.h"

namespace attend {

namespace {

// ---- Checks ----

void check_result(const char* function, const char* name, const View& x, const Dims& shape, DType dtype) {
  if (x.shape() != shape)
    fail(ErrorCode::bad_shape, "{}: {} has shape {}, expected {}", function, name, x.shape(), shape);
  if (x.dtype() != dtype) fail(ErrorCode::bad_dtype, "{}: {} is {}, expected {}", function, name, x.dtype(), dtype);
}

DType statistics_dtype(const View& q) {
  return q.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

void check_wanted(const char* function, const char* name, bool wanted, const std::optional<View>& option) {
  if (wanted && !option) fail(ErrorCode::bad_value, "{}: d{} is wanted, but {} is not given", function, name, name);
}

BackwardProblem check(const char* function, const View& dout, const View& q, const View& k, const View& v,
                      const View& out, const View& lse, const AttentionOptions& options,
                      const BackwardOptions& backward) {
  BackwardProblem x{Problem::check(function, q, k, v, options), {}, {}, {}, {}, {}, {}, {}, {}};
  const Problem& p = x.forward;
  const Dims results = p.trim({p.B, p.H, p.Tq, p.Dv}), rows = p.trim({p.B, p.H, p.Tq});
  check_result(function, "dout", dout, results, q.dtype());
  check_result(function, "out", out, results, q.dtype());
  check_result(function, "lse", lse, rows, statistics_dtype(q));
  if (backward.dlse) check_result(function, "dlse", *backward.dlse, rows, statistics_dtype(q));
  check_wanted(function, "bias", backward.dbias, options.bias);
  check_wanted(function, "alibi_slopes", backward.dalibi_slopes, options.alibi_slopes);
  check_wanted(function, "sinks", backward.dsinks, options.sinks);
  x.dout = with_axes(dout, 4), x.out = with_axes(out, 4), x.lse = with_axes(lse, 3);
  if (backward.dlse) x.dlse = with_axes(*backward.dlse, 3);
  if (backward.dbias) x.options.bias = Tensor(options.bias->shape(), statistics_dtype(q));
  if (backward.dalibi_slopes) x.options.alibi_slopes.resize(static_cast<std::size_t>(p.H));
  if (backward.dsinks) x.options.sinks.resize(static_cast<std::size_t>(p.H));
  return x;
}

void check_outputs(const char* function, const AttentionGradientViews& to, const View& dout, const View& q,
                   const View& k, const View& v, const View& out, const View& lse, const AttentionOptions& options,
                   const std::optional<View>& dlse) {
  std::vector<std::pair<const char*, MutableView>> outputs;
  const auto add = [&](const char* name, const MutableView& x, const View& of) {
    check_output(function, name, x, of.shape(), of.dtype());
    check_apart(function, name, x, q, k, v, options);
    const auto apart = [&](const char* other, const View& argument) {
      if (overlap(x, argument)) fail(ErrorCode::bad_value, "{}: {} shares memory with {}", function, name, other);
    };
    apart("dout", dout), apart("out", out), apart("lse", lse);
    if (dlse) apart("dlse", *dlse);
    for (const auto& [other, earlier] : outputs) apart(other, earlier);
    outputs.emplace_back(name, x);
  };
  add("dq", to.dq, q);
  add("dk", to.dk, k);
  add("dv", to.dv, v);
  if (to.dbias) add("dbias", *to.dbias, *options.bias);
  if (to.dalibi_slopes) add("dalibi_slopes", *to.dalibi_slopes, *options.alibi_slopes);
  if (to.dsinks) add("dsinks", *to.dsinks, *options.sinks);
}

// ---- The plain path ----

void store_values(const MutableView& x, std::int64_t b, std::int64_t h, std::int64_t i, const double* values) {
  const Dims& s = x.strides();
  auto* to = static_cast<std::byte*>(x.raw()) + (b * s[0] + h * s[1] + i * s[2]) * size_of(x.dtype());
  for (std::int64_t d = 0; d < x.size(3); ++d, to += s[3] * size_of(x.dtype())) store_element(x.dtype(), to, values[d]);
}

double at(const View& x, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t d = 0) {
  const Dims& s = x.strides();
  return load_element(x.dtype(),
                      element_at(x.raw(), x.dtype(), b * s[0] + h * s[1] + i * s[2] + (x.rank() == 4 ? d * s[3] : 0)));
}

// The query heads of one key head of one sequence.
class ReferenceBackward {
 public:
  explicit ReferenceBackward(BackwardProblem& x) : x_(x), p_(x.forward) {
    if (x.options.bias) bias_ = x.options.bias->view().broadcast_to({p_.B, p_.H, p_.Tq, p_.Tk});
  }

  void run(const Sequence& s, std::int64_t kv_head) {
    dk_.assign(static_cast<std::size_t>(s.Tk * p_.D), 0);
    dv_.assign(static_cast<std::size_t>(s.Tk * p_.Dv), 0);
    const std::int64_t G = p_.H / p_.Hkv;
    for (std::int64_t h = kv_head * G; h < (kv_head + 1) * G; ++h) {
      const kernels::Head head = p_.head(s, h);
      for (std::int64_t i = 0; i < s.Tq; ++i) take_row(s, h, head, i);
    }
    for (std::int64_t j = 0; j < s.Tk; ++j) {
      store_values(x_.dk, s.b, kv_head, s.key_start + j, dk_.data() + j * p_.D);
      store_values(x_.dv, s.b, kv_head, s.key_start + j, dv_.data() + j * p_.Dv);
    }
  }

 private:
  void take_row(const Sequence& s, std::int64_t h, const kernels::Head& head, std::int64_t i) {
    const std::int64_t row = s.query_start + i;
    gradient_.dcontext.resize(static_cast<std::size_t>(p_.Dv));
    gradient_.lse = at(x_.lse, s.b, h, row);
    gradient_.delta = x_.dlse ? -at(*x_.dlse, s.b, h, row) : 0;
    for (std::int64_t d = 0; d < p_.Dv; ++d) {
      gradient_.dcontext[static_cast<std::size_t>(d)] = at(x_.dout, s.b, h, row, d);
      gradient_.delta += at(x_.dout, s.b, h, row, d) * at(x_.out, s.b, h, row, d);
    }
    kernels::reference_row_backward(head, i, steps_, gradient_, dk_.data(), dv_.data());
    store_values(x_.dq, s.b, h, row, gradient_.dquery.data());
    add_options(s, h, head, i);
  }

  void add_options(const Sequence& s, std::int64_t h, const kernels::Head& head, std::int64_t i) {
    const auto H = static_cast<std::size_t>(h);
    if (!x_.options.sinks.empty()) x_.options.sinks[H] += gradient_.dsink;
    for (std::int64_t j = 0; j < s.Tk; ++j) {
      const double dlogit = gradient_.dlogits[static_cast<std::size_t>(j)];
      if (!x_.options.alibi_slopes.empty()) {
        x_.options.alibi_slopes[H] -= dlogit * static_cast<double>(std::abs(i + head.offset - j));
      }
      if (!bias_) continue;
      const Dims& strides = bias_->strides();
      const std::int64_t place =
          s.b * strides[0] + h * strides[1] + (s.query_start + i) * strides[2] + (s.key_start + j) * strides[3];
      void* to = static_cast<std::byte*>(x_.options.bias->raw()) + place * size_of(bias_->dtype());
      store_element(bias_->dtype(), to, load_element(bias_->dtype(), to) + dlogit);
    }
  }

  BackwardProblem& x_;
  const Problem& p_;
  std::optional<View> bias_;
  std::vector<double> dk_, dv_;
  kernels::Row steps_;
  kernels::RowGradient gradient_;
};

// ---- Calls ----

void store_list(const std::optional<MutableView>& to, const std::vector<double>& values) {
  if (to) to->copy_from(View(values.data(), DType::f64, {std::ssize(values)}));
}

// Everything that was summed, to where it is wanted.
void store_options(const AttentionGradientViews& to, const OptionGradients& options) {
  if (to.dbias) to.dbias->copy_from(*options.bias);
  store_list(to.dalibi_slopes, options.alibi_slopes);
  store_list(to.dsinks, options.sinks);
}

void run(BackwardProblem& x, const AttentionGradientViews& to) {
  x.dq = with_axes(to.dq, 4), x.dk = with_axes(to.dk, 4), x.dv = with_axes(to.dv, 4);
  if (x.forward.q.dtype() == DType::f64)
    backward_reference(x);
  else
    run_backward(x, make_backward_schedule(x));
  store_options(to, x.options);
}

AttentionGradients run_new(const View& dout, const View& q, const View& k, const View& v, const View& out,
                           const View& lse, const AttentionOptions& options, const BackwardOptions& backward) {
  BackwardProblem x = check("attention_backward", dout, q, k, v, out, lse, options, backward);
  const auto like = [](const View& view) { return Tensor::uninitialized(view.shape(), view.dtype()); };
  AttentionGradients result{like(q), like(k), like(v)};
  AttentionGradientViews to{result.dq.view(), result.dk.view(), result.dv.view()};
  if (backward.dbias) to.dbias = result.dbias.emplace(like(*options.bias)).view();
  if (backward.dalibi_slopes) to.dalibi_slopes = result.dalibi_slopes.emplace(like(*options.alibi_slopes)).view();
  if (backward.dsinks) to.dsinks = result.dsinks.emplace(like(*options.sinks)).view();
  run(x, to);
  return result;
}

void run_into(const AttentionGradientViews& to, const View& dout, const View& q, const View& k, const View& v,
              const View& out, const View& lse, const AttentionOptions& options, const std::optional<View>& dlse) {
  const char* function = "attention_backward_into";
  const BackwardOptions wanted{dlse, to.dbias.has_value(), to.dalibi_slopes.has_value(), to.dsinks.has_value()};
  BackwardProblem x = check(function, dout, q, k, v, out, lse, options, wanted);
  check_outputs(function, to, dout, q, k, v, out, lse, options, dlse);
  run(x, to);
}

}  // namespace

void backward_reference(BackwardProblem& x) {
  const Problem& p = x.forward;
  // The gradients of options are sums over heads and sequences, in one order.
  const bool shared = x.options.bias || !x.options.alibi_slopes.empty() || !x.options.sinks.empty();
  const std::int64_t items = p.sequences() * p.Hkv;
  const int workers = shared ? 1 : static_cast<int>(std::clamp<std::int64_t>(items, 1, num_threads()));
  std::vector<ReferenceBackward> each(static_cast<std::size_t>(workers), ReferenceBackward(x));
  parallel_items(items, workers, [&](int worker, std::int64_t item) {
    each[static_cast<std::size_t>(worker)].run(p.sequence(item / p.Hkv), item % p.Hkv);
  });
}

AttentionGradients attention_backward(const View& dout, const View& q, const View& k, const View& v, const View& out,
                                      const View& lse, const AttentionOptions& options,
                                      const BackwardOptions& backward) {
  return with_memory("attention_backward", q, k, [&] { return run_new(dout, q, k, v, out, lse, options, backward); });
}

void attention_backward_into(const AttentionGradientViews& to, const View& dout, const View& q, const View& k,
                             const View& v, const View& out, const View& lse, const AttentionOptions& options,
                             const std::optional<View>& dlse) {
  with_memory("attention_backward_into", q, k, [&] { run_into(to, dout, q, k, v, out, lse, options, dlse); });
}

}  // namespace attend
