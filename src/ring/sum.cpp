#include <fmt/format.h>

#include "attend/ring.h"
#include "core/element.h"
#include "core/message.h"
#include "ring/gather.h"

namespace attend::inline v1 {

void ring_sum(RingTransport& ranks, const MutableView& x) {
  const char* function = "ring_sum";
  agree(ranks, function, [&]() -> Facts {
    if (!is_floating(x.dtype()))
      fail(ErrorCode::bad_dtype, function, "x is {}, expected f32, f64, bf16 or f16", x.dtype());
    return {{"x", fmt::format("{} {}", x.dtype(), x.shape())}};
  });
  const DType sums = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  settle(ranks, function, [&] {
    const Tensor own = x.to(sums);
    const auto bytes = static_cast<std::size_t>(own.count() * size_of(sums));
    const std::vector<std::string> all = gather(ranks, std::string(static_cast<const char*>(own.raw()), bytes));
    Tensor total(x.shape(), sums);
    const auto add = [&]<class T>(T* to) {
      for (const std::string& of : all)
        for (std::int64_t i = 0; i < total.count(); ++i)
          to[i] += load<T>(of.data() + i * static_cast<std::int64_t>(sizeof(T)));
    };
    if (sums == DType::f64)
      add(total.data<double>());
    else
      add(total.data<float>());
    x.copy_from(total);
  });
}

}  // namespace attend::inline v1
