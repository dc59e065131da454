// What passes compute at places, kept.
#include <algorithm>
#include <utility>

#include "attend/session.h"
#include "core/from_end.h"
#include "core/message.h"
#include "models/edits.h"

namespace attend::inline v1 {

namespace {

constexpr const char* keeping_function = "keep";

// Of the one layer that embeddings have, there is no axis of layers.
bool of_all_layers(const Keep& keep) {
  return !keep.layer && keep.at != ModelPlace::embeddings && keep.at != ModelPlace::encoder_embeddings;
}

}  // namespace

// One place. The rows of its first pass come as they are; those of later ones, as of generate(), are few, and wait.
class Keeper::Kept {
 public:
  Kept(const Keep& keep, const ModelInfo& info) : at_(keep.at), all_(of_all_layers(keep)) {
    const models::PlaceShape shape = models::shape_of(keeping_function, keep.at, info);
    columns_ = shape.columns, layers_ = all_ ? shape.layers : 1;
    const std::string layer = fmt::format("{} of layer", name_of(keep.at));
    if (keep.layer) first_ = from_end(keeping_function, layer, *keep.layer, shape.layers);
    seen_.resize(static_cast<std::size_t>(layers_)), more_.resize(static_cast<std::size_t>(layers_));
  }

  void at(ModelPlace place, std::int64_t layer, const View& values) {
    if (place != at_ || layer < first_ || layer >= first_ + layers_) return;
    const auto n = static_cast<std::size_t>(layer - first_);
    if (!seen_[n]) {
      if (rows_.count() == 0) rows_ = room_for(values.size(0));
      of_layer(rows_, layer - first_).copy_from(values);
      seen_[n] = true;
      return;
    }
    const Tensor wide = values.to(DType::f32);
    more_[n].insert(more_[n].end(), wide.data<float>(), wide.data<float>() + wide.count());
  }

  std::int64_t bytes(std::int64_t rows) const {
    return layers_ * rows * columns_ * static_cast<std::int64_t>(sizeof(float));
  }

  Tensor finish() {
    const std::int64_t later = std::ssize(more_.front()) / columns_;
    if (later == 0) return rows_.count() > 0 ? std::move(rows_) : room_for(0);
    const std::int64_t first = rows_.size(-2);
    Tensor all = room_for(first + later);
    for (std::int64_t n = 0; n < layers_; ++n) {
      const MutableView to = of_layer(all, n);
      to.slice(0, 0, first).copy_from(of_layer(rows_, n));
      to.slice(0, first, first + later)
          .copy_from(View(more_[static_cast<std::size_t>(n)].data(), DType::f32, {later, columns_}));
    }
    return all;
  }

 private:
  Tensor room_for(std::int64_t rows) const {
    return Tensor::uninitialized(all_ ? Dims{layers_, rows, columns_} : Dims{rows, columns_});
  }
  MutableView of_layer(Tensor& of, std::int64_t n) const { return all_ ? of.view().select(0, n) : of.view(); }

  ModelPlace at_;
  bool all_;
  std::int64_t first_ = 0, layers_ = 1, columns_ = 0;
  std::vector<bool> seen_;
  Tensor rows_;
  std::vector<std::vector<float>> more_;
};

Keeper::Keeper(const ModelInfo& info, std::span<const Keep> keep) {
  for (const Keep& each : keep) kept_.emplace_back(each, info);
}
Keeper::~Keeper() = default;

void Keeper::at(ModelPlace place, std::int64_t layer, const View& values) {
  for (Kept& kept : kept_) kept.at(place, layer, values);
}

std::vector<Tensor> Keeper::finish() {
  std::vector<Tensor> all;
  all.reserve(kept_.size());
  for (Kept& kept : kept_) all.push_back(kept.finish());
  return all;
}

std::int64_t kept_bytes(const ModelInfo& info, std::span<const Keep> keep, std::int64_t tokens) {
  std::int64_t sum = 0;
  for (const Keep& each : keep) sum += Keeper::Kept(each, info).bytes(tokens);
  return sum;
}

std::vector<Tensor> means(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                          std::span<const Keep> keep, bool by_position) {
  if (texts.empty()) fail(ErrorCode::bad_value, "means", "there are no texts");
  const std::int64_t longest =
      std::ssize(*std::ranges::max_element(texts, {}, [](const auto& of) { return of.size(); }));
  std::vector<std::vector<double>> sums(keep.size());
  std::vector<Dims> shapes(keep.size());
  std::vector<double> counts(static_cast<std::size_t>(by_position ? longest : 1));
  for (const std::vector<std::int64_t>& ids : texts) {
    Keeper keeper(model.info(), keep);
    model.forward(ids, {.observe = [&](ModelPlace place, std::int64_t layer, const View& values) {
                    keeper.at(place, layer, values);
                  }});
    const std::vector<Tensor> kept = keeper.finish();
    for (std::size_t t = 0; t < ids.size(); ++t) counts[by_position ? t : 0] += 1;
    for (std::size_t n = 0; n < kept.size(); ++n) {
      const std::int64_t layers = kept[n].rank() == 3 ? kept[n].size(0) : 1, T = kept[n].size(-2), C = kept[n].size(-1);
      const std::int64_t rows = by_position ? longest : 1;
      sums[n].resize(static_cast<std::size_t>(layers * rows * C));
      shapes[n] = kept[n].rank() == 3 ? (by_position ? Dims{layers, rows, C} : Dims{layers, C})
                                      : (by_position ? Dims{rows, C} : Dims{C});
      const float* from = kept[n].data<float>();
      for (std::int64_t row = 0; row < layers * T; ++row) {
        const std::int64_t to = row / T * rows + (by_position ? row % T : 0);
        for (std::int64_t c = 0; c < C; ++c)
          sums[n][static_cast<std::size_t>(to * C + c)] += static_cast<double>(from[row * C + c]);
      }
    }
  }
  std::vector<Tensor> out;
  for (std::size_t n = 0; n < keep.size(); ++n) {
    Tensor& mean = out.emplace_back(shapes[n]);
    const std::int64_t C = mean.size(-1), rows = by_position ? longest : 1;
    for (std::int64_t each = 0; each < mean.count(); ++each)
      mean.data<float>()[each] = static_cast<float>(sums[n][static_cast<std::size_t>(each)] /
                                                    counts[static_cast<std::size_t>(each / C % rows)]);
  }
  return out;
}

}  // namespace attend::inline v1
