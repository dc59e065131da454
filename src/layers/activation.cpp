#include "attend/layers.h"
#include "core/message.h"
#include "core/parallel.h"
#include "kernels/targets.h"

namespace attend::inline v0 {

namespace {

constexpr const char* function = "activate";
constexpr std::int64_t elements_at_once = 1 << 14;  // fewer are done before another thread has woken up

kernels::ActivationKind kind_of(Activation f) {
  static_assert(static_cast<int>(kernels::ActivationKind::sqrt_softplus) ==
                static_cast<int>(Activation::sqrt_softplus));
  if (f > Activation::sqrt_softplus)
    fail(ErrorCode::bad_value, function, "there is no activation {}", static_cast<int>(f));
  return static_cast<kernels::ActivationKind>(f);
}

void check(const char* name, const View& x) {
  if (!is_floating(x.dtype()) || x.dtype() == DType::f64)
    fail(ErrorCode::bad_dtype, function, "{} is {}, expected f32, bf16 or f16", name, x.dtype());
  if (!x.is_contiguous()) fail(ErrorCode::bad_shape, function, "{} is not row-major", name);
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
    fail(ErrorCode::bad_shape, function, "gated has shape {}, x has {}", gated.shape(), x.shape());
  if (gated.dtype() != x.dtype())
    fail(ErrorCode::bad_dtype, function, "gated is {}, x is {}", gated.dtype(), x.dtype());
  run(f, x, gated.raw());
}

}  // namespace attend::inline v0
