// Operands in and out: elements of any dtype and layout, read into the forms that the products take, and written back.
#pragma once

#include "kernels/arithmetic.h"

namespace attend::inline v1::kernels {
namespace {

// ---- Elements ----

// What a row in memory is made of. Passed by value: behind a reference, each byte that a loop stores might change its
// fields, and they are loaded again for every element (6 tokens of bf16 took a sixth longer). The switches over DType
// below have no default: the compiler names those that a new element type leaves open.
struct Elements {
  DType dtype;
  std::int64_t stride;  // elements from one to the next
  std::int64_t count;
};

std::int64_t bytes_of(DType dtype) {
  switch (dtype) {
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      return 1;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::f32:
      return 4;
    case DType::f64:
    case DType::i64:
      return 8;
  }
  __builtin_trap();
}

float load_scalar(DType dtype, const char* from) {
  std::uint16_t half[lanes] = {};
  float single[lanes];
  double wide;
  switch (dtype) {
    case DType::f32:
      __builtin_memcpy(single, from, 4);
      return single[0];
    case DType::bf16:
      __builtin_memcpy(half, from, 2);
      Simd::store(single, Simd::load_bf16(half));
      return single[0];
    case DType::f16:
      __builtin_memcpy(half, from, 2);
      Simd::store(single, Simd::load_f16(half));
      return single[0];
    case DType::f64:
      // Finite stays finite: a bias of -1e300 is not one of -infinity.
      __builtin_memcpy(&wide, from, 8);
      if (wide - wide == 0) wide = max_of<double>(-FLT_MAX, min_of<double>(wide, FLT_MAX));
      return static_cast<float>(wide);
    case DType::i64:
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      break;  // attention() takes none of them for numbers
  }
  __builtin_trap();
}

void store_scalar(DType dtype, char* to, float x) {
  std::uint16_t half[lanes];
  switch (dtype) {
    case DType::f32:
      __builtin_memcpy(to, &x, 4);
      return;
    case DType::bf16:
      Simd::store_bf16(half, Simd::set1(x));
      __builtin_memcpy(to, half, 2);
      return;
    case DType::f16:
      Simd::store_f16(half, Simd::set1(x));
      __builtin_memcpy(to, half, 2);
      return;
    case DType::f64:
    case DType::i64:
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      break;  // nothing is written in them
  }
  __builtin_trap();
}

// ---- Rows ----

const char* at(const void* data, DType dtype, std::int64_t element) {
  return static_cast<const char*>(data) + element * bytes_of(dtype);
}
char* at(void* data, DType dtype, std::int64_t element) {
  return static_cast<char*>(data) + element * bytes_of(dtype);
}

// Where one row of one head begins.
const char* operand_at(const Operand& x, std::int64_t head, std::int64_t row) {
  return at(x.data, x.dtype, head * x.head + row * x.row);
}
char* operand_at(const MutableOperand& x, std::int64_t head, std::int64_t row) {
  return at(x.data, x.dtype, head * x.head + row * x.row);
}

// Where a key's row begins. The rows of one tile of keys are in one piece.
const char* rows_at(const Rows& rows, std::int64_t key) {
  if (!rows.blocks) return at(rows.data, rows.dtype, key * rows.row);
  return at(rows.blocks[key / rows.block_rows], rows.dtype, rows.offset + key % rows.block_rows * rows.row);
}
char* rows_at(const MutableRows& rows, std::int64_t key) {
  return at(rows.data, rows.dtype, key * rows.row);
}

// ---- The logarithm of a row's sum ----

// In two floats.
struct Lse {
  float high, low;
};

// Of a sum l 2^m, log_l the natural logarithm of l; `low` where it is wanted. Where m is so large that nothing of log_l
// is left in `high`, `low` has it if the binary logarithm is wanted: `high` is m then.
inline Lse lse_of(const Results& to, double m, double log_l) {
  const double whole = to.log2 ? m : m * ln_2, rest = to.log2 ? log_l * log2_e : log_l, sum = whole + rest;
  // In log2 units a sink may be beyond f32: `low` has the rest.
  const double within = sum > FLT_MAX ? FLT_MAX : sum < -FLT_MAX ? -FLT_MAX : sum;
  const auto high = static_cast<float>(to.log2 ? within : sum);
  return {high, to.lse_low.data ? static_cast<float>((whole - static_cast<double>(high)) + rest) : 0};
}

// Where they are wanted. A sum that is 0, infinite or NaN has no other logarithm.
void store_lse(const Results& to, std::int64_t head, std::int64_t row, Lse lse, double l) {
  if (l == 0 || l - l != 0) lse = {l == 0 ? -infinity : static_cast<float>(l), 0};
  store_scalar(DType::f32, operand_at(to.lse, head, row), lse.high);
  if (to.lse_low.data) store_scalar(DType::f32, operand_at(to.lse_low, head, row), lse.low);
}

// body(i) for i = 0, lanes, 2 * lanes, ..., and once more for the last `lanes` elements where they don't fit: some are
// then done twice. count >= lanes.
template <class Body>
inline __attribute__((always_inline)) void for_each_vector(std::int64_t count, Body body) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i);
  if (i < count) body(count - lanes);
}

