// Back from a sentence's vector to the hidden states that it was made of.
#include <algorithm>
#include <cmath>
#include <vector>

#include "layers/rows.h"
#include "models/sentences/modules.h"

namespace attend::inline v1::models {

namespace {

// The row that each number of a maximum came from takes its gradient: the first of equal ones.
void max_gradient(const float* rows, std::int64_t count, std::int64_t E, const float* d, float* to) {
  for (std::int64_t e = 0; e < E; ++e) {
    std::int64_t most = 0;
    for (std::int64_t n = 1; n < count; ++n)
      if (rows[n * E + e] > rows[most * E + e]) most = n;
    to[most * E + e] += d[e];
  }
}

// What each row weighs in the vector of a mode that adds them up.
std::vector<double> weights_of(PoolingMode mode, std::int64_t count) {
  std::vector<double> weights(static_cast<std::size_t>(count));
  if (mode == PoolingMode::cls) weights.front() = 1;
  if (mode == PoolingMode::last_token) weights.back() = 1;
  if (mode == PoolingMode::cls || mode == PoolingMode::last_token) return weights;
  double all = 0;
  for (std::int64_t n = 0; n < count; ++n) {
    weights[static_cast<std::size_t>(n)] = mode == PoolingMode::weighted_mean ? static_cast<double>(n + 1) : 1;
    all += weights[static_cast<std::size_t>(n)];
  }
  if (mode == PoolingMode::mean_sqrt_len) all = std::sqrt(all);
  for (double& weight : weights) weight /= all;
  return weights;
}

Tensor pooling_gradient(const Pooling& pooling, const Tensor& hidden, const Tensor& d) {
  const std::int64_t count = hidden.size(0), E = hidden.size(1);
  Tensor out({count, E});
  const float* of_mode = d.data<float>();
  for (const PoolingMode mode : pooling.modes) {
    if (mode == PoolingMode::max) {
      max_gradient(hidden.data<float>(), count, E, of_mode, out.data<float>());
    } else {
      const std::vector<double> weights = weights_of(mode, count);
      for (std::int64_t n = 0; n < count * E; ++n)
        out.data<float>()[n] += static_cast<float>(weights[static_cast<std::size_t>(n / E)] * double(of_mode[n % E]));
    }
    of_mode += E;
  }
  return out;
}

// Back through each kind of module, of which x [1,in] is what it was given.
Tensor back(const DenseModule& dense, const Tensor& x, const Tensor& d) {
  const ActivationGradients inner = activation_gradient(dense.function, d, dense.linear.forward(x, DType::f32));
  Tensor dx = dense.linear.input_gradient(inner.dx);
  if (dense.adds_input) add_to(dx, dense.residual ? dense.residual->input_gradient(d) : d.clone());
  return dx;
}

Tensor back(const LayerNorm& norm, const Tensor& x, const Tensor& d) {
  return norm.input_gradient(d, x);
}

// Of x / |x|: what is across x, over |x|.
Tensor back(const NormalizeModule&, const Tensor& x, const Tensor& d) {
  const float *of = x.data<float>(), *dy = d.data<float>();
  double squares = 0, along = 0;
  for (std::int64_t n = 0; n < x.count(); ++n)
    squares += double(of[n]) * double(of[n]), along += double(of[n]) * double(dy[n]);
  Tensor dx(x.shape());
  if (squares == 0) return dx;
  const double length = std::sqrt(squares);
  for (std::int64_t n = 0; n < x.count(); ++n)
    dx.data<float>()[n] = static_cast<float>((double(dy[n]) - double(of[n]) * along / squares) / length);
  return dx;
}

}  // namespace

Tensor SentenceModules::input_gradient(const Tensor& hidden, const Tensor& d) const {
  std::vector<Tensor> given;
  const std::int64_t starts[] = {0, hidden.size(0)};
  given.push_back(pooling.pooled(hidden, starts, 0));
  for (const SentenceModule& module : after) given.push_back(passed(module, given.back().clone()));
  Tensor dx({1, given.back().size(1)});  // what `dimensions` cuts off has no gradient
  dx.view().slice(1, 0, d.count()).copy_from(d.view().reshape({1, d.count()}));
  for (std::size_t n = after.size(); n-- > 0;)
    dx = std::visit([&](const auto& module) { return back(module, given[n], dx); }, after[n]);
  return pooling_gradient(pooling, hidden, dx);
}

}  // namespace attend::inline v1::models
