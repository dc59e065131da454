// What the features of a sparse autoencoder wrote into an answer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/features.h"
#include "attend/analysis.h"

namespace attend::inline v1::analysis {

// Of the row that attribute() explains.
class FeatureEffects {
 public:
  // Throws bad_value for a place whose numbers are not written into the stream.
  FeatureEffects(const char* function, const Model& model, const SparseAutoencoder& of);

  bool wants(ModelPlace at, std::int64_t layer) const { return reading_.wants(at, layer); }
  bool writes(ModelPlace at, std::int64_t layer) const { return reading_.writes(at, layer); }
  void take(ModelPlace at, std::int64_t layer, const View& row) { reading_.take(at, layer, row); }
  // How the answer reads the place that it writes: the sum of u[c] times its number c.
  void read_along(std::span<const double> u) { u_.assign(u.begin(), u.end()); }
  void explain(Attribution& out);

 private:
  SparseAutoencoder of_;
  FeatureReading reading_;
  std::vector<double> u_;
};

}  // namespace attend::inline v1::analysis
