#include <algorithm>
#include <cmath>

#include "attend/attention.h"
#include "core/element.h"
#include "core/message.h"
#include "core/parallel.h"

namespace attend {

namespace {

void check_part(const char* out_name, const View& out, const char* lse_name, const View& lse) {
  if (!is_floating(out.dtype())) {
    fail(ErrorCode::bad_dtype, "merge", "{} is {}, expected f32, f64, bf16 or f16", out_name, out.dtype());
  }
  const DType statistics = out.dtype() == DType::f64 ? DType::f64 : DType::f32;
  if (lse.dtype() != statistics) {
    fail(ErrorCode::bad_dtype, "merge", "{} is {}, expected {} ({} is {})", lse_name, lse.dtype(), statistics, out_name,
         out.dtype());
  }
  if (out.rank() < 1 || lse.shape() != Dims(std::span(out.shape().begin(), out.shape().end() - 1))) {
    fail(ErrorCode::bad_shape, "merge", "{} has shape {}, expected that of {} {} without its last axis", lse_name,
         lse.shape(), out_name, out.shape());
  }
}

// The part's share of a row: e^(lse - both). A part that saw nothing has none, even beside another such part.
double share(double lse, double both) {
  return lse == -INFINITY ? 0 : std::exp(lse - both);
}

double log_sum(double a, double b) {
  const double largest = std::max(a, b);
  if (std::isnan(a) || std::isnan(b)) return NAN;
  if (std::isinf(largest)) return largest;
  return largest + std::log1p(std::exp(std::min(a, b) - largest));
}

}  // namespace

AttentionResult merge(const View& out_a, const View& lse_a, const View& out_b, const View& lse_b) {
  check_part("out_a", out_a, "lse_a", lse_a);
  check_part("out_b", out_b, "lse_b", lse_b);
  if (out_b.shape() != out_a.shape())
    fail(ErrorCode::bad_shape, "merge", "out_b has shape {}, out_a {}", out_b.shape(), out_a.shape());
  if (out_b.dtype() != out_a.dtype())
    fail(ErrorCode::bad_dtype, "merge", "out_b is {}, out_a {}", out_b.dtype(), out_a.dtype());
  const Tensor a = out_a.clone(), b = out_b.clone(), a_lse = lse_a.clone(), b_lse = lse_b.clone();
  AttentionResult result{Tensor::uninitialized(out_a.shape(), out_a.dtype()),
                         Tensor::uninitialized(lse_a.shape(), lse_a.dtype())};
  const DType dtype = out_a.dtype(), statistics = lse_a.dtype();
  const std::int64_t Dv = out_a.size(-1);
  parallel_for(lse_a.count(), 65536 / (Dv + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const double la = load_element(statistics, element_at(a_lse.raw(), statistics, row));
      const double lb = load_element(statistics, element_at(b_lse.raw(), statistics, row));
      const double both = log_sum(la, lb), share_a = share(la, both), share_b = share(lb, both);
      store_element(statistics, static_cast<std::byte*>(result.lse.raw()) + row * size_of(statistics), both);
      for (std::int64_t at = row * Dv; at < (row + 1) * Dv; ++at) {
        // Not 0 * out: what a part without a share holds may be anything.
        const double from_a = share_a == 0 ? 0 : share_a * load_element(dtype, element_at(a.raw(), dtype, at));
        const double from_b = share_b == 0 ? 0 : share_b * load_element(dtype, element_at(b.raw(), dtype, at));
        store_element(dtype, static_cast<std::byte*>(result.out.raw()) + at * size_of(dtype), from_a + from_b);
      }
    }
  });
  return result;
}

}  // namespace attend
