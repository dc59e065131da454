#include <cstring>

#include "attend/layers.h"
#include "core/message.h"

namespace attend {

Embedding::Embedding(std::int64_t count, std::int64_t size, Generator& generator)
    : weight_(generator.randn({count, size})) {}

Embedding::Embedding(const View& weight) {
  if (weight.rank() != 2) {
    fail(ErrorCode::bad_shape, "Embedding: weight has shape {}, expected [count,E]", weight.shape());
  }
  if (!is_floating(weight.dtype())) {
    fail(ErrorCode::bad_dtype, "Embedding: weight is {}, expected floating point", weight.dtype());
  }
  weight_ = weight.to(DType::f32);
}

Tensor Embedding::forward(std::span<const std::int64_t> ids) const {
  const std::int64_t count = weight_.size(0);
  const std::int64_t size = weight_.size(1);
  Tensor out = Tensor::uninitialized({static_cast<std::int64_t>(ids.size()), size});
  if (size == 0) return out;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= count) {
      fail(ErrorCode::bad_value, "Embedding: ids[{}] is {}, expected 0 to {} ({} embeddings)", i, ids[i], count - 1,
           count);
    }
    std::memcpy(out.data<float>() + static_cast<std::int64_t>(i) * size, weight_.data<float>() + ids[i] * size,
                static_cast<std::size_t>(size) * sizeof(float));
  }
  return out;
}

}  // namespace attend
