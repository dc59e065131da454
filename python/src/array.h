// Arrays of Python, as views for a call and as results: NumPy, PyTorch, anything with DLPack or the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attend/tensor.h"
#include "dtypes.h"

namespace attend::python {

namespace nb = nanobind;

struct ExchangeApi;  // DLPack's C functions of a library of arrays

// Whose arrays they are, so that results can be of the same kind.
struct Kind {
  enum class Library : std::uint8_t { numpy, exchange, dlpack };

  Library library = Library::numpy;
  const ExchangeApi* api = nullptr;  // exchange
  nb::object array_namespace = {};   // dlpack: whose from_dlpack makes the result
  nb::object bfloat16 = {};          // numpy: the dtype that ml_dtypes gave it
};

// What PyObject_GetBuffer gives, given back at the end.
struct Buffer : Py_buffer {
  Buffer() : Py_buffer{} {}
  ~Buffer() {
    if (obj) PyBuffer_Release(this);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
};

// An argument, read in place. Holds what keeps the memory alive.
class Array {
 public:
  // Throws TypeError, naming the function and argument, for what is not an array on the CPU, or whose dtype no argument
  // of the library has; ValueError for a PyTorch tensor with requires_grad while PyTorch records.
  Array(const char* function, const char* name, nb::handle object);

  const View& view() const { return view_; }
  // The same, to write to. PyTorch then counts a change of its tensor, so that a graph that saved it as it was says so
  // instead of computing with something else. Throws ValueError where the memory may only be read.
  MutableView writable() const;
  const Kind& kind() const { return kind_; }

 private:
  bool read_exchange();
  void check_tensor() const;
  bool read_buffer();
  bool read_bfloat16();
  bool read_dlpack();
  void check_rank(std::int64_t rank) const;
  void look_at_buffer(DType dtype);
  void look_at_dltensor(const nb::dlpack::dltensor& tensor);
  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void refuse_device(const nb::object& device) const;
  [[noreturn]] void refuse_dtype(const std::string& dtype) const;

  const char* function_;
  const char* name_;
  nb::handle object_;
  View view_;
  Kind kind_;
  bool read_only_ = false, records_ = false;
  Buffer buffer_;
  nb::ndarray<nb::ro> dlpack_;
};

// One that may be None.
class OptionalArray {
 public:
  OptionalArray(const char* function, const char* name, nb::handle object) {
    if (!object.is_none()) array_.emplace(function, name, object);
  }
  std::optional<View> view() const { return array_ ? std::optional(array_->view()) : std::nullopt; }

 private:
  std::optional<Array> array_;
};

// Memory for a result, and the Python object that it will be.
class Result {
 public:
  Result(const Kind& kind, const Dims& shape, DType dtype);
  const MutableView& view() const { return view_; }
  nb::object take() { return std::move(object_); }

 private:
  MutableView view_;
  nb::object object_;
};

// A copy, as an array of that kind.
nb::object to_python(const Kind& kind, const View& view);

// Whole numbers as i64: an array of integers, or a sequence of them. Throws TypeError, which says what was expected.
Tensor read_integers(const char* function, const char* name, nb::handle object,
                     const char* expected = "whole numbers, a list or an array [N]");

// The same one by one: an array or a sequence, as a list of what it holds. Throws TypeError.
nb::list read_list(const char* function, const char* name, const char* expected, nb::handle object);
// Two whole numbers; (begin, end), or None. Throw TypeError.
std::pair<std::int64_t, std::int64_t> read_two(const char* function, const char* name, const char* expected,
                                               nb::handle object);
std::optional<Range> read_range(const char* function, const char* name, nb::handle object);

// A tuple or list of sizes, or an array, whose shape is meant.
Dims read_shape(const char* function, const char* name, nb::handle object);
nb::tuple to_tuple(const Dims& dims);

}  // namespace attend::python
