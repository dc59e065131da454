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
#include "analysis/direction.h"
#include "analysis/feature_effects.h"
#include "analysis/json.h"
#include "analysis/stream.h"
#include "analysis/watchers.h"
#include "attend/analysis.h"
#include "core/from_end.h"
#include "layers/rows.h"
#include "models/tasks/head.h"

namespace attend::inline v1 {

namespace {

constexpr const char* attribute_function = "attribute";

using analysis::back_through;
using analysis::Direction;

// A norm, and the rows that it was given.
struct FrozenNorm {
  models::Norm norm;
  Tensor x;  // [R,E]
};

// What a pass leaves to be explained of some of its rows.
class RowsWatcher : public models::Watcher {
 public:
  // length: of the keys that they see. An encoder's caches are filled here.
  RowsWatcher(Range rows, std::int64_t length, bool of_encoder, ModelCache& cache, bool of_neurons,
              std::optional<analysis::FeatureEffects> of_features)
      : neurons(of_neurons),
        features(std::move(of_features)),
        rows_(rows),
        length_(length),
        of_encoder_(of_encoder),
        cache_(cache) {}

  void attends(const models::AttentionStep& step, const View& q, const View& v) override {
    (step.cross ? cross_steps : steps).push_back({step, q.slice(2, rows_.begin, rows_.end).clone()});
    if (of_encoder_) keep_keys(step, v);
  }
  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override {
    if (place == ModelPlace::residual && layer == 0) embedding = rows_of(values);
    if (place == ModelPlace::residual) last = rows_of(values);
    if (place == ModelPlace::rotated_k && of_encoder_) keys_ = values.clone();
    if (place == ModelPlace::mlp) mlps.push_back(rows_of(values));
    if (place == ModelPlace::mlp_hidden && neurons) hidden.push_back(rows_of(values));
    if (features && features->wants(place, layer)) features->take(place, layer, rows_of(values));
  }
  void normalises(models::NormPlace place, std::int64_t layer, const models::Norm& norm, const View& x) override {
    norms.insert({std::pair(place, layer), FrozenNorm{norm, rows_of(x)}});
  }

  void move(std::int64_t rows) { rows_.begin += rows, rows_.end += rows, text_ += rows; }
  std::int64_t count() const { return rows_.end - rows_.begin; }
  // How the layer's place is read in a row where what comes after it is read so.
  Direction before(models::NormPlace place, std::int64_t layer, std::int64_t row, const Direction& read) const {
    const auto found = norms.find({place, layer});
    return found == norms.end() ? read : through(found->second.norm, read, of(found->second.x, row));
  }

  // A layer's attention, and the rows' queries.
  struct Attended {
    models::AttentionStep step;
    Tensor q;  // [1,H,R,D]
  };
  // Adds what each key's value gives to the direction, of each head: parts [L,H,T].
  void add_values(const Attended& of, std::int64_t row, const Tensor& to_heads, Tensor& parts) const {
    const std::int64_t T = parts.size(2), count = parts.size(1) * T;
    const KvCache& keys = (of.step.cross ? ModelAccess::cross(cache_)
                                         : ModelAccess::layers(cache_))[static_cast<std::size_t>(of.step.layer)];
    Tensor weights = analysis::row_weights(of.step, of.q.view().slice(2, row, row + 1), keys,
                                           of_encoder_ ? rows_.begin - text_ + row : T - 1, T);
    analysis::multiply_by_values(of.step, keys, T, to_heads.data<float>(), weights.data<float>());
    float* to = parts.data<float>() + of.step.layer * count;
    for (std::int64_t n = 0; n < count; ++n) to[n] += weights.data<float>()[n];
  }
  static const float* of(const Tensor& x, std::int64_t row) { return x.data<float>() + row * x.size(1); }

  const bool neurons;
  std::optional<analysis::FeatureEffects> features;
  analysis::Attributing::Directions directions = {};
  Tensor embedding, last;                    // [R,E]: the stream at first and at last
  std::vector<Tensor> mlps, hidden;          // [R,E], and [R,F] where neurons are asked for
  std::vector<Attended> steps, cross_steps;  // of each layer
  std::map<std::pair<models::NormPlace, std::int64_t>, FrozenNorm> norms;

 private:
  Tensor rows_of(const View& values) const { return values.slice(0, rows_.begin, rows_.end).to(DType::f32); }
  void keep_keys(const models::AttentionStep& step, const View& v) {
    const std::int64_t Hkv = step.kv_heads, D = keys_.size(1) / Hkv;
    KvCache& cache = ModelAccess::layers(cache_).emplace_back(1, Hkv, D, v.size(3), keys_.dtype());
    const View own = keys_.view().slice(0, text_, text_ + length_).reshape({length_, Hkv, D});
    cache.append(own.transpose(0, 1), v.select(0, 0).slice(1, text_, text_ + length_));
  }

