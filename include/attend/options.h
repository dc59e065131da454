// The options of attention() as lists. Code that checks options, reads them from a command line or Python, or documents
// them loops over these lists.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "attend/api.h"
#include "attend/attention.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

// An option that is a tensor: its name, what it may be, and its member in AttentionOptions and the gradients.
struct ATTEND_API TensorOption {
  enum class Type : std::uint8_t { boolean, floating, whole };
  enum class Shape : std::uint8_t { pairs, distances, heads, items, starts };

  std::string_view name;
  OptionalView AttentionOptions::*value;
  Type type;
  Shape shape;
  std::string_view meaning;  // in one line
  bool positional = false;   // depends on the query's position among the keys, so on the offset
  // Null if it has no gradient.
  bool BackwardOptions::*wanted = nullptr;
  std::optional<Tensor> OptionGradients::*gradient = nullptr;
  std::optional<MutableView> AttentionGradientViews::*gradient_view = nullptr;
};
// "bool", "floating point", "i64"
ATTEND_API std::string_view name_of(TensorOption::Type type);
// "broadcast to [B,H,Tq,Tk]", "[H,2R+1]", "[H]", "[B]", "[sequences + 1]"
ATTEND_API std::string_view name_of(TensorOption::Shape shape);

// An option that is a finite number above 0, or 0 for off.
struct ATTEND_API NumberOption {
  std::string_view name;
  double AttentionOptions::*value;
  std::string_view letter;   // the symbol for the number in its meaning
  std::string_view meaning;  // in one line
};

// All options that are tensors, and all that are numbers, in the order of AttentionOptions.
ATTEND_API std::span<const TensorOption> tensor_options();
ATTEND_API std::span<const NumberOption> number_options();

}  // namespace attend::inline v1
