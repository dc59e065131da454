// How a number reads a row: the direction that its answer is a product with, taken back through what stands in between.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attend/tensor.h"
#include "models/batch.h"
#include "models/model.h"

namespace attend::inline v1::analysis {

// The sum of u[e] x[e], and bias.
struct Direction {
  std::vector<double> u;
  double bias = 0;
};

double along(std::span<const double> u, const View& row);

// How it reads x [E], f32, before a norm, while that divides as it does there.
Direction through(const models::Norm& norm, const Direction& read, const float* x);
// How z speaks to it through a layer: W^T u, [in].
Tensor back_through(const Linear& layer, std::span<const double> u);

// The row of the output layer, less that of `against`, and its bias.
Direction output_row(const models::Output& output, std::int64_t token, const std::optional<std::int64_t>& against);
// How a label's logit reads the row [1,E] that a task's head reads. Behind the head's dense layer each unit counts with
// f(x) / x as it is there, and a norm divides as it does there: so the product is the logit.
Direction label_row(const models::TaskHead& head, std::int64_t label, const std::optional<std::int64_t>& against,
                    const View& row);
// How the stream x [E], f32, is read after all layers, where what the family makes of it at last is read so.
Direction before_last_norm(const Model::Parts& parts, const Direction& read, const float* x);

}  // namespace attend::inline v1::analysis
