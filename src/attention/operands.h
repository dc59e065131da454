// Tensors [B,H,T,D], or [B,H,T] of numbers for rows, as the kernels take them: at one head, from one element on.
#pragma once

#include <type_traits>

#include "attend/tensor.h"
#include "core/element.h"
#include "kernels/reference.h"
#include "kernels/target.h"

namespace attend {

// To read, or of a MutableView to write.
template <class AnyView>
auto operand_at(const AnyView& x, std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column = 0) {
  using Operand = std::conditional_t<std::is_same_v<AnyView, MutableView>, kernels::MutableOperand, kernels::Operand>;
  const Dims& s = x.strides();
  const std::int64_t step = x.rank() == 4 ? s[3] : 0;
  // The memory of an empty tensor may be null, through which nobody may step.
  if (x.raw() == nullptr) return Operand{x.raw(), x.dtype(), 0, 0, 0};
  return Operand{element_at(x.raw(), x.dtype(), b * s[0] + h * s[1] + row * s[2] + column * step), x.dtype(), s[1],
                 s[2], step};
}

inline kernels::Matrix matrix_at(const View& x, std::int64_t b, std::int64_t h, std::int64_t row,
                                 std::int64_t column = 0) {
  const kernels::Operand at = operand_at(x, b, h, row, column);
  return {at.data, at.dtype, at.row, at.column};
}

}  // namespace attend
