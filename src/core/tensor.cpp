#include "attend/tensor.h"

#include <cstring>
#include <utility>

#include "core/divide_up.h"
#include "core/element.h"
#include "core/message.h"
#include "core/tensor_memory.h"

namespace attend::inline v1 {

namespace {

constexpr std::int64_t alignment = tensor_alignment;

Dims row_major(const Dims& shape) {
  Dims strides = shape;
  std::int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    // Only an empty shape can overflow here, and its strides lead nowhere.
    if (__builtin_mul_overflow(stride, shape[i], &stride)) stride = 0;
  }
  return strides;
}

int checked_axis(const char* function, int axis, const Dims& shape) {
  const int rank = shape.rank();
  if (axis < -rank || axis >= rank) {
    fail(ErrorCode::bad_shape, function, "axis {} does not exist in shape {}", axis, shape);
  }
  return axis < 0 ? axis + rank : axis;
}

// Where the element, or the row, at an index of the first axes begins; nothing where it is outside.
std::optional<std::int64_t> offset_of(std::span<const std::int64_t> index, const Dims& shape, const Dims& strides) {
  if (std::ssize(index) > shape.rank()) return std::nullopt;
  std::int64_t offset = 0;
  for (int i = 0; i < static_cast<int>(index.size()); ++i) {
    const std::int64_t at = index[static_cast<std::size_t>(i)];
    if (at < 0 || at >= shape[i]) return std::nullopt;
    offset += at * strides[i];
  }
  return offset;
}

struct Axes {
  Dims shape, strides;
};

// The same elements in the same order by fewer axes: one that goes on where the axis after it ends is one with that.
Axes merge_axes(const Dims& shape, const Dims& strides) {
  Axes all;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    const int last = all.shape.rank() - 1;
    if (last >= 0 && all.strides[last] == strides[i] * shape[i]) {
      all.shape[last] *= shape[i], all.strides[last] = strides[i];
    } else {
      all.shape.push_back(shape[i]), all.strides.push_back(strides[i]);
    }
  }
  return all;
}

// Calls body(offset of the first element, stride, count) for each run along the last axis, in row-major order.
template <class Body>
void for_each_run(const Dims& all, const Dims& all_strides, Body body) {
  if (element_count(all) == 0) return;
  const auto [shape, strides] = merge_axes(all, all_strides);
  const int rank = shape.rank();
  if (rank == 0) return body(std::int64_t{0}, std::int64_t{1}, std::int64_t{1});
  Dims index(shape);
  for (int i = 0; i < rank; ++i) index[i] = 0;
  std::int64_t offset = 0;
  while (true) {
    body(offset, strides[rank - 1], shape[rank - 1]);
    int axis = rank - 2;
    for (; axis >= 0; --axis) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

// source's elements, as double or exactly, to row-major memory of dtype `target`.
void copy_elements(const View& source, DType target, void* out) {
  auto* to = static_cast<std::byte*>(out);
  const auto* from = static_cast<const std::byte*>(source.raw());
  const std::int64_t in_size = size_of(source.dtype());
  const std::int64_t out_size = size_of(target);
  const bool same = source.dtype() == target;
  for_each_run(source.shape(), source.strides(), [&](std::int64_t offset, std::int64_t stride, std::int64_t count) {
    const std::byte* run = from + offset * in_size;
    if (same && (stride == 1 || count == 1)) {
      std::memcpy(to, run, static_cast<std::size_t>(count * out_size));
      to += count * out_size;
      return;
    }
    if (same) {
      for (std::int64_t i = 0; i < count; ++i, run += stride * in_size, to += out_size) {
        std::memcpy(to, run, static_cast<std::size_t>(out_size));
      }
      return;
    }
    constexpr std::int64_t longest = 256;
    double values[longest];
    for (std::int64_t i = 0; i < count; i += longest) {
      const std::int64_t some = std::min(longest, count - i);
      load_elements(source.dtype(), run + i * stride * in_size, stride, some, values);
      store_elements(target, to, 1, some, values);
      to += some * out_size;
    }
  });
}

}  // namespace

Dims::Dims(std::span<const std::int64_t> values) {
  if (values.size() > max_rank) {
    fail(ErrorCode::bad_shape, "Dims", "{} dimensions, at most {} are possible", values.size(), max_rank);
  }
  std::copy(values.begin(), values.end(), values_.begin());
  rank_ = static_cast<int>(values.size());
}

void Dims::push_back(std::int64_t value) {
  if (rank_ == max_rank) fail(ErrorCode::bad_shape, "Dims", "more than {} dimensions", max_rank);
  values_[static_cast<std::size_t>(rank_++)] = value;
}

std::string Dims::str() const {
  return fmt::format("[{}]", fmt::join(begin(), end(), ","));
}

std::int64_t element_count(const Dims& shape) {
  std::int64_t count = 1;
  bool overflow = false;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) fail(ErrorCode::bad_shape, "", "shape {} has a negative size", shape);
    empty |= size == 0;
    overflow |= __builtin_mul_overflow(count, size, &count);
  }
  if (empty) return 0;
  if (overflow) fail(ErrorCode::bad_shape, "", "shape {} has more elements than 64 bits can count", shape);
  return count;
}

