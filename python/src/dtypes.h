// Element types, as NumPy, the buffer protocol, DLPack and Python's users name them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <optional>

#include "attend/dtype.h"

namespace attend::python {

// "float32", ...: what NumPy and PyTorch call it.
const char* python_name(DType dtype);
// "float32", torch.float32, numpy.float32, numpy.dtype("float32"), ... Throws TypeError for one that is not f32, f64,
// bf16 or f16.
DType read_dtype(const char* function, nanobind::handle object,
                 std::initializer_list<DType> expected = {DType::f32, DType::f64, DType::bf16, DType::f16});

// Of a buffer's format; null: it has none. Nothing for a type that the library does not have.
std::optional<DType> dtype_of_format(const char* format);
std::optional<DType> dtype_of_dlpack(const nanobind::dlpack::dtype& dtype);
nanobind::dlpack::dtype to_dlpack(DType dtype);

}  // namespace attend::python
