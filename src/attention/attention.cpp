#include "attend/attention.h"

#include <cmath>

#include "attention/compute.h"
#include "attention/output.h"
#include "attention/problem.h"
#include "attention/schedule.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

AttentionSteps run_steps(const View& q, const View& k, const View& v, const AttentionOptions& options) {
  const Problem p = Problem::check("attention_steps", q, k, v, options);
  const DType dtype = statistics_dtype(q.dtype());
  const Dims pairs{p.B, p.H, p.Tq, p.Tk};
  // Pairs of different sequences are written by none.
  const auto tensor = [&](const Dims& shape) {
    return p.query_starts.empty() ? Tensor::uninitialized(p.trim(shape), dtype) : Tensor(p.trim(shape), dtype);
  };
  AttentionSteps out{
      tensor(pairs),           tensor(pairs), tensor(pairs), tensor(pairs), tensor({p.B, p.H, p.Tq, p.Dv}),
      tensor({p.B, p.H, p.Tq})};
  // In double once, and not again for each query.
  constexpr std::int64_t together = kernels::keys_together;
  const std::int64_t panels = p.Tk / together;
  const View whole = p.k.slice(2, 0, panels * together).reshape({p.B, p.Hkv, panels, together, p.D});
  const Tensor key_panels = whole.transpose(3, 4).to(DType::f64), values = p.v.to(DType::f64);
  const MutableView scores = out.scores.view().reshape(pairs), scaled_scores = out.scaled_scores.view().reshape(pairs),
                    logits = out.logits.view().reshape(pairs), weights = out.weights.view().reshape(pairs),
                    context = out.context.view().reshape({p.B, p.H, p.Tq, p.Dv}),
                    lse = out.lse.view().reshape({p.B, p.H, p.Tq});
  if (!p.query_starts.empty()) logits.copy_from(Tensor::from({1}, {-INFINITY}).view().broadcast_to(pairs));
  const Problem doubles = p.with_doubles(key_panels.data<double>(), values);
  for_each_row(doubles, reference_schedule(p, ""), [&](const ReferenceRow& row) {
    row.store(scores, row.steps.scores, true);
    row.store(scaled_scores, row.steps.scaled_scores, true);
    row.store(logits, row.steps.logits, true);
    row.store(weights, row.steps.weights, true);
    row.store(context, row.steps.context);
    row.store(lse, {&row.steps.lse, 1});
  });
  return out;
}

void run_into(const MutableView& out, const std::optional<MutableView>& lse, const View& q, const View& k,
              const View& v, const AttentionOptions& options, const std::optional<MutableView>& lse_low) {
  const char* function = "attention_into";
  const Problem p = Problem::check(function, q, k, v, options);
  const Dims rows = p.trim({p.B, p.H, p.Tq});
  check_output(function, "out", out, p.trim({p.B, p.H, p.Tq, p.Dv}), dtype_of_out(out, q));
  check_apart(function, "out", out, q, k, v, options);
  const auto check_rows = [&](const char* name, const MutableView& x) {
    check_output(function, name, x, rows, statistics_dtype(q.dtype()));
    check_apart(function, name, x, q, k, v, options);
    if (overlap(out, x)) fail(ErrorCode::bad_value, function, "out and {} share memory", name);
  };
  if (lse) check_rows("lse", *lse);
  if (lse_low) check_rows("lse_low", *lse_low);
  if (lse && lse_low && overlap(*lse, *lse_low)) {
    fail(ErrorCode::bad_value, function, "lse and lse_low share memory");
  }
  ResultViews to{with_axes(out, 4), {}};
  Tensor unwanted;  // the kernels write no lse_low alone
  if (!lse && lse_low) unwanted = Tensor::uninitialized(rows, statistics_dtype(q.dtype()));
  if (lse || lse_low) to.lse = with_axes(lse ? *lse : unwanted.view(), 3);
  if (lse_low) to.lse_low = with_axes(*lse_low, 3);
  compute_into(p, to);
}

}  // namespace

AttentionResult attention(const View& q, const View& k, const View& v, const AttentionOptions& options,
                          const ForwardOptions& wanted) {
  return with_memory("attention", q, k, [&] { return compute(Problem::check("attention", q, k, v, options), wanted); });
}

void attention_into(const MutableView& out, const std::optional<MutableView>& lse, const View& q, const View& k,
                    const View& v, const AttentionOptions& options, const std::optional<MutableView>& lse_low) {
  with_memory("attention_into", q, k, [&] { run_into(out, lse, q, k, v, options, lse_low); });
}

AttentionSteps attention_steps(const View& q, const View& k, const View& v, const AttentionOptions& options) {
  return with_memory("attention_steps", q, k, [&] { return run_steps(q, k, v, options); });
}

}  // namespace attend::inline v1
