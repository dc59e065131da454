#include "attend/layers.h"
#include "core/message.h"
#include "core/parallel.h"
#include "kernels/targets.h"
#include "layers/gradients.h"
#include "layers/rows.h"

namespace attend::inline v1 {

namespace {

constexpr const char* activation_function = "activate";
constexpr std::int64_t elements_at_once = 1 << 14;  // fewer are done before another thread has woken up

kernels::ActivationKind kind_of(Activation f) {
  static_assert(static_cast<int>(kernels::ActivationKind::sqrt_softplus) ==
                static_cast<int>(Activation::sqrt_softplus));
  if (f > Activation::sqrt_softplus)
    fail(ErrorCode::bad_value, activation_function, "there is no activation {}", static_cast<int>(f));
  return static_cast<kernels::ActivationKind>(f);
}

void check_dtype(const char* name, const View& x) {
  if (!is_floating(x.dtype()) || x.dtype() == DType::f64)
    fail(ErrorCode::bad_dtype, activation_function, "{} is {}, expected f32, bf16 or f16", name, x.dtype());
}

void check(const char* name, const View& x) {
  check_dtype(name, x);
  if (!x.is_contiguous()) fail(ErrorCode::bad_shape, activation_function, "{} is not row-major", name);
}

void run(Activation f, const MutableView& x, const void* gate) {
  const std::int64_t size = x.rank() == 0 ? 1 : x.size(-1);
  if (x.count() == 0) return;
  const kernels::ActivationOperands operands{kind_of(f), x.raw(), gate, x.dtype(), size};
  parallel_for(x.count() / size, elements_at_once / size + 1,
               [&](std::int64_t begin, std::int64_t end) { kernels::target().rows.activate(operands, begin, end); });
}

}  // namespace

void activate(Activation f, const MutableView& x) {
  check("x", x);
  run(f, x, nullptr);
}

void activate(Activation f, const MutableView& x, const View& gated) {
  check("x", x);
  check("gated", gated);
  if (gated.shape() != x.shape())
    fail(ErrorCode::bad_shape, activation_function, "gated has shape {}, x has {}", gated.shape(), x.shape());
  if (gated.dtype() != x.dtype())
    fail(ErrorCode::bad_dtype, activation_function, "gated is {}, x is {}", gated.dtype(), x.dtype());
  run(f, x, gated.raw());
}

ActivationGradients activation_gradient(Activation f, const View& dy, const View& x, const OptionalView& gated) {
  constexpr const char* name = "activation_gradient";
  check_given(name, "x", x, x.shape());
  check_given(name, "dy", dy, x.shape());
  check_dtype("x", x);
  if (gated) check_given(name, "gated", *gated, x.shape());
  if (gated && gated->dtype() != x.dtype())
    fail(ErrorCode::bad_dtype, name, "gated is {}, x is {}", gated->dtype(), x.dtype());
  ActivationGradients out{Tensor::uninitialized(x.shape()), gated ? Tensor::uninitialized(x.shape()) : Tensor()};
  if (x.count() == 0) return out;
  Tensor rows, gate, wide, made;
  kernels::ActivationGradientOperands operands;
  operands.kind = kind_of(f);
  operands.x = in_row_major(x, rows).raw(), operands.dtype = x.dtype();
  operands.gate = gated ? in_row_major(*gated, gate).raw() : nullptr;
  operands.dy = in_row_major(in_dtype(dy, DType::f32, wide), made).data<float>();
  operands.dx = out.dx.data<float>();
  operands.dgate = gated ? out.dgated.data<float>() : nullptr;
  operands.size = x.rank() == 0 ? 1 : x.size(-1);
  const auto gradient = kernels::target().rows.activate_gradient;
  parallel_for(x.count() / operands.size, elements_at_once / operands.size + 1,
               [&](std::int64_t begin, std::int64_t end) { gradient(operands, begin, end); });
  return out;
}

}  // namespace attend::inline v1
