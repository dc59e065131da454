#include "attend/score_split.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <type_traits>
#include <utility>

#include "analysis/answers.h"
#include "analysis/held_norm.h"
#include "analysis/json.h"
#include "analysis/splits.h"
#include "attend/linear.h"
#include "attend/rotary.h"
#include "core/from_end.h"
#include "core/message.h"
#include "layers/rows.h"
#include "models/growing.h"
#include "models/layer_parts.h"
#include "models/model.h"

namespace attend::inline v0 {

namespace {

using Held = analysis::HeldNorm;
using analysis::RowPieces;
constexpr const char* function = "explain_score";

// ---- Queries and keys ----

// How a head makes its queries, or its keys, of the stream.
class Reader {
 public:
  // projected [R,heads * D]: what the projection gave, before a norm of heads.
  Reader(const models::LayerParts& parts, const models::HeadRows& rows, std::string_view norm_name, std::int64_t head,
         std::int64_t size, const Held* reads_by, const Tensor& projected, const RotaryAngles& angles)
      : reads_by_(reads_by), angles_(angles) {
    const std::int64_t first = rows.first + head * (rows.step > 0 ? rows.step : size);
    weight_ = rows.of->weight_rows(first, first + size);
    if (rows.of->bias()) bias_ = rows.of->bias()->view().slice(0, first, first + size).to(DType::f32);
    for (const auto& [name, norm] : parts.norms)
      if (name == norm_name) hold(norm, head, size, projected);
  }

  // A part of the stream [R,E] -> of the head's rows [R,D], turned.
  Tensor read(Tensor part, bool biases) const {
    if (reads_by_) reads_by_->apply(part);
    if (reads_by_ && biases) reads_by_->add_bias(part);
    Tensor rows = Linear::borrow(weight_).forward(part);
    if (biases && bias_.count() > 0) analysis::add_row(bias_, rows);
    const std::int64_t D = rows.size(1);
    float* values = rows.data<float>();
    const float* weights = norm_weight_.data<float>();
    for (std::int64_t n = 0; n < rows.count() && !factors_.empty(); ++n)
      values[n] *= static_cast<float>(factors_[static_cast<std::size_t>(n / D)] * static_cast<double>(weights[n % D]));
    if (angles_.cos.count() > 0) RotaryEmbedding::rotate(rows.view().reshape({rows.size(0), 1, D}), angles_);
    return rows;
  }

 private:
  // Each head's own norm, or one over all of them.
  void hold(const models::Norm& norm, std::int64_t head, std::int64_t size, const Tensor& projected) {
    const View weight = std::visit([](const auto* of) -> View { return of->weight(); }, norm);
    const bool own = weight.count() == size;
    const std::int64_t begin = head * size, first = own ? begin : 0, last = own ? begin + size : projected.size(1);
    const Held held(norm, projected.view().slice(1, first, last).clone());
    if (held.centres()) fail(ErrorCode::bad_value, function, "a LayerNorm of heads is not known");
    factors_ = held.factors;
    norm_weight_ = weight.slice(0, own ? 0 : begin, own ? size : begin + size).to(DType::f32);
  }

  const Held* reads_by_;
  const RotaryAngles& angles_;
  Tensor weight_, bias_, norm_weight_;
  std::vector<double> factors_;
};

RotaryAngles angles_of(const models::LayerParts& parts, std::int64_t tokens, const std::vector<std::int64_t>& rows) {
  if (!parts.self.rotary) return {};
  std::vector<std::int64_t> positions(static_cast<std::size_t>(tokens));
  std::iota(positions.begin(), positions.end(), std::int64_t{0});
  const RotaryAngles all = parts.self.rotary->angles(positions);  // longrope's are the whole text's
  return {analysis::rows_of(all.cos, rows), analysis::rows_of(all.sin, rows)};
}

// ---- The score ----

// The keys that the query sees.
Range seen_by(const models::AttentionStep& step, std::int64_t query, std::int64_t tokens) {
  Range seen{0, step.causal ? query + 1 : tokens};
  if (step.window > 0) seen.begin = std::max<std::int64_t>(0, query - step.window + 1);
  if (step.window > 0 && !step.causal) seen.end = std::min(tokens, query + step.window);
  return seen;
}

// Of keys by their rows: 1 for the key itself, below 0 for those whose scores are taken away.
using Weights = std::map<std::int64_t, double>;

// The sum of some of the rows [R,D], each times its weight: [D].
Tensor weighed(const Tensor& rows, const RowPieces& pieces, const Weights& weights) {
  Tensor sum({rows.size(1)});
  std::vector<double> sums(static_cast<std::size_t>(rows.size(1)));
  const float* all = rows.data<float>();
  for (const auto& [row, weight] : weights) {
    const float* values = all + static_cast<std::int64_t>(pieces.row(row)) * rows.size(1);
    for (std::size_t d = 0; d < sums.size(); ++d) sums[d] += weight * static_cast<double>(values[d]);
  }
  std::ranges::transform(sums, sum.data<float>(), [](double value) { return static_cast<float>(value); });
  return sum;
}

// A score as a sum over pairs of parts, and as the pass had it.
class ScoreOfHead {
 public:
  ScoreOfHead(const Model::Parts& parts, const RowPieces& pieces, std::int64_t layer, std::int64_t head,
              std::int64_t query, Weights weights, std::int64_t tokens)
      : parts_(parts), pieces_(pieces), layer_(layer), head_(head), tokens_(tokens), weights_(std::move(weights)) {
    out_.query = query;
  }

