// Tensors of any layout whose memory ends where their last element does, and the options of attention().
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <list>
#include <vector>

#include "tests/fuzz/input.h"

namespace attend::fuzz {

// A tensor in memory of its own.
struct Operand {
  std::vector<std::byte> memory;
  MutableView view;
};

// Now and then, one axis longer than it should be.
inline Dims spoiled(Input& input, Dims shape) {
  if (input.one_in(32) && shape.rank() > 0) ++shape[input.byte() % shape.rank()];
  return shape;
}

// Packed, or with axes in another order, steps over elements, backwards or repeated.
inline Dims make_strides(Input& input, const Dims& shape) {
  Dims strides = shape;
  std::int64_t next = 1;
  const bool reversed = input.one_in(4);
  for (int n = 0; n < shape.rank(); ++n) {
    const int axis = reversed ? n : shape.rank() - 1 - n;
    constexpr std::int64_t steps[] = {1, 1, 1, 1, 1, 2, -1, 0};
    const std::int64_t step = input.one_of(steps);
    strides[axis] = next * step;
    next *= std::max<std::int64_t>(1, shape[axis] * std::abs(step));
  }
  return strides;
}

inline Operand allocate(Input& input, const Dims& shape, DType dtype) {
  const Dims strides = make_strides(input, shape);
  std::int64_t low = 0, high = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t reach = strides[axis] * (std::max<std::int64_t>(1, shape[axis]) - 1);
    (reach < 0 ? low : high) += reach;
  }
  const std::int64_t elements = element_count(shape) == 0 ? 0 : high - low + 1;
  Operand out;
  out.memory.resize(static_cast<std::size_t>(elements * size_of(dtype)));
  std::byte* first = elements == 0 ? out.memory.data() : out.memory.data() - low * size_of(dtype);
  out.view = MutableView(first, dtype, shape, strides);
  return out;
}

// All the memory: random numbers of one magnitude, and perhaps one that is special.
inline void fill(Input& input, Operand& operand) {
  constexpr double magnitudes[] = {1, 1, 1, 0, 1e-40, 1e-3, 100, 3e38};
  constexpr double special[] = {0, -INFINITY, INFINITY, std::numeric_limits<double>::quiet_NaN()};
  const DType dtype = operand.view.dtype();
  Tensor values({static_cast<std::int64_t>(operand.memory.size()) / size_of(dtype)}, DType::f64);
  const double magnitude = input.one_of(magnitudes);
  std::uint64_t state = input.byte();
  for (std::int64_t i = 0; i < values.count(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX
    const double part = static_cast<double>(state >> 40) / (1 << 23) - 1;
    values.data<double>()[i] = dtype == DType::boolean ? static_cast<double>(part < 0.2) : magnitude * part;
  }
  if (input.one_in(8) && values.count() > 0)
    values.data<double>()[input.byte() % values.count()] = input.one_of(special);
  MutableView(operand.memory.data(), dtype, values.shape()).copy_from(values);
}

inline Operand make_operand(Input& input, const Dims& shape, DType dtype) {
  Operand out = allocate(input, spoiled(input, shape), dtype);
  fill(input, out);
  return out;
}

struct Sizes {
  std::int64_t B, H, Hkv, Tq, Tk, D, Dv;
};

// Few, but now and then enough for several tiles.
inline std::int64_t make_length(Input& input) {
  return input.one_in(8) ? input.between(60, 300) : input.between(0, 20);
}

inline Sizes make_sizes(Input& input) {
  Sizes s{};
  s.B = input.one_in(8) ? 0 : input.between(1, 2);
  s.Hkv = input.one_in(8) ? 0 : input.between(1, 2);
  s.H = s.Hkv * input.between(1, 3);
  s.Tq = make_length(input);
  s.Tk = make_length(input);
  s.D = input.between(1, 20);
  s.Dv = input.between(1, 20);
  return s;
}

inline DType make_dtype(Input& input) {
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
  constexpr DType others[] = {DType::i64, DType::i8, DType::u8, DType::boolean};
  return input.one_in(64) ? input.one_of(others) : input.one_of(dtypes);
}

// attention()'s options, with what their views point to.
struct Options {
  std::list<Operand> tensors;
  AttentionOptions values;
};

// A shape that broadcasts to [B,H,Tq,Tk].
inline Dims make_pairs_shape(Input& input, const Sizes& s) {
  const std::int64_t sizes[] = {s.B, s.H, s.Tq, s.Tk};
  const auto left_out = static_cast<std::size_t>(input.between(0, 4));
  const std::uint8_t ones = input.byte();
  Dims shape;
  for (std::size_t axis = left_out; axis < 4; ++axis) shape.push_back((ones >> axis) % 2 == 1 ? 1 : sizes[axis]);
  return shape;
}

// Whole numbers up to `most`, in order where they are starts.
inline Operand make_list(Input& input, std::int64_t count, std::int64_t most, bool starts) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(input.between(0, 255) % (most + 1));
  if (starts && !input.one_in(16)) values.front() = 0, values.back() = most, std::ranges::sort(values);
  if (input.one_in(32)) values.front() = static_cast<std::int64_t>(input.bits());
  Operand out = allocate(input, {count}, DType::i64);
  out.view.copy_from(View(values.data(), DType::i64, {count}));
  return out;
}

