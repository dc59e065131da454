#include <algorithm>
#include <cmath>
#include <numbers>

#include "attend/layers.h"
#include "core/message.h"
#include "core/parallel.h"
#include "kernels/targets.h"

namespace attend::inline v1 {

namespace {

constexpr const char* layer = "RotaryEmbedding";
constexpr std::int64_t rotated_at_once = 1 << 14;  // fewer are done before another thread has woken up

void check_positive(const char* name, double value) {
  if (!(value > 0) || !std::isfinite(value))
    fail(ErrorCode::bad_value, layer, "{} is {}, expected a number above 0", name, value);
}

void check_each(const char* name, const std::vector<double>& factors, std::int64_t rotary_size) {
  if (std::ssize(factors) != rotary_size / 2)
    fail(ErrorCode::bad_value, layer, "{} are {} numbers, expected {}", name, factors.size(), rotary_size / 2);
  for (const double factor : factors) check_positive(name, factor);
}

void check_options(std::int64_t rotary_size, const RotaryOptions& options) {
  if (rotary_size < 2 || rotary_size % 2 != 0)
    fail(ErrorCode::bad_value, layer, "rotary_size is {}, expected an even number from 2", rotary_size);
  check_positive("theta", options.theta);
  check_positive("factor", options.factor);
  if (options.scaling == RotaryScaling::none || options.scaling == RotaryScaling::linear) return;
  check_positive("original_length", static_cast<double>(options.original_length));
  if (options.scaling != RotaryScaling::longrope) return;
  check_each("short_factors", options.short_factors, rotary_size);
  check_each("long_factors", options.long_factors, rotary_size);
}

// By how many turns an angle is compared with those of the training's texts (Llama 3.1).
float llama3_frequency(float frequency, const RotaryOptions& options) {
  const double wavelength = 2 * std::numbers::pi / static_cast<double>(frequency);
  const auto length = static_cast<double>(options.original_length);
  const double low = options.low_frequency_factor, high = options.high_frequency_factor;
  if (wavelength < length / high) return frequency;
  const auto slow = static_cast<float>(static_cast<double>(frequency) / options.factor);
  if (wavelength > length / low) return slow;
  const double share = (length / wavelength - low) / (high - low);
  return static_cast<float>((1 - share) * static_cast<double>(slow) + share * static_cast<double>(frequency));
}

// Which of rotary_size dimensions makes so many turns in the training's texts.
double yarn_dimension(double turns, std::int64_t rotary_size, const RotaryOptions& options) {
  const double length = static_cast<double>(options.original_length) / (turns * 2 * std::numbers::pi);
  return static_cast<double>(rotary_size) * std::log(length) / (2 * std::log(options.theta));
}

// 0 up to the dimension of beta_fast, 1 from that of beta_slow on: the share of the divided frequency.
std::vector<double> yarn_ramp(std::int64_t rotary_size, const RotaryOptions& options) {
  double low = yarn_dimension(options.beta_fast, rotary_size, options);
  double high = yarn_dimension(options.beta_slow, rotary_size, options);
  if (options.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, static_cast<double>(rotary_size - 1));
  if (low == high) high += 0.001;  // as Transformers has it: no division by 0
  std::vector<double> shares;
  for (std::int64_t i = 0; i < rotary_size / 2; ++i)
    shares.push_back(std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
  return shares;
}

double yarn_attention_factor(const RotaryOptions& options) {
  const auto grown = [&](double scale) { return options.factor > 1 ? 0.1 * scale * std::log(options.factor) + 1 : 1; };
  if (options.mscale == 0 || options.mscale_all_dim == 0) return grown(1);
  return grown(options.mscale) / grown(options.mscale_all_dim);
}

double longrope_attention_factor(const RotaryOptions& options) {
  if (options.factor <= 1) return 1;
  return std::sqrt(1 + std::log(options.factor) / std::log(static_cast<double>(options.original_length)));
}

// The reciprocals of theta^(2i/D), each times its factor; no factors: as they are.
std::vector<float> make_frequencies(std::int64_t rotary_size, double theta, const std::vector<double>& factors) {
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < rotary_size / 2; ++i) {
    const float power = static_cast<float>(2 * i) / static_cast<float>(rotary_size);
    const auto slowness = static_cast<float>(std::pow(theta, static_cast<double>(power)));
    const float factor = factors.empty() ? 1 : static_cast<float>(factors[static_cast<std::size_t>(i)]);
    frequencies.push_back(1 / (factor * slowness));
  }
  return frequencies;
}

}  // namespace

RotaryEmbedding::RotaryEmbedding(std::int64_t rotary_size, const RotaryOptions& options)
    : original_length_(options.original_length) {
  check_options(rotary_size, options);
  frequencies_ = make_frequencies(rotary_size, options.theta, {});
  switch (options.scaling) {
    case RotaryScaling::none:
      break;
    case RotaryScaling::linear:
      for (float& each : frequencies_) each = static_cast<float>(static_cast<double>(each) / options.factor);
      break;
    case RotaryScaling::llama3:
      for (float& each : frequencies_) each = llama3_frequency(each, options);
      break;
    case RotaryScaling::yarn: {
      const std::vector<double> shares = yarn_ramp(rotary_size, options);
      for (std::size_t i = 0; i < frequencies_.size(); ++i) {
        const auto kept = static_cast<double>(frequencies_[i]);
        frequencies_[i] = static_cast<float>(kept / options.factor * shares[i] + kept * (1 - shares[i]));
      }
      factor_ = options.attention_factor.value_or(yarn_attention_factor(options));
      break;
    }
    case RotaryScaling::longrope:
      frequencies_ = make_frequencies(rotary_size, options.theta, options.short_factors);
      long_frequencies_ = make_frequencies(rotary_size, options.theta, options.long_factors);
      factor_ = options.attention_factor.value_or(longrope_attention_factor(options));
      break;
  }
}

RotaryAngles RotaryEmbedding::angles(std::span<const std::int64_t> positions,
                                     std::span<const std::int64_t> starts) const {
  const auto T = static_cast<std::int64_t>(positions.size()), half = static_cast<std::int64_t>(frequencies_.size());
  RotaryAngles out{Tensor::uninitialized({T, half}), Tensor::uninitialized({T, half})};
  const auto fill = [&](std::int64_t first, std::int64_t count, const float* frequencies) {
    parallel_for(count, rotated_at_once / (16 * half) + 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = first + begin; t < first + end; ++t) {
        for (std::int64_t i = 0; i < half; ++i) {
          const auto position = static_cast<float>(positions[static_cast<std::size_t>(t)]);
          const auto angle = static_cast<double>(position * frequencies[i]);
          out.cos.data<float>()[t * half + i] = static_cast<float>(std::cos(angle) * factor_);
          out.sin.data<float>()[t * half + i] = static_cast<float>(std::sin(angle) * factor_);
        }
      }
    });
  };
  if (long_frequencies_.empty() || T == 0) {
    fill(0, T, frequencies_.data());
    return out;
  }
  const std::int64_t one[] = {0, T};
  if (starts.empty()) starts = one;
  for (std::size_t s = 0; s + 1 < starts.size(); ++s) {
    const std::int64_t count = starts[s + 1] - starts[s];
    const auto of = positions.subspan(static_cast<std::size_t>(starts[s]), static_cast<std::size_t>(count));
    const bool longer = *std::max_element(of.begin(), of.end()) >= original_length_;
    fill(starts[s], count, longer ? long_frequencies_.data() : frequencies_.data());
  }
  return out;
}

