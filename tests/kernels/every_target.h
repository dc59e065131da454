// What the tests of the kernels share: one test for each target, named after it, and memory in which nothing may be
// read that was not written before, or written outside.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "attention/quantize.h"
#include "kernels/targets.h"
#include "tests/attention/call.h"

namespace attend::test {

// A suite of TEST_P that takes the targets one by one: its tests are called Every/Suite.Test/avx2 and the like.
class EveryTarget : public testing::TestWithParam<const kernels::Target*> {
 protected:
  void SetUp() override {
    if (!target().supported()) GTEST_SKIP() << "this processor does not run " << target().name;
  }
  static const kernels::Target& target() { return *GetParam(); }
};

inline auto every_target() {
  return testing::ValuesIn(kernels::targets().begin(), kernels::targets().end());
}
inline std::string name_of_target(const testing::TestParamInfo<const kernels::Target*>& each) {
  return each.param->name;
}

// 64-byte aligned memory of so many bytes, with bytes of its own around it; NaN in every floating type, and true.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : size_(bytes), bytes_(bytes + 2 * guard + 64, fill) {
    const std::size_t past = (reinterpret_cast<std::uintptr_t>(bytes_.data()) + guard) % 64;
    begin_ = bytes_.data() + guard + (past == 0 ? 0 : 64 - past);
  }
  Guarded(std::int64_t count, DType dtype) : Guarded(static_cast<std::size_t>(count * size_of(dtype))) {}

  std::byte* begin() { return begin_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(begin_);
  }
  // Whether nothing was written around it.
  bool intact() const {
    const auto clean = [](std::byte b) { return b == fill; };
    return std::all_of(bytes_.data(), static_cast<const std::byte*>(begin_), clean) &&
           std::all_of(static_cast<const std::byte*>(begin_) + size_, bytes_.data() + bytes_.size(), clean);
  }

 private:
  static constexpr std::size_t guard = 256;
  static constexpr std::byte fill{0xFF};
  std::size_t size_;
  std::vector<std::byte> bytes_;
  std::byte* begin_;
};

// [1,H,rows,columns] and [1,1,rows,columns] as the kernels take them.
inline kernels::Operand operand_of(const View& x) {
  const Dims& s = x.strides();
  return {x.raw(), x.dtype(), s[1], s[2], s[3]};
}
inline kernels::MutableOperand result_of(const MutableView& x) {
  const Dims& s = x.strides();
  return {x.raw(), x.dtype(), s[1], s[2], s[3]};
}
inline kernels::Rows rows_of(const View& x) {
  kernels::Rows rows;
  rows.data = x.raw(), rows.dtype = x.dtype(), rows.row = x.strides()[2], rows.column = x.strides()[3];
  return rows;
}

// Keys or values [1,1,Tk,columns] in 8 bits, in blocks of whole tiles; NaN from `length` on.
class QuantizedRows {
 public:
  QuantizedRows(const View& x, std::int64_t length, std::int64_t block_rows) : columns_(x.size(3)), rows_(block_rows) {
    for (std::int64_t first = 0; first < x.size(2); first += rows_) {
      const View part = x.slice(2, std::min(first, length), std::min(length, first + rows_));
      Guarded& block = blocks_.emplace_back(rows_ * columns_, DType::i8);
      Guarded& scales = scales_.emplace_back(rows_, DType::f32);
      quantize(part, MutableView(block.begin(), DType::i8, {1, 1, part.size(2), columns_}),
               MutableView(scales.begin(), DType::f32, {1, 1, part.size(2)}));
      pointers_.push_back(block.begin()), scale_pointers_.push_back(scales.as<float>());
    }
  }

  // For as long as this lives.
  kernels::Rows rows() const {
    return {.blocks = pointers_.data(),
            .block_rows = rows_,
            .dtype = DType::i8,
            .row = columns_,
            .column = 1,
            .scales = scale_pointers_.data()};
  }
  // The numbers that they stand for, in the dtype that they are computed in; those from `length` on are NaN.
  Tensor widened(std::int64_t keys, DType dtype) {
    Tensor out({1, 1, keys, columns_});
    for (std::int64_t j = 0; j < keys; ++j) {
      const auto at = static_cast<std::size_t>(j / rows_);
      const std::int8_t* row = blocks_[at].as<std::int8_t>() + j % rows_ * columns_;
      for (std::int64_t d = 0; d < columns_; ++d)
        out.data<float>()[j * columns_ + d] = static_cast<float>(row[d]) * scale_pointers_[at][j % rows_];
    }
    return out.view().to(dtype);
  }

 private:
  std::int64_t columns_, rows_;
  std::deque<Guarded> blocks_, scales_;
  std::vector<const void*> pointers_;
  std::vector<const float*> scale_pointers_;
};

// Puts them in place of a call's keys and values, and what they stand for, in `computed`, into the call: for decode
// f32, for the forward what its products take.
struct QuantizedCall {
  QuantizedRows k, v;

  QuantizedCall(Call& x, std::int64_t length, std::int64_t block_rows, DType computed)
      : k(x.K, length, block_rows), v(x.V, length, block_rows) {
    x.k = k.widened(x.K.size(2), computed), x.v = v.widened(x.V.size(2), computed);
    x.K = x.k, x.V = x.v;
    x.what += " i8";
  }
  void give(kernels::Group& group) const { group.k = k.rows(), group.v = v.rows(), group.sizes.quantized = true; }
};

// A call with one batch item and one key head, as one group: its tensors and numbers stay the call's, and this holds
// what has to be brought into another form.
class GroupOfCall {
 public:
  explicit GroupOfCall(const Call& x) {
    const AttentionOptions& o = x.options;
    const std::int64_t H = x.Q.size(1), Tq = x.Q.size(2), Tk = x.K.size(2);
    group.sizes = {H, x.Q.size(3), x.V.size(3), x.Q.dtype()};
    group.features = {.mask = o.mask.has_value(),
                      .bias = o.bias.has_value(),
                      .distance_bias = o.distance_bias.has_value(),
                      .alibi_slopes = o.alibi_slopes.has_value(),
                      .curve = o.softcap > 0,
                      .dropout = o.dropout.p > 0};
    group.rules = oracle_head(x, 0, 0, 0, Tq, 0, Tk).rules;
    group.q = operand_of(x.Q), group.k = rows_of(x.K), group.v = rows_of(x.V);
    if (o.mask) group.mask = operand_of(o.mask->broadcast_to({1, H, Tq, Tk}));
    if (o.bias) group.bias = operand_of(o.bias->broadcast_to({1, H, Tq, Tk}));
    if (const auto& table = o.distance_bias) {
      group.distance_bias = {table->raw(), table->dtype(), table->strides()[0], 0, table->strides()[1]};
      group.reach = table->size(1) / 2;
    }
    group.alibi_slopes = doubles(o.alibi_slopes, H, slopes_);
    group.sinks = doubles(o.sinks, H, sinks_);
  }

  kernels::Group group;

 private:
  static const double* doubles(const std::optional<View>& x, std::int64_t H, std::vector<double>& to) {
    for (std::int64_t h = 0; x && h < H; ++h) to.push_back(x->item({h}));
    return x ? to.data() : nullptr;
  }
  std::vector<double> slopes_, sinks_;
};

}  // namespace attend::test
