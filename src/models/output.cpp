#include "models/output.h"

#include <cmath>

#include "core/parallel.h"

namespace attend::inline v0::models {

namespace {

constexpr std::int64_t together = 16384;

// x = f(x), several threads.
template <class F>
void change(Tensor& x, F f) {
  float* values = x.data<float>();
  parallel_for(x.count(), together, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) values[n] = f(values[n]);
  });
}

}  // namespace

Tensor Output::uncapped(const View& hidden) const {
  Tensor logits = layer.forward(hidden, DType::f32);
  const auto factor = static_cast<float>(scale);
  if (scale != 1) change(logits, [&](float logit) { return logit * factor; });
  return logits;
}

Tensor Output::logits(const View& hidden) const {
  Tensor logits = uncapped(hidden);
  const auto most = static_cast<float>(softcap);
  if (softcap > 0) change(logits, [&](float logit) { return most * std::tanh(logit / most); });
  return logits;
}

}  // namespace attend::inline v0::models
