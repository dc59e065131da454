// Tensors: owned memory (Tensor) and borrowed memory with any strides (View, MutableView). attend/io.h prints them.
//
//     attend::Tensor x({2, 3});                // zeros, f32
//     x.view().row<float>({1})[2] = 5;
//     const double five = x.item({1, 2});
//
// Dimension letters in the whole library: B batch, H query heads, Hkv key/value heads, Tq queries, Tk keys, D head
// size, Dv value head size, E embedding size.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "attend/api.h"
#include "attend/dtype.h"

// Lets Clang warn (-Wdangling) about `View view = make_tensor();`, whose memory is gone at the end of the line.
#if __has_cpp_attribute(clang::lifetimebound)
#define ATTEND_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define ATTEND_LIFETIMEBOUND
#endif

namespace attend::inline v1 {

// "f32", "f64", "bf16", "f16", "i64", "i8", "u8", "bool"
ATTEND_API std::string_view name_of(DType dtype);

// 16-bit floating point, as bits. Widening is exact, narrowing rounds to nearest even.
struct ATTEND_API BF16 {
  std::uint16_t bits = 0;
  BF16() = default;
  explicit BF16(float value);
  explicit operator float() const;
};
struct ATTEND_API F16 {
  std::uint16_t bits = 0;
  F16() = default;
  explicit F16(float value);
  explicit operator float() const;
};

template <class T>
inline constexpr bool is_element = false;
template <class T>
inline constexpr DType dtype_of = DType::f32;
#define ATTEND_ELEMENT(T, D)                  \
  template <>                                 \
  inline constexpr bool is_element<T> = true; \
  template <>                                 \
  inline constexpr DType dtype_of<T> = DType::D;
ATTEND_ELEMENT(float, f32)
ATTEND_ELEMENT(double, f64)
ATTEND_ELEMENT(BF16, bf16)
ATTEND_ELEMENT(F16, f16)
ATTEND_ELEMENT(std::int64_t, i64)
ATTEND_ELEMENT(std::int8_t, i8)
ATTEND_ELEMENT(std::uint8_t, u8)
ATTEND_ELEMENT(bool, boolean)
#undef ATTEND_ELEMENT

// A short list of sizes or strides, stored inline without allocation.
class ATTEND_API Dims {
 public:
  static constexpr int max_rank = 8;

  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  // Throws bad_shape for more than max_rank values.
  explicit Dims(std::span<const std::int64_t> values);

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return values_.data() + rank_; }
  void push_back(std::int64_t value);
  friend bool operator==(const Dims& a, const Dims& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

  // "[2,8,5,80]"
  std::string str() const;

 private:
  std::array<std::int64_t, max_rank> values_{};
  int rank_ = 0;
};

// The number of elements. Throws bad_shape for a negative size or a product beyond 2^63 - 1.
ATTEND_API std::int64_t element_count(const Dims& shape);

class Tensor;

// Part of an axis: begin <= n < end.
struct ATTEND_API Range {
  std::int64_t begin = 0, end = 0;
};

// Read-only elements that someone else owns. Strides count elements and may be 0 (broadcast) or negative. Pass a View
// by value or const reference; it must not outlive its memory. Negative axes count from the last, -1.
class ATTEND_API View {
 public:
  View() = default;
  // Row-major (C order) memory.
  View(const void* data, DType dtype, const Dims& shape);
  // Throws bad_shape if shape and strides differ in rank.
  View(const void* data, DType dtype, const Dims& shape, const Dims& strides);

