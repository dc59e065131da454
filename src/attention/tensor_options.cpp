#include "attention/tensor_options.h"

#include "core/message.h"

namespace attend {

namespace {

constexpr std::string_view boolean = "bool", floating = "floating point", whole = "i64";
constexpr std::string_view per_pair = "broadcast to [B,H,Tq,Tk]", per_distance = "[H,2R+1]", per_head = "[H]",
                           per_item = "[B]", starts = "[sequences + 1]";

constexpr TensorOption list[] = {
    {"mask", &AttentionOptions::mask, boolean, per_pair, "true = may attend"},
    {"bias", &AttentionOptions::bias, floating, per_pair, "added to the scaled scores", &BackwardOptions::dbias,
     &AttentionGradients::dbias, &AttentionGradientViews::dbias},
    {"distance_bias", &AttentionOptions::distance_bias, floating, per_distance,
     "adds one number for each distance of a key from its query, from -R to R", &BackwardOptions::ddistance_bias,
     &AttentionGradients::ddistance_bias, &AttentionGradientViews::ddistance_bias},
    {"alibi_slopes", &AttentionOptions::alibi_slopes, floating, per_head,
     "adds -slope * |i + offset - j| to the scaled scores", &BackwardOptions::dalibi_slopes,
     &AttentionGradients::dalibi_slopes, &AttentionGradientViews::dalibi_slopes},
    {"sinks", &AttentionOptions::sinks, floating, per_head, "one more score in each row's softmax, without a value",
     &BackwardOptions::dsinks, &AttentionGradients::dsinks, &AttentionGradientViews::dsinks},
    {"key_lengths", &AttentionOptions::key_lengths, whole, per_item, "only the first so many keys exist"},
    {"query_starts", &AttentionOptions::query_starts, whole, starts,
     "several sequences stand one after another along Tq, and begin at these queries; the last entry is Tq"},
    {"key_starts", &AttentionOptions::key_starts, whole, starts,
     "likewise the keys that each sequence sees, along Tk; positions count from its first"},
};

void check_dtype(const char* function, const TensorOption& option, DType dtype) {
  if (option.dtype == floating ? is_floating(dtype) : name_of(dtype) == option.dtype) return;
  const char* hint = option.dtype == boolean ? " (true = may attend); a floating-point mask is a bias" : "";
  fail(ErrorCode::bad_dtype, function, "{} is {}, expected {}{}", option.name, dtype, option.dtype, hint);
}

void check_shape(const char* function, const TensorOption& option, const View& x, const Dims& pairs) {
  if (option.shape == per_pair) {
    try {
      x.broadcast_to(pairs);
    } catch (const Error&) {
      fail(ErrorCode::bad_shape, function, "{} has shape {}, expected one that broadcasts to [B,H,Tq,Tk] = {}",
           option.name, x.shape(), pairs);
    }
  } else if (option.shape == per_distance) {
    if (x.rank() == 2 && x.size(0) == pairs[1] && x.size(1) % 2 == 1) return;
    fail(ErrorCode::bad_shape, function, "{} has shape {}, expected {}, an odd number of columns for each of {} heads",
         option.name, x.shape(), per_distance, pairs[1]);
  } else if (option.shape == starts) {
    if (x.rank() == 1 && x.size(0) > 0) return;
    fail(ErrorCode::bad_shape, function, "{} has shape {}, expected {}", option.name, x.shape(), starts);
  } else {
    const Dims expected{pairs[option.shape == per_item ? 0 : 1]};
    if (x.shape() == expected) return;
    fail(ErrorCode::bad_shape, function, "{} has shape {}, expected {} = {}", option.name, x.shape(), option.shape,
         expected);
  }
}

}  // namespace

std::span<const TensorOption> tensor_options() {
  return list;
}

void check_tensor_options(const char* function, const AttentionOptions& options, const Dims& pairs) {
  for (const TensorOption& option : list) {
    const std::optional<View>& x = options.*option.value;
    if (!x) continue;
    check_dtype(function, option, x->dtype());
    check_shape(function, option, *x, pairs);
  }
}

}  // namespace attend