inline void add_lists(Input& input, const Sizes& s, Options& options) {
  const auto add = [&](Operand list) { return options.tensors.emplace_back(std::move(list)).view; };
  if (s.B > 0 && input.one_in(4)) options.values.key_lengths = add(make_list(input, s.B, s.Tk, false));
  if (!input.one_in(4)) return;
  const std::int64_t count = input.between(1, 4);
  options.values.query_starts = add(make_list(input, count, s.Tq, true));
  if (!input.one_in(16)) options.values.key_starts = add(make_list(input, count, s.Tk, true));
}

inline void add_tensors(Input& input, const Sizes& s, Options& options) {
  for (const TensorOption& option : tensor_options()) {
    if (option.type == TensorOption::Type::whole || !input.one_in(4)) continue;
    Dims shape{s.H};
    if (option.shape == TensorOption::Shape::pairs) shape = make_pairs_shape(input, s);
    if (option.shape == TensorOption::Shape::distances) shape.push_back(2 * input.between(0, 30) + 1);
    const DType dtype = option.type == TensorOption::Type::boolean ? DType::boolean : make_dtype(input);
    options.values.*option.value = options.tensors.emplace_back(make_operand(input, shape, dtype)).view;
  }
}

inline std::optional<Offset> make_offset(Input& input) {
  switch (input.byte() % 5) {
    case 0:
      return std::nullopt;
    case 1:
      return Offset::top_left();
    case 2:
      return Offset::bottom_right();
    case 3:
      return Offset(input.between(-30, 30));
    default:
      return Offset(static_cast<std::int64_t>(input.bits()));
  }
}

inline void add_numbers(Input& input, AttentionOptions& options) {
  constexpr double scales[] = {1, 0.3, -0.7, 0, 1e30, 1e-40, 1e300, INFINITY};
  constexpr double softcaps[] = {0, 0, 0, 8, 0.4, 1e-40, 1e300, -1};
  constexpr double probabilities[] = {0, 0, 0, 0.3, 0.999999, 1e-300, 1, -0.1};
  if (input.one_in(4)) options.scale = input.one_of(scales);
  options.softcap = input.one_of(softcaps);
  options.dropout = {input.one_of(probabilities), input.byte()};
  options.causal = input.flag();
  options.offset = make_offset(input);
  for (std::int64_t* side : {&options.window.left, &options.window.right})
    if (input.one_in(4)) *side = input.one_in(16) ? static_cast<std::int64_t>(input.bits()) : input.between(-2, 40);
}

inline Options make_options(Input& input, const Sizes& s) {
  Options options;
  add_numbers(input, options.values);
  add_tensors(input, s, options);
  add_lists(input, s, options);
  return options;
}

}  // namespace attend::fuzz