  DType dtype() const { return dtype_; }
  const Dims& shape() const { return shape_; }
  const Dims& strides() const { return strides_; }
  int rank() const { return shape_.rank(); }
  // The size along one axis.
  std::int64_t size(int axis) const;
  // The number of elements.
  std::int64_t count() const { return element_count(shape_); }
  const void* raw() const { return data_; }
  // Throws bad_dtype unless T is the element type.
  template <class T>
  const T* data() const {
    static_assert(is_element<T>);
    require(dtype_of<T>);
    return static_cast<const T*>(data_);
  }
  // One element as double. Throws bad_shape for a wrong number of indices or one out of range.
  double item(std::initializer_list<std::int64_t> index = {}) const;
  // The elements along the last axis, in place: for [B,H,Tq,Dv], row<float>({0, 2, 5}) has Dv numbers. Throws bad_dtype
  // unless T is the element type; bad_shape for a wrong number of indices, one out of range, or elements that are not
  // adjacent (as in a transposed view: clone() it).
  template <class T>
  std::span<const T> row(std::initializer_list<std::int64_t> index = {}) const {
    static_assert(is_element<T>);
    return {static_cast<const T*>(row_at(dtype_of<T>, {index.begin(), index.size()})),
            static_cast<std::size_t>(size(-1))};
  }
  bool is_contiguous() const;

  // Views of the same memory.
  View transpose(int axis_a, int axis_b) const;
  View permute(std::initializer_list<int> axes) const;
  // Elements start, start + step, ... below stop along one axis; step >= 1.
  View slice(int axis, std::int64_t start, std::int64_t stop, std::int64_t step = 1) const;
  // One index along one axis, which disappears.
  View select(int axis, std::int64_t index) const;
  // Another shape over the same memory; one size may be -1. Throws bad_shape if that would need a copy.
  View reshape(const Dims& shape) const;
  // Repeats axes of size 1 and adds leading ones, as NumPy.
  View broadcast_to(const Dims& shape) const;

  // A row-major, owned copy, in the same or another dtype.
  Tensor clone() const;
  // To integers, fractions are cut off, NaN becomes 0, and numbers out of range become the nearest end of it.
  Tensor to(DType dtype) const;

 protected:
  void require(DType wanted) const;
  const void* row_at(DType wanted, std::span<const std::int64_t> index) const;

  const void* data_ = nullptr;
  DType dtype_ = DType::f32;
  Dims shape_{0};
  Dims strides_{1};
};

// A View with writable elements.
class ATTEND_API MutableView : public View {
 public:
  MutableView() = default;
  MutableView(void* data, DType dtype, const Dims& shape) : View(data, dtype, shape) {}
  MutableView(void* data, DType dtype, const Dims& shape, const Dims& strides) : View(data, dtype, shape, strides) {}

  void* raw() const { return const_cast<void*>(data_); }
  template <class T>
  T* data() const {
    return const_cast<T*>(View::data<T>());
  }
  template <class T>
  std::span<T> row(std::initializer_list<std::int64_t> index = {}) const {
    const std::span<const T> row = View::row<T>(index);
    return {const_cast<T*>(row.data()), row.size()};
  }
  MutableView transpose(int axis_a, int axis_b) const { return MutableView(View::transpose(axis_a, axis_b)); }
  MutableView permute(std::initializer_list<int> axes) const { return MutableView(View::permute(axes)); }
  MutableView slice(int axis, std::int64_t start, std::int64_t stop, std::int64_t step = 1) const {
    return MutableView(View::slice(axis, start, stop, step));
  }
  MutableView select(int axis, std::int64_t index) const { return MutableView(View::select(axis, index)); }
  MutableView reshape(const Dims& shape) const { return MutableView(View::reshape(shape)); }

  // Writes every element, converting the dtype. Throws bad_shape unless the shapes are equal. The two must not overlap.
  void copy_from(const View& source) const;

