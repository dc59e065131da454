#include <algorithm>
#include <deque>
#include <iterator>
#include <numeric>

#include "analysis/answers.h"
#include "analysis/asked.h"
#include "analysis/jacobians.h"
#include "analysis/json.h"
#include "analysis/watchers.h"
#include "attend/analysis.h"
#include "core/message.h"
#include "layers/rows.h"

namespace attend::inline v1 {

namespace {

constexpr const char* lens_function = "lens";
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

struct analysis::Lensing::State {
  State(const Model& model, const Text& text, const LensOptions& options)
      : parts(ModelAccess::parts(model)),
        output(models::output_of(parts, lens_function)),
        top(options.top),
        jacobian(options.jacobian),
        positions(checked_positions(lens_function, "positions", options.positions, std::ssize(text.answering()))) {
    const ModelInfo& info = model.info();
    if (jacobian) check_jacobians(lens_function, *jacobian, info);
    if (top < 1 || top > info.vocabulary)
      fail(ErrorCode::bad_value, lens_function, "top is {}, expected 1 to {}", top, info.vocabulary);
    if (positions.empty()) {
      positions.resize(text.answering().size());
      std::iota(positions.begin(), positions.end(), 0);
    }
    const std::int64_t P = std::ssize(positions);
    last.resize(positions.size());
    out = {Tensor({info.layers + 1, P, top}, DType::i64), Tensor({info.layers + 1, P, top}),
           Tensor({info.layers + 1, P}, DType::i64)};
    // What comes out at last is known at the end. Few rows are kept until then; of many, a pass of its own finds it.
    keeps = (info.layers + 1) * P * info.embedding_size * 4 <= most_kept;
    if (!keeps) find_last(model.forward(text.ids, {.decoder_ids = text.decoder_ids}));
  }

  void find_last(const Tensor& hidden) {
    for_each_answer(output, rows_at(hidden, positions), [&](std::int64_t row, std::span<const float> logits) {
      last[static_cast<std::size_t>(row)] = likeliest(logits);
    });
  }

  void look_at(std::int64_t layer, Tensor rows) {
    const std::int64_t P = std::ssize(positions);
    const auto count = static_cast<std::size_t>(top);
    if (jacobian) rows = meant_at_last(*jacobian, layer, std::move(rows));
    for_each_answer(output, finished(parts, std::move(rows)), [&](std::int64_t row, std::span<const float> logits) {
      const std::int64_t at = layer * P + row;
      look(logits, last[static_cast<std::size_t>(row)], {out.ids.data<std::int64_t>() + at * top, count},
           {out.log_probabilities.data<float>() + at * top, count}, out.rank.data<std::int64_t>()[at]);
    });
  }

  const Model::Parts& parts;
  const models::Output& output;
  std::int64_t top;
  const JacobianLens* jacobian;
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> last;  // what the model answers at each position
  Lens out;
  bool keeps = true;
  std::vector<Tensor> kept;  // of each layer [P,E]
  OnPlaces watcher = OnPlaces([this](ModelPlace place, std::int64_t layer, const MutableView& x) {
    if (place != ModelPlace::residual) return;
    Tensor rows = rows_at(x, positions);
    if (keeps)
      kept.push_back(std::move(rows));
    else
      look_at(layer, std::move(rows));
  });
};

analysis::Lensing::Lensing(const Model& model, const Text& text, const LensOptions& options)
    : state_(new State(model, text, options)) {}
analysis::Lensing::~Lensing() = default;

models::Watcher& analysis::Lensing::watcher() {
  return state_->watcher;
}

void analysis::Lensing::begin_at(std::int64_t row) {
  for (std::int64_t& position : state_->positions) position += row;
}

Lens analysis::Lensing::finish(const Tensor& hidden) {
  if (state_->keeps) state_->find_last(hidden);
  for (std::size_t layer = 0; layer < state_->kept.size(); ++layer)
    state_->look_at(static_cast<std::int64_t>(layer), std::move(state_->kept[layer]));
  return std::move(state_->out);
}

Lens lens(const Model& model, std::span<const std::int64_t> ids, std::span<const std::int64_t> positions,
          std::int64_t top, std::span<const std::int64_t> decoder_ids, const JacobianLens* jacobian) {
  const LensOptions options{.positions = {positions.begin(), positions.end()}, .top = top, .jacobian = jacobian};
  analysis::Lensing asked(model, {ids, decoder_ids}, options);
  return asked.finish(ModelAccess::forward(model, ids, {.decoder_ids = decoder_ids}, &asked.watcher()));
}

namespace {

// One pass over some of several texts, from `first` on.
std::vector<Lens> lens_together(const Model& model, std::span<const analysis::Text> texts,
                                std::span<const LensOptions> options, std::size_t first, std::size_t last) {
  std::deque<analysis::Lensing> asked;
  std::vector<models::Watcher*> watchers;
  std::vector<std::int64_t> ids, starts{0};
  for (std::size_t n = first; n < last; ++n) {
    analysis::of_text(n, texts.size(), [&] { asked.emplace_back(model, texts[n], options[n]); });
    asked.back().begin_at(std::ssize(ids));
    watchers.push_back(&asked.back().watcher());
    ids.insert(ids.end(), texts[n].ids.begin(), texts[n].ids.end());
    starts.push_back(std::ssize(ids));
  }
  analysis::All all(watchers);
  const Tensor hidden = ModelAccess::forward(model, ids, {.starts = starts}, &all);
  std::vector<Lens> found;
  found.reserve(asked.size());
  for (analysis::Lensing& each : asked) found.push_back(each.finish(hidden));
  return found;
}

}  // namespace

std::vector<Lens> lens(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                       std::span<const LensOptions> options) {
  const std::vector<LensOptions> each = analysis::for_each_text(lens_function, options, texts.size());
  const std::vector<analysis::Text> all = analysis::texts_of<LensOptions>(texts, each);
  std::vector<Lens> found;
  analysis::for_each_group(model, all, [&](std::size_t first, std::size_t last) {
    if (model.info().encoder_decoder())
      return analysis::of_text(first, all.size(), [&] {
        found.push_back(lens(model, texts[first], each[first].positions, each[first].top, each[first].decoder_ids,
                             each[first].jacobian));
      });
    std::vector<Lens> some = lens_together(model, all, each, first, last);
    found.insert(found.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  });
  return found;
}

std::string to_json(const Lens& x, std::span<const std::int64_t> positions, const TensorJson& tensor) {
  const Tensors json(tensor);
  return text_of({{"positions", positions},
                  {"ids", json("ids", x.ids)},
                  {"log_probabilities", json("log_probabilities", x.log_probabilities)},
                  {"rank", json("rank", x.rank)}});
}

}  // namespace attend::inline v1
