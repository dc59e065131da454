#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "analysis/answers.h"
#include "analysis/asked.h"
#include "analysis/cached_row.h"
#include "analysis/feature_effects.h"
#include "analysis/json.h"
#include "analysis/stream.h"
#include "analysis/watchers.h"
#include "attend/analysis.h"
#include "core/from_end.h"
#include "layers/rows.h"

namespace attend::inline v0 {

namespace {

constexpr const char* function = "attribute";

// How the logit reads the stream of a row, sum of u[e] x[e] + bias, while the last norm divides as it does there.
struct Direction {
  std::vector<double> u;
  double bias = 0;
};

double dot(std::span<const double> u, const View& row) {
  const Tensor wide = row.to(DType::f32);
  const float* x = wide.data<float>();
  return std::inner_product(u.begin(), u.end(), x, 0.0, std::plus<>(),
                            [](double a, float b) { return a * static_cast<double>(b); });
}

// How the direction reads x [E], f32, before a norm, while that divides as it does there.
Direction through(const RmsNorm& norm, const Direction& read, const float* x) {
  const std::size_t E = read.u.size();
  double squares = 0;
  for (std::size_t e = 0; e < E; ++e) squares += static_cast<double>(x[e]) * static_cast<double>(x[e]);
  const double divisor = std::sqrt(squares / static_cast<double>(E) + norm.eps());
  Direction out{std::vector<double>(E), read.bias};
  for (std::size_t e = 0; e < E; ++e)
    out.u[e] = read.u[e] * static_cast<double>(norm.weight().data<float>()[e]) / divisor;
  return out;
}

// The mean that a LayerNorm takes out of x is taken out of the direction instead.
Direction through(const LayerNorm& norm, const Direction& read, const float* x) {
  const auto E = static_cast<double>(read.u.size());
  const double mean = std::accumulate(x, x + read.u.size(), 0.0) / E;
  double squares = 0;
  for (std::size_t e = 0; e < read.u.size(); ++e)
    squares += (static_cast<double>(x[e]) - mean) * (static_cast<double>(x[e]) - mean);
  const double divisor = std::sqrt(squares / E + norm.eps());
  Direction out{std::vector<double>(read.u.size()), read.bias};
  for (std::size_t e = 0; e < read.u.size(); ++e) {
    out.u[e] = read.u[e] * static_cast<double>(norm.weight().data<float>()[e]) / divisor;
    if (norm.bias()) out.bias += read.u[e] * static_cast<double>(norm.bias()->data<float>()[e]);
  }
  const double level = std::accumulate(out.u.begin(), out.u.end(), 0.0) / E;
  for (double& each : out.u) each -= level;
  return out;
}

Direction through(const models::Norm& norm, const Direction& read, const Tensor& x) {
  return std::visit([&](const auto* of) { return through(*of, read, x.data<float>()); }, norm);
}

// A norm, and the row that it was given.
struct FrozenNorm {
  models::Norm norm;
  Tensor x;  // [1,E]
};

// What a pass leaves to be explained of one of its rows. The heads' weights stand where their parts will.
class RowWatcher : public models::Watcher {
 public:
  RowWatcher(std::int64_t row, ModelCache& cache, Attribution& out, bool of_neurons,
             std::optional<analysis::FeatureEffects> of_features)
      : neurons(of_neurons), features(std::move(of_features)), row_(row), cache_(cache), out_(out) {}

