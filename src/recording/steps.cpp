// What makes a recorded head's weights, step by step.
#include <algorithm>
#include <limits>

#include "core/message.h"
#include "recording/calls.h"
#include "recording/recording.h"
#include "summary/summary.h"

namespace attend::inline v1 {

namespace {

constexpr const char* steps_function = "Recording::steps";

// [1,1,T,D] as a matrix, in the dtype of the layer's numbers.
Tensor matrix_of(const View& x, DType dtype) {
  return x.select(0, 0).select(0, 0).to(dtype);
}

// [1,1,Tk,Dv] in the layer's dtype; one column of zeros where none are given.
Tensor values_of(const std::optional<View>& given, const RecordedLayer& x) {
  if (!given) return Tensor({1, 1, x.keys, 1}, x.dtype);
  if (!is_floating(given->dtype()))
    fail(ErrorCode::bad_dtype, steps_function, "values are {}, expected floating point", given->dtype());
  if (given->rank() != 2 || given->size(0) != x.keys || given->size(1) < 1) {
    fail(ErrorCode::bad_shape, steps_function, "values have shape {}, expected [Tk,Dv], Tk = {}", given->shape(),
         x.keys);
  }
  return given->reshape({1, 1, x.keys, given->size(1)}).to(x.dtype);
}

Tensor hidden_pairs(const Dims& shape, DType dtype) {
  Tensor logits(shape, dtype);
  if (dtype == DType::f64)
    std::fill_n(logits.data<double>(), logits.count(), -std::numeric_limits<double>::infinity());
  else
    std::fill_n(logits.data<float>(), logits.count(), -std::numeric_limits<float>::infinity());
  return logits;
}

// Rows of one head's [1,1,rows,keys] to where they belong in [queries,keys].
void place(Tensor& to, const View& from, std::int64_t first_row, std::int64_t first_column) {
  const View matrix = from.select(0, 0).select(0, 0);
  to.view()
      .slice(0, first_row, first_row + matrix.size(0))
      .slice(1, first_column, first_column + matrix.size(1))
      .copy_from(matrix);
}

}  // namespace

HeadSteps Recording::steps(std::int64_t layer, std::int64_t item, std::int64_t number, const StepsOptions& part) const {
  const RecordedLayer& x = at(layer);
  const std::int64_t h = check_head(steps_function, layer, item, number),
                     kv_head = h / (std::ssize(x.heads) / x.kv_heads);
  const Range rows = check_range(steps_function, "queries", part.queries, x.queries),
              columns = check_range(steps_function, "keys", part.keys, x.keys);
  const DType dtype = statistics_dtype(x.dtype);
  const Tensor values = values_of(part.values, x), k = rows_of(layer, "k", item, kv_head, {0, x.keys});
  const View some_keys = k.view().slice(2, columns.begin, columns.end);
  const Dims pairs{rows.end - rows.begin, columns.end - columns.begin};
  const auto of_rows = [&](const char* name) {
    return rows_of(layer, name, item, h, rows).view().reshape({pairs[0]}).clone();
  };
  HeadSteps steps{.queries = matrix_of(rows_of(layer, "q", item, h, rows), dtype),
                  .keys = matrix_of(some_keys, dtype),
                  .scores = Tensor(pairs, dtype),
                  .scaled_scores = Tensor(pairs, dtype),
                  .logits = hidden_pairs(pairs, dtype),
                  .weights = weights(layer, item, number, rows, columns),
                  .lse = of_rows("lse"),
                  .entropy = of_rows("entropy")};
  if (part.values) steps.context = Tensor({pairs[0], values.size(3)}, dtype);
  for (std::size_t n = 0; n < x.calls.size(); ++n) {
    const RecordedCall& call = x.calls[n];
    const Range own_rows = within(rows, call.queries), own_columns = within(columns, call.keys);
    if (own_rows.begin == own_rows.end) continue;
    const std::int64_t first = call.queries.begin + own_rows.begin - rows.begin;
    const Tensor q =
        rows_of(layer, "q", item, h, {call.queries.begin + own_rows.begin, call.queries.begin + own_rows.end});
    // Of all keys, which the call may not have had.
    const Tensor no_values({1, 1, some_keys.size(2), 1}, x.dtype);
    const AttentionSteps plain = attention_steps(q, some_keys, no_values, {.scale = call.scale});
    place(steps.scores, plain.scores, first, 0), place(steps.scaled_scores, plain.scaled_scores, first, 0);
    TensorMap tensors;
    const AttentionOptions options = options_of_rows(options_of(layer, n, item, h, tensors), call, own_rows);
    const auto of_call = [&](const Tensor& all) { return all.view().slice(2, call.keys.begin, call.keys.end); };
    const AttentionSteps own = attention_steps(q, of_call(k), of_call(values), options);
    place(steps.logits, own.logits.view().slice(3, own_columns.begin, own_columns.end), first,
          call.keys.begin + own_columns.begin - columns.begin);
    if (part.values) place(*steps.context, own.context, first, 0);
  }
  return steps;
}

}  // namespace attend::inline v1
