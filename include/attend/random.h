// Random numbers of PyTorch's CPU generator: same seed and calls, same values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "attend/api.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

// PyTorch's CPU generator (MT19937). Generator(seed) is torch.manual_seed(seed). The order of calls matters, as in
// PyTorch. A copy continues alone from the same state. Tensors are drawn in row-major order, f32 or f64; others throw
// bad_dtype. docs/numerics.md says which bits agree.
class ATTEND_API Generator {
 public:
  // PyTorch's default seed.
  static constexpr std::uint64_t default_seed = 67280421310721;

  explicit Generator(std::uint64_t seed = default_seed) { this->seed(seed); }
  // As torch.manual_seed: starts again, and drops a normal value kept for the next draw.
  void seed(std::uint64_t seed);

  // Uniform in [0,1): torch.rand.
  Tensor rand(const Dims& shape, DType dtype = DType::f32);
  // Standard normal: torch.randn. As in PyTorch, fewer than 16 values are drawn differently.
  Tensor randn(const Dims& shape, DType dtype = DType::f32);
  // Uniform in [low,high): Tensor.uniform_. As in PyTorch, rounding may give high itself. Throws bad_value unless low
  // <= high and both and their difference are finite in the dtype.
  Tensor uniform(const Dims& shape, double low, double high, DType dtype = DType::f32);
  // Tensor.normal_. Throws bad_value for a negative std, or a mean or std that is not finite in the dtype.
  Tensor normal(const Dims& shape, double mean, double std, DType dtype = DType::f32);

  // torch.nn.init for shapes [out,in] or [out,in,...]; a smaller rank throws bad_shape. kaiming_uniform has a =
  // sqrt(5), as in nn.Linear: the bound is 1 / sqrt(in).
  Tensor kaiming_uniform(const Dims& shape);
  Tensor xavier_uniform(const Dims& shape);
  Tensor xavier_normal(const Dims& shape);

 private:
  std::uint32_t next32();
  std::uint64_t next64();
  double next_normal();

  std::array<std::uint32_t, 624> state_{};
  int position_ = 0;
  std::optional<double> kept_normal_;
};

}  // namespace attend::inline v1