  void attends(const models::AttentionStep& step, const View& q, const View&) override {
    (step.cross ? cross_steps : steps).push_back(step);
    const Tensor weights =
        analysis::row_weights(step, q.slice(2, row_, row_ + 1), keys_of(step), parts_of(step).size(2));
    std::copy_n(weights.data<float>(), weights.count(), weights_of(step));
  }
  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override {
    if (place == ModelPlace::residual && layer == 0) embedding = row_of(values);
    if (place == ModelPlace::residual && layer == out_.heads.size(0)) last = row_of(values);
    if (place == ModelPlace::mlp) mlps.push_back(row_of(values));
    if (place == ModelPlace::mlp_hidden && neurons) hidden.push_back(row_of(values));
    if (features && features->wants(place, layer)) features->take(place, layer, row_of(values));
  }
  void normalises(models::NormPlace place, std::int64_t layer, const models::Norm& norm, const View& x) override {
    norms.insert({std::pair(place, layer), FrozenNorm{norm, row_of(x)}});
  }

  void move(std::int64_t rows) { row_ += rows; }
  // How the layer's place is read where what comes after it is read so.
  Direction before(models::NormPlace place, std::int64_t layer, const Direction& read) const {
    const auto found = norms.find({place, layer});
    return found == norms.end() ? read : through(found->second.norm, read, found->second.x);
  }
  // The weights of a layer's heads become what each key's value adds to the direction.
  void multiply_by_values(const models::AttentionStep& step, const Tensor& to_heads) const {
    analysis::multiply_by_values(step, keys_of(step), parts_of(step).size(2), to_heads.data<float>(), weights_of(step));
  }

  const bool neurons;
  std::optional<analysis::FeatureEffects> features;
  analysis::Attributing::Directions directions = {};
  Tensor embedding, last;                                 // [1,E]: the stream at first and at last
  std::vector<Tensor> mlps, hidden;                       // hidden [1,F], where neurons are asked for
  std::vector<models::AttentionStep> steps, cross_steps;  // of each layer
  std::map<std::pair<models::NormPlace, std::int64_t>, FrozenNorm> norms;

 private:
  Tensor row_of(const View& values) const { return values.slice(0, row_, row_ + 1).to(DType::f32); }
  const KvCache& keys_of(const models::AttentionStep& step) const {
    return (step.cross ? ModelAccess::cross(cache_)
                       : ModelAccess::layers(cache_))[static_cast<std::size_t>(step.layer)];
  }
  Tensor& parts_of(const models::AttentionStep& step) const { return step.cross ? out_.cross : out_.heads; }
  float* weights_of(const models::AttentionStep& step) const {
    Tensor& parts = parts_of(step);
    return parts.data<float>() + step.layer * parts.size(1) * parts.size(2);
  }

