// The options of attention(), as lists: what each is called, what it may be, and where AttentionOptions and the
// gradients have it. What checks options, reads them from a command line or from Python, and says what they are, goes
// through these.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "attend/api.h"
#include "attend/attention.h"
#include "attend/tensor.h"

namespace attend::inline v0 {

// An option that is a tensor: how it is called, what it may be, and where the structs above have it and its gradient.
struct ATTEND_API TensorOption {
  enum class Type : std::uint8_t { boolean, floating, whole };
  enum class Shape : std::uint8_t { pairs, distances, heads, items, starts };

  std::string_view name;
  OptionalView AttentionOptions::*value;
  Type type;
  Shape shape;
  std::string_view meaning;  // in one line
  bool positional = false;   // it counts from a query's place among the keys, so that the offset matters
  // Null where it has no gradient.
  bool BackwardOptions::*wanted = nullptr;
  std::optional<Tensor> OptionGradients::*gradient = nullptr;
  std::optional<MutableView> AttentionGradientViews::*gradient_view = nullptr;
};
// "bool", "floating point", "i64".
ATTEND_API std::string_view name_of(TensorOption::Type type);
// "broadcast to [B,H,Tq,Tk]", "[H,2R+1]", "[H]", "[B]", "[sequences + 1]".
ATTEND_API std::string_view name_of(TensorOption::Shape shape);

// An option that is a finite number above 0, or 0, which adds nothing.
struct ATTEND_API NumberOption {
  std::string_view name;
  double AttentionOptions::*value;
  std::string_view letter;   // what stands for the number in its meaning
  std::string_view meaning;  // in one line
};

// All of them, in the order in which AttentionOptions has them. What checks options, reads them from a command line or
// from Python, and says what they are, goes through these lists.
ATTEND_API std::span<const TensorOption> tensor_options();
ATTEND_API std::span<const NumberOption> number_options();

}  // namespace attend::inline v0
