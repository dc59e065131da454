#include "models/weight_matrix.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>

#include "attend/threads.h"
#include "core/divide_up.h"
#include "core/message.h"
#include "models/gguf/quantize_row.h"

namespace attend::inline v1::models {

std::string_view format_of(const Matrix& matrix) {
  return matrix.blocks ? name_of(matrix.blocks->type) : name_of(matrix.view.dtype());
}

std::int64_t bytes_of(const Matrix& matrix) {
  if (matrix.blocks) return matrix.blocks->rows * matrix.blocks->row_bytes();
  return matrix.view.count() * size_of(matrix.view.dtype());
}

std::int64_t q8_0_bytes(std::int64_t count) {
  return count / block_size(QuantizedType::q8_0) * block_bytes(QuantizedType::q8_0);
}

bool are_q8_0_rows(std::int64_t columns) {
  return columns % block_size(QuantizedType::q8_0) == 0;
}

std::optional<Tensor> q8_0_rows(const View& matrix) {
  constexpr std::int64_t together = 16;  // columns of a transposed matrix that share the cache's lines
  const float most = largest_number(GgufType::q8_0);
  const std::int64_t rows = matrix.size(0), columns = matrix.size(1), bytes = q8_0_bytes(columns);
  Tensor made = Tensor::uninitialized({rows, bytes}, DType::i8);
  auto* to = reinterpret_cast<std::byte*>(made.data<std::int8_t>());
  std::atomic<bool> fine = true;
  parallel_for(divide_up(rows, together), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin * together; first < std::min(end * together, rows); first += together) {
      const Tensor part = matrix.slice(0, first, std::min(first + together, rows)).to(DType::f32);
      const float* numbers = part.data<float>();
      if (!std::all_of(numbers, numbers + part.count(), [&](float x) { return std::fabs(x) <= most; })) fine = false;
      for (std::int64_t row = 0; fine && row < part.size(0); ++row)
        quantize_row(GgufType::q8_0, numbers + row * columns, columns, to + (first + row) * bytes);
    }
  });
  return fine ? std::optional(std::move(made)) : std::nullopt;
}

Tensor numbers(const Matrix& matrix) {
  if (!matrix.blocks) return matrix.view.to(DType::f32);
  Tensor made = dequantize(*matrix.blocks);
  return matrix.view.is_contiguous() ? std::move(made) : made.view().transpose(0, 1).clone();
}

bool is_same(const Matrix& a, const Matrix& b) {
  const auto data = [](const Matrix& of) { return of.blocks ? of.blocks->data : of.view.raw(); };
  return a.view.shape() == b.view.shape() && format_of(a) == format_of(b) &&
         std::memcmp(data(a), data(b), static_cast<std::size_t>(bytes_of(a))) == 0;
}

}  // namespace attend::inline v1::models