  // also: called with each part, too.
  ScoreSplit take(const analysis::PartBody& also) {
    const models::AttentionStep& step = pieces_.step(layer_);
    const models::LayerParts of =
        models::parts_of_layer(parts_, static_cast<std::size_t>(layer_), pieces_.of_encoder());
    const std::int64_t D = pieces_.of_encoder() ? parts_.info.encoder_head_size : parts_.info.head_size,
                       group = head_ / (step.heads / step.kv_heads);
    const Tensor& stream = pieces_.get(ModelPlace::residual, layer_);
    const Tensor q_row = of_query(pieces_.get(ModelPlace::q, layer_)), stream_row = of_query(stream);
    std::optional<Held> query_norm, key_norm;
    if (of.self.reads_by)
      query_norm.emplace(*of.self.reads_by, stream_row), key_norm.emplace(*of.self.reads_by, stream);
    const RotaryAngles query_angles = angles_of(of, tokens_, {out_.query}),
                       key_angles = angles_of(of, tokens_, pieces_.rows());
    const Reader queries(of, of.self.q, "query_norm", head_, D, query_norm ? &*query_norm : nullptr, q_row,
                         query_angles);
    const Reader keys(of, of.self.k, "key_norm", group, D, key_norm ? &*key_norm : nullptr,
                      pieces_.get(ModelPlace::k, layer_), key_angles);
    std::vector<Tensor> q, k;
    analysis::for_each_part(parts_, pieces_, layer_, [&](const AttributionPart& which, const Tensor& part) {
      if (also) also(which, part);
      const bool biases = which.kind == AttributionPart::Kind::bias;
      out_.parts.push_back(which);
      q.push_back(queries.read(of_query(part), biases).view().select(0, 0).clone());
      k.push_back(weighed(keys.read(part.clone(), biases), pieces_, weights_));
    });
    out_.scale = step.scale.value_or(1 / std::sqrt(static_cast<double>(D)));
    multiply(q, k);
    measure(step, D, group);
    return std::move(out_);
  }

 private:
  // Its row alone, [1,...].
  Tensor of_query(const Tensor& rows) const {
    const auto row = static_cast<std::int64_t>(pieces_.row(out_.query));
    return rows.view().slice(0, row, row + 1).clone();
  }
  void multiply(const std::vector<Tensor>& q, const std::vector<Tensor>& k) {
    const std::int64_t A = std::ssize(q);
    out_.pairs = Tensor({A, A});
    for (std::int64_t a = 0; a < A; ++a)
      for (std::int64_t b = 0; b < A; ++b) {
        const Tensor &x = q[static_cast<std::size_t>(a)], &y = k[static_cast<std::size_t>(b)];
        const double value = out_.scale * dot(x.data<float>(), y.data<float>(), x.count());
        out_.pairs.data<float>()[a * A + b] = static_cast<float>(value);
        out_.rest -= value;
        out_.parts[static_cast<std::size_t>(a)].value += value;
      }
  }

  // The score as the pass had it.
  void measure(const models::AttentionStep& step, std::int64_t D, std::int64_t group) {
    const auto of_head = [&](ModelPlace place, std::int64_t head) {
      return pieces_.get(place, layer_).view().slice(1, head * D, (head + 1) * D).clone();
    };
    const Tensor q = weighed(of_head(ModelPlace::rotated_q, head_), pieces_, {{out_.query, 1}}),
                 k = weighed(of_head(ModelPlace::rotated_k, group), pieces_, weights_);
    out_.score = out_.scale * dot(q.data<float>(), k.data<float>(), D);
    out_.rest += out_.score;
    if (!step.distance_bias) return;
    const Tensor bias = step.distance_bias->to(DType::f32);
    const std::int64_t reach = (bias.size(1) - 1) / 2;
    for (const auto& [key, weight] : weights_) {
      const std::int64_t at = std::clamp(key - out_.query, -reach, reach) + reach;
      out_.bias += weight * static_cast<double>(bias.data<float>()[head_ * bias.size(1) + at]);
    }
    out_.score += out_.bias;
  }

