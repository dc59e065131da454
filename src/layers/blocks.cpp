#include "layers/blocks.h"

#include "attend/layers.h"
#include "core/message.h"
#include "core/parallel.h"
#include "kernels/targets.h"

namespace attend::inline v1 {

void check_blocks(std::string_view function, const QuantizedView& matrix) {
  if (matrix.rows < 1 || matrix.columns < 1 || matrix.columns % block_size(matrix.type) != 0) {
    fail(ErrorCode::bad_shape, function, "{} of shape [{},{}], expected rows of whole blocks of {} numbers",
         name_of(matrix.type), matrix.rows, matrix.columns, block_size(matrix.type));
  }
  const std::int64_t head = matrix.interleaved_head;
  if (head < 0 || head % 2 != 0 || (head > 0 && matrix.rows % head != 0))
    fail(ErrorCode::bad_value, function, "{} rows can't be those of interleaved heads of {}", matrix.rows, head);
}

kernels::BlockMatrix cut(const QuantizedView& matrix) {
  return {matrix, block_size(matrix.type), block_bytes(matrix.type), matrix.row_bytes()};
}

kernels::BlockMatrix columns_of(const QuantizedView& matrix, std::int64_t first, std::int64_t last) {
  kernels::BlockMatrix part = cut(matrix);
  part.matrix.data = static_cast<const std::byte*>(matrix.data) + first / part.block_size * part.block_bytes;
  part.matrix.columns = last - first;
  return part;
}

Tensor dequantize(const QuantizedView& matrix, std::int64_t first, std::int64_t last) {
  constexpr std::int64_t together = 1 << 16;  // fewer numbers are done before another thread has woken up
  check_blocks("dequantize", matrix);
  if (first < 0 || first > last || last > matrix.rows)
    fail(ErrorCode::bad_value, "dequantize", "rows [{},{}) of {}", first, last, matrix.rows);
  Tensor out = Tensor::uninitialized({last - first, matrix.columns});
  parallel_for(last - first, together / matrix.columns + 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::target().linear.widen(cut(matrix), first + begin, first + end, out.data<float>() + begin * matrix.columns,
                                   matrix.columns);
  });
  return out;
}

Tensor dequantize(const QuantizedView& matrix) {
  return dequantize(matrix, 0, matrix.rows);
}

}  // namespace attend::inline v1
