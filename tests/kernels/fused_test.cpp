// Every target's kernels by themselves: sizes around their lanes, register tiles and panels, any layout in memory, and
// nothing read or written outside.
#include "kernels/target.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <set>

#include "tests/attention/plain.h"
#include "tests/expect.h"
#include "tests/kernels/every_target.h"

namespace attend {
namespace {

using kernels::Target;

enum class Layout { packed, strided, backwards, rows_first };

// [heads,rows,columns] elements somewhere in memory of their own; the bytes before, between and after them are
// `filler`.
class Placed {
 public:
  static constexpr std::int64_t guard = 256;

  Placed(DType dtype, std::int64_t heads, std::int64_t rows, std::int64_t columns, Layout layout, int filler)
      : dtype_(dtype), size_{heads, rows, columns}, filler_(filler) {
    const std::int64_t step = layout == Layout::strided ? 2 : 1, gap = layout == Layout::packed ? 0 : 3;
    stride_ = {rows * (columns * step + gap), columns * step + gap, step};
    if (layout == Layout::rows_first) stride_ = {columns, heads * columns + gap, 1};
    std::int64_t reach = 1, first = 0;
    for (std::size_t a = 0; a < 3; ++a) reach += std::max<std::int64_t>(0, size_[a] - 1) * stride_[a];
    if (layout == Layout::backwards) {
      first = reach - 1;
      for (std::int64_t& s : stride_) s = -s;
    }
    // One byte off: no element is aligned.
    begin_ = guard + (layout == Layout::packed ? 0 : 1);
    bytes_.assign(static_cast<std::size_t>(begin_ + reach * size_of(dtype) + guard), static_cast<std::byte>(filler));
    start_ = begin_ + first * size_of(dtype);
  }

  std::byte* at(std::int64_t head, std::int64_t row, std::int64_t column) {
    return bytes_.data() + start_ + (head * stride_[0] + row * stride_[1] + column * stride_[2]) * size_of(dtype_);
  }
  double get(std::int64_t head, std::int64_t row, std::int64_t column) {
    return load_element(dtype_, at(head, row, column));
  }
  kernels::Operand operand() { return {at(0, 0, 0), dtype_, stride_[0], stride_[1], stride_[2]}; }
  kernels::MutableOperand result() { return {at(0, 0, 0), dtype_, stride_[0], stride_[1], stride_[2]}; }
  kernels::Rows rows() {
    kernels::Rows rows;
    rows.data = at(0, 0, 0), rows.dtype = dtype_, rows.row = stride_[1], rows.column = stride_[2];
    return rows;
  }
  kernels::Matrix matrix(std::int64_t head) { return {at(head, 0, 0), dtype_, stride_[1], stride_[2]}; }

  void fill(Generator& generator, double scale = 1) {
    const Tensor values = generator.normal({size_[0] * size_[1] * size_[2] + 16}, 0, scale);
    const float* next = values.data<float>();
    each([&](std::byte* to) { store_element(dtype_, to, static_cast<double>(*next++)); });
  }
  template <class Body>
  void each(Body body) {
    for (std::int64_t h = 0; h < size_[0]; ++h)
      for (std::int64_t r = 0; r < size_[1]; ++r)
        for (std::int64_t c = 0; c < size_[2]; ++c) body(at(h, r, c));
  }
  // Whether no byte outside the elements was written.
  bool intact() {
    std::vector<bool> own(bytes_.size());
    each([&](const std::byte* from) { std::fill_n(own.begin() + (from - bytes_.data()), size_of(dtype_), true); });
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (!own[i] && bytes_[i] != static_cast<std::byte>(filler_)) return false;
    }
    return true;
  }

 private:
  DType dtype_;
  std::array<std::int64_t, 3> size_, stride_{};
  int filler_;
  std::int64_t begin_ = 0, start_ = 0;
  std::vector<std::byte> bytes_;
};

struct Shape {
  std::int64_t G, Tq, Tk, D, Dv;
};

struct Case {
  Shape shape;
  DType dtype = DType::f32;
  Layout layout = Layout::packed;
  bool causal = false, masked = false, biased = false;
  std::int64_t offset = 0, left = -1, right = -1;
  std::int64_t key_length = -1;  // -1: Tk
  std::int64_t first = 0;        // the first query row that is asked for
  bool lse = true;
  double scale = 0;  // 0: one over the root of D

  std::string str() const {
    const auto& [G, Tq, Tk, D, Dv] = shape;
    return fmt("G %ld Tq %ld Tk %ld D %ld Dv %ld layout %ld causal %ld masked %ld biased %ld offset %ld left %ld "
               "right %ld length %ld first %ld ",
               {G, Tq, Tk, D, Dv, static_cast<std::int64_t>(layout), causal, masked, biased, offset, left, right,
                key_length, first}) +
           std::string(name_of(dtype)) + (scale == 0 ? "" : " scale " + std::to_string(scale));
  }

