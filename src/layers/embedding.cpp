#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "attend/layers.h"
#include "core/message.h"
#include "core/parallel.h"

namespace attend::inline v1 {

namespace {

void check_ids(std::span<const std::int64_t> ids, std::int64_t count) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < count) continue;
    fail(ErrorCode::bad_value, "Embedding", "ids[{}] is {}, expected 0 to {} ({} embeddings)", i, ids[i], count - 1,
         count);
  }
}

// Where each id stands, in order: those of id n are places[starts[n]], ..., places[starts[n + 1] - 1].
struct Places {
  std::vector<std::int64_t> starts, places;

  Places(std::span<const std::int64_t> ids, std::int64_t count)
      : starts(static_cast<std::size_t>(count) + 1), places(ids.size()) {
    for (const std::int64_t id : ids) ++starts[static_cast<std::size_t>(id) + 1];
    for (std::size_t id = 1; id < starts.size(); ++id) starts[id] += starts[id - 1];
    std::vector<std::int64_t> next = starts;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      places[static_cast<std::size_t>(next[static_cast<std::size_t>(ids[i])]++)] = static_cast<std::int64_t>(i);
    }
  }
};

}  // namespace

Embedding::Embedding(std::int64_t count, std::int64_t size, Generator& generator)
    : weight_(generator.randn({count, size})) {}

Embedding::Embedding(const View& weight) {
  if (weight.rank() != 2) {
    fail(ErrorCode::bad_shape, "Embedding", "weight has shape {}, expected [count,E]", weight.shape());
  }
  if (!is_floating(weight.dtype())) {
    fail(ErrorCode::bad_dtype, "Embedding", "weight is {}, expected floating point", weight.dtype());
  }
  weight_ = weight.to(DType::f32);
}

Tensor Embedding::forward(std::span<const std::int64_t> ids) const {
  const std::int64_t count = weight_.size(0);
  const std::int64_t size = weight_.size(1);
  Tensor out = Tensor::uninitialized({static_cast<std::int64_t>(ids.size()), size});
  if (size == 0) return out;
  check_ids(ids, count);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::memcpy(out.data<float>() + static_cast<std::int64_t>(i) * size, weight_.data<float>() + ids[i] * size,
                static_cast<std::size_t>(size) * sizeof(float));
  }
  return out;
}

Tensor Embedding::backward(const View& dy, std::span<const std::int64_t> ids) const {
  const std::int64_t count = weight_.size(0), size = weight_.size(1), T = std::ssize(ids);
  if (!is_floating(dy.dtype()))
    fail(ErrorCode::bad_dtype, "Embedding", "dy is {}, expected floating point", dy.dtype());
  if (dy.rank() == 0 || dy.size(-1) != size || dy.count() != T * size) {
    fail(ErrorCode::bad_shape, "Embedding", "dy has shape {}, expected [{},{}], or more axes for the {} ids",
         dy.shape(), T, size, T);
  }
  Tensor out({count, size});
  if (size == 0) return out;
  check_ids(ids, count);
  const bool direct = dy.dtype() == DType::f32 && dy.is_contiguous();
  const Tensor made = direct ? Tensor() : dy.to(DType::f32);
  const float* rows = direct ? dy.data<float>() : made.data<float>();
  const Places at(ids, count);
  const std::int64_t grain = (std::int64_t{1} << 16) / size + 1;  // less is done before another thread has woken up
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sums(static_cast<std::size_t>(size));  // an id may stand in every second place
    for (std::int64_t id = begin; id < end; ++id) {
      const std::int64_t first = at.starts[static_cast<std::size_t>(id)],
                         last = at.starts[static_cast<std::size_t>(id) + 1];
      if (first == last) continue;
      std::fill(sums.begin(), sums.end(), 0.0);
      for (std::int64_t place = first; place < last; ++place) {
        const float* row = rows + at.places[static_cast<std::size_t>(place)] * size;
        for (std::size_t e = 0; e < sums.size(); ++e) sums[e] += static_cast<double>(row[e]);
      }
      std::transform(sums.begin(), sums.end(), out.data<float>() + id * size,
                     [](double sum) { return static_cast<float>(sum); });
    }
  });
  return out;
}

}  // namespace attend::inline v1
