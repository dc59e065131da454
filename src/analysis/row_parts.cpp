#include "analysis/row_parts.h"

#include "analysis/splits.h"
#include "analysis/stream.h"
#include "attend/linear.h"
#include "attend/summary.h"
#include "layers/rows.h"
#include "models/layer_parts.h"

namespace attend::inline v1::analysis {

namespace {

using models::NormPlace;

enum class Added : std::uint8_t { attention, cross, mlp };  // where in a layer

class Stack {
 public:
  Stack(const Model::Parts& parts, const RowPieces& pieces, std::int64_t layer)
      : parts_(parts), pieces_(pieces), layer_(layer), crosses_(pieces.read_by() == ReadBy::cross_attention) {}

  void for_each(const PartBody& body) {
    using Kind = AttributionPart::Kind;
    Tensor embedding = pieces_.get(ModelPlace::residual, 0).clone();
    biases_ = Tensor(embedding.shape());
    go_on(embedding, 0, Added::attention);
    body(AttributionPart{.kind = Kind::embedding}, embedding);
    for (std::int64_t l = 0; l < layer_; ++l) {
      const models::LayerParts of = own_attention(l, body);
      if (of.cross) heads(Kind::cross, l, *of.cross->output, pieces_.get(ModelPlace::cross_z, l), Added::cross, body);
      behind(NormPlace::cross_sum, l);
      Tensor mlp = pieces_.get(ModelPlace::mlp, l).clone();
      go_on(mlp, l, Added::mlp);
      body(AttributionPart{.kind = Kind::mlp, .layer = l}, mlp);
      behind(NormPlace::mlp_sum, l);
    }
    if (crosses_) own_attention(layer_, body);
    body(AttributionPart{.kind = Kind::bias}, biases_);
  }

 private:
  models::LayerParts own_attention(std::int64_t l, const PartBody& body) {
    models::LayerParts of = models::parts_of_layer(parts_, static_cast<std::size_t>(l), pieces_.of_encoder());
    heads(AttributionPart::Kind::head, l, *of.self.output, pieces_.get(ModelPlace::z, l), Added::attention, body);
    behind(NormPlace::attention_sum, l);
    return of;
  }
  // Through the norms that the stream goes through behind what is added there, up to where it is looked at.
  void go_on(Tensor& part, std::int64_t from, Added added) const {
    constexpr std::pair<NormPlace, Added> sums[] = {{NormPlace::attention_sum, Added::attention},
                                                    {NormPlace::cross_sum, Added::cross},
                                                    {NormPlace::mlp_sum, Added::mlp}};
    for (std::int64_t l = from; l < layer_ + (crosses_ ? 1 : 0); ++l)
      for (const auto& [place, behind] : sums) {
        if (l == layer_ && behind != Added::attention) break;
        if (const HeldNorm* norm = pieces_.norm(place, l); norm && (l > from || behind >= added)) norm->apply(part);
      }
  }
  // The biases so far, through a norm of the whole stream.
  void behind(NormPlace place, std::int64_t layer) {
    if (const HeldNorm* norm = pieces_.norm(place, layer)) norm->apply(biases_), norm->add_bias(biases_);
  }
  // What the heads wrote; their output's bias is one of the biases.
  void heads(AttributionPart::Kind kind, std::int64_t l, const Linear& output, const Tensor& z, Added added,
             const PartBody& body) {
    const HeldNorm* after =
        kind == AttributionPart::Kind::head ? pieces_.norm(NormPlace::attention_output, l) : nullptr;
    const std::int64_t H = pieces_.of_encoder() ? parts_.info.encoder_heads : parts_.info.heads, D = z.size(1) / H;
    const Tensor weight = output.weight_rows(0, output.out_size());
    for (std::int64_t h = 0; h < H; ++h) {
      const auto own = [&](const View& x) { return x.slice(1, h * D, (h + 1) * D).clone(); };
      const auto tell = [&](Tensor part, std::int64_t key) {
        if (after) after->apply(part);
        go_on(part, l, added);
        body(AttributionPart{.kind = kind, .layer = l, .head = h, .key = key}, part);
      };
      const Tensor columns = own(weight);
      const Linear writes = Linear::borrow(columns);
      const ReadTokens* read = kind == AttributionPart::Kind::head ? pieces_.read({l, h}) : nullptr;
      if (!read) tell(writes.forward(own(z)), -1);
      for (std::int64_t key = 0; read && key < read->values.size(0); ++key)
        tell(outer(read->weights, key, writes.forward(read->values.view().slice(0, key, key + 1))), key);
    }
    if (!output.bias() && !after) return;
    Tensor bias({z.size(0), output.out_size()});
    if (output.bias()) analysis::add_row(output.bias()->view(), bias);
    if (after) after->apply(bias), after->add_bias(bias);
    add_to(biases_, bias);
  }

  // Of weights [R,N] the column of a key, times what its value [1,E] writes.
  static Tensor outer(const Tensor& weights, std::int64_t key, const Tensor& written) {
    Tensor part({weights.size(0), written.size(1)});
    for (std::int64_t r = 0; r < part.size(0); ++r)
      for (std::int64_t e = 0; e < part.size(1); ++e)
        part.data<float>()[r * part.size(1) + e] =
            weights.data<float>()[r * weights.size(1) + key] * written.data<float>()[e];
    return part;
  }

