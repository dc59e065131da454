#include "attention/output.h"

#include <cstdint>
#include <cstdlib>
#include <utility>

#include "core/message.h"

namespace attend::inline v1 {

namespace {

// The addresses [first, last) that a view spans.
std::pair<std::intptr_t, std::intptr_t> span_of(const View& x) {
  const auto start = reinterpret_cast<std::intptr_t>(x.raw());
  std::intptr_t low = 0, high = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x.shape()[axis] == 0) return {start, start};
    const std::int64_t reach = (x.shape()[axis] - 1) * x.strides()[axis];
    (reach < 0 ? low : high) += reach;
  }
  const std::int64_t element = size_of(x.dtype());
  return {start + low * element, start + (high + 1) * element};
}

bool meet(const std::pair<std::intptr_t, std::intptr_t>& a, const std::pair<std::intptr_t, std::intptr_t>& b) {
  return a.first < a.second && b.first < b.second && a.first < b.second && b.first < a.second;
}

// Whether every axis is stepped over by the ones with larger strides. Any layout that does not interleave axes passes.
bool distinct_elements(const View& x) {
  for (int axis = 0; axis < x.rank(); ++axis) {
    const std::int64_t stride = std::abs(x.strides()[axis]);
    if (x.shape()[axis] < 2) continue;
    std::int64_t inner = 0;
    for (int other = 0; other < x.rank(); ++other) {
      const std::int64_t step = std::abs(x.strides()[other]);
      if (x.shape()[other] < 2 || other == axis || step > stride) continue;
      if (step == stride) return false;
      inner += (x.shape()[other] - 1) * step;
    }
    if (inner >= stride) return false;
  }
  return true;
}

}  // namespace

bool overlap(const View& a, const View& b) {
  return meet(span_of(a), span_of(b));
}

void check_kind(const char* function, std::string_view name, const View& x, const Dims& shape, DType dtype) {
  if (x.shape() != shape) fail(ErrorCode::bad_shape, function, "{} has shape {}, expected {}", name, x.shape(), shape);
  if (x.dtype() != dtype) fail(ErrorCode::bad_dtype, function, "{} is {}, expected {}", name, x.dtype(), dtype);
}

void check_output(const char* function, std::string_view name, const MutableView& x, const Dims& shape, DType dtype) {
  check_kind(function, name, x, shape, dtype);
  if (x.count() > 0 && !distinct_elements(x)) {
    fail(ErrorCode::bad_value, function, "{} has strides {} for shape {}: elements share memory", name, x.strides(),
         shape);
  }
}

DType dtype_of_out(const View& out, const View& q) {
  return size_of(q.dtype()) == 2 && out.dtype() == DType::f32 ? DType::f32 : q.dtype();
}

void check_apart(const char* function, std::string_view name, const View& x, const View& q, const View& k,
                 const View& v, const AttentionOptions& options) {
  const auto own = span_of(x);
  const auto apart = [&](std::string_view other, const View& argument) {
    if (meet(own, span_of(argument))) fail(ErrorCode::bad_value, function, "{} shares memory with {}", name, other);
  };
  apart("q", q);
  apart("k", k);
  apart("v", v);
  for (const TensorOption& option : tensor_options()) {
    if (const std::optional<View>& argument = options.*option.value) apart(option.name, *argument);
  }
}

}  // namespace attend::inline v1
