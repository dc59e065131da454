// How well a passage's token vectors answer a query's.
#include <algorithm>

#include "attend/late_interaction.h"
#include "attend/linear.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

void check_rows(std::string_view function, std::string_view name, const View& rows) {
  if (rows.rank() != 2 || rows.size(1) < 1)
    fail(ErrorCode::bad_shape, function, "{} has shape {}, expected [tokens,size]", name, rows.shape());
  if (rows.dtype() != DType::f32) fail(ErrorCode::bad_dtype, function, "{} is {}, expected f32", name, rows.dtype());
}

}  // namespace

MaxSim max_sim(const View& query, const View& passage) {
  constexpr const char* function = "max_sim";
  check_rows(function, "query", query);
  check_rows(function, "passage", passage);
  if (passage.size(1) != query.size(1) || passage.size(0) < 1)
    fail(ErrorCode::bad_shape, function, "passage has shape {}, expected [1 or more,{}]", passage.shape(),
         query.size(1));
  MaxSim made;
  made.similarities = Linear::borrow(passage).forward(query);
  const std::int64_t P = passage.size(0);
  const float* row = made.similarities.data<float>();
  for (std::int64_t q = 0; q < query.size(0); ++q, row += P) {
    const float* const best = std::max_element(row, row + P);
    made.best.push_back(best - row);
    made.score += static_cast<double>(*best);
  }
  return made;
}

}  // namespace attend::inline v1
