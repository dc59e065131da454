#include "attention/backward.h"

#include <utility>
#include <vector>

#include "attention/backward_schedule.h"
#include "attention/compute.h"
#include "attention/output.h"
#include "core/element.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

// ---- Checks ----

void check_outputs(const char* function, const AttentionGradientViews& to, const View& dout, const View& q,
                   const View& k, const View& v, const View& out, const View& lse, const AttentionOptions& options,
                   const std::optional<View>& dlse, const std::optional<View>& lse_low) {
  std::vector<std::pair<std::string, MutableView>> outputs;
  const auto add = [&](const std::string& name, const MutableView& x, const View& of) {
    check_output(function, name, x, of.shape(), of.dtype());
    check_apart(function, name, x, q, k, v, options);
    const auto apart = [&](std::string_view other, const View& argument) {
      if (overlap(x, argument)) fail(ErrorCode::bad_value, function, "{} shares memory with {}", name, other);
    };
    apart("dout", dout), apart("out", out), apart("lse", lse);
    if (dlse) apart("dlse", *dlse);
    if (lse_low) apart("lse_low", *lse_low);
    for (const auto& [other, earlier] : outputs) apart(other, earlier);
    outputs.emplace_back(name, x);
  };
  add("dq", to.dq, q);
  add("dk", to.dk, k);
  add("dv", to.dv, v);
  for (const TensorOption& option : tensor_options()) {
    if (!option.gradient_view || !(to.*option.gradient_view)) continue;
    add(fmt::format("d{}", option.name), *(to.*option.gradient_view), *(options.*option.value));
  }
}

// ---- Calls ----

void store_list(const std::optional<MutableView>& to, const std::vector<double>& values) {
  if (!to) return;
  const MutableView rows = with_axes(*to, 2);
  for (std::int64_t row = 0; row < rows.size(0); ++row) {
    store_elements(rows.dtype(), element_at(rows.raw(), rows.dtype(), row * rows.strides()[0]), rows.strides()[1],
                   rows.size(1), values.data() + row * rows.size(1));
  }
}

void run(BackwardProblem& x, const AttentionGradientViews& to) {
  x.dq = with_axes(to.dq, 4), x.dk = with_axes(to.dk, 4), x.dv = with_axes(to.dv, 4);
  const std::optional<Tensor> bias_sums = place_bias_sums(x, to);
  run_backward(x, make_backward_schedule(x));
  store_options(x, to, bias_sums);
}

AttentionGradients run_new(const View& dout, const View& q, const View& k, const View& v, const View& out,
                           const View& lse, const AttentionOptions& options, const BackwardOptions& backward) {
  BackwardProblem x = BackwardProblem::check("attention_backward", dout, q, k, v, out, lse, options, backward);
  AttentionGradients result = new_gradients(q, k, v, options, backward);
  run(x, views_of(result));
  return result;
}

void run_into(const AttentionGradientViews& to, const View& dout, const View& q, const View& k, const View& v,
              const View& out, const View& lse, const AttentionOptions& options, const std::optional<View>& dlse,
              const std::optional<View>& lse_low) {
  const char* function = "attention_backward_into";
  BackwardOptions wanted{.dlse = dlse, .lse_low = lse_low};
  for (const TensorOption& option : tensor_options()) {
    if (option.wanted) wanted.*option.wanted = (to.*option.gradient_view).has_value();
  }
  BackwardProblem x = BackwardProblem::check(function, dout, q, k, v, out, lse, options, wanted);
  check_outputs(function, to, dout, q, k, v, out, lse, options, dlse, lse_low);
  run(x, to);
}

}  // namespace