  const Model::Parts& parts_;
  const RowPieces& pieces_;
  std::int64_t layer_;
  bool crosses_;
  Tensor biases_;
};

}  // namespace

RowPieces::RowPieces(std::vector<std::int64_t> rows, std::span<const std::int64_t> layers, ReadBy read_by,
                     std::span<const Head> by_token)
    : rows_(std::move(rows)), read_by_(read_by) {
  for (const std::int64_t layer : layers) steps_[layer] = {};
  for (const Head& head : by_token) read_[head] = {};
}

bool RowPieces::is_of_keys(ModelPlace place, std::int64_t layer) const {
  if (place == (crosses() ? ModelPlace::cross_k : ModelPlace::rotated_k) && steps_.contains(layer)) return true;
  return place == ModelPlace::rotated_k &&
         std::ranges::any_of(read_, [&](const auto& each) { return each.first.first == layer; });
}

void RowPieces::at(ModelPlace place, std::int64_t layer, const MutableView& values) {
  const bool before =
      layer < last() && (place == ModelPlace::z || place == ModelPlace::cross_z || place == ModelPlace::mlp);
  constexpr ModelPlace read[] = {ModelPlace::residual,
                                 ModelPlace::z,
                                 ModelPlace::q,
                                 ModelPlace::k,
                                 ModelPlace::rotated_q,
                                 ModelPlace::rotated_k,
                                 ModelPlace::cross_residual,
                                 ModelPlace::cross_q};
  const bool of_layer = steps_.contains(layer) && std::ranges::find(read, place) != std::end(read);
  if (is_of_keys(place, layer)) keys_.insert_or_assign(layer, values.clone());
  if (before || of_layer || (place == ModelPlace::residual && layer == 0))
    kept_.insert_or_assign({place, layer}, gathered(values));
}

void RowPieces::attends(const models::AttentionStep& own, const View& q, const View& v) {
  const auto found = steps_.find(own.layer);
  if (found != steps_.end() && own.cross == crosses()) found->second = own;
  if (own.cross) return;
  for (auto& [head, read] : read_)
    if (head.first == own.layer) keep_read(own, q, v, head.second);
}

void RowPieces::keep_read(const models::AttentionStep& own, const View& q, const View& v, std::int64_t head) {
  const Tensor& rows = keys_.at(own.layer);
  const std::int64_t N = rows.size(0), group = head / (own.heads / own.kv_heads);
  const View keys = rows.view().reshape({1, N, own.kv_heads, rows.size(1) / own.kv_heads}).transpose(1, 2);
  ReadTokens& read = read_.at({own.layer, head});
  read.weights = Tensor({std::ssize(rows_), N});
  for (std::size_t n = 0; n < rows_.size(); ++n) {
    const WeightsOptions row{.queries = Range{rows_[n], rows_[n] + 1}};
    const Tensor all = attention_weights(q, keys, {}, own.options(), row);  // [1,H,1,N]
    std::copy_n(all.data<float>() + head * N, N, read.weights.data<float>() + static_cast<std::int64_t>(n) * N);
  }
  read.values = v.select(0, 0).select(0, group).to(DType::f32);
}

void RowPieces::normalises(models::NormPlace place, std::int64_t layer, const models::Norm& norm, const View& x) {
  const bool own = place == NormPlace::attention_output || place == NormPlace::attention_sum;
  if (layer < last() || (layer == last() && crosses() && own))
    norms_.emplace(std::pair(place, layer), HeldNorm(norm, gathered(x)));
}

void RowPieces::ends(const Tensor& x) {
  kept_.insert_or_assign({ModelPlace::residual, last()}, gathered(x));
}

void for_each_part(const Model::Parts& parts, const RowPieces& pieces, std::int64_t layer, const PartBody& body) {
  Stack(parts, pieces, layer).for_each(body);
}

void check_by_token(std::string_view function, std::span<const Head> by_token, const ModelCache* cache,
                    std::int64_t layers, std::int64_t heads) {
  if (!by_token.empty() && cache)
    fail(ErrorCode::bad_value, function, "heads by token and a cache are both given, expected one of the two");
  for (const Head& head : by_token)
    if (head.first < 0 || head.first >= layers || head.second < 0 || head.second >= heads)
      fail(ErrorCode::bad_value, function, "head {}.{} by token, expected one of the {} layers before", head.first,
           head.second, layers);
}

void pass_of(std::string_view function, const Model& model, const Text& text, const ModelCache* cache,
             RowPieces& pieces) {
  if (!cache) {
    Stream stream(model, std::span(&text, 1), pieces.of_encoder());
    const std::int64_t last = std::min(pieces.last() + 1, stream.layers());
    while (stream.layer() < last) stream.advance(&pieces, pieces.of_encoder());
    if (pieces.read_by() == ReadBy::memory) pieces.ends(stream.state());
    return;
  }
  const ModelInfo& info = model.info();
  if (!info.decoder() || info.encoder_decoder())
    fail(ErrorCode::bad_value, function, "a cache needs a decoder, the model is of type {}", info.type);
  std::vector<Text> texts;
  std::vector<ModelCache> before;
  for (const std::int64_t row : pieces.rows()) {
    before.push_back(known_before(function, *cache, text, row));
    texts.push_back({text.ids.first(static_cast<std::size_t>(row) + 1)});
  }
  Stream stream(model, texts, false, std::move(before));
  std::vector<std::int64_t> at;
  for (std::size_t n = 0; n < texts.size(); ++n) at.push_back(stream.rows(n).end - 1);
  pieces.stand_at(std::move(at));
  while (stream.layer() <= pieces.last()) stream.advance(&pieces);
}

}  // namespace attend::inline v1::analysis