  Range rows_;
  std::int64_t length_, text_ = 0;  // where the text begins in the pass
  bool of_encoder_;
  ModelCache& cache_;
  Tensor keys_;  // [N,Hkv*D], of the layer that attends next
};

std::vector<double> numbers_of(const Tensor& x) {
  return {x.data<float>(), x.data<float>() + x.count()};
}

double along(const Direction& read, const Tensor& x, std::int64_t row) {
  return analysis::along(read.u, x.view().select(0, row));
}

void add_to(float& sum, double value) {
  sum = static_cast<float>(static_cast<double>(sum) + value);
}

// How a layer's hidden units are read where its MLP's place is read so, [1,F].
Tensor to_hidden(const RowsWatcher& rows, std::int64_t row, const Model::Parts& parts, std::int64_t layer,
                 const Direction& read) {
  const Linear& last = *models::parts_of_layer(parts, static_cast<std::size_t>(layer)).out;
  return back_through(last, rows.before(models::NormPlace::mlp_output, layer, row, {read.u}).u);
}

// What each hidden unit wrote where the MLP's place is read so, and its output bias.
void explain_neurons(const RowsWatcher& rows, std::int64_t row, const Model::Parts& parts, std::int64_t layer,
                     const Direction& read, Attribution& out) {
  const auto l = static_cast<std::size_t>(layer);
  const Linear& last = *models::parts_of_layer(parts, l).out;
  const Direction written = rows.before(models::NormPlace::mlp_output, layer, row, {read.u});
  const Tensor to_units = back_through(last, written.u);
  if (out.neurons.count() == 0) out.neurons = Tensor({std::ssize(rows.hidden), to_units.count()});
  if (out.mlp_biases.count() == 0) out.mlp_biases = Tensor({std::ssize(rows.hidden)});
  float* to = out.neurons.data<float>() + layer * to_units.count();
  const float* hidden = RowsWatcher::of(rows.hidden[l], row);
  for (std::int64_t f = 0; f < to_units.count(); ++f) to[f] += to_units.data<float>()[f] * hidden[f];
  add_to(out.mlp_biases.data<float>()[l],
         written.bias + (last.bias() ? analysis::along(written.u, last.bias()->view()) : 0));
}

// Adds a row's parts, from the last to the first: `read` is how the stream after all layers is.
void explain(RowsWatcher& rows, std::int64_t row, const Model::Parts& parts, Direction read, Attribution& out) {
  using models::NormPlace;
  const std::int64_t layers = std::ssize(rows.mlps);
  // Whose features are explained learns how its place is read.
  const auto at = [&](ModelPlace place, std::int64_t layer, std::span<const double> u) {
    if (rows.directions) rows.directions(place, layer, u);
    if (rows.features && rows.features->writes(place, layer)) rows.features->read_along(u);
  };
  const auto explain_heads = [&](const RowsWatcher::Attended& of, const Direction& written) {
    const Linear& output = *of.step.output;
    if (output.bias()) out.bias += analysis::along(written.u, output.bias()->view());
    const Tensor to_heads = back_through(output, written.u);
    at(of.step.cross ? ModelPlace::cross_z : ModelPlace::z, of.step.layer, numbers_of(to_heads));
    rows.add_values(of, row, to_heads, of.step.cross ? out.cross : out.heads);
  };
  at(ModelPlace::residual, layers, read.u);
  for (std::int64_t layer = layers - 1; layer >= 0; --layer) {
    const auto l = static_cast<std::size_t>(layer);
    read = rows.before(NormPlace::mlp_sum, layer, row, read);
    add_to(out.mlps.data<float>()[l], along(read, rows.mlps[l], row));
    at(ModelPlace::mlp, layer, read.u), at(ModelPlace::residual_mid, layer, read.u);
    if (rows.neurons) explain_neurons(rows, row, parts, layer, read, out);
    if (rows.features && rows.features->writes(ModelPlace::mlp_hidden, layer))
      rows.features->read_along(numbers_of(to_hidden(rows, row, parts, layer, read)));
    read = rows.before(NormPlace::cross_sum, layer, row, read);
    at(ModelPlace::cross_attention, layer, read.u), at(ModelPlace::cross_residual, layer, read.u);
    if (!rows.cross_steps.empty()) explain_heads(rows.cross_steps[l], read);
    read = rows.before(NormPlace::attention_sum, layer, row, read);
    at(ModelPlace::attention, layer, read.u);
    const Direction written = rows.before(NormPlace::attention_output, layer, row, {read.u});
    out.bias += written.bias;
    explain_heads(rows.steps[l], written);
    at(ModelPlace::residual, layer, read.u);
  }
  if (rows.features) rows.features->explain(out);
  out.embedding += along(read, rows.embedding, row);
  out.bias += read.bias;
}

double sum(const Tensor& x) {
  return std::accumulate(x.data<float>(), x.data<float>() + x.count(), 0.0);
}

}  // namespace

struct analysis::Attributing::State {
  const Model& model;
  const models::Output* output = nullptr;  // of a token's logit
  const models::TaskHead* head = nullptr;  // of a label's
  Attribution out;
  ModelCache cache;
  std::int64_t at = 0, count = 1;                  // the rows, of those that the pass has
  std::span<const std::int64_t> ids, decoder_ids;  // that the pass is over
  std::optional<RowsWatcher> rows = {};