BackwardProblem BackwardProblem::check(const char* function, const View& dout, const View& q, const View& k,
                                       const View& v, const View& out, const View& lse, const AttentionOptions& options,
                                       const BackwardOptions& backward) {
  BackwardProblem x{Problem::check(function, q, k, v, options), {}, {}, {}, {}, {}, {}, {}, {}, {}};
  const Problem& p = x.forward;
  const Dims results = p.trim({p.B, p.H, p.Tq, p.Dv}), rows = p.trim({p.B, p.H, p.Tq});
  check_kind(function, "dout", dout, results, q.dtype());
  check_kind(function, "out", out, results, dtype_of_out(out, q));
  check_kind(function, "lse", lse, rows, statistics_dtype(q.dtype()));
  if (backward.dlse) check_kind(function, "dlse", *backward.dlse, rows, statistics_dtype(q.dtype()));
  if (backward.lse_low) check_kind(function, "lse_low", *backward.lse_low, rows, statistics_dtype(q.dtype()));
  for (const TensorOption& option : tensor_options()) {
    if (!option.wanted || !(backward.*option.wanted) || options.*option.value) continue;
    fail(ErrorCode::bad_value, function, "d{} is wanted, but {} is not given", option.name, option.name);
  }
  x.dout = with_axes(dout, 4), x.out = with_axes(out, 4), x.lse = with_axes(lse, 3);
  if (backward.dlse) x.dlse = with_axes(*backward.dlse, 3);
  if (backward.lse_low) x.lse_low = with_axes(*backward.lse_low, 3);
  for (const OptionList& list : option_lists) {
    if (backward.*list.wanted) (x.options.*list.sums).resize(static_cast<std::size_t>((options.*list.option)->count()));
  }
  return x;
}

AttentionGradients new_gradients(const View& q, const View& k, const View& v, const AttentionOptions& options,
                                 const BackwardOptions& backward) {
  const auto like = [](const View& view) { return Tensor::uninitialized(view.shape(), view.dtype()); };
  AttentionGradients result{{}, like(q), like(k), like(v)};
  for (const TensorOption& option : tensor_options())
    if (option.wanted && backward.*option.wanted) result.*option.gradient = like(*(options.*option.value));
  return result;
}

AttentionGradientViews views_of(AttentionGradients& gradients) {
  AttentionGradientViews to{gradients.dq.view(), gradients.dk.view(), gradients.dv.view()};
  for (const TensorOption& option : tensor_options())
    if (option.gradient && gradients.*option.gradient) to.*option.gradient_view = (gradients.*option.gradient)->view();
  return to;
}

std::optional<Tensor> place_bias_sums(BackwardProblem& x, const AttentionGradientViews& to) {
  if (!to.dbias) return {};
  const DType sums = statistics_dtype(x.forward.q.dtype());
  const bool in_place = to.dbias->dtype() == sums && is_aligned(*to.dbias);
  std::optional<Tensor> made;
  if (!in_place) made = Tensor::uninitialized(to.dbias->shape(), sums);
  x.sum_bias_in(in_place ? *to.dbias : made->view());
  return made;
}

void store_options(const BackwardProblem& x, const AttentionGradientViews& to, const std::optional<Tensor>& bias_sums) {
  if (bias_sums) to.dbias->copy_from(*bias_sums);
  for (const OptionList& list : option_lists) store_list(to.*list.to, x.options.*list.sums);
}

void BackwardProblem::sum_bias_in(const MutableView& dbias) {
  const View pairs = dbias.broadcast_to({forward.B, forward.H, forward.Tq, forward.Tk});
  options.bias = MutableView(dbias.raw(), dbias.dtype(), pairs.shape(), pairs.strides());
  options.bias_elements = with_axes(dbias, 4);
}

void OptionSums::clear() {
  if (!bias) return;
  const Dims &size = bias_elements.shape(), &strides = bias_elements.strides();
  auto* start = static_cast<std::byte*>(bias->raw());
  for (std::int64_t b = 0; b < size[0]; ++b)
    for (std::int64_t h = 0; h < size[1]; ++h)
      for (std::int64_t i = 0; i < size[2]; ++i)
        for (std::int64_t j = 0; j < size[3]; ++j) {
          const std::int64_t place = b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3];
          store_element(bias->dtype(), start + place * size_of(bias->dtype()), 0);
        }
}

AttentionGradients attention_backward(const View& dout, const View& q, const View& k, const View& v, const View& out,
                                      const View& lse, const AttentionOptions& options,
                                      const BackwardOptions& backward) {
  return with_memory("attention_backward", q, k, [&] { return run_new(dout, q, k, v, out, lse, options, backward); });
}

void attention_backward_into(const AttentionGradientViews& to, const View& dout, const View& q, const View& k,
                             const View& v, const View& out, const View& lse, const AttentionOptions& options,
                             const std::optional<View>& dlse, const std::optional<View>& lse_low) {
  with_memory("attention_backward_into", q, k, [&] { run_into(to, dout, q, k, v, out, lse, options, dlse, lse_low); });
}

}  // namespace attend::inline v1
