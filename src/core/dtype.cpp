#include "attend/dtype.h"

#include <cmath>
#include <limits>

#include "core/bit_cast.h"
#include "core/element.h"
#include "core/half.h"

namespace attend::inline v1 {

namespace {

struct DTypeFacts {
  std::int64_t size;
  std::string_view name;
};

const DTypeFacts& facts(DType dtype) {
  static constexpr DTypeFacts table[] = {{4, "f32"}, {8, "f64"}, {2, "bf16"}, {2, "f16"},
                                         {8, "i64"}, {1, "i8"},  {1, "u8"},   {1, "bool"}};
  return table[static_cast<std::size_t>(dtype)];
}

// A conversion that would leave the type's range is undefined in C++.
template <class Integer>
Integer whole(double value) {
  constexpr Integer low = std::numeric_limits<Integer>::min();
  constexpr Integer high = std::numeric_limits<Integer>::max();
  if (std::isnan(value)) return 0;
  if (value <= static_cast<double>(low)) return low;
  return value >= static_cast<double>(high) ? high : static_cast<Integer>(value);
}

// body(a value of the C++ type that has the dtype's bits), chosen once.
template <class Body>
auto with_type(DType dtype, Body body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::f64:
      return body(double{});
    case DType::bf16:
      return body(BF16{});
    case DType::f16:
      return body(F16{});
    case DType::i64:
      return body(std::int64_t{});
    case DType::i8:
      return body(std::int8_t{});
    case DType::u8:
      return body(std::uint8_t{});
    case DType::boolean:
      break;
  }
  return body(bool{});
}

template <class T>
double load_as(const std::byte* from) {
  if constexpr (std::is_same_v<T, bool>) {
    return load<std::uint8_t>(from) != 0;
  } else if constexpr (std::is_same_v<T, BF16> || std::is_same_v<T, F16>) {
    return static_cast<float>(load<T>(from));
  } else {
    return static_cast<double>(load<T>(from));
  }
}

template <class T>
void store_as(std::byte* to, double value) {
  if constexpr (std::is_same_v<T, bool>) {
    store(to, static_cast<std::uint8_t>(value != 0));
  } else if constexpr (std::is_integral_v<T>) {
    store(to, whole<T>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    store(to, static_cast<T>(value));
  } else {
    store(to, T(static_cast<float>(value)));
  }
}

}  // namespace

std::int64_t size_of(DType dtype) {
  return facts(dtype).size;
}
std::string_view name_of(DType dtype) {
  return facts(dtype).name;
}
bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16 || dtype == DType::f16;
}
DType statistics_dtype(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

BF16::BF16(float value) : bits(bfloat_of_float(value)) {}
BF16::operator float() const {
  return bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

F16::F16(float value) : bits(half_of_float(value)) {}
F16::operator float() const {
  return float_of_half(bits);
}

void load_elements(DType dtype, const void* from, std::int64_t step, std::int64_t count, double* to) {
  with_type(dtype, [&]<class T>(T) {
    constexpr auto size = static_cast<std::int64_t>(sizeof(T));
    const auto* place = static_cast<const std::byte*>(from);
    if (step == 1) {  // a loop of its own, which the compiler turns into vectors
      for (std::int64_t i = 0; i < count; ++i) to[i] = load_as<T>(place + i * size);
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[i] = load_as<T>(place + i * step * size);
    }
  });
}

void store_elements(DType dtype, void* to, std::int64_t step, std::int64_t count, const double* values) {
  with_type(dtype, [&]<class T>(T) {
    constexpr auto size = static_cast<std::int64_t>(sizeof(T));
    auto* place = static_cast<std::byte*>(to);
    if (step == 1) {
      for (std::int64_t i = 0; i < count; ++i) store_as<T>(place + i * size, values[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) store_as<T>(place + i * step * size, values[i]);
    }
  });
}

double load_element(DType dtype, const void* from) {
  return with_type(dtype, [&]<class T>(T) { return load_as<T>(static_cast<const std::byte*>(from)); });
}

void store_element(DType dtype, void* to, double value) {
  with_type(dtype, [&]<class T>(T) { store_as<T>(static_cast<std::byte*>(to), value); });
}

}  // namespace attend::inline v1
