#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "analysis/answers.h"
#include "analysis/cached_row.h"
#include "attend/analysis.h"
#include "core/message.h"
#include "layers/rows.h"

namespace attend {

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
  RowWatcher(std::int64_t row, std::vector<KvCache>& layers, Tensor& heads)
      : row_(row), layers_(layers), heads_(heads) {}

  void attends(const models::AttentionStep& step, const View& q, const View&, const View&) override {
    steps.push_back(step);
    analysis::weigh_row(step, q.select(0, 0).select(1, row_), layers_[static_cast<std::size_t>(step.layer)],
                        heads_.size(2), of_layer(step.layer));
  }
  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override {
    if (place == ModelPlace::residual && layer == 0) embedding = row_of(values);
    if (place == ModelPlace::residual && layer == heads_.size(0)) last = row_of(values);
    if (place == ModelPlace::mlp) mlps.push_back(row_of(values));
  }
  void normalises(models::NormPlace place, std::int64_t layer, const models::Norm& norm, const View& x) override {
    norms.insert({std::pair(place, layer), FrozenNorm{norm, row_of(x)}});
  }

  // How the layer's place is read where what comes after it is read so.
  Direction before(models::NormPlace place, std::int64_t layer, Direction read) const {
    const auto found = norms.find({place, layer});
    return found == norms.end() ? read : through(found->second.norm, read, found->second.x);
  }

  float* of_layer(std::int64_t layer) const { return heads_.data<float>() + layer * heads_.size(1) * heads_.size(2); }

  Tensor embedding, last;  // [1,E]: the stream at first and at last
  std::vector<Tensor> mlps;
  std::vector<models::AttentionStep> steps;
  std::map<std::pair<models::NormPlace, std::int64_t>, FrozenNorm> norms;

 private:
  Tensor row_of(const View& values) const { return values.slice(0, row_, row_ + 1).to(DType::f32); }

  std::int64_t row_;
  std::vector<KvCache>& layers_;
  Tensor& heads_;
};

// What is known of the tokens before a position. Throws bad_value for another text's.
ModelCache known_before(const ModelCache& given, std::span<const std::int64_t> ids, std::int64_t position) {
  const std::vector<std::int64_t>& held = ModelAccess::ids(given);
  for (std::int64_t n = 0; n < std::min(std::ssize(held), std::ssize(ids)); ++n) {
    if (held[static_cast<std::size_t>(n)] != ids[static_cast<std::size_t>(n)])
      fail(ErrorCode::bad_value, function, "the cache is of another text: its id {} is {}, ids has {}", n,
           held[static_cast<std::size_t>(n)], ids[static_cast<std::size_t>(n)]);
  }
  ModelCache cache = given;
  cache.truncate(std::min(std::ssize(held), position));
  return cache;
}