 private:
  explicit MutableView(const View& view) : View(view) {}
};

// Owned elements, row-major and 64-byte aligned. Moving is free; clone() copies.
class ATTEND_API Tensor {
 public:
  // Shape [0], f32.
  Tensor() = default;
  // The source becomes Tensor(), since its elements are gone.
  Tensor(Tensor&& other) noexcept
      : data_(std::move(other.data_)),
        dtype_(std::exchange(other.dtype_, DType::f32)),
        shape_(std::exchange(other.shape_, Dims{0})) {}
  Tensor& operator=(Tensor&& other) noexcept {
    Tensor taken(std::move(other));
    std::swap(data_, taken.data_);
    std::swap(dtype_, taken.dtype_);
    std::swap(shape_, taken.shape_);
    return *this;
  }
  // All zero. Throws out_of_memory, or bad_shape for a negative or overflowing size.
  explicit Tensor(const Dims& shape, DType dtype = DType::f32);
  // Not initialised: write it before reading.
  static Tensor uninitialized(const Dims& shape, DType dtype = DType::f32);
  // An f32 copy of row-major values. Throws bad_shape unless there are as many as the shape holds.
  static Tensor from(const Dims& shape, std::span<const float> values);
  static Tensor from(const Dims& shape, std::initializer_list<float> values) {
    return from(shape, std::span(values.begin(), values.size()));
  }

  DType dtype() const { return dtype_; }
  const Dims& shape() const ATTEND_LIFETIMEBOUND { return shape_; }
  int rank() const { return shape_.rank(); }
  std::int64_t size(int axis) const { return view().size(axis); }
  std::int64_t count() const { return element_count(shape_); }
  double item(std::initializer_list<std::int64_t> index = {}) const { return view().item(index); }
  const void* raw() const ATTEND_LIFETIMEBOUND { return data_.get(); }
  void* raw() ATTEND_LIFETIMEBOUND { return data_.get(); }
  template <class T>
  const T* data() const ATTEND_LIFETIMEBOUND {
    return view().data<T>();
  }
  template <class T>
  T* data() ATTEND_LIFETIMEBOUND {
    return view().data<T>();
  }
  template <class T>
  std::span<const T> row(std::initializer_list<std::int64_t> index = {}) const ATTEND_LIFETIMEBOUND {
    return view().row<T>(index);
  }
  template <class T>
  std::span<T> row(std::initializer_list<std::int64_t> index = {}) ATTEND_LIFETIMEBOUND {
    return view().row<T>(index);
  }

  View view() const ATTEND_LIFETIMEBOUND { return View(data_.get(), dtype_, shape_); }
  MutableView view() ATTEND_LIFETIMEBOUND { return MutableView(data_.get(), dtype_, shape_); }
  operator View() const ATTEND_LIFETIMEBOUND { return view(); }  // to write, use view()
  Tensor clone() const { return view().clone(); }

 private:
  struct Free {
    std::size_t bytes;
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> data_;
  DType dtype_ = DType::f32;
  Dims shape_{0};
};

// A View that is a struct's field and so is read after the line that sets it. It refuses a temporary Tensor:
// `map.values = make_map();` does not compile, but `const Tensor values = make_map(); map.values = values;` does. If
// struct and Tensor last for one call, say view(): `svg_heat_map({.values = make().view()})`.
class ATTEND_API FieldView : public View {
 public:
  FieldView() = default;
  FieldView(const View& view) : View(view) {}
  FieldView(const Tensor& tensor) : View(tensor.view()) {}
  FieldView(Tensor&&) = delete;  // a temporary: give it a name first
  FieldView(const Tensor&&) = delete;
};

// A FieldView that may be empty: `options.mask = make_mask();` does not compile.
class ATTEND_API OptionalView : public std::optional<View> {
 public:
  using std::optional<View>::optional;
  OptionalView() = default;
  OptionalView(const std::optional<View>& view) : std::optional<View>(view) {}
  OptionalView(Tensor&&) = delete;  // a temporary: give it a name first
  OptionalView(const Tensor&&) = delete;
  OptionalView(std::optional<Tensor>&&) = delete;
  OptionalView(const std::optional<Tensor>&&) = delete;
};

}  // namespace attend::inline v1
