// A tensor that grows along its axis 2, [B,H,T,...]: rows of a generation, one step after the other.
#pragma once

#include <algorithm>

#include "attend/tensor.h"

namespace attend::inline v1 {

class Growing {
 public:
  Growing() = default;
  // other: the sizes of all axes, that of axis 2 left open.
  Growing(const Dims& shape, DType dtype, bool grows) : shape_(shape), dtype_(dtype), grows_(grows) { shape_[2] = 0; }

  std::int64_t size() const { return shape_[2]; }
  // What it takes once `size` are there.
  std::int64_t bytes_for(std::int64_t size) const {
    Dims all = shape_;
    all[2] = capacity_for(size);
    return element_count(all) * size_of(dtype_);
  }
  std::int64_t bytes() const { return bytes_for(size()); }

  // Zeros follow, up to that size.
  void resize(std::int64_t size) {
    reserve(size);
    shape_[2] = std::max(shape_[2], size);
  }
  // Room for what is appended later.
  void reserve(std::int64_t size) {
    if (capacity() >= size) return;
    Dims all = shape_;
    all[2] = capacity_for(size);
    Tensor larger(all, dtype_);
    if (shape_[2] > 0) larger.view().slice(2, 0, shape_[2]).copy_from(view());
    memory_ = std::move(larger);
  }
  void append(Tensor rows) {
    if (shape_[2] == 0 && !grows_) {  // all that there will be
      shape_[2] = rows.size(2), memory_ = std::move(rows);
      return;
    }
    append(rows.view());
  }
  void append(const View& rows) {
    const std::int64_t begin = shape_[2];
    resize(begin + rows.size(2));
    if (rows.count() > 0) memory_.view().slice(2, begin, shape_[2]).copy_from(rows);
  }

  MutableView view() { return memory_.view().slice(2, 0, shape_[2]); }
  View view() const { return memory_.view().slice(2, 0, shape_[2]); }
  // All of it, without the room to grow; it is empty then.
  Tensor take() {
    Tensor all = capacity() == size() ? std::move(memory_) : view().clone();
    *this = {};
    return all;
  }

 private:
  std::int64_t capacity() const { return memory_.rank() < 3 ? -1 : memory_.size(2); }
  // Memory is made anew rarely where rows come one by one.
  std::int64_t capacity_for(std::int64_t size) const {
    if (size <= capacity()) return capacity();
    return grows_ ? std::max(size, std::max<std::int64_t>(64, capacity() + capacity() / 4)) : size;
  }

  Tensor memory_;
  Dims shape_{0, 0, 0};
  DType dtype_ = DType::f32;
  bool grows_ = false;
};

}  // namespace attend::inline v1
