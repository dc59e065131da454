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

namespace attend::inline v1 {

namespace {

using Held = analysis::HeldNorm;
using analysis::RowPieces;
constexpr const char* score_split_function = "explain_score";

// ---- Queries and keys ----

// How a head makes its queries, or its keys, of the stream.
class Reader {
 public:
  // projected [R,heads * D]: what the projection gave, before a norm of heads, where there may be one.
  Reader(const models::LayerParts& parts, const models::HeadRows& rows, std::string_view norm_name, std::int64_t head,
         std::int64_t size, const std::optional<Held>& reads_by, const Tensor* projected, const RotaryAngles& angles)
      : reads_by_(reads_by), angles_(angles) {
    const std::int64_t first = rows.first + head * (rows.step > 0 ? rows.step : size);
    weight_ = rows.of->weight_rows(first, first + size);
    if (rows.of->bias()) bias_ = rows.of->bias()->view().slice(0, first, first + size).to(DType::f32);
    for (const auto& [name, norm] : parts.norms)
      if (projected && name == norm_name) hold(norm, head, size, *projected);
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
    if (held.centres()) fail(ErrorCode::bad_value, score_split_function, "a LayerNorm inside heads is not known here");
    factors_ = held.factors;
    norm_weight_ = weight.slice(0, own ? 0 : begin, own ? size : begin + size).to(DType::f32);
  }

