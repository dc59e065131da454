// What the backward of every layer uses.
#pragma once

#include <cstdint>
#include <utility>

#include "attend/tensor.h"
#include "core/message.h"
#include "core/parallel.h"

namespace attend::inline v1 {

// The shape with another size of its last axis.
inline Dims with_last(Dims shape, std::int64_t size) {
  shape[shape.rank() - 1] = size;
  return shape;
}

// A gradient that is given, or what a forward has kept. Throws bad_shape, bad_dtype.
inline void check_given(const char* layer, const char* name, const View& x, const Dims& expected) {
  if (x.shape() != expected) {
    fail(ErrorCode::bad_shape, layer, "{} has shape {}, expected {}", name, x.shape(), expected);
  }
  if (!is_floating(x.dtype())) fail(ErrorCode::bad_dtype, layer, "{} is {}, expected floating point", name, x.dtype());
}

// x itself where it has that dtype, else a copy, which `made` holds.
inline View in_dtype(const View& x, DType dtype, Tensor& made) {
  if (x.dtype() == dtype) return x;
  made = x.to(dtype);
  return made;
}

// a + b + c, added in f32. All have a's shape and dtype, row-major.
inline Tensor sum_of(const View& a, const View& b, const View& c) {
  Tensor made[3];
  const float* x = in_dtype(a, DType::f32, made[0]).data<float>();
  const float* y = in_dtype(b, DType::f32, made[1]).data<float>();
  const float* z = in_dtype(c, DType::f32, made[2]).data<float>();
  Tensor sum = Tensor::uninitialized(a.shape());
  parallel_for(sum.count(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) sum.data<float>()[i] = x[i] + y[i] + z[i];
  });
  return a.dtype() == DType::f32 ? std::move(sum) : sum.view().to(a.dtype());
}

}  // namespace attend::inline v1
