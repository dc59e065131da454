// The features of a pass.
#include "analysis/features.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/from_end.h"
#include "core/message.h"
#include "models/edits.h"

namespace attend::inline v1 {

namespace analysis {

bool is_of_stream(ModelPlace at) {
  constexpr ModelPlace all[] = {ModelPlace::residual,          ModelPlace::residual_mid,
                                ModelPlace::attention,         ModelPlace::mlp,
                                ModelPlace::cross_residual,    ModelPlace::cross_attention,
                                ModelPlace::encoder_residual,  ModelPlace::encoder_residual_mid,
                                ModelPlace::encoder_attention, ModelPlace::encoder_mlp};
  return std::ranges::find(all, at) != std::end(all);
}

FeatureReading::FeatureReading(const char* function, const Model& model, const SparseAutoencoder& of)
    : function_(function),
      of_(of),
      reads_(checked(model, "reads", of.reads(), of.in_size())),
      writes_(checked(model, "writes", of.writes(), of.out_size())) {
  models::check_exact(model.info(), function);
  if (of.reads_before_weight()) read_before_weight(model);
}

LayerPlace FeatureReading::checked(const Model& model, const char* what, const std::optional<LayerPlace>& place,
                                   std::int64_t columns) const {
  if (!place)
    fail(ErrorCode::bad_value, function_, "the autoencoder's file does not say where it {}: give the place to load()",
         what);
  const models::PlaceShape shape = models::shape_of(function_, place->at, model.info());
  if (shape.columns != columns)
    fail(ErrorCode::bad_shape, function_, "the autoencoder {} {} numbers, but {} of this model has {}", what, columns,
         name_of(place->at), shape.columns);
  return {place->at, from_end(function_, fmt::format("{} of layer", name_of(place->at)), place->layer, shape.layers)};
}

// An RMSNorm's output without its weight is what it gives with weights of 1.
void FeatureReading::read_before_weight(const Model& model) {
  const models::LayerParts parts =
      models::parts_of_layer(ModelAccess::parts(model), static_cast<std::size_t>(reads_.layer));
  const auto found = std::ranges::find(parts.norms, "mlp_norm", [](const auto& each) { return each.first; });
  if (found == parts.norms.end()) return;
  const auto* norm = std::get_if<const RmsNorm*>(&found->second);
  if (norm == nullptr) return;
  if (writes(reads_.at, reads_.layer))
    fail(ErrorCode::bad_value, function_,
         "the autoencoder writes ln2.hook_normalized, which this model does not compute by itself");
  Tensor ones((*norm)->weight().shape());
  std::fill_n(ones.data<float>(), ones.count(), 1.0F);
  norm_.emplace(ones, (*norm)->eps());
  reads_.at = ModelPlace::residual_mid;
}

void FeatureReading::take(ModelPlace at, std::int64_t layer, const View& rows) {
  if (is(reads_, at, layer)) x_ = rows.to(DType::f32);
  if (is(writes_, at, layer)) y_ = rows.to(DType::f32);
}

// What a model whose weights are centred has there.
void FeatureReading::centre(ModelPlace at, Tensor& rows) const {
  if (!SparseAutoencoderAccess::state(of_).centred_stream || !is_of_stream(at)) return;
  for (std::int64_t n = 0; n < rows.size(0); ++n) {
    float* row = rows.data<float>() + n * rows.size(1);
    const double mean = std::accumulate(row, row + rows.size(1), 0.0) / static_cast<double>(rows.size(1));
    for (std::int64_t c = 0; c < rows.size(1); ++c) row[c] = static_cast<float>(static_cast<double>(row[c]) - mean);
  }
}

Features FeatureReading::finish() {
  if (x_.count() == 0 || y_.count() == 0 || x_.size(0) != y_.size(0))
    fail(ErrorCode::bad_value, function_, "the pass has {} rows of {} and {} of {}, expected equal numbers",
         x_.count() == 0 ? 0 : x_.size(0), name_of(reads_.at), y_.count() == 0 ? 0 : y_.size(0), name_of(writes_.at));
  centre(reads_.at, x_), centre(writes_.at, y_);
  if (norm_) x_ = norm_->forward(x_);
  Features found;
  found.activations = of_.encode(x_);
  found.reconstruction = of_.decode(found.activations, x_.view());
  found.error = std::move(y_);
  for (std::int64_t n = 0; n < found.error.count(); ++n)
    found.error.data<float>()[n] -= found.reconstruction.data<float>()[n];
  Tensor rows = x_.clone();
  found.scales = normalise(SparseAutoencoderAccess::state(of_), rows).scales;
  return found;
}

}  // namespace analysis

Features features(const Model& model, const SparseAutoencoder& autoencoder, std::span<const std::int64_t> ids,
                  const ModelCall& call) {
  analysis::FeatureReading reading("features", model, autoencoder);
  ModelCall watched = call;
  watched.observe = [&](ModelPlace at, std::int64_t layer, const View& values) {
    if (call.observe) call.observe(at, layer, values);
    if (reading.wants(at, layer)) reading.take(at, layer, values);
  };
  model.forward(ids, watched);
  return reading.finish();
}

std::vector<FeatureValue> strongest_features(const Features& found, std::int64_t row, std::int64_t count) {
  constexpr const char* function = "strongest_features";
  if (count < 0) fail(ErrorCode::bad_value, function, "count is {}, expected at least 0", count);
  if (found.activations.rank() != 2)
    fail(ErrorCode::bad_shape, function, "values have shape {}, expected [N,features]", found.activations.shape());
  const std::int64_t F = found.activations.size(1), n = from_end(function, "row is", row, found.activations.size(0));
  std::vector<FeatureValue> all;
  for (std::int64_t f = 0; f < F; ++f)
    if (const float value = found.activations.data<float>()[n * F + f]; value > 0) all.push_back({f, value});
  const auto kept = std::min<std::size_t>(static_cast<std::size_t>(count), all.size());
  std::ranges::partial_sort(all, all.begin() + static_cast<std::ptrdiff_t>(kept), [](const auto& a, const auto& b) {
    return a.value != b.value ? a.value > b.value : a.feature < b.feature;
  });
  all.resize(kept);
  return all;
}

}  // namespace attend::inline v1
