#include <algorithm>
#include <numeric>

#include "analysis/answers.h"
#include "analysis/stream.h"
#include "analysis/watchers.h"
#include "attend/analysis.h"
#include "core/message.h"

namespace attend {

namespace {

constexpr const char* function = "lens";
constexpr std::int64_t most_kept = std::int64_t{32} << 20;  // bytes

// Of one row: its `top` likeliest tokens, and the place of `last`.
void look(std::span<const float> logits, std::int64_t last, std::span<std::int64_t> ids, std::span<float> values,
          std::int64_t& rank) {
  const auto before = [&](std::int64_t a, std::int64_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::partial_sort(order, order.begin() + std::ssize(ids), before);
  std::copy_n(order.begin(), ids.size(), ids.begin());
  const double sum = analysis::log_sum(logits);
  for (std::size_t n = 0; n < ids.size(); ++n)
    values[n] = static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(ids[n])]) - sum);
  rank = 0;
  for (std::int64_t id = 0; id < std::ssize(logits); ++id) rank += before(id, last);
}

}  // namespace

Lens lens(const Model& model, std::span<const std::int64_t> ids, std::span<const std::int64_t> given, std::int64_t top,
          std::span<const std::int64_t> decoder_ids) {
  const Model::Parts& parts = ModelAccess::parts(model);
  const ModelInfo& info = model.info();
  const models::Output& output = models::output_of(parts, function);
  const analysis::Text text{ids, decoder_ids};
  const std::int64_t T = std::ssize(text.answering());
  analysis::check_positions(function, "positions", given, T);
  if (top < 1 || top > info.vocabulary)
    fail(ErrorCode::bad_value, function, "top is {}, expected 1 to {}", top, info.vocabulary);
  std::vector<std::int64_t> positions(given.begin(), given.end());
  if (positions.empty())
    positions.resize(static_cast<std::size_t>(T)), std::iota(positions.begin(), positions.end(), 0);

  const std::int64_t P = std::ssize(positions);
  std::vector<std::int64_t> last(static_cast<std::size_t>(P));
  const auto find_last = [&](const Tensor& hidden) {
    analysis::for_each_answer(output, hidden, [&](std::int64_t row, std::span<const float> logits) {
      last[static_cast<std::size_t>(row)] = analysis::likeliest(logits);
    });
  };
  Lens out{Tensor({info.layers + 1, P, top}, DType::i64), Tensor({info.layers + 1, P, top}),
           Tensor({info.layers + 1, P}, DType::i64)};
  const auto count = static_cast<std::size_t>(top);
  const auto look_at = [&](std::int64_t layer, Tensor rows) {
    const Tensor hidden = analysis::finished(parts, std::move(rows));
    analysis::for_each_answer(output, hidden, [&](std::int64_t row, std::span<const float> logits) {
      const std::int64_t at = layer * P + row;
      look(logits, last[static_cast<std::size_t>(row)], {out.ids.data<std::int64_t>() + at * top, count},
           {out.log_probabilities.data<float>() + at * top, count}, out.rank.data<std::int64_t>()[at]);
    });
  };

  // What comes out at last is known at the end. Few rows are kept until then; of many, a pass of its own finds it.
  const bool keeps = (info.layers + 1) * P * info.embedding_size * 4 <= most_kept;
  if (!keeps) find_last(analysis::rows_of(model.forward(ids, {.decoder_ids = decoder_ids}), positions));
  std::vector<Tensor> kept;
  analysis::OnPlaces watcher([&](ModelPlace place, std::int64_t layer, const MutableView& x) {
    if (place != ModelPlace::residual) return;
    Tensor rows = analysis::rows_of(x, positions);
    if (keeps)
      kept.push_back(std::move(rows));
    else
      look_at(layer, std::move(rows));
  });
  const Tensor hidden = ModelAccess::forward(model, ids, {.decoder_ids = decoder_ids}, &watcher);
  if (keeps) find_last(analysis::rows_of(hidden, positions));
  for (std::size_t layer = 0; layer < kept.size(); ++layer)
    look_at(static_cast<std::int64_t>(layer), std::move(kept[layer]));
  return out;
}

}  // namespace attend
