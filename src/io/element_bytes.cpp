#include "io/element_bytes.h"

#include <algorithm>

#include "io/file.h"

namespace attend::inline v1 {

std::optional<std::uint64_t> byte_count(DType dtype, std::span<const std::int64_t> shape) {
  std::int64_t bytes = size_of(dtype);
  bool empty = false;
  for (const std::int64_t size : shape) {
    empty |= size == 0;
    if (size != 0 && __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return empty ? 0 : static_cast<std::uint64_t>(bytes);
}

void require_booleans(const Tensor& tensor, const Place& place, std::uint64_t start) {
  if (tensor.dtype() == DType::boolean) require_booleans(tensor.raw(), tensor.count(), place, start);
}

void require_booleans(const void* memory, std::int64_t count, const Place& place, std::uint64_t start) {
  if (count == 0) return;
  const auto* bytes = static_cast<const unsigned char*>(memory);
  const auto* end = bytes + count;
  const auto* wrong = std::find_if(bytes, end, [](unsigned char byte) { return byte > 1; });
  if (wrong != end) {
    fail_at(place, "byte {}: a bool is 0 or 1, and this is {}", start + static_cast<std::uint64_t>(wrong - bytes),
            *wrong);
  }
}

RowMajor::RowMajor(const View& view)
    : data_(view.raw()), bytes_(static_cast<std::uint64_t>(view.count() * size_of(view.dtype()))) {
  if (view.is_contiguous()) return;
  copy_ = view.clone();
  data_ = copy_.raw();
}

}  // namespace attend::inline v1
