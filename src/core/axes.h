// Views with as many axes as the loops over them have.
#pragma once

#include "attend/tensor.h"

namespace attend::inline v1 {

// The view (View or MutableView) with axes of size 1 in front, up to `rank`.
template <class AnyView>
AnyView with_axes(const AnyView& x, int rank) {
  if (x.rank() >= rank) return x;
  Dims shape, strides;
  for (int i = x.rank(); i < rank; ++i) {
    shape.push_back(1);
    strides.push_back(0);
  }
  for (int i = 0; i < x.rank(); ++i) {
    shape.push_back(x.shape()[i]);
    strides.push_back(x.strides()[i]);
  }
  return AnyView(x.raw(), x.dtype(), shape, strides);
}
inline View with_four_axes(const View& x) {
  return with_axes(x, 4);
}

}  // namespace attend::inline v1