 private:
  static std::string fmt(std::string text, std::initializer_list<std::int64_t> values) {
    for (const std::int64_t value : values) text.replace(text.find("%ld"), 3, std::to_string(value));
    return text;
  }
};

// NaN in every floating type, and true: what may not be read, or not be used.
constexpr int poison = 0xFF;

// Runs one case and compares every row with the oracle.
class Trial {
 public:
  Trial(const Case& c, std::uint64_t seed)
      : c_(c),
        q_(c.dtype, c.shape.G, c.shape.Tq, c.shape.D, c.layout, poison),
        k_(c.dtype, 1, c.shape.Tk, c.shape.D, c.layout, poison),
        v_(c.dtype, 1, c.shape.Tk, c.shape.Dv, c.layout, poison),
        mask_(DType::boolean, c.shape.G, c.shape.Tq, c.shape.Tk, c.layout, 1),
        bias_(DType::f32, c.shape.G, c.shape.Tq, c.shape.Tk, c.layout, poison),
        out_(c.dtype, c.shape.G, c.shape.Tq, c.shape.Dv, c.layout, 0xA5),
        lse_(DType::f32, c.shape.G, c.shape.Tq, 1, c.layout, 0xA5) {
    Generator generator(seed);
    for (Placed* x : {&q_, &k_, &v_, &bias_}) x->fill(generator);
    const Tensor coin = generator.rand({c.shape.G * c.shape.Tq * c.shape.Tk + 1});
    const float* next = coin.data<float>();
    mask_.each([&](std::byte* to) { *to = static_cast<std::byte>(*next++ < 0.6f); });
  }

  void check(const Target& target) {
    const std::string what = std::string(target.name) + ": " + c_.str();
    const kernels::Group group = make_group();
    run_in_exact_scratch(target, group, what);
    EXPECT_TRUE(out_.intact()) << what;
    EXPECT_TRUE(lse_.intact()) << what;
    compare(what);
  }

 private:
  kernels::Group make_group() {
    kernels::Group g;
    g.sizes = {c_.shape.G, c_.shape.D, c_.shape.Dv, c_.dtype};
    g.features = {.mask = c_.masked, .bias = c_.biased};
    g.rules = rules();
    g.q = q_.operand(), g.k = k_.rows(), g.v = v_.rows();
    if (c_.masked) g.mask = mask_.operand();
    if (c_.biased) g.bias = bias_.operand();
    return g;
  }

  kernels::Rules rules() const {
    return {.scale = c_.scale != 0 ? c_.scale : 1 / std::sqrt(static_cast<double>(c_.shape.D)),
            .offset = c_.offset,
            .window_left = c_.left,
            .window_right = c_.causal ? 0 : c_.right,
            .key_length = c_.key_length < 0 ? c_.shape.Tk : c_.key_length};
  }

  void run_in_exact_scratch(const Target& target, const kernels::Group& group, const std::string& what) {
    const std::int64_t rows = c_.shape.G * (c_.shape.Tq - c_.first);
    const std::size_t bytes = target.forward.bytes(group.sizes, group.features, rows), guard = 256;
    std::vector<std::byte> memory(bytes + 2 * guard + 64, std::byte{poison});
    const std::size_t past = (reinterpret_cast<std::uintptr_t>(memory.data()) + guard) % 64;
    std::byte* scratch = memory.data() + guard + (past == 0 ? 0 : 64 - past);
    const kernels::Results to{out_.result(), c_.lse ? lse_.result() : kernels::MutableOperand{}};
    const kernels::ForwardItem item{group, to, c_.first, c_.shape.Tq};
    target.forward.run(item, &item, scratch);  // that it comes again is asked for, and changes nothing
    const auto clean = [](std::byte b) { return b == std::byte{poison}; };
    EXPECT_TRUE(std::all_of(memory.data(), scratch, clean)) << what;
    EXPECT_TRUE(std::all_of(scratch + bytes, memory.data() + memory.size(), clean)) << what;
  }

  void compare(const std::string& what) {
    test::Errors errors(c_.dtype);
    kernels::Row exact;
    for (std::int64_t g = 0; g < c_.shape.G; ++g) {
      const kernels::Head head = make_head(g);
      for (std::int64_t i = 0; i < c_.shape.Tq; ++i) {
        if (i < c_.first) {
          EXPECT_EQ(*out_.at(g, i, 0), std::byte{0xA5}) << what << " row " << i << " was not asked for";
          continue;
        }
        kernels::reference_row(head, i, exact);
        const test::PlainRow plain = test::plain_row(head, i, exact, c_.dtype);
        const float lse = c_.lse ? static_cast<float>(lse_.get(g, i, 0)) : plain.lse;
        errors.add(
            exact, plain, [&](std::int64_t d) { return out_.get(g, i, d); }, lse);
      }
    }
    errors.check(what);
    if (!c_.lse) {
      EXPECT_EQ(*lse_.at(0, c_.shape.Tq - 1, 0), std::byte{0xA5}) << what;
    }
  }

  kernels::Head make_head(std::int64_t g) {
    kernels::Head head;
    // The oracle multiplies every key's score out, so it may not see keys that do not exist.
    head.rules = rules();
    head.Tk = head.rules.key_length;
    head.D = c_.shape.D, head.Dv = c_.shape.Dv;
    head.q = q_.matrix(g), head.k = k_.matrix(0), head.v = v_.matrix(0);
    if (c_.masked) head.mask = mask_.matrix(g);
    if (c_.biased) head.bias = bias_.matrix(g);
    return head;
  }