  const std::optional<Held>& reads_by_;
  const RotaryAngles& angles_;
  Tensor weight_, bias_, norm_weight_;
  std::vector<double> factors_;
};

RotaryAngles angles_of(const models::LayerParts::Attention& own, std::int64_t tokens,
                       const std::vector<std::int64_t>& rows) {
  if (!own.rotary) return {};
  std::vector<std::int64_t> positions(static_cast<std::size_t>(tokens));
  std::iota(positions.begin(), positions.end(), std::int64_t{0});
  const RotaryAngles all = own.rotary->angles(positions);  // longrope's are the whole text's
  return {rows_at(all.cos, rows), rows_at(all.sin, rows)};
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

// The sum of rows, each times its weight: [D]. row_of gives one of them, [D].
template <class RowOf>
Tensor weighed(const Weights& weights, std::int64_t D, RowOf row_of) {
  std::vector<double> sums(static_cast<std::size_t>(D));
  for (const auto& [row, weight] : weights) {
    const View given = row_of(row);
    const bool as_it_is = given.dtype() == DType::f32 && given.is_contiguous();  // against the mean they are many
    const Tensor made = as_it_is ? Tensor() : given.to(DType::f32);
    const float* values = as_it_is ? given.data<float>() : made.data<float>();
    for (std::size_t d = 0; d < sums.size(); ++d) sums[d] += weight * static_cast<double>(values[d]);
  }
  Tensor sum({D});
  std::ranges::transform(sums, sum.data<float>(), [](double value) { return static_cast<float>(value); });
  return sum;
}

// A score as a sum over pairs of parts, and as the pass had it.
class ScoreOfHead {
 public:
  ScoreOfHead(const Model::Parts& parts, const RowPieces& queries, Head head, std::int64_t query)
      : parts_(parts),
        queries_(queries),
        layer_(head.first),
        head_(head.second),
        step_(queries.step(layer_)),
        group_(head_ / (step_.heads / step_.kv_heads)),
        size_(queries.of_encoder() ? parts.info.encoder_head_size : parts.info.head_size),
        of_(models::parts_of_layer(parts, static_cast<std::size_t>(layer_), queries.of_encoder())) {
    out_.query = query;
    out_.scale = step_.scale.value_or(1 / std::sqrt(static_cast<double>(size_)));
  }

  std::int64_t size() const { return size_; }
  std::int64_t group() const { return group_; }
  // Of a row of keys [Hkv*D] those of the head's group.
  View of_group(const View& row) const { return row.slice(0, group_ * size_, (group_ + 1) * size_); }

  // keys: the rows that the keys are, of a text of so many tokens; null: the whole key alone. also: called with each
  // part of the query's text, too.
  void split(const RowPieces* keys, const Weights& weights, std::int64_t tokens, const analysis::PartBody& also) {
    const models::LayerParts::Attention& own = crosses() ? *of_.cross : of_.self;
    const std::optional<Held> norm = held(
        own.reads_by, of_query(queries_.get(crosses() ? ModelPlace::cross_residual : ModelPlace::residual, layer_)));
    const RotaryAngles angles = angles_of(own, tokens, {out_.query});
    const Tensor projected = crosses() ? Tensor() : of_query(queries_.get(ModelPlace::q, layer_));
    const Reader reader(of_, own.q, "query_norm", head_, size_, norm, crosses() ? nullptr : &projected, angles);
    const auto read = [&](const AttributionPart& which, const Tensor& part) {
      if (also) also(which, part);
      out_.parts.push_back(which);
      q_.push_back(reader.read(of_query(part), is_bias(which)).view().select(0, 0).clone());
    };
    if (keys)
      split_keys(*keys, weights, tokens, own, read);
    else
      analysis::for_each_part(parts_, queries_, layer_, read);
  }
  // key [D]: the whole.
  ScoreSplit take(Tensor key, const Weights& weights) {
    const Tensor q = of_query(queries_.get(crosses() ? ModelPlace::cross_q : ModelPlace::rotated_q, layer_));
    out_.score = out_.rest = out_.scale * dot(q.data<float>() + head_ * size_, key.data<float>(), size_);
    if (k_.empty()) k_.push_back(std::move(key));
    multiply();
    add_bias(weights);
    return std::move(out_);
  }

 private:
  bool crosses() const { return step_.cross; }
  static bool is_bias(const AttributionPart& which) { return which.kind == AttributionPart::Kind::bias; }
  static std::optional<Held> held(const std::optional<models::Norm>& norm, const Tensor& x) {
    return norm ? std::optional<Held>(std::in_place, *norm, x) : std::nullopt;
  }
  // Its row alone, [1,...].
  Tensor of_query(const Tensor& rows) const {
    const auto row = static_cast<std::int64_t>(queries_.row(out_.query));
    return rows.view().slice(0, row, row + 1).clone();
  }

  // read: called with the query's parts, too. Where both are rows of one text, their parts are made once.
  void split_keys(const RowPieces& keys, const Weights& weights, std::int64_t tokens,
                  const models::LayerParts::Attention& own, const analysis::PartBody& read) {
    const std::int64_t layer = crosses() ? keys.last() : layer_;
    const std::optional<Held> norm =
        held(crosses() ? models::last_norm_of_encoder(parts_) : own.reads_by, keys.get(ModelPlace::residual, layer));
    const RotaryAngles angles = angles_of(own, tokens, keys.rows());
    const Tensor* projected = crosses() ? nullptr : &keys.get(ModelPlace::k, layer);
    const Reader reader(of_, own.k, "key_norm", group_, size_, norm, projected, angles);
    if (crosses()) analysis::for_each_part(parts_, queries_, layer_, read);
    analysis::for_each_part(parts_, keys, layer, [&](const AttributionPart& which, const Tensor& part) {
      if (!crosses()) read(which, part);
      out_.key_parts.push_back(which);
      const Tensor rows = reader.read(part.clone(), is_bias(which));
      k_.push_back(weighed(weights, size_, [&](std::int64_t row) {
        return rows.view().select(0, static_cast<std::int64_t>(keys.row(row)));
      }));
    });
  }

  void multiply() {
    const std::int64_t A = std::ssize(q_), B = std::ssize(k_);
    out_.pairs = Tensor({A, B});
    for (std::int64_t a = 0; a < A; ++a)
      for (std::int64_t b = 0; b < B; ++b) {
        const Tensor &x = q_[static_cast<std::size_t>(a)], &y = k_[static_cast<std::size_t>(b)];
        const double value = out_.scale * dot(x.data<float>(), y.data<float>(), size_);
        out_.pairs.data<float>()[a * B + b] = static_cast<float>(value);
        out_.rest -= value;
        out_.parts[static_cast<std::size_t>(a)].value += value;
        if (!out_.key_parts.empty()) out_.key_parts[static_cast<std::size_t>(b)].value += value;
      }
  }

  void add_bias(const Weights& weights) {
    if (!step_.distance_bias) return;
    const Tensor bias = step_.distance_bias->to(DType::f32);
    const std::int64_t reach = (bias.size(1) - 1) / 2;
    for (const auto& [key, weight] : weights) {
      const std::int64_t at = std::clamp(key - out_.query, -reach, reach) + reach;
      out_.bias += weight * static_cast<double>(bias.data<float>()[head_ * bias.size(1) + at]);
    }
    out_.score += out_.bias;
  }

  const Model::Parts& parts_;
  const RowPieces& queries_;
  std::int64_t layer_, head_;
  const models::AttentionStep& step_;
  std::int64_t group_, size_;
  models::LayerParts of_;
  std::vector<Tensor> q_, k_;
  ScoreSplit out_;
};

Tensor sums(const ScoreSplit& split, bool of_query) {
  if (split.pairs.rank() != 2)
    fail(ErrorCode::bad_shape, score_split_function, "pairs have shape {}, expected [A,B]", split.pairs.shape());
  const std::int64_t A = split.pairs.size(0), B = split.pairs.size(1);
  std::vector<double> all(static_cast<std::size_t>(of_query ? A : B));
  for (std::int64_t n = 0; n < A * B; ++n)
    all[static_cast<std::size_t>(of_query ? n / B : n % B)] += static_cast<double>(split.pairs.data<float>()[n]);
  Tensor out({std::ssize(all)});
  std::ranges::transform(all, out.data<float>(), [](double sum) { return static_cast<float>(sum); });
  return out;
}

}  // namespace

analysis::SplittingScore::SplittingScore(const Model& model, const Text& text, Head head, std::int64_t query,
                                         std::int64_t key, const ScoreOptions& options)
    : parts_(ModelAccess::parts(model)), text_(text), options_(options) {
  const ModelInfo& info = parts_.info;
  models::check_exact(info, score_split_function);
  check_text(text, info);
  check_attention(score_split_function, options.attention, info);
  const bool of_encoder = options.attention == AttentionKind::encoder;
  tokens_ = std::ssize(of_encoder ? text.ids : text.answering());
  keys_ = crosses() ? std::ssize(text.ids) : tokens_;
  head_ = {from_end(score_split_function, "layer is", head.first, of_encoder ? info.encoder_layers : info.layers),
           from_end(score_split_function, "head is", head.second, of_encoder ? info.encoder_heads : info.heads)};
  query_ = from_end(score_split_function, "query is", query, tokens_);
  key_ = from_end(score_split_function, "key is", key, keys_);
  if (options.against == ScoreOptions::Against::key)
    against_ = from_end(score_split_function, "against is", options.against_key, keys_);
  check_by_token(score_split_function, options.by_token, options.cache, head_.first + (crosses() ? 1 : 0),
                 of_encoder ? info.encoder_heads : info.heads);
}

analysis::ReadBy analysis::SplittingScore::read_by() const {
  if (crosses()) return ReadBy::cross_attention;
  return options_.attention == AttentionKind::encoder ? ReadBy::encoder_attention : ReadBy::attention;
}

std::vector<std::int64_t> analysis::SplittingScore::rows() const {
  if (crosses() || options_.sides == ScoreOptions::Sides::query) return {query_};
  return with_keys({query_, key_}, std::max(query_, key_) + 1);
}

std::vector<std::int64_t> analysis::SplittingScore::memory_rows() const {
  return with_keys({key_}, keys_);
}

// Rising; against the mean all that may be seen.
std::vector<std::int64_t> analysis::SplittingScore::with_keys(std::vector<std::int64_t> rows,
                                                              std::int64_t count) const {
  if (options_.against == ScoreOptions::Against::mean) {
    const bool later = read_by() != ReadBy::attention || (!parts_.info.decoder() && !parts_.info.encoder_decoder());
    rows.resize(static_cast<std::size_t>(later ? keys_ : count));
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    return rows;
  }
  if (options_.against == ScoreOptions::Against::key) rows.push_back(against_);
  std::ranges::sort(rows);
  rows.erase(std::ranges::unique(rows).begin(), rows.end());
  return rows;
}

const ModelCache* analysis::SplittingScore::cache() const {
  const bool all = options_.against == ScoreOptions::Against::mean && options_.sides == ScoreOptions::Sides::both;
  return all ? nullptr : options_.cache;
}

ScoreSplit analysis::SplittingScore::split(const RowPieces& queries, const RowPieces* memory,
                                           const PartBody& also) const {
  const Range seen = seen_by(queries.step(head_.first), query_, keys_);
  const auto check = [&](std::int64_t key) {
    if (key < seen.begin || key >= seen.end)
      fail(ErrorCode::bad_value, score_split_function, "query {} does not see key {}; it sees keys {} to {}", query_,
           key, seen.begin, seen.end - 1);
  };
  check(key_);
  Weights weights{{key_, 1}};
  if (options_.against == ScoreOptions::Against::key) check(against_), weights[against_] -= 1;
  if (options_.against == ScoreOptions::Against::mean)
    for (std::int64_t key = seen.begin; key < seen.end; ++key)
      weights[key] -= 1 / static_cast<double>(seen.end - seen.begin);
  ScoreOfHead score(parts_, queries, head_, query_);
  const bool both = options_.sides == ScoreOptions::Sides::both;
  score.split(both ? (memory ? memory : &queries) : nullptr, weights, tokens_, also);
  // What the pass had of the keys: of the rows that were looked at, of all, or of those behind a cache.
  std::optional<Tensor> cached;  // [1,Hkv,held,D]
  if (cache() && !both)
    cached = ModelAccess::layers(
                 known_before(score_split_function, *cache(), text_, query_))[static_cast<std::size_t>(head_.first)]
                 .keys();
  const std::int64_t held = cached ? cached->size(2) : 0;
  Tensor key = weighed(weights, score.size(), [&](std::int64_t row) -> View {
    if (row < held) return cached->view().select(0, 0).select(1, row).select(0, score.group());
    if (cache() && both)
      return score.of_group(queries.get(ModelPlace::rotated_k, head_.first)
                                .view()
                                .select(0, static_cast<std::int64_t>(queries.row(row))));
    return score.of_group(queries.keys(head_.first).view().select(0, row - held));
  });
  ScoreSplit out = score.take(std::move(key), weights);
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
  const std::int64_t layer = asked.layer(), behind = model.info().encoder_layers;
  RowPieces pieces(asked.rows(), {&layer, 1}, asked.read_by(), options.by_token);
  analysis::pass_of(score_split_function, model, text, asked.cache(), pieces);
  if (!asked.crosses()) return asked.split(pieces);
  RowPieces memory(asked.memory_rows(), {&behind, 1}, analysis::ReadBy::memory);
  analysis::pass_of(score_split_function, model, text, nullptr, memory);
  return asked.split(pieces, &memory);
}

Tensor sums_of_query(const ScoreSplit& split) {
  return sums(split, true);
}

Tensor sums_of_key(const ScoreSplit& split) {
  return sums(split, false);
}

std::string to_json(const ScoreSplit& x, const TensorJson& tensor) {
  const Tensors json(tensor);
  const auto of = [](const std::vector<AttributionPart>& parts) {
    Json all = Json::array();
    for (const AttributionPart& part : parts) {
      all.push_back(json_of(part));
      if (part.key >= 0) all.back()["key"] = part.key;
    }
    return all;
  };
  return text_of({{"score", x.score},
                  {"bias", x.bias},
                  {"rest", x.rest},
                  {"parts", of(x.parts)},
                  {"key_parts", of(x.key_parts)},
                  {"query", json("query", sums_of_query(x))},
                  {"key", json("key", sums_of_key(x))},
                  {"pairs", json("pairs", x.pairs)}});
}

}  // namespace attend::inline v1
