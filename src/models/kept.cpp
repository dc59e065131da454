#include "models/kept.h"

namespace attend::inline v1::models {

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

}  // namespace attend::inline v1::models
