#include "attention/options.h"

#include <cmath>
#include <iterator>

#include "attention/positions.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

using enum TensorOption::Type;
using enum TensorOption::Shape;

constexpr bool positional = true, anywhere = false;

constexpr TensorOption tensors[] = {
    {"mask", &AttentionOptions::mask, boolean, pairs, "true = may attend"},
    {"bias", &AttentionOptions::bias, floating, pairs, "added to the scaled scores", anywhere, &BackwardOptions::dbias,
     &OptionGradients::dbias, &AttentionGradientViews::dbias},
    {"distance_bias", &AttentionOptions::distance_bias, floating, distances,
     "adds one number for each distance from query to key, from -R to R", positional, &BackwardOptions::ddistance_bias,
     &OptionGradients::ddistance_bias, &AttentionGradientViews::ddistance_bias},
    {"alibi_slopes", &AttentionOptions::alibi_slopes, floating, heads,
     "adds -slope * |i + offset - j| to the scaled scores", positional, &BackwardOptions::dalibi_slopes,
     &OptionGradients::dalibi_slopes, &AttentionGradientViews::dalibi_slopes},
    {"sinks", &AttentionOptions::sinks, floating, heads, "one more score in each row's softmax, without a value",
     anywhere, &BackwardOptions::dsinks, &OptionGradients::dsinks, &AttentionGradientViews::dsinks},
    {"key_lengths", &AttentionOptions::key_lengths, whole, items,
     "how many keys of each batch item exist; the others are hidden"},
    {"query_starts", &AttentionOptions::query_starts, whole, starts,
     "first query of each sequence, if several stand one after another along Tq; the last entry is Tq"},
    {"key_starts", &AttentionOptions::key_starts, whole, starts,
     "first key of each sequence, along Tk; a sequence sees its own keys alone, and positions count from its first "
     "key"},
};

constexpr NumberOption numbers[] = {
    {"softcap", &AttentionOptions::softcap, "C", "Scaled scores become C * tanh(score / C)"},
};
// Where the kernels have them.
constexpr double kernels::Rules::*rules_of_numbers[] = {&kernels::Rules::softcap};
static_assert(std::size(numbers) == std::size(rules_of_numbers));

void check_dtype(const char* function, const TensorOption& option, DType dtype) {
  const std::string_view expected = name_of(option.type);
  if (option.type == floating ? is_floating(dtype) : name_of(dtype) == expected) return;
  const char* hint = option.type == boolean ? " (true = may attend); a floating-point mask is a bias" : "";
  fail(ErrorCode::bad_dtype, function, "{} is {}, expected {}{}", option.name, dtype, expected, hint);
}

void check_shape(const char* function, const TensorOption& option, const View& x, const Dims& all) {
  const auto refuse = [&](const std::string& expected) {
    fail(ErrorCode::bad_shape, function, "{} has shape {}, expected {}", option.name, x.shape(), expected);
  };
  const std::string_view name = name_of(option.shape);
  if (option.shape == pairs) {
    try {
      x.broadcast_to(all);
    } catch (const Error&) {
      refuse(fmt::format("one that broadcasts to [B,H,Tq,Tk] = {}", all));
    }
  } else if (option.shape == distances) {
    if (x.rank() == 2 && x.size(0) == all[1] && x.size(1) % 2 == 1) return;
    refuse(fmt::format("{}, an odd number of columns for each of {} heads", name, all[1]));
  } else if (option.shape == starts) {
    if (x.rank() != 1 || x.size(0) == 0) refuse(std::string(name));
  } else {
    const Dims expected{all[option.shape == items ? 0 : 1]};
    if (x.shape() != expected) refuse(fmt::format("{} = {}", name, expected));
  }
}

}  // namespace

std::span<const TensorOption> tensor_options() {
  return tensors;
}

std::span<const NumberOption> number_options() {
  return numbers;
}

std::string_view name_of(TensorOption::Type type) {
  constexpr std::string_view names[] = {"bool", "floating point", "i64"};
  return names[static_cast<int>(type)];
}

std::string_view name_of(TensorOption::Shape shape) {
  constexpr std::string_view names[] = {"broadcast to [B,H,Tq,Tk]", "[H,2R+1]", "[H]", "[B]", "[sequences + 1]"};
  return names[static_cast<int>(shape)];
}

void check_tensor_options(const char* function, const AttentionOptions& options, const Dims& all) {
  for (const TensorOption& option : tensors) {
    const std::optional<View>& x = options.*option.value;
    if (!x) continue;
    check_dtype(function, option, x->dtype());
    check_shape(function, option, *x, all);
  }
}

void check_number_options(const char* function, const AttentionOptions& options, kernels::Rules& rules) {
  for (std::size_t n = 0; n < std::size(numbers); ++n) {
    const double number = options.*numbers[n].value;
    if (!(number >= 0) || !std::isfinite(number)) {
      fail(ErrorCode::bad_value, function, "{} is {}, expected 0 (none) or a positive number", numbers[n].name, number);
    }
    rules.*rules_of_numbers[n] = number;
  }
}

bool is_positional(const AttentionOptions& options) {
  const Window window = visible_window(options);
  bool any = window.left >= 0 || window.right >= 0;
  for (const TensorOption& option : tensors) any |= option.positional && (options.*option.value).has_value();
  return any;
}

std::string positional_names() {
  std::string names = "causal", last = "window";
  for (const TensorOption& option : tensors) {
    if (!option.positional) continue;
    names += ", " + last;
    last = option.name;
  }
  return names + " or " + last;
}

}  // namespace attend::inline v1
