#include "analysis/held_norm.h"

#include <cmath>
#include <numeric>

namespace attend::inline v1::analysis {

HeldNorm::HeldNorm(const models::Norm& of, const Tensor& x) : norm(of) {
  const std::int64_t E = x.size(1);
  const double eps = std::visit([](const auto* each) { return each->eps(); }, norm);
  for (std::int64_t r = 0; r < x.size(0); ++r) {
    const float* row = x.data<float>() + r * E;
    const double mean = centres() ? std::accumulate(row, row + E, 0.0) / static_cast<double>(E) : 0;
    double squares = 0;
    for (std::int64_t e = 0; e < E; ++e)
      squares += (static_cast<double>(row[e]) - mean) * (static_cast<double>(row[e]) - mean);
    factors.push_back(1 / std::sqrt(squares / static_cast<double>(E) + eps));
  }
}

View HeldNorm::weight() const {
  return std::visit([](const auto* of) -> View { return of->weight(); }, norm);
}

void HeldNorm::apply(Tensor& x) const {
  const std::int64_t E = x.size(1);
  const View weights = weight();
  const float* w = weights.data<float>();
  for (std::int64_t r = 0; r < x.size(0); ++r) {
    float* row = x.data<float>() + r * E;
    const double mean = centres() ? std::accumulate(row, row + E, 0.0) / static_cast<double>(E) : 0;
    for (std::int64_t e = 0; e < E; ++e)
      row[e] = static_cast<float>((static_cast<double>(row[e]) - mean) * factors[static_cast<std::size_t>(r)] *
                                  static_cast<double>(w[e]));
  }
}

void HeldNorm::add_bias(Tensor& x) const {
  const auto* layer = std::get_if<const LayerNorm*>(&norm);
  if (layer && (*layer)->bias()) add_row((*layer)->bias()->view(), x);
}

void add_row(const View& bias, Tensor& x) {
  const Tensor row = bias.to(DType::f32);
  const std::int64_t E = x.size(1);
  const float* from = row.data<float>();
  float* to = x.data<float>();
  for (std::int64_t r = 0; r < x.size(0); ++r, to += E)
    for (std::int64_t e = 0; e < E; ++e) to[e] += from[e];
}

}  // namespace attend::inline v1::analysis