View::View(const void* data, DType dtype, const Dims& shape) : data_(data), dtype_(dtype), shape_(shape) {
  element_count(shape);
  strides_ = row_major(shape);
}

View::View(const void* data, DType dtype, const Dims& shape, const Dims& strides)
    : data_(data), dtype_(dtype), shape_(shape), strides_(strides) {
  element_count(shape);
  if (shape.rank() != strides.rank()) {
    fail(ErrorCode::bad_shape, "View", "shape {} and strides {} differ in rank", shape, strides);
  }
}

std::int64_t View::size(int axis) const {
  return shape_[checked_axis("size", axis, shape_)];
}

void View::require(DType wanted) const {
  if (wanted != dtype_) fail(ErrorCode::bad_dtype, "data", "the tensor holds {}, {} was asked for", dtype_, wanted);
}

double View::item(std::initializer_list<std::int64_t> index) const {
  const auto offset = offset_of(index, shape_, strides_);
  if (std::ssize(index) != rank() || !offset)
    fail(ErrorCode::bad_shape, "item", "no element {} in shape {}", Dims(index), shape_);
  return load_element(dtype_, element_at(data_, dtype_, *offset));
}

const void* View::row_at(DType wanted, std::span<const std::int64_t> index) const {
  if (wanted != dtype_) fail(ErrorCode::bad_dtype, "row", "the tensor holds {}, {} was asked for", dtype_, wanted);
  const auto offset = offset_of(index, shape_, strides_);
  if (std::ssize(index) != rank() - 1 || !offset)
    fail(ErrorCode::bad_shape, "row", "no row {} in shape {}: expected an index for each axis but the last",
         Dims(index), shape_);
  if (size(-1) > 1 && strides_[rank() - 1] != 1)
    fail(ErrorCode::bad_shape, "row", "a row's elements lie {} apart, expected 1 (strides {}): clone() it",
         strides_[rank() - 1], strides_);
  return size(-1) > 0 ? element_at(data_, dtype_, *offset) : nullptr;
}

bool View::is_contiguous() const {
  if (count() == 0) return true;
  const Dims wanted = row_major(shape_);
  for (int i = 0; i < rank(); ++i) {
    if (shape_[i] != 1 && strides_[i] != wanted[i]) return false;
  }
  return true;
}

View View::transpose(int axis_a, int axis_b) const {
  const int a = checked_axis("transpose", axis_a, shape_);
  const int b = checked_axis("transpose", axis_b, shape_);
  View out = *this;
  std::swap(out.shape_[a], out.shape_[b]);
  std::swap(out.strides_[a], out.strides_[b]);
  return out;
}

