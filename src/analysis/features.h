// What a sparse autoencoder needs of a pass.
#pragma once

#include <cstdint>
#include <optional>

#include "analysis/sparse_autoencoder.h"
#include "models/model.h"

namespace attend::inline v1::analysis {

// Whether what stands there is the stream, or added to it.
bool is_of_stream(ModelPlace at);

// What stands where it reads, and where it writes.
class FeatureReading {
 public:
  // function: what messages begin with. Throws as features() does.
  FeatureReading(const char* function, const Model& model, const SparseAutoencoder& of);

  bool wants(ModelPlace at, std::int64_t layer) const { return is(reads_, at, layer) || is(writes_, at, layer); }
  bool writes(ModelPlace at, std::int64_t layer) const { return is(writes_, at, layer); }
  void take(ModelPlace at, std::int64_t layer, const View& rows);
  // Of the rows that were taken, and then what it read of them.
  Features finish();
  const Tensor& x() const { return x_; }

 private:
  static bool is(const LayerPlace& place, ModelPlace at, std::int64_t layer) {
    return place.at == at && place.layer == layer;
  }
  LayerPlace checked(const Model& model, const char* what, const std::optional<LayerPlace>& place,
                     std::int64_t columns) const;
  void read_before_weight(const Model& model);
  void centre(ModelPlace at, Tensor& rows) const;

  const char* function_;
  SparseAutoencoder of_;
  LayerPlace reads_, writes_;
  std::optional<RmsNorm> norm_;  // of 1: what is read goes through it first
  Tensor x_, y_;
};

}  // namespace attend::inline v1::analysis