RotaryAngles RotaryAngles::back() const {
  RotaryAngles out{cos.clone(), sin.clone()};
  float* of = out.sin.data<float>();
  for (std::int64_t n = 0; n < out.sin.count(); ++n) of[n] = -of[n];
  return out;
}

void RotaryEmbedding::rotate(const MutableView& x, const RotaryAngles& angles) {
  const std::int64_t half = angles.cos.size(-1);
  if (x.rank() != 3 || x.size(0) != angles.cos.size(0) || x.size(2) < 2 * half || x.strides()[2] != 1) {
    fail(ErrorCode::bad_shape, layer, "x has shape {}, expected [{},H,D], D from {}, the last axis in one piece",
         x.shape(), angles.cos.size(0), 2 * half);
  }
  if (!is_floating(x.dtype()) || x.dtype() == DType::f64)
    fail(ErrorCode::bad_dtype, layer, "x is {}, expected f32, bf16 or f16", x.dtype());
  kernels::RotaryOperands operands;
  operands.x = x.raw(), operands.dtype = x.dtype();
  operands.row = x.strides()[0], operands.head = x.strides()[1];
  operands.heads = x.size(1), operands.half = half;
  operands.cos = angles.cos.data<float>(), operands.sin = angles.sin.data<float>();
  parallel_for(x.size(0), rotated_at_once / (2 * half * std::max<std::int64_t>(operands.heads, 1)) + 1,
               [&](std::int64_t begin, std::int64_t end) { kernels::target().rows.rotate(operands, begin, end); });
}

}  // namespace attend::inline v1
