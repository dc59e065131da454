#include "models/weight_matrix.h"

#include <cstring>
#include <utility>

#include "core/message.h"

namespace attend::inline v0::models {

std::string_view format_of(const Matrix& matrix) {
  return matrix.blocks ? name_of(matrix.blocks->type) : name_of(matrix.view.dtype());
}

std::int64_t bytes_of(const Matrix& matrix) {
  if (matrix.blocks) return matrix.blocks->rows * matrix.blocks->row_bytes();
  return matrix.view.count() * size_of(matrix.view.dtype());
}

Tensor numbers(const Matrix& matrix) {
  if (!matrix.blocks) return matrix.view.to(DType::f32);
  Tensor made = dequantize(*matrix.blocks);
  return matrix.view.is_contiguous() ? std::move(made) : made.view().transpose(0, 1).clone();
}

bool is_same(const Matrix& a, const Matrix& b) {
  const auto data = [](const Matrix& of) { return of.blocks ? of.blocks->data : of.view.raw(); };
  return a.view.shape() == b.view.shape() && format_of(a) == format_of(b) &&
         std::memcmp(data(a), data(b), static_cast<std::size_t>(bytes_of(a))) == 0;
}

}  // namespace attend::inline v0::models