  const Model::Parts& parts_;
  const RowPieces& pieces_;
  std::int64_t layer_, head_, tokens_;
  Weights weights_;
  ScoreSplit out_;
};

Tensor sums(const ScoreSplit& split, int axis) {
  const std::int64_t A = split.pairs.rank() == 2 ? split.pairs.size(0) : 0;
  if (A == 0 || split.pairs.size(1) != A)
    fail(ErrorCode::bad_shape, function, "pairs have shape {}, expected [A,A]", split.pairs.shape());
  Tensor all({A});
  for (std::int64_t a = 0; a < A; ++a) {
    double sum = 0;
    for (std::int64_t b = 0; b < A; ++b)
      sum += static_cast<double>(split.pairs.data<float>()[axis == 0 ? a * A + b : b * A + a]);
    all.data<float>()[a] = static_cast<float>(sum);
  }
  return all;
}

}  // namespace

analysis::SplittingScore::SplittingScore(const Model& model, const Text& text, Head head, std::int64_t query,
                                         std::int64_t key, const ScoreOptions& options)
    : parts_(ModelAccess::parts(model)), options_(options) {
  const ModelInfo& info = parts_.info;
  check_text(text, info);
  check_attention(function, options.attention, info);
  if (options.attention == AttentionKind::cross)
    fail(ErrorCode::bad_value, function, "the head reads another text, expected one of an own attention");
  tokens_ = std::ssize(of_encoder() ? text.ids : text.answering());
  layer_ = from_end(function, "layer is", head.first, of_encoder() ? info.encoder_layers : info.layers);
  head_ = from_end(function, "head is", head.second, of_encoder() ? info.encoder_heads : info.heads);
  query_ = from_end(function, "query is", query, tokens_);
  key_ = from_end(function, "key is", key, tokens_);
  if (options.against == ScoreOptions::Against::key)
    against_ = from_end(function, "against is", options.against_key, tokens_);
}

std::vector<std::int64_t> analysis::SplittingScore::rows() const {
  std::vector<std::int64_t> rows;
  if (options_.against == ScoreOptions::Against::mean) {
    const bool later = of_encoder() || (!parts_.info.decoder() && !parts_.info.encoder_decoder());  // may be seen
    rows.resize(static_cast<std::size_t>(later ? tokens_ : std::max(query_, key_) + 1));
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    return rows;
  }
  rows = {query_, key_};
  if (options_.against == ScoreOptions::Against::key) rows.push_back(against_);
  std::ranges::sort(rows);
  rows.erase(std::ranges::unique(rows).begin(), rows.end());
  return rows;
}

ScoreSplit analysis::SplittingScore::split(const RowPieces& pieces, const PartBody& also) const {
  const Range seen = seen_by(pieces.step(layer_), query_, tokens_);
  const auto check = [&](std::int64_t key) {
    if (key < seen.begin || key >= seen.end)
      fail(ErrorCode::bad_value, function, "query {} does not see key {}, it sees {} to {}", query_, key, seen.begin,
           seen.end - 1);
  };
  check(key_);
  Weights weights{{key_, 1}};
  if (options_.against == ScoreOptions::Against::key) check(against_), weights[against_] -= 1;
  if (options_.against == ScoreOptions::Against::mean)
    for (std::int64_t key = seen.begin; key < seen.end; ++key)
      weights[key] -= 1 / static_cast<double>(seen.end - seen.begin);
  ScoreSplit out = ScoreOfHead(parts_, pieces, layer_, head_, query_, std::move(weights), tokens_).take(also);
  out.key = key_;
  return out;
}

ScoreSplit explain_score(const Model& model, std::span<const std::int64_t> ids, Head head, std::int64_t query,
                         std::int64_t key, const ScoreOptions& options) {
  // What a decoder says does not matter to its encoder.
  const std::vector<std::int64_t> start = models::first_decoder_ids(model.info());
  const bool of_encoder = options.attention == AttentionKind::encoder && options.decoder_ids.empty();
  const analysis::Text text{ids, of_encoder ? std::span<const std::int64_t>(start) : options.decoder_ids};
  const analysis::SplittingScore asked(model, text, head, query, key, options);
  const std::int64_t layer = asked.layer();
  RowPieces pieces(asked.rows(), {&layer, 1}, asked.of_encoder());
  const bool all = options.against == ScoreOptions::Against::mean;
  analysis::pass_of(function, model, text, all ? nullptr : options.cache, pieces);
  return asked.split(pieces);
}

Tensor sums_of_query(const ScoreSplit& split) {
  return sums(split, 0);
}

Tensor sums_of_key(const ScoreSplit& split) {
  return sums(split, 1);
}

std::string to_json(const ScoreSplit& x, const TensorJson& tensor) {
  const Tensors json(tensor);
  Json parts = Json::array();
  for (const AttributionPart& part : x.parts) parts.push_back(json_of(part));
  return text_of({{"score", x.score},
                  {"bias", x.bias},
                  {"rest", x.rest},
                  {"parts", std::move(parts)},
                  {"query", json("query", sums_of_query(x))},
                  {"key", json("key", sums_of_key(x))},
                  {"pairs", json("pairs", x.pairs)}});
}

}  // namespace attend::inline v0
