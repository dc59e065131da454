// A norm that divides as it did in a pass, whatever it is given: so that what a sum becomes is the sum of what its
// parts become.
#pragma once

#include <vector>

#include "attend/tensor.h"
#include "models/batch.h"

namespace attend::inline v1::analysis {

struct HeldNorm {
  models::Norm norm;
  std::vector<double> factors;  // [R]

  // x [R,E], where the rows of another were held.
  HeldNorm(const models::Norm& of, const Tensor& x);

  bool centres() const { return std::holds_alternative<const LayerNorm*>(norm); }
  View weight() const;

  // What becomes of a part x [R,E] of the rows; LayerNorm takes its own mean out of each part.
  void apply(Tensor& x) const;
  // And what it adds to all of them together.
  void add_bias(Tensor& x) const;
};

// bias [E] is added to each row of x [R,E].
void add_row(const View& bias, Tensor& x);

}  // namespace attend::inline v1::analysis
