#include "dtypes.h"

#include <string>
#include <string_view>

#include "text.h"

namespace attend::python {

namespace nb = nanobind;

const char* python_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::f64:
      return "float64";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    case DType::i64:
      return "int64";
    case DType::i8:
      return "int8";
    case DType::u8:
      return "uint8";
    case DType::boolean:
      return "bool";
  }
  return "";
}

DType read_dtype(const char* function, nb::handle object, std::initializer_list<DType> expected) {
  // "torch.float32", numpy.dtype's "float32", the class numpy.float32
  std::string name = text_of(nb::getattr(object, "__name__", object));
  name = name.substr(name.rfind('.') + 1);
  std::string names;
  for (const DType& dtype : expected) {
    if (name == python_name(dtype)) return dtype;
    names += names.empty() ? "" : &dtype + 1 == expected.end() ? " or " : ", ";
    names += python_name(dtype);
  }
  throw nb::type_error((std::string(function) + ": dtype: expected " + names + ", got " + name).c_str());
}

std::optional<DType> dtype_of_format(const char* format) {
  if (!format) return DType::u8;  // PEP 3118: no format means bytes
  std::string_view code(format);
  if (code.size() == 2 && (code[0] == '@' || code[0] == '=' || code[0] == '<')) code.remove_prefix(1);
  if (code.size() != 1) return std::nullopt;
  switch (code[0]) {
    case 'f':
      return DType::f32;
    case 'd':
      return DType::f64;
    case 'e':
      return DType::f16;
    case 'l':
    case 'q':
      return DType::i64;
    case 'b':
      return DType::i8;
    case 'B':
      return DType::u8;
    case '?':
      return DType::boolean;
    default:
      return std::nullopt;
  }
}

std::optional<DType> dtype_of_dlpack(const nb::dlpack::dtype& dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto is = [&](Code code, int bits) {
    return dtype.code == static_cast<std::uint8_t>(code) && dtype.bits == bits && dtype.lanes == 1;
  };
  if (is(Code::Float, 32)) return DType::f32;
  if (is(Code::Float, 64)) return DType::f64;
  if (is(Code::Float, 16)) return DType::f16;
  if (is(Code::Bfloat, 16)) return DType::bf16;
  if (is(Code::Int, 64)) return DType::i64;
  if (is(Code::Int, 8)) return DType::i8;
  if (is(Code::UInt, 8)) return DType::u8;
  if (is(Code::Bool, 8)) return DType::boolean;
  return std::nullopt;
}

nb::dlpack::dtype to_dlpack(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto of = [&](Code code) {
    return nb::dlpack::dtype{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * size_of(dtype)), 1};
  };
  switch (dtype) {
    case DType::f32:
    case DType::f64:
    case DType::f16:
      return of(Code::Float);
    case DType::bf16:
      return of(Code::Bfloat);
    case DType::i64:
    case DType::i8:
      return of(Code::Int);
    case DType::u8:
      return of(Code::UInt);
    case DType::boolean:
      return of(Code::Bool);
  }
  return {};
}

}  // namespace attend::python
