#include "models/tasks/head.h"

#include <algorithm>

#include "core/message.h"
#include "layers/rows.h"

namespace attend::inline v1::models {

bool TaskHead::chooses() const {
  return task != ModelTask::classify || !(several || regression || output.out_size() == 1);
}

std::vector<std::int64_t> TaskHead::decoder_ids(std::span<const std::int64_t> ids,
                                                std::span<const std::int64_t> starts) const {
  std::vector<std::int64_t> own(ids.size());
  std::copy_n(ids.begin(), ids.size() - 1, own.begin() + 1);
  for (const std::int64_t first : starts.first(starts.size() - 1)) own[static_cast<std::size_t>(first)] = start;
  return own;
}

std::int64_t TaskHead::row_read(std::span<const std::int64_t> ids) const {
  if (reads == Reads::first) return 0;
  if (reads == Reads::end) {
    const auto found = std::find_first_of(ids.rbegin(), ids.rend(), ends.begin(), ends.end());
    if (found == ids.rend())
      fail(ErrorCode::bad_value, "Model", "the head reads the token that ends a text ({}), and {} ids do not have it",
           fmt::join(ends, ", "), ids.size());
    return std::ssize(ids) - 1 - (found - ids.rbegin());
  }
  if (!padding) return std::ssize(ids) - 1;
  const auto found = std::find_if(ids.rbegin(), ids.rend(), [&](std::int64_t id) { return id != *padding; });
  return found == ids.rend() ? 0 : std::ssize(ids) - 1 - (found - ids.rbegin());
}

Tensor TaskHead::rows(const Tensor& hidden, std::span<const std::int64_t> ids,
                      std::span<const std::int64_t> starts) const {
  if (reads == Reads::each) return hidden.clone();
  const std::int64_t sequences = std::ssize(starts) - 1, E = hidden.size(1);
  Tensor out({sequences, E});
  for (std::int64_t s = 0; s < sequences; ++s) {
    const std::int64_t begin = starts[static_cast<std::size_t>(s)];
    const std::int64_t count = starts[static_cast<std::size_t>(s) + 1] - begin;
    const float* from = hidden.data<float>() + begin * E;
    float* to = out.data<float>() + s * E;
    if (reads != Reads::mean) {
      const std::int64_t row = row_read(ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)));
      std::copy_n(from + row * E, E, to);
      continue;
    }
    for (std::int64_t e = 0; e < E; ++e) {
      double sum = 0;
      for (std::int64_t n = 0; n < count; ++n) sum += double(from[n * E + e]);
      to[e] = static_cast<float>(sum / static_cast<double>(count));
    }
  }
  return out;
}

Tensor TaskHead::logits(const View& rows) const {
  if (!dense) return output.forward(rows, DType::f32);
  Tensor x = dense->linear.forward(rows, DType::f32);
  activate(dense->activation, x.view());
  if (dense->norm) x = dense->norm->forward(x);
  return output.forward(x, DType::f32);
}

Tensor TaskHead::row_gradient(const View& row, const Tensor& d) const {
  Tensor dx = output.input_gradient(d);
  if (!dense) return dx;
  const Tensor before = dense->linear.forward(row, DType::f32);
  if (dense->norm) {
    Tensor x = before.clone();
    activate(dense->activation, x.view());
    dx = dense->norm->input_gradient(dx, x);
  }
  return dense->linear.input_gradient(activation_gradient(dense->activation, dx, before).dx);
}

Tensor TaskHead::input_gradient(const Tensor& hidden, std::span<const std::int64_t> ids, std::int64_t position,
                                const Tensor& d) const {
  const std::int64_t N = hidden.size(0), E = hidden.size(1), starts[] = {0, N};
  Tensor out({N, E});
  if (reads == Reads::mean) {
    const Tensor of_mean = row_gradient(rows(hidden, ids, starts).view().select(0, 0), d);
    for (std::int64_t n = 0; n < N * E; ++n)
      out.data<float>()[n] = of_mean.data<float>()[n % E] / static_cast<float>(N);
    return out;
  }
  const std::int64_t row = reads == Reads::each ? position : row_read(ids);
  out.view().select(0, row).copy_from(row_gradient(hidden.view().select(0, row), d));
  return out;
}

}  // namespace attend::inline v1::models