View View::permute(std::initializer_list<int> axes) const {
  View out = *this;
  std::array<bool, Dims::max_rank> seen{};
  bool valid = static_cast<int>(axes.size()) == rank();
  int i = 0;
  for (const int given : axes) {
    if (!valid) break;
    const int axis = checked_axis("permute", given, shape_);
    valid = !std::exchange(seen[static_cast<std::size_t>(axis)], true);
    out.shape_[i] = shape_[axis];
    out.strides_[i] = strides_[axis];
    ++i;
  }
  if (!valid) {
    fail(ErrorCode::bad_shape, "permute", "axes [{}] are not a permutation of the {} axes of shape {}",
         fmt::join(axes, ","), rank(), shape_);
  }
  return out;
}

View View::slice(int axis, std::int64_t start, std::int64_t stop, std::int64_t step) const {
  const int a = checked_axis("slice", axis, shape_);
  if (start < 0 || stop < start || stop > shape_[a] || step < 1) {
    fail(ErrorCode::bad_shape, "slice", "{}:{}:{} does not lie within axis {} of shape {}", start, stop, step, axis,
         shape_);
  }
  View out = *this;
  const std::int64_t length = stop - start;
  out.shape_[a] = length / step + (length % step != 0);
  if (length > 0) out.data_ = element_at(data_, dtype_, start * strides_[a]);
  out.strides_[a] *= length > step ? step : 1;
  return out;
}

View View::select(int axis, std::int64_t index) const {
  const int a = checked_axis("select", axis, shape_);
  if (index < 0 || index >= shape_[a]) {
    fail(ErrorCode::bad_shape, "select", "no index {} along axis {} of shape {}", index, axis, shape_);
  }
  View out(data_, dtype_, {}, {});
  out.data_ = element_at(data_, dtype_, index * strides_[a]);
  for (int i = 0; i < rank(); ++i) {
    if (i == a) continue;
    out.shape_.push_back(shape_[i]);
    out.strides_.push_back(strides_[i]);
  }
  return out;
}

namespace {

// The -1 of `wanted`, worked out; throws unless both shapes hold the same number of elements.
Dims complete_shape(const Dims& have, const Dims& wanted) {
  Dims shape = wanted;
  int open = -1;
  std::int64_t known = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1 && open < 0) {
      open = i;
      shape[i] = 1;
    }
  }
  known = element_count(shape);
  const std::int64_t count = element_count(have);
  if (open >= 0 && known > 0 && count % known == 0) {
    shape[open] = count / known;
    known = count;
  }
  if (known != count || (open >= 0 && known == 0)) {
    fail(ErrorCode::bad_shape, "reshape", "shape {} ({} elements) can't become {}", have, count, wanted);
  }
  return shape;
}

// Strides that lay `wanted` over the memory of (shape, strides); false where there are none.
// From the last axis on: old axes that continue each other without a gap form one run, and the new axes must fill each
// run.
bool reshape_strides(const Dims& shape, const Dims& strides, const Dims& wanted, Dims& out) {
  int fresh = wanted.rank() - 1;
  std::int64_t run = 1;
  std::int64_t run_stride = strides[shape.rank() - 1];
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    run *= shape[axis];
    const bool continues = axis > 0 && (shape[axis - 1] == 1 || strides[axis - 1] == run * run_stride);
    if (continues) continue;
    std::int64_t filled = 1;
    for (; fresh >= 0 && (filled < run || wanted[fresh] == 1); --fresh) {
      out[fresh] = filled * run_stride;
      filled *= wanted[fresh];
    }
    if (filled != run) return false;
    run = 1;
    if (axis > 0) run_stride = strides[axis - 1];
  }
  return true;
}

}  // namespace

View View::reshape(const Dims& wanted) const {
  const Dims shape = complete_shape(shape_, wanted);
  if (is_contiguous()) return View(data_, dtype_, shape);
  Dims strides = shape;
  if (!reshape_strides(shape_, strides_, shape, strides)) {
    fail(ErrorCode::bad_shape, "reshape", "shape {} with strides {} can't become {} without a copy; clone() first",
         shape_, strides_, shape);
  }
  return View(data_, dtype_, shape, strides);
}

