#include "analysis/feature_effects.h"

#include <functional>
#include <numeric>

#include "core/message.h"
#include "models/edits.h"

namespace attend::inline v1::analysis {

namespace {

double along(std::span<const double> u, const float* x) {
  return std::inner_product(u.begin(), u.end(), x, 0.0, std::plus<>(),
                            [](double a, float b) { return a * static_cast<double>(b); });
}

}  // namespace

FeatureEffects::FeatureEffects(const char* function, const Model& model, const SparseAutoencoder& of)
    : of_(of), reading_(function, model, of) {
  const auto told = [&](const LayerPlace& place) {
    return is_of_stream(place.at) || place.at == ModelPlace::z || place.at == ModelPlace::cross_z ||
           place.at == ModelPlace::mlp_hidden;
  };
  for (const LayerPlace& place : {*of.reads(), *of.writes()})
    if (models::is_of_encoder(place.at) || models::is_read_once(place.at))
      fail(ErrorCode::bad_value, function, "the autoencoder works on {}, expected a place in the decoder's own text",
           name_of(place.at));
  if (!told(*of.writes()))
    fail(ErrorCode::bad_value, function, "the autoencoder writes {}, expected a place that writes into the stream",
         name_of(of.writes()->at));
}

void FeatureEffects::explain(Attribution& out) {
  const Features found = reading_.finish();
  out.features = Tensor({of_.size()});
  const double scale = found.scales.data<float>()[0];
  for (std::int64_t f = 0; f < of_.size(); ++f)
    if (const float value = found.activations.data<float>()[f]; value != 0)
      out.features.data<float>()[f] =
          static_cast<float>(static_cast<double>(value) * scale * along(u_, of_.direction(f).data<float>()));
  const Tensor rest = without_features(SparseAutoencoderAccess::state(of_), reading_.x());
  out.feature_bias = along(u_, rest.data<float>());
  out.feature_error = along(u_, found.error.data<float>());
}

}  // namespace attend::inline v1::analysis
