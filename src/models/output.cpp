#include "models/output.h"

#include <cmath>

#include "core/parallel.h"

namespace attend::inline v1::models {

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

namespace {

// What softcap and scale make of a logit's gradient: logit = c tanh(scale x / c).
double before(const Output& output, double d, float logit) {
  const double share = output.softcap > 0 ? static_cast<double>(logit) / output.softcap : 0;
  return d * output.scale * (1 - share * share);
}

}  // namespace

Tensor Output::input_gradient(const Tensor& dlogits, const Tensor& logits) const {
  Tensor d = dlogits.clone();
  for (std::int64_t n = 0; n < d.count(); ++n)
    d.data<float>()[n] = static_cast<float>(before(*this, double(dlogits.data<float>()[n]), logits.data<float>()[n]));
  return layer.input_gradient(d);
}

Tensor Output::input_gradient(std::span<const std::pair<std::int64_t, double>> dlogits, const Tensor& logits) const {
  Tensor d({layer.in_size()});
  for (const auto& [token, of] : dlogits) {
    const Tensor row = layer.weight_rows(token, token + 1);
    const double by = before(*this, of, logits.data<float>()[token]);
    for (std::int64_t e = 0; e < d.count(); ++e) {
      float& sum = d.data<float>()[e];
      sum = static_cast<float>(static_cast<double>(sum) + by * static_cast<double>(row.data<float>()[e]));
    }
  }
  return d;
}

}  // namespace attend::inline v1::models
