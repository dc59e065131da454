#include "attend/attention.h"

#include <new>
#include <stdexcept>

#include "attention/problem.h"
#include "core/element.h"
#include "core/message.h"
#include "core/parallel.h"

namespace attend {

namespace {

// Rows of work that are worth waking another thread for.
constexpr double multiplications_per_range = 1 << 16;

DType statistics_dtype(const View& q) {
  return q.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

// A tensor of the results, row [b,h,i] by row [b,h,i].
void store_row(Tensor& to, std::int64_t row, std::span<const double> values) {
  auto* out = static_cast<std::byte*>(to.raw()) + row * static_cast<std::int64_t>(values.size()) * size_of(to.dtype());
  for (const double value : values) {
    store_element(to.dtype(), out, value);
    out += size_of(to.dtype());
  }
}

// Every query row in any order; body(row number, its steps).
template <class Body>
void for_each_row(const Problem& p, Body body) {
  // In double: strides of 0 make shapes whose sizes multiply beyond 64 bits.
  const double work = static_cast<double>(p.Tk) * (static_cast<double>(p.D) + static_cast<double>(p.Dv)) + 1;
  const auto grain = static_cast<std::int64_t>(multiplications_per_range / work) + 1;
  parallel_for(p.B * p.H * p.Tq, grain, [&](std::int64_t begin, std::int64_t end) {
    kernels::Row steps;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t head = row / p.Tq;
      kernels::reference_row(p.head(head / p.H, head % p.H), row % p.Tq, steps);
      body(row, steps);
    }
  });
}

// body(), with out_of_memory where there is no memory for more than the result's tensors.
template <class Body>
auto with_memory(const char* function, const View& q, const View& k, Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {  // a list longer than any memory
  }
  fail(ErrorCode::out_of_memory, "{}: no memory for a list (q {}, k {})", function, q.shape(), k.shape());
}

AttentionResult run(const View& q, const View& k, const View& v, const AttentionOptions& options) {
  const Problem p = Problem::check("attention", q, k, v, options);
  AttentionResult result{Tensor::uninitialized(p.trim({p.B, p.H, p.Tq, p.Dv}), q.dtype()),
                         Tensor::uninitialized(p.trim({p.B, p.H, p.Tq}), statistics_dtype(q))};
  for_each_row(p, [&](std::int64_t row, const kernels::Row& steps) {
    store_row(result.out, row, steps.context);
    store_row(result.lse, row, {&steps.lse, 1});
  });
  return result;
}

AttentionSteps run_steps(const View& q, const View& k, const View& v, const AttentionOptions& options) {
  const Problem p = Problem::check("attention_steps", q, k, v, options);
  const DType dtype = statistics_dtype(q);
  const Dims pairs = p.trim({p.B, p.H, p.Tq, p.Tk});
  AttentionSteps out{Tensor::uninitialized(pairs, dtype), Tensor::uninitialized(pairs, dtype),
                     Tensor::uninitialized(pairs, dtype), Tensor::uninitialized(p.trim({p.B, p.H, p.Tq, p.Dv}), dtype),
                     Tensor::uninitialized(p.trim({p.B, p.H, p.Tq}), dtype)};
  for_each_row(p, [&](std::int64_t row, const kernels::Row& steps) {
    store_row(out.scores, row, steps.scores);
    store_row(out.scaled_scores, row, steps.scaled_scores);
    store_row(out.weights, row, steps.weights);
    store_row(out.context, row, steps.context);
    store_row(out.lse, row, {&steps.lse, 1});
  });
  return out;
}

}  // namespace

AttentionResult attention(const View& q, const View& k, const View& v, const AttentionOptions& options) {
  return with_memory("attention", q, k, [&] { return run(q, k, v, options); });
}

AttentionSteps attention_steps(const View& q, const View& k, const View& v, const AttentionOptions& options) {
  return with_memory("attention_steps", q, k, [&] { return run_steps(q, k, v, options); });
}

}  // namespace attend