View View::broadcast_to(const Dims& wanted) const {
  View out(data_, dtype_, wanted);
  const int added = wanted.rank() - rank();
  bool fits = added >= 0;
  for (int i = 0; fits && i < wanted.rank(); ++i) {
    const int own = i - added;
    const bool repeats = own < 0 || (shape_[own] == 1 && wanted[i] != 1);
    fits = repeats || shape_[own] == wanted[i];
    out.strides_[i] = repeats ? 0 : strides_[own];
  }
  if (!fits) fail(ErrorCode::bad_shape, "broadcast_to", "shape {} does not broadcast to {}", shape_, wanted);
  return out;
}

Tensor View::clone() const {
  return to(dtype_);
}

Tensor View::to(DType dtype) const {
  Tensor out = Tensor::uninitialized(shape_, dtype);
  copy_elements(*this, dtype, out.raw());
  return out;
}

void MutableView::copy_from(const View& source) const {
  if (source.shape() != shape_) {
    fail(ErrorCode::bad_shape, "copy_from", "the source has shape {}, the target {}", source.shape(), shape_);
  }
  if (is_contiguous()) return copy_elements(source, dtype_, raw());
  auto* to = static_cast<std::byte*>(raw());
  const std::int64_t bytes = size_of(dtype_);
  // From row-major memory of that dtype.
  const auto copy = [&](const void* packed, DType dtype) {
    const auto* from = static_cast<const std::byte*>(packed);
    const std::int64_t step = size_of(dtype);
    for_each_run(shape_, strides_, [&](std::int64_t offset, std::int64_t stride, std::int64_t count) {
      std::byte* element = to + offset * bytes;
      if (dtype == dtype_ && (stride == 1 || count == 1)) {
        std::memcpy(element, from, static_cast<std::size_t>(count * bytes));
        from += count * bytes;
        return;
      }
      for (std::int64_t i = 0; i < count; ++i, element += stride * bytes, from += step) {
        if (dtype == dtype_)
          std::memcpy(element, from, static_cast<std::size_t>(bytes));
        else
          store_element(dtype_, element, load_element(dtype, from));
      }
    });
  };
  // Without memory for a copy in between where none is needed.
  if (source.is_contiguous() && is_floating(source.dtype()) && is_floating(dtype_))
    return copy(source.raw(), source.dtype());
  copy(source.to(dtype_).raw(), dtype_);
}

Tensor Tensor::uninitialized(const Dims& shape, DType dtype) {
  const std::int64_t count = element_count(shape);
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(count, size_of(dtype), &bytes) || bytes > INT64_MAX - alignment) {
    fail(ErrorCode::bad_shape, "Tensor", "shape {} of {} has more bytes than 64 bits can count", shape, dtype);
  }
  Tensor out;
  out.dtype_ = dtype;
  out.shape_ = shape;
  const std::int64_t rounded = divide_up(bytes, alignment) * alignment;
  if (rounded > 0) {
    // More than the address space holds, where that is of 32 bits, is no memory either.
    if (std::in_range<std::size_t>(rounded)) {
      const auto size = static_cast<std::size_t>(rounded);
      out.data_ = {take_memory(size), Free{size}};
    }
    if (!out.data_)
      fail(ErrorCode::out_of_memory, "Tensor", "no memory for shape {} of {} ({} bytes)", shape, dtype, bytes);
  }
  return out;
}

Tensor::Tensor(const Dims& shape, DType dtype) : Tensor(uninitialized(shape, dtype)) {
  if (data_) std::memset(data_.get(), 0, static_cast<std::size_t>(count() * size_of(dtype)));
}

Tensor Tensor::from(const Dims& shape, std::span<const float> values) {
  if (element_count(shape) != static_cast<std::int64_t>(values.size())) {
    fail(ErrorCode::bad_shape, "Tensor", "shape {} has {} elements, {} values came", shape, element_count(shape),
         values.size());
  }
  Tensor out = uninitialized(shape);
  if (!values.empty()) std::memcpy(out.raw(), values.data(), values.size_bytes());
  return out;
}

void Tensor::Free::operator()(void* memory) const {
  give_memory(memory, bytes);
}

}  // namespace attend::inline v1