// A row as f32, times `factor`.
void load_row(float* to, const char* from, Elements of, float factor = 1) {
  if (of.stride == 1 && of.count >= lanes) {
    const F f = Simd::set1(factor);
    const auto* half = reinterpret_cast<const std::uint16_t*>(from);
    const auto* single = reinterpret_cast<const float*>(from);
    switch (of.dtype) {
      case DType::f32:
        return for_each_vector(of.count,
                               [=](std::int64_t i) { Simd::store(to + i, Simd::mul(Simd::load(single + i), f)); });
      case DType::bf16:
        return for_each_vector(of.count,
                               [=](std::int64_t i) { Simd::store(to + i, Simd::mul(Simd::load_bf16(half + i), f)); });
      case DType::f16:
        return for_each_vector(of.count,
                               [=](std::int64_t i) { Simd::store(to + i, Simd::mul(Simd::load_f16(half + i), f)); });
      case DType::f64:
      case DType::i64:
      case DType::i8:
      case DType::u8:
      case DType::boolean:
        break;  // one at a time
    }
  }
  const std::int64_t step = of.stride * bytes_of(of.dtype);
  for (std::int64_t i = 0; i < of.count; ++i) to[i] = load_scalar(of.dtype, from + i * step) * factor;
}

// Rows that lie `row` bytes apart as f32, one after another. Of 16 bits in a loop of their own: where each was a call,
// that took half of the time.
void load_rows(float* to, const char* from, std::int64_t row, std::int64_t rows, Elements of) {
  const bool direct = of.stride == 1 && of.count % lanes == 0;
  const auto widen = [=](auto load) {
    for (std::int64_t j = 0; j < rows; ++j) {
      const auto* half = reinterpret_cast<const std::uint16_t*>(from + j * row);
      float* here = to + j * of.count;
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < of.count; i += lanes) Simd::store(here + i, load(half + i));
    }
  };
  if (direct && of.dtype == DType::bf16) return widen([](const std::uint16_t* p) { return Simd::load_bf16(p); });
  if (direct && of.dtype == DType::f16) return widen([](const std::uint16_t* p) { return Simd::load_f16(p); });
  for (std::int64_t j = 0; j < rows; ++j) load_row(to + j * of.count, from + j * row, of);
}

// A row of f32, rounded to the dtype of `as`.
void store_row(const float* from, char* to, Elements as) {
  if (as.stride == 1 && as.count >= lanes) {
    auto* half = reinterpret_cast<std::uint16_t*>(to);
    auto* single = reinterpret_cast<float*>(to);
    switch (as.dtype) {
      case DType::f32:
        return for_each_vector(as.count, [=](std::int64_t i) { Simd::store(single + i, Simd::load(from + i)); });
      case DType::bf16:
        return for_each_vector(as.count, [=](std::int64_t i) { Simd::store_bf16(half + i, Simd::load(from + i)); });
      case DType::f16:
        return for_each_vector(as.count, [=](std::int64_t i) { Simd::store_f16(half + i, Simd::load(from + i)); });
      case DType::f64:
      case DType::i64:
      case DType::i8:
      case DType::u8:
      case DType::boolean:
        break;
    }
  }
  const std::int64_t step = as.stride * bytes_of(as.dtype);
  for (std::int64_t i = 0; i < as.count; ++i) store_scalar(as.dtype, to + i * step, from[i]);
}

// ---- The forms that the products take ----