  bool keeps_cache() const { return model.info().decoder(); }
  void check(const AttributeOptions& options);
  void find_rows(const Text& text, std::int64_t position);
  // Of the pass's hidden states: what the head reads, [1,E].
  Tensor read(const Tensor& hidden) const {
    Tensor own = hidden.view().slice(0, at, at + count).clone();
    if (count == 1) return own;
    const std::int64_t starts[] = {0, count};
    return head->rows(own, {}, starts);
  }
};

void analysis::Attributing::State::check(const AttributeOptions& options) {
  const Model::Parts& parts = ModelAccess::parts(model);
  models::check_exact(parts.info, attribute_function);
  check_of(attribute_function, options.of);
  if (options.of == GradientOf::label) {
    head = &head_of(attribute_function, parts, options.token, options.against);
    if (options.cache) models::check_decoder(model.info(), attribute_function, "cache: ");
  } else {
    output = &models::output_of(parts, attribute_function);
    if (options.token) check_token(attribute_function, "token", *options.token, model.info());
    if (options.against) check_token(attribute_function, "against", *options.against, model.info());
  }
  out.of = options.of, out.token = options.token.value_or(-1), out.against = options.against;
}

void analysis::Attributing::State::find_rows(const Text& text, std::int64_t position) {
  using Reads = models::TaskHead::Reads;
  const std::span<const std::int64_t> answering = text.answering();
  if (!head || head->reads == Reads::each)
    at = from_end(attribute_function, "position is", position, std::ssize(answering));
  else if (head->reads == Reads::mean)
    count = std::ssize(answering);
  else
    at = head->row_read(answering);
  out.position = head && head->reads == Reads::mean ? -1 : at;
}

analysis::Attributing::Attributing(const Model& model, const Text& text, const AttributeOptions& options)
    : state_(new State{.model = model, .out = {}, .cache = {}, .ids = text.ids, .decoder_ids = {}}) {
  const ModelInfo& info = model.info();
  const std::span<const std::int64_t> answering = text.answering();
  Attribution& out = state_->out;
  state_->check(options);
  check_text(text, info);
  state_->find_rows(text, options.position);
  const std::int64_t row = state_->at, length = state_->keeps_cache() ? row + 1 : std::ssize(answering);
  if (state_->keeps_cache())
    state_->cache = options.cache ? known_before(attribute_function, *options.cache, text, row) : model.cache();
  out.heads = Tensor({info.layers, info.heads, length});
  if (info.encoder_decoder()) out.cross = Tensor({info.layers, info.heads, std::ssize(text.ids)});
  // Without a cache, all ids: how longrope turns the keys is the whole text's matter.
  const std::int64_t first = state_->cache.length(), last = options.cache ? row + 1 : std::ssize(answering);
  const auto rest = answering.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
  (info.encoder_decoder() ? state_->decoder_ids : state_->ids) = rest;
  if (state_->cache.encoder_length() > 0) state_->ids = {};
  state_->at = row - first;
  std::optional<FeatureEffects> of_features;
  if (options.features) of_features.emplace(attribute_function, model, *options.features);
  if (options.features && state_->count > 1)
    fail(ErrorCode::bad_value, attribute_function,
         "features explain one row, and the model's head reads the mean of all rows");
  state_->rows.emplace(Range{state_->at, state_->at + state_->count}, length, !state_->keeps_cache(), state_->cache,
                       options.neurons, std::move(of_features));
}
analysis::Attributing::~Attributing() = default;

void analysis::Attributing::tell(Directions directions) {
  state_->rows->directions = std::move(directions);
}
models::Watcher& analysis::Attributing::watcher() {
  return *state_->rows;
}
ModelCache* analysis::Attributing::cache() {
  return state_->keeps_cache() ? &state_->cache : nullptr;
}
void analysis::Attributing::begin_at(std::int64_t row) {
  state_->at += row;
  state_->rows->move(row);
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
  const models::Output* output = state_->output;
  Attribution& out = state_->out;
  const Tensor row = state_->read(hidden);
  const Tensor logits = known ? known->clone() : output ? output->uncapped(row) : state_->head->logits(row);
  if (out.token < 0) out.token = likeliest({logits.data<float>(), static_cast<std::size_t>(logits.count())});
  const auto asked = [&](const Tensor& of) {
    const float* values = of.data<float>();
    return static_cast<double>(values[out.token]) - (out.against ? static_cast<double>(values[*out.against]) : 0);
  };
  out.logit = asked(logits);
  out.capped_logit = output && output->softcap > 0 ? asked(model.logits(row)) : out.logit;
  Direction read =
      output ? output_row(*output, out.token, out.against) : label_row(*state_->head, out.token, out.against, row);
  // Each row has its share in a mean.
  for (double& each : read.u) each /= static_cast<double>(state_->count);
  read.bias /= static_cast<double>(state_->count);
  RowsWatcher& rows = *state_->rows;
  const Model::Parts& parts = ModelAccess::parts(model);
  out.mlps = Tensor({std::ssize(rows.mlps)});
  for (std::int64_t n = 0; n < rows.count(); ++n)
    explain(rows, n, parts, before_last_norm(parts, read, RowsWatcher::of(rows.last, n)), out);
  if (model.info().dtype != DType::f32)
    out.rounding = out.logit - sum(out.heads) - sum(out.cross) - sum(out.mlps) - out.embedding - out.bias;
  return std::move(out);
}

Attribution attribute(const Model& model, std::span<const std::int64_t> ids, const AttributeOptions& options) {
  analysis::Attributing asked(model, {ids, options.decoder_ids, options.types}, options);
  std::vector<ModelCache*> caches;
  if (ModelCache* const cache = asked.cache()) caches.push_back(cache);
  const ModelCall call{.types = options.types, .caches = caches, .decoder_ids = asked.decoder_ids()};
  return asked.finish(ModelAccess::forward(model, asked.ids(), call, &asked.watcher()));
}

namespace {

// Where all are of tokens, all rows' logits are one product with the output layer.
Tensor logits_together(const Model& model, const std::deque<analysis::Attributing>& asked,
                       std::span<const AttributeOptions> options, const Tensor& hidden) {
  if (std::ranges::any_of(options, [](const AttributeOptions& each) { return each.of == GradientOf::label; }))
    return {};
  std::vector<std::int64_t> rows;
  rows.reserve(asked.size());
  for (const analysis::Attributing& each : asked) rows.push_back(each.row());
  return models::output_of(ModelAccess::parts(model), attribute_function).uncapped(rows_at(hidden, rows));
}

// One pass over some of several texts, from `first` on.
std::vector<Attribution> attribute_together(const Model& model, std::span<const analysis::Text> texts,
                                            std::span<const AttributeOptions> options, std::size_t first,
                                            std::size_t last) {
  std::deque<analysis::Attributing> asked;
  std::vector<models::Watcher*> watchers;
  std::vector<ModelCache*> caches;
  std::vector<std::int64_t> ids, starts{0}, types;
  for (std::size_t n = first; n < last; ++n) {
    analysis::of_text(n, texts.size(), [&] { asked.emplace_back(model, texts[n], options[n]); });
    analysis::Attributing& each = asked.back();
    each.begin_at(std::ssize(ids));
    watchers.push_back(&each.watcher());
    if (ModelCache* const cache = each.cache()) caches.push_back(cache);
    analysis::add_types(texts[n], ids.size(), types);
    ids.insert(ids.end(), each.ids().begin(), each.ids().end());
    starts.push_back(std::ssize(ids));
  }
  analysis::All all(watchers);
  const Tensor hidden = ModelAccess::forward(model, ids, {.starts = starts, .types = types, .caches = caches}, &all);
  const Tensor logits = logits_together(model, asked, options.subspan(first, last - first), hidden);
  std::vector<Attribution> found;
  found.reserve(asked.size());
  for (std::size_t n = 0; n < asked.size(); ++n) {
    std::optional<View> known;
    if (logits.count() > 0) known = logits.view().select(0, static_cast<std::int64_t>(n));
    found.push_back(asked[n].finish(hidden, known));
  }
  return found;
}

}  // namespace

std::vector<Attribution> attribute(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                                   std::span<const AttributeOptions> options) {
  const std::vector<AttributeOptions> each = analysis::for_each_text(attribute_function, options, texts.size());
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
  if (parts.count() == 0) fail(ErrorCode::bad_value, "sums_by_token", "there are no parts from a cross-attention");
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
  if (x.of == GradientOf::label) why["of"] = "label";
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

}  // namespace attend::inline v1
