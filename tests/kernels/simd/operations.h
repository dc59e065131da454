// Fills a SimdTable with a target's vector layer. A file that includes this has included the layer before, as the
// target's own source does, and is compiled with that source's options (tests/CMakeLists.txt).
#pragma once

#include "kernels/arithmetic.h"
#include "tests/kernels/simd/table.h"

namespace attend::test {
namespace {

using kernels::Simd;
using F = Simd::F;

template <class Body>
void each(long n, Body body) {
  for (long i = 0; i < n; i += Simd::lanes) body(i);
}

F shown(Simd::Mask mask) {
  return Simd::select(mask, Simd::set1(1), Simd::zero());
}

// Macros, as the vector type would lose its attributes as a template's argument.
#define ATTEND_UNARY(operation)                                                    \
  [](const float* in, float* out, long n) {                                        \
    each(n, [=](long i) { Simd::store(out + i, operation(Simd::load(in + i))); }); \
  }
#define ATTEND_BINARY(operation)                                                                            \
  [](const float* left, const float* right, float* out, long n) {                                           \
    each(n, [=](long i) { Simd::store(out + i, operation(Simd::load(left + i), Simd::load(right + i))); }); \
  }
#define ATTEND_WIDEN(operation) \
  [](const std::uint16_t* in, float* out, long n) { each(n, [=](long i) { Simd::store(out + i, operation(in + i)); }); }
#define ATTEND_NARROW(operation) \
  [](const float* in, std::uint16_t* out, long n) { each(n, [=](long i) { operation(out + i, Simd::load(in + i)); }); }

constexpr void fill_masks(SimdTable& table) {
  table.greater = ATTEND_BINARY([](F a, F b) { return shown(Simd::greater(a, b)); });
  table.equal = ATTEND_BINARY([](F a, F b) { return shown(Simd::equal(a, b)); });
  table.test = [](const std::uint32_t* x, std::uint32_t bit, float* y, long n) {
    each(n, [=](long i) { Simd::store(y + i, shown(Simd::test(x + i, bit))); });
  };
  table.lanes_of = [](std::uint32_t bits, float* y) { Simd::store(y, shown(Simd::lanes_of(bits))); };
  table.shift_up = [](const float* x, const float* before, float* y) {
    Simd::store(y, Simd::shift_up(Simd::load(x), Simd::load(before)));
  };
  table.bits_of_lanes = [](std::uint32_t bits) { return Simd::bits(Simd::lanes_of(bits)); };
  table.any_greater = [](const float* a, const float* b, bool* any, long n) {
    each(n, [=](long i) { any[i / Simd::lanes] = Simd::any(Simd::greater(Simd::load(a + i), Simd::load(b + i))); });
  };
  table.select_greater = [](const float* a, const float* b, const float* x, const float* z, float* y, long n) {
    each(n, [=](long i) {
      const Simd::Mask mask = Simd::greater(Simd::load(a + i), Simd::load(b + i));
      Simd::store(y + i, Simd::select(mask, Simd::load(x + i), Simd::load(z + i)));
    });
  };
}

constexpr void fill_arithmetic(SimdTable& table) {
  table.zero = [](float* y, long n) { each(n, [=](long i) { Simd::store(y + i, Simd::zero()); }); };
  table.set1 = [](float x, float* y, long n) { each(n, [=](long i) { Simd::store(y + i, Simd::set1(x)); }); };
  table.copy = ATTEND_UNARY([](F x) { return x; });
  table.load_first = [](const float* x, long count, float* y) { Simd::store(y, Simd::load_first(x, count)); };
  table.add = ATTEND_BINARY(Simd::add);
  table.sub = ATTEND_BINARY(Simd::sub);
  table.mul = ATTEND_BINARY(Simd::mul);
  table.div = ATTEND_BINARY(Simd::div);
  table.fma = [](const float* a, const float* b, const float* c, float* y, long n) {
    each(n, [=](long i) { Simd::store(y + i, Simd::fma(Simd::load(a + i), Simd::load(b + i), Simd::load(c + i))); });
  };
  table.max = ATTEND_BINARY(Simd::max);
  table.min = ATTEND_BINARY(Simd::min);
  table.abs = ATTEND_UNARY(Simd::abs);
  table.copy_sign = ATTEND_BINARY(Simd::copy_sign);
  table.sum_each = [](const float* x, float* y) {
    F rows[Simd::lanes];
    for (int i = 0; i < Simd::lanes; ++i) rows[i] = Simd::load(x + i * Simd::lanes);
    Simd::store(y, Simd::sum_each(rows));
  };
  table.transpose = [](float* x) {
    F rows[Simd::lanes];
    for (int i = 0; i < Simd::lanes; ++i) rows[i] = Simd::load(x + i * Simd::lanes);
    Simd::transpose(rows);
    for (int i = 0; i < Simd::lanes; ++i) Simd::store(x + i * Simd::lanes, rows[i]);
  };
  table.transpose_quarters = [](float* x) {
    F rows[4];
    for (int i = 0; i < 4; ++i) rows[i] = Simd::load(x + i * Simd::lanes);
    Simd::transpose_quarters(rows);
    for (int i = 0; i < 4; ++i) Simd::store(x + i * Simd::lanes, rows[i]);
  };
  table.fraction = ATTEND_UNARY(Simd::fraction);
  table.scale_by_floor = ATTEND_BINARY(Simd::scale_by_floor);
  table.exp2_of_degree_4 = ATTEND_UNARY(kernels::exp2<4>);
  table.exp2_of_degree_5 = ATTEND_UNARY(kernels::exp2<5>);
  table.tanh = ATTEND_UNARY(kernels::tanh);
  table.round_pair = ATTEND_BINARY(kernels::round_pair);
  table.logarithm = [](float x) { return kernels::logarithm(x); };
}

constexpr void fill_integers(SimdTable& table) {
  table.load_i8 = [](const std::int8_t* x, float* y, long n) {
    each(n, [=](long i) { Simd::store(y + i, Simd::load_i8(x + 2 * i)); });
  };
  table.store_i16 = [](const float* x, std::int16_t* y, long n) {
    each(n, [=](long i) { Simd::store_i16(y + i, Simd::load(x + i)); });
  };
  table.dot_i16 = [](const float* a, const float* b, const float* c, float* y, long n) {
    each(n,
         [=](long i) { Simd::store(y + i, Simd::dot_i16(Simd::load(a + i), Simd::load(b + i), Simd::load(c + i))); });
  };
  table.dot_u8 = [](const float* a, const float* b, const float* c, float* y, long n) {
    each(n, [=](long i) { Simd::store(y + i, Simd::dot_u8(Simd::load(a + i), Simd::load(b + i), Simd::load(c + i))); });
  };
  table.spread = [](const std::int8_t* four, float* y) { Simd::store(y, Simd::spread(four)); };
  table.to_i32 = ATTEND_UNARY(Simd::to_i32);
  table.sum_i32 = [](const float* x) { return Simd::sum_i32(Simd::load(x)); };
  table.store_low_bytes = [](const float* x, std::int8_t* y, long n) {
    each(n, [=](long i) { Simd::store_low_bytes(y + i, Simd::load(x + i)); });
  };
  table.from_i32 = ATTEND_UNARY(Simd::from_i32);
  table.sum_each_i32 = [](const float* x, float* y) {
    F rows[Simd::lanes];
    for (int i = 0; i < Simd::lanes; ++i) rows[i] = Simd::load(x + i * Simd::lanes);
    Simd::store(y, Simd::sum_each_i32(rows));
  };
  table.interleave_low = ATTEND_BINARY(Simd::interleave_low);
  table.interleave_high = ATTEND_BINARY(Simd::interleave_high);
  table.interleaved_place = [](int element) { return Simd::interleaved_place(element); };
}

constexpr void fill_memory(SimdTable& table) {
  table.load_bf16 = ATTEND_WIDEN(Simd::load_bf16);
  table.load_f16 = ATTEND_WIDEN(Simd::load_f16);
  table.store_bf16 = ATTEND_NARROW(Simd::store_bf16);
  table.store_f16 = ATTEND_NARROW(Simd::store_f16);
  table.bits_of_bools = [](const std::uint8_t* x) { return Simd::bits_of_bools(x); };
  table.transpose4 = [](const float* r0, const float* r1, const float* r2, const float* r3, float* to, long stride) {
    kernels::transpose4(r0, r1, r2, r3, to, stride);
  };
}

// Where the layer multiplies bf16.
template <class Layer>
constexpr void fill_bf16(SimdTable& table) {
  if constexpr (requires(F x) { Layer::dot_bf16(x, x, x); }) {
    table.dot_bf16 = [](const float* a, const float* b, const float* c, float* y, long n) {
      each(n, [=](long i) {
        Simd::store(y + i, Layer::dot_bf16(Simd::load(a + i), Simd::load(b + i), Simd::load(c + i)));
      });
    };
    table.pair_bf16 = ATTEND_BINARY(Layer::pair_bf16);
    table.store_bf16_operand = ATTEND_NARROW(Layer::store_bf16_operand);
    table.interleave = [](const std::uint16_t* low, const std::uint16_t* high, float* y) {
      std::uint32_t pairs[2 * Simd::lanes];
      Layer::interleave(pairs, reinterpret_cast<const char*>(low), reinterpret_cast<const char*>(high));
      __builtin_memcpy(y, pairs, sizeof pairs);
    };
    table.scale_pair_bf16 = [](const float* x, float factor, float* y, long n) {
      each(n, [=](long i) { Simd::store(y + i, Layer::scale_pair_bf16(Simd::load(x + i), Simd::set1(factor))); });
    };
  }
}

// Where the layer sums products of bytes in 16 bits.
template <class Layer>
constexpr void fill_pairs(SimdTable& table) {
  if constexpr (Layer::byte_pairs) {
    table.by_pairs = [](const float* a, const float* b, const float* c, float* y, long n) {
      each(n, [=](long i) {
        const F pairs = Layer::dot_pairs(Simd::load(a + i), Simd::load(b + i), Simd::zero());
        Simd::store(y + i, Layer::add_pairs(pairs, Simd::load(c + i)));
      });
    };
    table.dot_lowered = [](const float* a, const float* b, const float* c, float* y, long n) {
      each(n, [=](long i) {
        Simd::store(y + i, Layer::dot_lowered(Simd::load(a + i), Simd::load(b + i), Simd::load(c + i)));
      });
    };
  }
}

constexpr SimdTable simd_table(const char* target) {
  SimdTable table{};
  table.target = target;
  table.lanes = Simd::lanes, table.vectors = Simd::vectors, table.height = Simd::height;
  fill_arithmetic(table);
  fill_masks(table);
  fill_memory(table);
  fill_integers(table);
  fill_pairs<Simd>(table);
  fill_bf16<Simd>(table);
  return table;
}

}  // namespace
}  // namespace attend::test