// The row of the output layer, less that of `against`, and its bias.
Direction output_row(const models::Output& output, std::int64_t token, const std::optional<std::int64_t>& against) {
  const Linear& layer = output.layer;
  Direction out{std::vector<double>(static_cast<std::size_t>(layer.in_size()))};
  const auto add = [&](std::int64_t of, double factor) {
    const Tensor row = layer.weight().select(0, of).to(DType::f32);
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
  if (weight.dtype() != DType::f32) made = converted(weight, DType::f32), weight = made;
  return Linear::borrow(weight.transpose(0, 1)).forward(row);
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

// The parts, from the last to the first: `read` is how the stream after all layers is.
void explain(const RowWatcher& row, std::vector<KvCache>& layers, Direction read, Attribution& out) {
  using models::NormPlace;
  out.mlps = Tensor({std::ssize(row.mlps)});
  for (std::int64_t layer = std::ssize(row.mlps) - 1; layer >= 0; --layer) {
    const auto l = static_cast<std::size_t>(layer);
    read = row.before(NormPlace::mlp_sum, layer, std::move(read));
    out.mlps.data<float>()[l] = static_cast<float>(dot(read.u, row.mlps[l].view()));
    read = row.before(NormPlace::attention_sum, layer, std::move(read));
    const Direction written = row.before(NormPlace::attention_output, layer, {read.u});
    out.bias += written.bias;
    const Linear& projection = *row.steps[l].output;
    if (projection.bias()) out.bias += dot(written.u, projection.bias()->view());
    const Tensor to_heads = back_through(projection, written.u);
    analysis::multiply_by_values(row.steps[l], layers[l], out.position + 1, to_heads.data<float>(),
                                 row.of_layer(layer));
  }
  out.embedding = dot(read.u, row.embedding.view());
  out.bias += read.bias;
}

}  // namespace

Attribution attribute(const Model& model, std::span<const std::int64_t> ids, const AttributeOptions& options) {
  const Model::Parts& parts = ModelAccess::parts(model);
  const ModelInfo& info = model.info();
  const models::Output& output = models::output_of(parts, "attribute()");
  Attribution out;
  models::batch_of(ids, {}, info);
  out.position = analysis::checked_position(function, options.position, std::ssize(ids));
  if (options.token) analysis::check_token(function, "token", *options.token, info);
  if (options.against) analysis::check_token(function, "against", *options.against, info);

  ModelCache cache = options.cache ? known_before(*options.cache, ids, out.position) : model.cache();
  ModelCache* const caches[] = {&cache};
  out.heads = Tensor::uninitialized({info.layers, info.heads, out.position + 1}, DType::f32);
  // Without a cache, all ids: how longrope turns the keys is the whole text's matter.
  const std::int64_t first = cache.length(), last = options.cache ? out.position + 1 : std::ssize(ids);
  const std::int64_t at = out.position - first;
  RowWatcher row(at, ModelAccess::layers(cache), out.heads);
  const Tensor hidden =
      ModelAccess::forward(model, ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first)),
                           {.caches = caches}, &row);
  const Tensor logits = output.uncapped(hidden.view().select(0, at));
  out.token =
      options.token.value_or(analysis::likeliest({logits.data<float>(), static_cast<std::size_t>(logits.count())}));
  out.against = options.against;
  const auto of_token = [&](const Tensor& of, std::int64_t token) {
    return static_cast<double>(of.data<float>()[token]);
  };
  const auto asked = [&](const Tensor& of) {
    return of_token(of, out.token) - (out.against ? of_token(of, *out.against) : 0);
  };
  out.logit = asked(logits);
  out.capped_logit = output.softcap > 0 ? asked(model.logits(hidden.view().select(0, at))) : out.logit;
  Direction read = output_row(output, out.token, out.against);
  if (output.projection) {
    const Tensor before = back_through(*output.projection, read.u);
    read.u.assign(before.data<float>(), before.data<float>() + before.count());
  }
  explain(row, ModelAccess::layers(cache), before_last_norm(parts, read, row.last), out);
  if (info.dtype != DType::f32) {
    const auto sum = [](const Tensor& x) { return std::accumulate(x.data<float>(), x.data<float>() + x.count(), 0.0); };
    out.rounding = out.logit - sum(out.heads) - sum(out.mlps) - out.embedding - out.bias;
  }
  return out;
}

std::vector<AttributionPart> strongest_parts(const Attribution& of, std::int64_t count) {
  if (count < 0) fail(ErrorCode::bad_value, "strongest_parts", "count is {}, expected at least 0", count);
  using Kind = AttributionPart::Kind;
  std::vector<AttributionPart> all;
  all.reserve(static_cast<std::size_t>(of.heads.count() + of.mlps.count() + 3));
  const float* value = of.heads.data<float>();
  for (std::int64_t l = 0; l < of.heads.size(0); ++l)
    for (std::int64_t h = 0; h < of.heads.size(1); ++h)
      for (std::int64_t j = 0; j < of.heads.size(2); ++j)
        all.push_back({Kind::head, l, h, j, static_cast<double>(*value++)});
  for (std::int64_t l = 0; l < of.mlps.size(0); ++l)
    all.push_back({Kind::mlp, l, -1, -1, static_cast<double>(of.mlps.data<float>()[l])});
  all.push_back({Kind::embedding, -1, -1, -1, of.embedding});
  all.push_back({Kind::bias, -1, -1, -1, of.bias});
  if (of.rounding != 0) all.push_back({Kind::rounding, -1, -1, -1, of.rounding});
  const auto kept = std::min<std::size_t>(static_cast<std::size_t>(count), all.size());
  std::ranges::partial_sort(all, all.begin() + static_cast<std::ptrdiff_t>(kept), [](const auto& a, const auto& b) {
    return std::abs(a.value) != std::abs(b.value)
               ? std::abs(a.value) > std::abs(b.value)
               : std::tie(a.kind, a.layer, a.head, a.key) < std::tie(b.kind, b.layer, b.head, b.key);
  });
  all.resize(kept);
  return all;
}

Tensor sums_by_token(const Attribution& x) {
  const std::int64_t T = x.heads.size(2);
  std::vector<double> sums(static_cast<std::size_t>(T));
  for (std::int64_t n = 0; n < x.heads.count(); ++n)
    sums[static_cast<std::size_t>(n % T)] += static_cast<double>(x.heads.data<float>()[n]);
  Tensor out({T});
  std::ranges::transform(sums, out.data<float>(), [](double sum) { return static_cast<float>(sum); });
  return out;
}

}  // namespace attend
