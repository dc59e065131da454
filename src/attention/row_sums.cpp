#include "attention/row_sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention/operands.h"
#include "attention/schedule.h"

namespace attend::inline v1 {

namespace {

// f32, at any address.
bool is_coarse_row(const View& lse, std::int64_t b, std::int64_t h, float magnitude) {
  const auto at = operand_at(lse, b, h, 0);
  const auto* from = static_cast<const std::byte*>(at.data);
  bool coarse = false;
  for (std::int64_t i = 0; i < lse.size(2); ++i, from += at.row * 4) {
    float x;
    std::memcpy(&x, from, 4);
    coarse |= std::abs(x) >= magnitude && std::abs(x) < std::numeric_limits<float>::infinity();
  }
  return coarse;
}

}  // namespace

bool is_coarse(const View& lse, float magnitude) {
  for (std::int64_t b = 0; b < lse.size(0); ++b)
    for (std::int64_t h = 0; h < lse.size(1); ++h)
      if (is_coarse_row(lse, b, h, magnitude)) return true;
  return false;
}

void sum_rows(const Problem& p, const MutableView& statistics, const std::optional<MutableView>& logits) {
  const Problem sums = p.without_values();
  const Schedule schedule = make_schedule(sums);
  Tensor scratch = Tensor::uninitialized({schedule.scratch_bytes()}, DType::u8);
  const auto column = [&](std::int64_t n) { return statistics.slice(3, n, n + 1).reshape({p.B, p.H, p.Tq}); };
  const MutableView nothing(statistics.raw(), p.q.dtype(), {p.B, p.H, p.Tq, 0});
  const ResultViews to{
      .out = nothing, .lse = column(0), .lse_low = column(1), .log2 = true, .sums = {}, .logits = logits};
  run_schedule(sums, schedule, to, scratch.raw());
}

std::int64_t sum_rows_bytes(const Problem& p) {
  return std::max<std::int64_t>(1, make_schedule(p.without_values()).scratch_bytes());
}

}  // namespace attend::inline v1
