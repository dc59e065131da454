#include "analysis/direction.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "attend/layers.h"
#include "layers/rows.h"
#include "models/tasks/head.h"

namespace attend::inline v1::analysis {

namespace {

Direction through(const RmsNorm& norm, const Direction& read, const float* x) {
  const std::size_t E = read.u.size();
  double squares = 0;
  for (std::size_t e = 0; e < E; ++e) squares += static_cast<double>(x[e]) * static_cast<double>(x[e]);
  const double divisor = std::sqrt(squares / static_cast<double>(E) + norm.eps());
  Direction out{std::vector<double>(E), read.bias};
  for (std::size_t e = 0; e < E; ++e)
    out.u[e] = read.u[e] * static_cast<double>(norm.weight().data<float>()[e]) / divisor;
  return out;
}

// The mean that a LayerNorm takes out of x is taken out of the direction instead.
Direction through(const LayerNorm& norm, const Direction& read, const float* x) {
  const auto E = static_cast<double>(read.u.size());
  const double mean = std::accumulate(x, x + read.u.size(), 0.0) / E;
  double squares = 0;
  for (std::size_t e = 0; e < read.u.size(); ++e)
    squares += (static_cast<double>(x[e]) - mean) * (static_cast<double>(x[e]) - mean);
  const double divisor = std::sqrt(squares / E + norm.eps());
  Direction out{std::vector<double>(read.u.size()), read.bias};
  for (std::size_t e = 0; e < read.u.size(); ++e) {
    out.u[e] = read.u[e] * static_cast<double>(norm.weight().data<float>()[e]) / divisor;
    if (norm.bias()) out.bias += read.u[e] * static_cast<double>(norm.bias()->data<float>()[e]);
  }
  const double level = std::accumulate(out.u.begin(), out.u.end(), 0.0) / E;
  for (double& each : out.u) each -= level;
  return out;
}

Tensor activated(Activation f, const Tensor& x) {
  Tensor y = x.clone();
  activate(f, y.view());
  return y;
}

// f(x) is f(0) and x times what it rises by from there on; at 0 itself that is the derivative.
Direction through(Activation f, const Direction& read, const Tensor& x) {
  Tensor ones(x.shape());
  std::fill_n(ones.data<float>(), ones.count(), 1.0F);
  const Tensor y = activated(f, x), at_0 = activated(f, Tensor({1})), slopes = activation_gradient(f, ones, x).dx;
  const auto level = static_cast<double>(at_0.data<float>()[0]);
  Direction out{std::vector<double>(read.u.size()), read.bias};
  for (std::size_t e = 0; e < read.u.size(); ++e) {
    const auto from = static_cast<double>(x.data<float>()[e]), to = static_cast<double>(y.data<float>()[e]);
    out.u[e] = read.u[e] * (from != 0 ? (to - level) / from : static_cast<double>(slopes.data<float>()[e]));
    out.bias += read.u[e] * level;
  }
  return out;
}

Direction through(const Linear& layer, const Direction& read) {
  const Tensor before = back_through(layer, read.u);
  return {{before.data<float>(), before.data<float>() + before.count()},
          read.bias + (layer.bias() ? along(read.u, layer.bias()->view()) : 0)};
}

// The row of one output, less that of another.
Direction row_of(const Linear& layer, double scale, std::int64_t output, const std::optional<std::int64_t>& against) {
  Direction out{std::vector<double>(static_cast<std::size_t>(layer.in_size()))};
  const auto add = [&](std::int64_t of, double factor) {
    const Tensor row = layer.weight_rows(of, of + 1);
    for (std::size_t e = 0; e < out.u.size(); ++e) out.u[e] += factor * static_cast<double>(row.data<float>()[e]);
    if (layer.bias()) out.bias += factor * static_cast<double>(layer.bias()->data<float>()[of]);
  };
  add(output, scale);
  if (against) add(*against, -scale);
  return out;
}

}  // namespace

double along(std::span<const double> u, const View& row) {
  const Tensor wide = row.to(DType::f32);
  const float* x = wide.data<float>();
  return std::inner_product(u.begin(), u.end(), x, 0.0, std::plus<>(),
                            [](double a, float b) { return a * static_cast<double>(b); });
}

Direction through(const models::Norm& norm, const Direction& read, const float* x) {
  return std::visit([&](const auto* of) { return through(*of, read, x); }, norm);
}

Tensor back_through(const Linear& layer, std::span<const double> u) {
  Tensor row({1, std::ssize(u)});
  std::ranges::transform(u, row.data<float>(), [](double value) { return static_cast<float>(value); });
  Tensor made;
  View weight = layer.weight();
  if (layer.quantized()) made = layer.weight_rows(0, layer.out_size()), weight = made;
  if (weight.dtype() != DType::f32) made = converted(weight, DType::f32), weight = made;
  return Linear::borrow(weight.transpose(0, 1)).forward(row);
}

Direction output_row(const models::Output& output, std::int64_t token, const std::optional<std::int64_t>& against) {
  return row_of(output.layer, output.scale, token, against);
}

Direction label_row(const models::TaskHead& head, std::int64_t label, const std::optional<std::int64_t>& against,
                    const View& row) {
  Direction read = row_of(head.output, 1, label, against);
  if (!head.dense) return read;
  const models::TaskHead::Dense& dense = *head.dense;
  const Tensor x = dense.linear.forward(row, DType::f32);
  if (dense.norm) read = through(*dense.norm, read, activated(dense.activation, x).data<float>());
  return through(dense.linear, through(dense.activation, read, x));
}

Direction before_last_norm(const Model::Parts& parts, const Direction& read, const float* x) {
  return std::visit(
      [&](const auto& family) {
        Direction before = read;
        if constexpr (requires { family.last_projection(); }) {
          if (const Linear* projection = family.last_projection()) before = through(*projection, before);
        }
        if constexpr (requires { family.last_norm(); }) {
          if (const std::optional<models::Norm> norm = family.last_norm()) return through(*norm, before, x);
        }
        return before;
      },
      parts.family);
}

}  // namespace attend::inline v1::analysis
