// Rotary positions: angles that turn queries and keys, and turn them back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attend/api.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

// How angles are stretched for texts longer than in training.
enum class ATTEND_API RotaryScaling : std::uint8_t {
  none,
  linear,    // positions divided by factor (Chen et al. 2023)
  llama3,    // slow frequencies divided by factor, fast ones kept, those between mixed (Llama 3.1)
  yarn,      // as llama3 between beta_fast and beta_slow turns, with sharper scores (Peng et al. 2023)
  longrope,  // each frequency divided by its own number, in longer texts by another (Ding et al. 2024)
};

struct ATTEND_API RotaryOptions {
  double theta = 10000;
  RotaryScaling scaling = RotaryScaling::none;
  double factor = 1;
  std::int64_t original_length = 0;                            // tokens of the training texts; not for linear
  double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;                        // yarn
  bool truncate = true;                                        // yarn: round the bounds to whole dimensions
  // yarn: attention_factor's default is m(mscale) / m(mscale_all_dim) if both are given, else m(1), with m(x) = 0.1 x
  // ln(factor) + 1.
  double mscale = 0, mscale_all_dim = 0;
  std::vector<double> short_factors = {}, long_factors = {};  // longrope: [R/2]
  // yarn, longrope: factor of cos and sin. longrope's default is sqrt(1 + ln(factor) / ln(original_length)).
  std::optional<double> attention_factor = {};
};

// cos and sin of the angles of T positions, [T,R/2], f32.
struct ATTEND_API RotaryAngles {
  Tensor cos, sin;

  // Angles that undo the turn; rotate() by them takes gradients back.
  RotaryAngles back() const;
};

// Rotary positions (Su et al. 2021): in the first R numbers of a head, the pair (i, i + R/2) turns by position *
// theta^(-2i/R). Frequencies and angles are rounded to f32, as in the programs that trained the models.
class ATTEND_API RotaryEmbedding {
 public:
  // rotary_size: R, even. Throws bad_value.
  explicit RotaryEmbedding(std::int64_t rotary_size, const RotaryOptions& options = {});
  // starts [sequences + 1]: where each sequence begins, then the end; empty: one sequence. longrope picks the
  // frequencies by the sequence's last position. Keys rotated before the sequence passed original_length keep theirs,
  // as in Transformers.
  RotaryAngles angles(std::span<const std::int64_t> positions, std::span<const std::int64_t> starts = {}) const;
  // In place; x [T,H,D], D at least R, last axis row-major.
  static void rotate(const MutableView& x, const RotaryAngles& angles);

 private:
  std::vector<float> frequencies_;       // [R/2]
  std::vector<float> long_frequencies_;  // for sequences longer than original_length_; empty: the same
  std::int64_t original_length_ = 0;
  double factor_ = 1;  // of cos and sin
};

}  // namespace attend::inline v1
