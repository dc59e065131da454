#include <algorithm>
#include <cmath>

#include "attend/attention.h"
#include "core/element.h"
#include "core/message.h"
#include "core/parallel.h"

namespace attend::inline v1 {

namespace {

void check_part(const char* out_name, const View& out, const char* lse_name, const View& lse) {
  if (!is_floating(out.dtype())) {
    fail(ErrorCode::bad_dtype, "merge", "{} is {}, expected f32, f64, bf16 or f16", out_name, out.dtype());
  }
  const DType statistics = statistics_dtype(out.dtype());
  if (lse.dtype() != statistics) {
    fail(ErrorCode::bad_dtype, "merge", "{} is {}, expected {} ({} is {})", lse_name, lse.dtype(), statistics, out_name,
         out.dtype());
  }
  if (out.rank() < 1 || lse.shape() != Dims(std::span(out.shape().begin(), out.shape().end() - 1))) {
    fail(ErrorCode::bad_shape, "merge", "{} has shape {}, expected that of {} {} without its last axis", lse_name,
         lse.shape(), out_name, out.shape());
  }
}

// A part's lse, in two numbers.
struct Part {
  double lse, low;
};

// What the parts are of both together, and the logarithm of their sum.
struct Shares {
  double a, b;
  Part both;
};

// Of parts of which one's lse is not finite. A part that saw nothing has no share, even beside another such part.
Shares special_shares(const Part& a, const Part& b) {
  const Part& both = std::isnan(a.lse) || a.lse > b.lse ? a : b;  // NaN, if one is
  const auto share = [&](const Part& x) { return x.lse == -INFINITY ? 0 : std::exp(x.lse - both.lse); };
  return {share(a), share(b), both};
}

Shares shares_of(const Part& a, const Part& b, DType statistics) {
  if (!std::isfinite(a.lse) || !std::isfinite(b.lse)) return special_shares(a, b);
  const double difference = (b.lse - a.lse) + (b.low - a.low);  // its logarithm
  const Part& larger = difference > 0 ? b : a;
  const double smaller = std::exp(-std::abs(difference)), rest = larger.low + std::log1p(smaller);
  double lse;
  std::byte rounded[sizeof lse];
  store_element(statistics, rounded, larger.lse + rest);
  lse = load_element(statistics, rounded);
  const double major = 1 / (1 + smaller), minor = smaller / (1 + smaller);
  return {difference > 0 ? minor : major, difference > 0 ? major : minor, {lse, (larger.lse - lse) + rest}};
}

}  // namespace

AttentionResult merge(const View& out_a, const View& lse_a, const View& out_b, const View& lse_b,
                      const std::optional<View>& lse_low_a, const std::optional<View>& lse_low_b) {
  check_part("out_a", out_a, "lse_a", lse_a);
  check_part("out_b", out_b, "lse_b", lse_b);
  if (lse_low_a.has_value() != lse_low_b.has_value()) {
    const auto [given, missing] = lse_low_a ? std::pair("lse_low_a", "lse_low_b") : std::pair("lse_low_b", "lse_low_a");
    fail(ErrorCode::bad_value, "merge", "{} is given, but not {}", given, missing);
  }
  if (lse_low_a) check_part("out_a", out_a, "lse_low_a", *lse_low_a);
  if (lse_low_b) check_part("out_b", out_b, "lse_low_b", *lse_low_b);
  if (out_b.shape() != out_a.shape())
    fail(ErrorCode::bad_shape, "merge", "out_b has shape {}, out_a {}", out_b.shape(), out_a.shape());
  if (out_b.dtype() != out_a.dtype())
    fail(ErrorCode::bad_dtype, "merge", "out_b is {}, out_a {}", out_b.dtype(), out_a.dtype());
  const Tensor a = out_a.clone(), b = out_b.clone(), a_lse = lse_a.clone(), b_lse = lse_b.clone();
  const Tensor a_low = lse_low_a ? lse_low_a->clone() : Tensor(), b_low = lse_low_b ? lse_low_b->clone() : Tensor();
  AttentionResult result{Tensor::uninitialized(out_a.shape(), out_a.dtype()),
                         Tensor::uninitialized(lse_a.shape(), lse_a.dtype())};
  if (lse_low_a) result.lse_low = Tensor::uninitialized(lse_a.shape(), lse_a.dtype());
  const DType dtype = out_a.dtype(), statistics = lse_a.dtype();
  const std::int64_t Dv = out_a.size(-1);
  const auto part = [&](const Tensor& lse, const Tensor& low, std::int64_t row) {
    const auto at = [=](const Tensor& x) { return load_element(statistics, element_at(x.raw(), statistics, row)); };
    return Part{at(lse), result.lse_low ? at(low) : 0};
  };
  const auto store = [&](Tensor& to, DType as, std::int64_t at, double x) {
    store_element(as, static_cast<std::byte*>(to.raw()) + at * size_of(as), x);
  };
  parallel_for(lse_a.count(), 65536 / (Dv + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const Shares share = shares_of(part(a_lse, a_low, row), part(b_lse, b_low, row), statistics);
      store(result.lse, statistics, row, share.both.lse);
      if (result.lse_low) store(*result.lse_low, statistics, row, share.both.low);
      for (std::int64_t at = row * Dv; at < (row + 1) * Dv; ++at) {
        // Not 0 * out: what a part without a share holds may be anything.
        const double from_a = share.a == 0 ? 0 : share.a * load_element(dtype, element_at(a.raw(), dtype, at));
        const double from_b = share.b == 0 ? 0 : share.b * load_element(dtype, element_at(b.raw(), dtype, at));
        store(result.out, dtype, at, from_a + from_b);
      }
    }
  });
  return result;
}

AttentionResult merge(const AttentionResult& a, const AttentionResult& b) {
  const auto view = [](const std::optional<Tensor>& x) { return x ? std::optional(x->view()) : std::nullopt; };
  return attend::merge(a.out, a.lse, b.out, b.lse, view(a.lse_low), view(b.lse_low));  // not std::merge
}

}  // namespace attend::inline v1