  Case c_;
  Placed q_, k_, v_, mask_, bias_, out_, lse_;
};

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
constexpr Layout layouts[] = {Layout::packed, Layout::strided, Layout::backwards, Layout::rows_first};

std::vector<std::int64_t> sizes_around(const Target& target) {
  std::set<std::int64_t> sizes{1, 2, 3, 63, 64, 65, 129};
  for (const std::int64_t size : {target.lanes, target.tile_height, target.panel_rows})
    for (const std::int64_t near : {size - 1, size, size + 1}) sizes.insert(near);
  return {sizes.begin(), sizes.end()};
}

class Fused : public test::EveryTarget {};

INSTANTIATE_TEST_SUITE_P(Every, Fused, test::every_target(), test::name_of_target);

TEST_P(Fused, OddSizesOneAtATime) {
  std::uint64_t seed = 0;
  for (const std::int64_t size : sizes_around(*GetParam())) {
    for (const Shape& shape : {Shape{1, size, 37, 12, 9}, Shape{3, size, 10, 5, 6}, Shape{1, 5, size, 12, 9},
                               Shape{3, 2, size, 8, 8}, Shape{1, 5, 66, size, 7}, Shape{1, 5, 66, 7, size}}) {
      for (const DType dtype : dtypes) Trial({.shape = shape, .dtype = dtype}, ++seed).check(*GetParam());
    }
  }
}

TEST_P(Fused, EverySmallSizeTogether) {
  std::uint64_t seed = 1000;
  for (const std::int64_t Tq : {1, 3})
    for (const std::int64_t Tk : {1, 2, 5})
      for (const std::int64_t D : {1, 2, 3})
        for (const std::int64_t Dv : {1, 2, 5})
          for (const DType dtype : dtypes) {
            Trial({.shape = {1, Tq, Tk, D, Dv}, .dtype = dtype}, ++seed).check(*GetParam());
          }
}

TEST_P(Fused, SizesLayoutsAndRulesAtRandom) {
  const std::vector<std::int64_t> sizes = sizes_around(*GetParam());
  test::Dice dice(7);
  const auto size = [&] { return sizes[static_cast<std::size_t>(dice.below(std::ssize(sizes)))]; };
  for (std::uint64_t seed = 0; seed < 240; ++seed) {
    Case c;
    c.shape = {dice.one_in(2) ? 1 : 3, size(), size(), size(), size()};
    // Small heads for many pairs: it is the oracle that takes the time.
    if (c.shape.Tq * c.shape.Tk > 4000) c.shape.D = c.shape.D % 20 + 1, c.shape.Dv = c.shape.Dv % 20 + 1;
    c.dtype = dtypes[dice.below(3)];
    c.layout = layouts[dice.below(4)];
    c.causal = dice.one_in(3);
    c.masked = dice.one_in(3);
    c.biased = dice.one_in(3);
    c.offset = dice.below(c.shape.Tk + c.shape.Tq) - c.shape.Tq;
    if (dice.one_in(3)) c.left = dice.below(c.shape.Tk), c.right = c.left / 3 - 1;
    c.key_length = dice.one_in(3) ? dice.below(c.shape.Tk + 1) : c.shape.Tk;
    c.first = seed % 4 == 0 ? c.shape.Tq / 3 : 0;
    c.lse = seed % 5 != 0;
    Trial(c, seed).check(*GetParam());
  }
}

TEST_P(Fused, EveryLayoutOfEveryDType) {
  for (const Layout layout : layouts) {
    for (const DType dtype : dtypes) {
      Trial({.shape = {3, 11, 70, 10, 13}, .dtype = dtype, .layout = layout}, 1).check(*GetParam());
      Trial({.shape = {3, 11, 70, 10, 13}, .dtype = dtype, .layout = layout, .masked = true, .biased = true}, 2)
          .check(*GetParam());
    }
  }
}

// Rows of 16 bits go in and out as pairs of columns, squares of vectors of them and then four at a time.
TEST_P(Fused, ColumnsThatAreNoWholeSquares) {
  std::uint64_t seed = 0;
  const std::int64_t square = 2 * GetParam()->lanes;
  for (const std::int64_t beyond : {0, 1, 2, 4, 6, 8, 14, 16}) {
    for (const Layout layout : {Layout::packed, Layout::rows_first}) {
      for (const double scale : {0.0, -0.2}) {
        Trial({.shape = {1, 53, 77, square + beyond, 2 * square + beyond},
               .dtype = DType::bf16,
               .layout = layout,
               .scale = scale},
              ++seed)
            .check(*GetParam());
        Trial({.shape = {3, 20, 77, 2 * square + beyond, square + beyond},
               .dtype = DType::bf16,
               .layout = layout,
               .masked = true,
               .scale = scale},
              ++seed)
            .check(*GetParam());
      }
    }
  }
}

}  // namespace
}  // namespace attend
