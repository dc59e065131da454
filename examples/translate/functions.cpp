#include "functions.h"

#include <algorithm>
#include <cmath>

#include "attend/threads.h"
#include "mix.h"

namespace translate {
namespace {

constexpr double layer_norm_epsilon = 1e-5;  // torch's

// Each row is computed by one thread in one order: the same bits for any number of threads.
template <class Work>
void for_rows(std::int64_t rows, const Work& work) {
  constexpr std::int64_t grain = 64;  // some 10 us of work for a thread that has to be woken for it
  attend::parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) work(row);
  });
}

}  // namespace

void add(Tensor& y, const View& x) {
  float* out = y.data<float>();
  const float* in = x.data<float>();
  const std::int64_t count = y.count();
  for (std::int64_t i = 0; i < count; ++i) out[i] += in[i];
}

void scale(Tensor& y, double factor) {
  float* out = y.data<float>();
  const std::int64_t count = y.count();
  for (std::int64_t i = 0; i < count; ++i) out[i] *= static_cast<float>(factor);
}

Tensor layer_norm(const View& x, const View& weight, const View& bias, LayerNormState& state) {
  const std::int64_t size = x.size(-1), rows = x.count() / size;
  state = {Tensor::uninitialized(x.shape()), Tensor::uninitialized({rows})};
  Tensor y = Tensor::uninitialized(x.shape());
  const float *in = x.data<float>(), *gain = weight.data<float>(), *shift = bias.data<float>();
  float *normalized = state.normalized.data<float>(), *inverse = state.inverse.data<float>(), *out = y.data<float>();
  for_rows(rows, [=](std::int64_t row) {
    const float* from = in + row * size;
    double mean = 0, variance = 0;
    for (std::int64_t i = 0; i < size; ++i) mean += static_cast<double>(from[i]);
    mean /= static_cast<double>(size);
    for (std::int64_t i = 0; i < size; ++i)
      variance += (static_cast<double>(from[i]) - mean) * (static_cast<double>(from[i]) - mean);
    variance /= static_cast<double>(size);
    inverse[row] = static_cast<float>(1 / std::sqrt(variance + layer_norm_epsilon));
    for (std::int64_t i = 0; i < size; ++i) {
      const float value = (from[i] - static_cast<float>(mean)) * inverse[row];
      normalized[row * size + i] = value;
      out[row * size + i] = value * gain[i] + shift[i];
    }
  });
  return y;
}

// With n the normalized row and g = dy * weight: dx = (g - mean(g) - n * mean(g * n)) / standard deviation.
LayerNormGradients layer_norm_backward(const View& dy, const View& weight, const LayerNormState& state) {
  const std::int64_t size = dy.size(-1), rows = dy.count() / size;
  LayerNormGradients gradients{Tensor::uninitialized(dy.shape()), Tensor({size}), Tensor({size})};
  const float *from = dy.data<float>(), *gain = weight.data<float>();
  const float *normalized = state.normalized.data<float>(), *inverse = state.inverse.data<float>();
  float* dx = gradients.dx.data<float>();
  for_rows(rows, [=](std::int64_t row) {
    const float *d = from + row * size, *n = normalized + row * size;
    double mean = 0, mean_n = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      const double g = static_cast<double>(d[i] * gain[i]);
      mean += g;
      mean_n += g * static_cast<double>(n[i]);
    }
    const float m = static_cast<float>(mean / static_cast<double>(size));
    const float mn = static_cast<float>(mean_n / static_cast<double>(size));
    for (std::int64_t i = 0; i < size; ++i) dx[row * size + i] = (d[i] * gain[i] - m - n[i] * mn) * inverse[row];
  });
  float *dweight = gradients.dweight.data<float>(), *dbias = gradients.dbias.data<float>();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < size; ++i) {
      dweight[i] += from[row * size + i] * normalized[row * size + i];
      dbias[i] += from[row * size + i];
    }
  }
  return gradients;
}

void relu(Tensor& x) {
  float* values = x.data<float>();
  const std::int64_t count = x.count();
  for (std::int64_t i = 0; i < count; ++i) values[i] = std::max(values[i], 0.0f);
}

void relu_backward(Tensor& dy, const View& y) {
  float* values = dy.data<float>();
  const float* outputs = y.data<float>();
  const std::int64_t count = dy.count();
  for (std::int64_t i = 0; i < count; ++i) values[i] = outputs[i] > 0 ? values[i] : 0.0f;
}

void dropout(Tensor& x, double p, std::uint64_t seed) {
  if (p == 0) return;
  float* values = x.data<float>();
  const auto kept = static_cast<float>(1 / (1 - p));
  const auto limit = static_cast<std::uint64_t>(p * 0x1p64);  // p < 1
  const std::int64_t size = x.size(-1);
  for_rows(x.count() / size, [=](std::int64_t row) {
    for (std::int64_t i = row * size; i < (row + 1) * size; ++i)
      values[i] = mix(seed, static_cast<std::uint64_t>(i)) < limit ? 0.0f : values[i] * kept;
  });
}

CrossEntropy cross_entropy(Tensor logits, std::span<const std::int64_t> targets) {
  const std::int64_t size = logits.size(-1), rows = static_cast<std::int64_t>(targets.size());
  Tensor losses({rows}, attend::DType::f64);
  float* values = logits.data<float>();
  double* loss = losses.data<double>();
  for_rows(rows, [=](std::int64_t row) {
    float* v = values + row * size;
    const float largest = *std::max_element(v, v + size);
    const float at_target = v[targets[static_cast<std::size_t>(row)]] - largest;
    double sum = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      v[i] = std::exp(v[i] - largest);
      sum += static_cast<double>(v[i]);
    }
    loss[row] = std::log(sum) - static_cast<double>(at_target);
    const auto factor = static_cast<float>(1 / (sum * static_cast<double>(rows)));
    for (std::int64_t i = 0; i < size; ++i) v[i] *= factor;
    v[targets[static_cast<std::size_t>(row)]] -= 1 / static_cast<float>(rows);
  });
  CrossEntropy result;
  for (std::int64_t row = 0; row < rows; ++row) result.sum += loss[row];
  result.dlogits = std::move(logits);
  return result;
}

Tensor positions(std::int64_t length, std::int64_t embedding_size) {
  Tensor out({length, embedding_size});
  float* values = out.data<float>();
  for (std::int64_t t = 0; t < length; ++t) {
    for (std::int64_t i = 0; i < embedding_size; i += 2) {
      const double exponent = static_cast<double>(i) / static_cast<double>(embedding_size);
      const double angle = static_cast<double>(t) / std::pow(10000.0, exponent);
      *values++ = static_cast<float>(std::sin(angle));
      *values++ = static_cast<float>(std::cos(angle));
    }
  }
  return out;
}

}  // namespace translate
