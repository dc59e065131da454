#include "models/kept.h"

namespace attend::inline v0::models {

void Kept::at(ModelPlace place, std::size_t layer, const Tensor& values) {
  if (place == ModelPlace::residual && layer == layers.size()) {
    last = values.clone();
  } else if (place == ModelPlace::residual) {
    layers[layer].residual = values.clone();
  } else if (layer >= whole_from && place == ModelPlace::residual_mid) {
    layers[layer].residual_mid = values.clone();
  } else if (layer >= whole_from && place == ModelPlace::cross_residual) {
    layers[layer].cross_residual = values.clone();
  }
}

namespace {

std::int64_t bytes_of(const Tensor& tensor) {
  return tensor.count() * size_of(tensor.dtype());
}

std::int64_t bytes_of(const KeptAttention& of) {
  return bytes_of(of.q) + bytes_of(of.k) + bytes_of(of.v) + bytes_of(of.out) + bytes_of(of.lse) + bytes_of(of.lse_low);
}

}  // namespace

std::int64_t KeptLayer::bytes() const {
  std::int64_t sum = bytes_of(residual) + bytes_of(residual_mid) + bytes_of(cross_residual) + bytes_of(q) +
                     bytes_of(k) + bytes_of(self) + bytes_of(cross) + bytes_of(mlp.x) + bytes_of(mlp.gated);
  for (const Tensor& each : before_norm) sum += bytes_of(each);
  return sum;
}

}  // namespace attend::inline v0::models