  std::int64_t row_;
  ModelCache& cache_;
  Attribution& out_;
};

// The row of the output layer, less that of `against`, and its bias.
Direction output_row(const models::Output& output, std::int64_t token, const std::optional<std::int64_t>& against) {
  const Linear& layer = output.layer;
  Direction out{std::vector<double>(static_cast<std::size_t>(layer.in_size()))};
  const auto add = [&](std::int64_t of, double factor) {
    const Tensor row = layer.weight_rows(of, of + 1);
    for (std::size_t e = 0; e < out.u.size(); ++e) out.u[e] += factor * static_cast<double>(row.data<float>()[e]);
    if (layer.bias()) out.bias += factor * static_cast<double>(layer.bias()->data<float>()[of]);
  };
  add(token, output.scale);
  if (against) add(*against, -output.scale);
  return out;
}

// Whom a head's z speaks to: W_O^T u, [H * Dv].
Tensor back_through(const Linear& output, std::span<const double> u) {
  Tensor row({1, std::ssize(u)});
  std::ranges::transform(u, row.data<float>(), [](double value) { return static_cast<float>(value); });
  Tensor made;
  View weight = output.weight();
  if (output.quantized()) made = output.weight_rows(0, output.out_size()), weight = made;
  if (weight.dtype() != DType::f32) made = converted(weight, DType::f32), weight = made;
  return Linear::borrow(weight.transpose(0, 1)).forward(row);
}

std::vector<double> numbers_of(const Tensor& x) {
  return {x.data<float>(), x.data<float>() + x.count()};
}

Direction before_last_norm(const Model::Parts& parts, const Direction& read, const Tensor& x) {
  return std::visit(
      [&](const auto& family) {
        if constexpr (requires { family.last_norm(); }) {
          if (const std::optional<models::Norm> norm = family.last_norm()) return through(*norm, read, x);
        }
        return read;
      },
      parts.family);
}

// How a layer's hidden units are read where its MLP's place is read so, [1,F].
Tensor to_hidden(const RowWatcher& row, const Model::Parts& parts, std::int64_t layer, const Direction& read) {
  const Linear& last = *models::parts_of_layer(parts, static_cast<std::size_t>(layer)).out;
  return back_through(last, row.before(models::NormPlace::mlp_output, layer, {read.u}).u);
}

// What each hidden unit wrote where the MLP's place is read so, and its output bias.
void explain_neurons(const RowWatcher& row, const Model::Parts& parts, std::int64_t layer, const Direction& read,
                     Attribution& out) {
  const auto l = static_cast<std::size_t>(layer);
  const Linear& last = *models::parts_of_layer(parts, l).out;
  const Direction written = row.before(models::NormPlace::mlp_output, layer, {read.u});
  const Tensor to_units = back_through(last, written.u);
  if (out.neurons.count() == 0) out.neurons = Tensor({std::ssize(row.hidden), to_units.count()});
  if (out.mlp_biases.count() == 0) out.mlp_biases = Tensor({std::ssize(row.hidden)});
  float* to = out.neurons.data<float>() + layer * to_units.count();
  for (std::int64_t f = 0; f < to_units.count(); ++f)
    to[f] = to_units.data<float>()[f] * row.hidden[l].data<float>()[f];
  const double bias = written.bias + (last.bias() ? dot(written.u, last.bias()->view()) : 0);
  out.mlp_biases.data<float>()[l] = static_cast<float>(bias);
}

// The parts, from the last to the first: `read` is how the stream after all layers is.
void explain(RowWatcher& row, const Model::Parts& parts, Direction read, Attribution& out) {
  using models::NormPlace;
  out.mlps = Tensor({std::ssize(row.mlps)});
  // Whose features are explained learns how its place is read.
  const auto at = [&](ModelPlace place, std::int64_t layer, std::span<const double> u) {
    if (row.directions) row.directions(place, layer, u);
    if (row.features && row.features->writes(place, layer)) row.features->read_along(u);
  };
  const auto explain_heads = [&](const models::AttentionStep& step, const Direction& written) {
    if (step.output->bias()) out.bias += dot(written.u, step.output->bias()->view());
    const Tensor to_heads = back_through(*step.output, written.u);
    at(step.cross ? ModelPlace::cross_z : ModelPlace::z, step.layer, numbers_of(to_heads));
    row.multiply_by_values(step, to_heads);
  };
  at(ModelPlace::residual, std::ssize(row.mlps), read.u);
  for (std::int64_t layer = std::ssize(row.mlps) - 1; layer >= 0; --layer) {
    const auto l = static_cast<std::size_t>(layer);
    read = row.before(NormPlace::mlp_sum, layer, read);
    out.mlps.data<float>()[l] = static_cast<float>(dot(read.u, row.mlps[l].view()));
    at(ModelPlace::mlp, layer, read.u), at(ModelPlace::residual_mid, layer, read.u);
    if (row.neurons) explain_neurons(row, parts, layer, read, out);
    if (row.features && row.features->writes(ModelPlace::mlp_hidden, layer))
      row.features->read_along(numbers_of(to_hidden(row, parts, layer, read)));
    read = row.before(NormPlace::cross_sum, layer, read);
    at(ModelPlace::cross_attention, layer, read.u), at(ModelPlace::cross_residual, layer, read.u);
    if (!row.cross_steps.empty()) explain_heads(row.cross_steps[l], read);
    read = row.before(NormPlace::attention_sum, layer, read);
    at(ModelPlace::attention, layer, read.u);
    const Direction written = row.before(NormPlace::attention_output, layer, {read.u});
    out.bias += written.bias;
    explain_heads(row.steps[l], written);
    at(ModelPlace::residual, layer, read.u);
  }
  if (row.features) row.features->explain(out);
  out.embedding = dot(read.u, row.embedding.view());
  out.bias += read.bias;
}

double sum(const Tensor& x) {
  return std::accumulate(x.data<float>(), x.data<float>() + x.count(), 0.0);
}

}  // namespace

struct analysis::Attributing::State {
  const Model& model;
  const models::Output& output;
  Attribution out;
  ModelCache cache;
  std::int64_t at = 0;                             // the row, of those that the pass has
  std::span<const std::int64_t> ids, decoder_ids;  // that the pass is over
  std::optional<RowWatcher> row = {};
};

analysis::Attributing::Attributing(const Model& model, const Text& text, const AttributeOptions& options)
    : state_(new State{.model = model,
                       .output = models::output_of(ModelAccess::parts(model), function),
                       .out = {},
                       .cache = {},
                       .ids = text.ids,
                       .decoder_ids = {}}) {
  const ModelInfo& info = model.info();
  const std::span<const std::int64_t> answering = text.answering();
  Attribution& out = state_->out;
  check_text(text, info);
  out.position = from_end(function, "position is", options.position, std::ssize(answering));
  if (options.token) check_token(function, "token", *options.token, info);
  if (options.against) check_token(function, "against", *options.against, info);
  out.token = options.token.value_or(-1), out.against = options.against;

  state_->cache = options.cache ? analysis::known_before(function, *options.cache, text, out.position) : model.cache();
  out.heads = Tensor::uninitialized({info.layers, info.heads, out.position + 1}, DType::f32);
  if (info.encoder_decoder())
    out.cross = Tensor::uninitialized({info.layers, info.heads, std::ssize(text.ids)}, DType::f32);
  // Without a cache, all ids: how longrope turns the keys is the whole text's matter.
  const std::int64_t first = state_->cache.length(), last = options.cache ? out.position + 1 : std::ssize(answering);
  const auto rest = answering.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
  (info.encoder_decoder() ? state_->decoder_ids : state_->ids) = rest;
  if (state_->cache.encoder_length() > 0) state_->ids = {};
  state_->at = out.position - first;
  std::optional<analysis::FeatureEffects> of_features;
  if (options.features) of_features.emplace(function, model, *options.features);
  state_->row.emplace(state_->at, state_->cache, out, options.neurons, std::move(of_features));
}
analysis::Attributing::~Attributing() = default;

void analysis::Attributing::tell(Directions directions) {
  state_->row->directions = std::move(directions);
}
models::Watcher& analysis::Attributing::watcher() {
  return *state_->row;
}
ModelCache& analysis::Attributing::cache() {
  return state_->cache;
}
void analysis::Attributing::begin_at(std::int64_t row) {
  state_->at += row;
  state_->row->move(row);
}
std::span<const std::int64_t> analysis::Attributing::ids() const {
  return state_->ids;
}
std::span<const std::int64_t> analysis::Attributing::decoder_ids() const {
  return state_->decoder_ids;
}

std::int64_t analysis::Attributing::row() const {
  return state_->at;
}

Attribution analysis::Attributing::finish(const Tensor& hidden, const std::optional<View>& known) {
  const Model& model = state_->model;
  const models::Output& output = state_->output;
  Attribution& out = state_->out;
  const View last = hidden.view().select(0, state_->at);
  const Tensor logits = known ? known->clone() : output.uncapped(last);
  if (out.token < 0) out.token = likeliest({logits.data<float>(), static_cast<std::size_t>(logits.count())});
  const auto asked = [&](const Tensor& of) {
    const float* values = of.data<float>();
    return static_cast<double>(values[out.token]) - (out.against ? static_cast<double>(values[*out.against]) : 0);
  };
  out.logit = asked(logits);
  out.capped_logit = output.softcap > 0 ? asked(model.logits(last)) : out.logit;
  Direction read = output_row(output, out.token, out.against);
  if (output.projection) {
    const Tensor before = back_through(*output.projection, read.u);
    read.u.assign(before.data<float>(), before.data<float>() + before.count());
  }
  explain(*state_->row, ModelAccess::parts(model), before_last_norm(ModelAccess::parts(model), read, state_->row->last),
          out);
  if (model.info().dtype != DType::f32)
    out.rounding = out.logit - sum(out.heads) - sum(out.cross) - sum(out.mlps) - out.embedding - out.bias;
  return std::move(out);
}

Attribution attribute(const Model& model, std::span<const std::int64_t> ids, const AttributeOptions& options) {
  analysis::Attributing asked(model, {ids, options.decoder_ids}, options);
  ModelCache* const caches[] = {&asked.cache()};
  const ModelCall call{.caches = caches, .decoder_ids = asked.decoder_ids()};
  return asked.finish(ModelAccess::forward(model, asked.ids(), call, &asked.watcher()));
}

namespace {

// One pass over some of several texts, from `first` on.
std::vector<Attribution> attribute_together(const Model& model, std::span<const analysis::Text> texts,
                                            std::span<const AttributeOptions> options, std::size_t first,
                                            std::size_t last) {
  std::deque<analysis::Attributing> asked;
  std::vector<models::Watcher*> watchers;
  std::vector<ModelCache*> caches;
  std::vector<std::int64_t> ids, starts{0};
  for (std::size_t n = first; n < last; ++n) {
    analysis::of_text(n, texts.size(), [&] { asked.emplace_back(model, texts[n], options[n]); });
    analysis::Attributing& each = asked.back();
    each.begin_at(std::ssize(ids));
    watchers.push_back(&each.watcher()), caches.push_back(&each.cache());
    ids.insert(ids.end(), each.ids().begin(), each.ids().end());
    starts.push_back(std::ssize(ids));
  }
  analysis::All all(watchers);
  const Tensor hidden = ModelAccess::forward(model, ids, {.starts = starts, .caches = caches}, &all);
  std::vector<Attribution> found;
  // All rows' logits are one product with the output layer.
  std::vector<std::int64_t> rows;
  rows.reserve(asked.size());
  for (const analysis::Attributing& each : asked) rows.push_back(each.row());
  const Tensor logits =
      models::output_of(ModelAccess::parts(model), function).uncapped(analysis::rows_of(hidden, rows));
  for (std::size_t n = 0; n < asked.size(); ++n)
    found.push_back(asked[n].finish(hidden, logits.view().select(0, static_cast<std::int64_t>(n))));
  return found;
}

}  // namespace

std::vector<Attribution> attribute(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                                   std::span<const AttributeOptions> options) {
  const std::vector<AttributeOptions> each = analysis::for_each_text(function, options, texts.size());
  const std::vector<analysis::Text> all = analysis::texts_of<AttributeOptions>(texts, each);
  std::vector<Attribution> found;
  analysis::for_each_group(model, all, [&](std::size_t first, std::size_t last) {
    if (model.info().encoder_decoder())
      return analysis::of_text(first, all.size(),
                               [&] { found.push_back(attribute(model, texts[first], each[first])); });
    std::vector<Attribution> some = attribute_together(model, all, each, first, last);
    found.insert(found.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  });
  return found;
}

std::vector<AttributionPart> strongest_parts(const Attribution& of, std::int64_t count) {
  if (count < 0) fail(ErrorCode::bad_value, "strongest_parts", "count is {}, expected at least 0", count);
  using Kind = AttributionPart::Kind;
  std::vector<AttributionPart> all;
  all.reserve(static_cast<std::size_t>(of.heads.count() + of.cross.count() + of.mlps.count() + of.neurons.count() + 3));
  const auto add_heads = [&](Kind kind, const Tensor& parts) {  // [L,H,T]
    const std::int64_t T = parts.count() == 0 ? 1 : parts.size(2), H = parts.count() == 0 ? 1 : parts.size(1);
    for (std::int64_t n = 0; n < parts.count(); ++n)
      all.push_back({kind, n / (H * T), n / T % H, n % T, static_cast<double>(parts.data<float>()[n])});
  };
  add_heads(Kind::head, of.heads);
  add_heads(Kind::cross, of.cross);
  const bool neurons = of.neurons.count() > 0;
  for (std::int64_t l = 0; l < of.mlps.size(0) && !neurons; ++l)
    all.push_back({Kind::mlp, l, -1, -1, static_cast<double>(of.mlps.data<float>()[l])});
  for (std::int64_t n = 0; n < of.neurons.count(); ++n) {
    const std::int64_t F = of.neurons.size(1);
    all.push_back({Kind::neuron, n / F, -1, -1, static_cast<double>(of.neurons.data<float>()[n]), n % F});
  }
  for (std::int64_t n = 0; n < of.features.count(); ++n)
    if (const float value = of.features.data<float>()[n]; value != 0)
      all.push_back({Kind::feature, -1, -1, -1, static_cast<double>(value), n});
  all.push_back({Kind::embedding, -1, -1, -1, of.embedding});
  all.push_back({Kind::bias, -1, -1, -1, of.bias + (neurons ? sum(of.mlp_biases) : 0)});
  if (of.rounding != 0) all.push_back({Kind::rounding, -1, -1, -1, of.rounding});
  const auto kept = std::min<std::size_t>(static_cast<std::size_t>(count), all.size());
  std::ranges::partial_sort(all, all.begin() + static_cast<std::ptrdiff_t>(kept), [](const auto& a, const auto& b) {
    return std::abs(a.value) != std::abs(b.value)
               ? std::abs(a.value) > std::abs(b.value)
               : std::tie(a.kind, a.layer, a.head, a.key, a.unit) < std::tie(b.kind, b.layer, b.head, b.key, b.unit);
  });
  all.resize(kept);
  return all;
}

Tensor sums_by_token(const Attribution& x, bool cross) {
  const Tensor& parts = cross ? x.cross : x.heads;
  if (parts.count() == 0) fail(ErrorCode::bad_value, "sums_by_token", "there are no parts of a cross-attention");
  const std::int64_t T = parts.size(2);
  std::vector<double> sums(static_cast<std::size_t>(T));
  for (std::int64_t n = 0; n < parts.count(); ++n)
    sums[static_cast<std::size_t>(n % T)] += static_cast<double>(parts.data<float>()[n]);
  Tensor out({T});
  std::ranges::transform(sums, out.data<float>(), [](double value) { return static_cast<float>(value); });
  return out;
}

std::string to_json(const Attribution& x, const TensorJson& tensor) {
  const Tensors json(tensor);
  Json why = {{"token", x.token},
              {"against", or_null(x.against)},
              {"logit", x.logit},
              {"capped_logit", x.capped_logit},
              {"heads", json("heads", x.heads)}};
  if (x.cross.count() > 0) why["cross"] = json("cross", x.cross);
  if (x.neurons.count() > 0)
    why.update({{"neurons", json("neurons", x.neurons)}, {"mlp_biases", json("mlp_biases", x.mlp_biases)}});
  if (x.features.count() > 0)
    why.update({{"features", json("features", x.features)},
                {"feature_bias", x.feature_bias},
                {"feature_error", x.feature_error}});
  why.update({{"mlps", json("mlps", x.mlps)}, {"embedding", x.embedding}, {"bias", x.bias}, {"rounding", x.rounding}});
  return text_of(why);
}

}  // namespace attend::inline v0
