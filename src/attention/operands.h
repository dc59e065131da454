// Tensors [B,H,T,D], or [B,H,T] of numbers for rows, as the kernels take them: at one head, from one element on.
#pragma once

#include <type_traits>

#include "attend/tensor.h"
#include "core/element.h"
#include "kernels/reference.h"
#include "kernels/target.h"

namespace attend::inline v1 {

// To read, or of a MutableView to write.
template <class AnyView>
auto operand_at(const AnyView& x, std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column = 0) {
  using Operand = std::conditional_t<std::is_same_v<AnyView, MutableView>, kernels::MutableOperand, kernels::Operand>;
  // The memory of an empty tensor may be null, through which nobody may step.
  if (x.raw() == nullptr && x.count() == 0) return Operand{x.raw(), x.dtype(), 0, 0, 0};
  // Of an axis of one element the stride may be any number, and nobody may multiply it.
  const auto step = [&](int axis) { return axis < x.rank() && x.shape()[axis] > 1 ? x.strides()[axis] : 0; };
  return Operand{element_at(x.raw(), x.dtype(), b * step(0) + h * step(1) + row * step(2) + column * step(3)),
                 x.dtype(), step(1), step(2), step(3)};
}

inline kernels::Matrix matrix_at(const View& x, std::int64_t b, std::int64_t h, std::int64_t row,
                                 std::int64_t column = 0) {
  const kernels::Operand at = operand_at(x, b, h, row, column);
  return {at.data, at.dtype, at.row, at.column};
}

}  // namespace attend::inline v1