// Elements of 16 bits as they are, and zeros up to `padded`.
void copy_halves(std::uint16_t* to, const char* from, Elements of, std::int64_t padded) {
  if (of.stride == 1 && of.count >= 2 * lanes) {
    std::int64_t i = 0;
    for (; i + 2 * lanes <= of.count; i += 2 * lanes) __builtin_memcpy(to + i, from + i * 2, 4 * lanes);
    __builtin_memcpy(to + of.count - 2 * lanes, from + (of.count - 2 * lanes) * 2, 4 * lanes);
  } else if (of.stride == 1 && of.count >= 8) {
    for (std::int64_t i = 0; i + 8 <= of.count; i += 8) __builtin_memcpy(to + i, from + i * 2, 16);
    __builtin_memcpy(to + of.count - 8, from + (of.count - 8) * 2, 16);
  } else {
    for (std::int64_t i = 0; i < of.count; ++i) __builtin_memcpy(to + i, from + i * of.stride * 2, 2);
  }
  for (std::int64_t i = of.count; i < padded; ++i) to[i] = 0;
}

// A row whose elements are multiplied one by one, or pair by pair: `steps` of them, zeros beyond the last.
template <class Dot>
void load_operand(float* to, const char* from, Elements of, std::int64_t steps, float factor = 1) {
  if constexpr (Dot::pair == 1) {
    load_row(to, from, of, factor);
    for (std::int64_t d = of.count; d < steps; ++d) to[d] = 0;
  } else {
    copy_halves(reinterpret_cast<std::uint16_t*>(to), from, of, 2 * steps);
  }
}

// The same of `rows` rows, `row` bytes apart in memory and `steps` floats in `to`. One call for all of them, and whole
// vectors, where the rows lie so: few short rows took most of their time in calls, and what reads a vector that was
// written in two parts waits for both.
template <class Dot>
void load_operands(float* to, const char* from, std::int64_t row, std::int64_t rows, Elements of, std::int64_t steps,
                   float factor = 1) {
  if (Dot::pair == 2 || of.dtype != DType::f32 || of.stride != 1 || steps % lanes != 0) {
    for (std::int64_t i = 0; i < rows; ++i) load_operand<Dot>(to + i * steps, from + i * row, of, steps, factor);
    return;
  }
  const F f = Simd::set1(factor);
  const std::int64_t whole = of.count / lanes * lanes, rest = of.count - whole;
  for (std::int64_t i = 0; i < rows; ++i, to += steps, from += row) {
    const auto* single = reinterpret_cast<const float*>(from);
    for (std::int64_t d = 0; d < whole; d += lanes) Simd::store(to + d, Simd::mul(Simd::load(single + d), f));
    if (rest > 0) Simd::store(to + whole, Simd::mul(Simd::load_first(single + whole, rest), f));
    for (std::int64_t d = round_up(of.count, lanes); d < steps; d += lanes) Simd::store(to + d, Simd::zero());
  }
}

// Four rows of `count` floats, `stride` apart, into four columns of a panel [count][width]. Up to three floats beyond
// the last are taken along.
void transpose_rows(const float* rows, std::int64_t stride, std::int64_t count, float* to) {
  for (std::int64_t d = 0; d < count; d += 4, rows += 4) {
    transpose4(rows, rows + stride, rows + 2 * stride, rows + 3 * stride, to + d * width, width);
  }
}

// ---- What is not finite ----

// A key that a row does not attend to has weight 0, and 0 * NaN is NaN. So where something may be hidden, what is not
// finite is 0 in the form that the products read, and is given afterwards to the rows that do attend to it.

// Looks through rows of f32: sums of x - x, which are 0, or NaN.
struct FiniteCheck {
  F sums = Simd::zero();
  float rest = 0;

  void add(const float* x, std::int64_t count) {
    std::int64_t d = 0;
    for (; d + lanes <= count; d += lanes) {
      const F part = Simd::load(x + d);
      sums = Simd::add(sums, Simd::sub(part, part));
    }
    for (; d < count; ++d) rest += x[d] - x[d];
  }
  bool passed() const { return rest == 0 && sum_of_lanes(sums) == 0; }
};

// Whether all of `rows` rows, `row` floats apart, are finite.
bool are_finite(const float* x, std::int64_t row, std::int64_t rows, std::int64_t count) {
  FiniteCheck check;
  for (std::int64_t j = 0; j < rows; ++j) check.add(x + j * row, count);
  return check.passed();
}

