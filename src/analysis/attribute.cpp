#include <algorithm>
#include <cmath>
#include <numeric>

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

// w [E], x [E] f32: of w . (x / sqrt(mean of x^2 + eps) * weight).
Direction freeze(const RmsNorm& norm, std::span<const double> w, const float* x) {
  double squares = 0;
  for (std::size_t e = 0; e < w.size(); ++e) squares += static_cast<double>(x[e]) * static_cast<double>(x[e]);
  const double divisor = std::sqrt(squares / static_cast<double>(w.size()) + norm.eps());
  Direction out{std::vector<double>(w.size())};
  for (std::size_t e = 0; e < w.size(); ++e)
    out.u[e] = w[e] * static_cast<double>(norm.weight().data<float>()[e]) / divisor;
  return out;
}

// The same with the mean taken out of x, which is taken out of the direction instead.
Direction freeze(const LayerNorm& norm, std::span<const double> w, const float* x) {
  const auto E = static_cast<double>(w.size());
  const double mean = std::accumulate(x, x + w.size(), 0.0) / E;
  double squares = 0;
  for (std::size_t e = 0; e < w.size(); ++e)
    squares += (static_cast<double>(x[e]) - mean) * (static_cast<double>(x[e]) - mean);
  const double divisor = std::sqrt(squares / E + norm.eps());
  Direction out{std::vector<double>(w.size())};
  for (std::size_t e = 0; e < w.size(); ++e) {
    out.u[e] = w[e] * static_cast<double>(norm.weight().data<float>()[e]) / divisor;
    if (norm.bias()) out.bias += w[e] * static_cast<double>(norm.bias()->data<float>()[e]);
  }
  const double level = std::accumulate(out.u.begin(), out.u.end(), 0.0) / E;
  for (double& each : out.u) each -= level;
  return out;
}

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
    const auto row = [&] { return values.slice(0, row_, row_ + 1).to(DType::f32); };
    if (place == ModelPlace::residual && layer == 0) embedding = row();
    if (place == ModelPlace::residual && layer == heads_.size(0)) last = row();
    if (place == ModelPlace::mlp) mlps.push_back(row());
  }

  float* of_layer(std::int64_t layer) const { return heads_.data<float>() + layer * heads_.size(1) * heads_.size(2); }

  Tensor embedding, last;  // [1,E]: the stream at first and at last
  std::vector<Tensor> mlps;
  std::vector<models::AttentionStep> steps;

 private:
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
Direction output_row(const Linear& output, std::int64_t token, const std::optional<std::int64_t>& against) {
  Direction out{std::vector<double>(static_cast<std::size_t>(output.in_size()))};
  const auto add = [&](std::int64_t of, double sign) {
    const Tensor row = output.weight().select(0, of).to(DType::f32);
    for (std::size_t e = 0; e < out.u.size(); ++e) out.u[e] += sign * static_cast<double>(row.data<float>()[e]);
    if (output.bias()) out.bias += sign * static_cast<double>(output.bias()->data<float>()[of]);
  };
  add(token, 1);
  if (against) add(*against, -1);
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

}  // namespace

Attribution attribute(const Model& model, std::span<const std::int64_t> ids, const AttributeOptions& options) {
  const Model::Parts& parts = ModelAccess::parts(model);
  const ModelInfo& info = model.info();
  const Linear& output = models::output_of(parts, "attribute()");
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
  const Tensor logits = model.logits(hidden.view().select(0, at));
  const std::span<const float> row_logits{logits.data<float>(), static_cast<std::size_t>(logits.count())};
  out.token = options.token.value_or(analysis::likeliest(row_logits));
  out.against = options.against;
  const auto logit = [&](std::int64_t token) {
    return static_cast<double>(row_logits[static_cast<std::size_t>(token)]);
  };
  out.logit = logit(out.token) - (out.against ? logit(*out.against) : 0);

  const Direction read = output_row(output, out.token, out.against);
  std::visit(
      [&](const auto& family) {
        if constexpr (requires { family.last_norm(); }) {
          const Direction direction = freeze(family.last_norm(), read.u, row.last.template data<float>());
          out.embedding = dot(direction.u, row.embedding.view());
          out.bias = read.bias + direction.bias;
          out.mlps = Tensor({info.layers});
          for (std::size_t l = 0; l < row.mlps.size(); ++l) {
            const auto layer = static_cast<std::int64_t>(l);
            out.mlps.template data<float>()[l] = static_cast<float>(dot(direction.u, row.mlps[l].view()));
            const Linear& projection = family.attention_output(layer);
            if (projection.bias()) out.bias += dot(direction.u, projection.bias()->view());
            const Tensor to_heads = back_through(projection, direction.u);
            analysis::multiply_by_values(row.steps[l], ModelAccess::layers(cache)[l], out.position + 1,
                                         to_heads.template data<float>(), row.of_layer(layer));
          }
        }
      },
      parts.family);
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