// The same of rows that begin at row_at(0), row_at(1), ...; `buffer` holds one as f32, where it does not lie so.
template <class RowAt>
bool are_finite(RowAt row_at, std::int64_t rows, Elements of, float* buffer) {
  FiniteCheck check;
  const bool direct = of.dtype == DType::f32 && of.stride == 1 && of.count % lanes == 0;
  for (std::int64_t j = 0; j < rows; ++j) {
    if (!direct) load_row(buffer, row_at(j), of);
    check.add(direct ? reinterpret_cast<const float*>(row_at(j)) : buffer, of.count);
  }
  return check.passed();
}

// body(row, column, value) for each one that is not.
template <class RowAt, class Body>
void for_each_not_finite(RowAt row_at, std::int64_t rows, Elements of, Body body) {
  const std::int64_t step = of.stride * bytes_of(of.dtype);
  for (std::int64_t j = 0; j < rows; ++j) {
    const char* from = row_at(j);
    for (std::int64_t d = 0; d < of.count; ++d) {
      const float value = load_scalar(of.dtype, from + d * step);
      if (value - value != 0) body(j, d, value);
    }
  }
}

// One of 16 bits; 0 for what is not finite, where that is wanted.
std::uint32_t load_half(const char* from, bool finite_only = false) {
  std::uint16_t half;
  __builtin_memcpy(&half, from, 2);
  return finite_only && (half & 0x7F80) == 0x7F80 ? 0 : half;
}

// Whether all of a row of bf16 is finite: for targets with the bf16 dot alone.
[[maybe_unused]] bool halves_are_finite(const char* from, Elements of) {
  const std::int64_t count = of.count, step = of.stride * 2;
  std::uint32_t infinite = 0;
  if (step == 2) {
    for (std::int64_t d = 0; d < count; ++d) infinite |= (load_half(from + d * 2) & 0x7F80) == 0x7F80;
  } else {
    for (std::int64_t d = 0; d < count; ++d) infinite |= (load_half(from + d * step) & 0x7F80) == 0x7F80;
  }
  return infinite == 0;
}

// Two rows of bf16 as one row of pairs; no second row: zeros. finite_only puts 0 for what is not finite.
template <class Dot>
void interleave(std::uint32_t* to, const char* low, const char* high, Elements of, bool finite_only) {
  const std::int64_t count = of.count, step = of.stride * 2;
  if (step == 2 && high && !finite_only) {
    std::int64_t d = 0;
    for (; d + 2 * lanes <= count; d += 2 * lanes) Dot::interleave(to + d, low + d * 2, high + d * 2);
    for (; d < count; ++d) to[d] = load_half(low + d * 2) | load_half(high + d * 2) << 16;
    return;
  }
  for (std::int64_t d = 0; d < count; ++d) {
    const std::uint32_t second = high ? load_half(high + d * step, finite_only) : 0;
    to[d] = load_half(low + d * step, finite_only) | second << 16;
  }
}

// Rows as sums over rows take them: [rows or pairs of rows][columns], with zeros beyond the last column, and up to
// `padded` rows. `careful` puts 0 for what is not finite. Whether all was finite; true where that is not asked for.
template <class Dot, class RowAt>
bool pack_rows(float* to, RowAt row_at, std::int64_t rows, Elements of, std::int64_t columns, std::int64_t padded,
               bool careful) {
  bool finite = true;
  for (std::int64_t j = 0; j < padded; j += Dot::pair, to += columns) {
    for (std::int64_t d = j < rows ? of.count : 0; d < columns; ++d) to[d] = 0;
    if (j >= rows) continue;
    if constexpr (Dot::pair == 1) {
      load_row(to, row_at(j), of);
      if (!careful || are_finite(to, 0, 1, of.count)) continue;
      finite = false;
      for (std::int64_t d = 0; d < of.count; ++d) to[d] = to[d] - to[d] == 0 ? to[d] : 0;
    } else {
      const char *first = row_at(j), *second = j + 1 < rows ? row_at(j + 1) : nullptr;
      const bool whole = !careful || (halves_are_finite(first, of) && (!second || halves_are_finite(second, of)));
      interleave<Dot>(reinterpret_cast<std::uint32_t*>(to), first, second, of, !whole);
      finite &= whole;
    }
  }
  return finite;
}

}  // namespace
}  // namespace attend::inline v1::kernels
