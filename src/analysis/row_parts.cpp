#include "analysis/row_parts.h"

#include "analysis/splits.h"
#include "analysis/stream.h"
#include "attend/linear.h"
#include "layers/rows.h"
#include "models/layer_parts.h"

namespace attend::inline v0::analysis {

namespace {

using models::NormPlace;

enum class Added : std::uint8_t { attention, cross, mlp };  // where in a layer

// Through the norms that a stream goes through behind what is added there, up to before `layer`.
void go_on(const RowPieces& pieces, Tensor& part, std::int64_t from, Added added, std::int64_t layer) {
  constexpr std::pair<NormPlace, Added> sums[] = {{NormPlace::attention_sum, Added::attention},
                                                  {NormPlace::cross_sum, Added::cross},
                                                  {NormPlace::mlp_sum, Added::mlp}};
  for (std::int64_t l = from; l < layer; ++l)
    for (const auto& [place, behind] : sums)
      if (const HeldNorm* norm = pieces.norm(place, l); norm && (l > from || behind >= added)) norm->apply(part);
}

class Stack {
 public:
  Stack(const Model::Parts& parts, const RowPieces& pieces, std::int64_t layer)
      : parts_(parts), pieces_(pieces), layer_(layer) {}

  void for_each(const PartBody& body) {
    using Kind = AttributionPart::Kind;
    Tensor embedding = pieces_.get(ModelPlace::residual, 0).clone();
    biases_ = Tensor(embedding.shape());
    go_on(pieces_, embedding, 0, Added::attention, layer_);
    body(AttributionPart{.kind = Kind::embedding}, embedding);
    for (std::int64_t l = 0; l < layer_; ++l) {
      const models::LayerParts of = models::parts_of_layer(parts_, static_cast<std::size_t>(l), pieces_.of_encoder());
      heads(Kind::head, l, *of.self.output, pieces_.get(ModelPlace::z, l), Added::attention, body);
      behind(NormPlace::attention_sum, l);
      if (of.cross) heads(Kind::cross, l, *of.cross->output, pieces_.get(ModelPlace::cross_z, l), Added::cross, body);
      behind(NormPlace::cross_sum, l);
      Tensor mlp = pieces_.get(ModelPlace::mlp, l).clone();
      go_on(pieces_, mlp, l, Added::mlp, layer_);
      body(AttributionPart{.kind = Kind::mlp, .layer = l}, mlp);
      behind(NormPlace::mlp_sum, l);
    }
    body(AttributionPart{.kind = Kind::bias}, biases_);
  }

 private:
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
      const Tensor columns = own(weight);
      Tensor part = Linear::borrow(columns).forward(own(z));
      if (after) after->apply(part);
      go_on(pieces_, part, l, added, layer_);
      body(AttributionPart{.kind = kind, .layer = l, .head = h}, part);
    }
    if (!output.bias() && !after) return;
    Tensor bias({z.size(0), output.out_size()});
    if (output.bias()) analysis::add_row(output.bias()->view(), bias);
    if (after) after->apply(bias), after->add_bias(bias);
    add_to(biases_, bias);
  }

  const Model::Parts& parts_;
  const RowPieces& pieces_;
  std::int64_t layer_;
  Tensor biases_;
};

}  // namespace

void for_each_part(const Model::Parts& parts, const RowPieces& pieces, std::int64_t layer, const PartBody& body) {
  Stack(parts, pieces, layer).for_each(body);
}

void pass_of(std::string_view function, const Model& model, const Text& text, const ModelCache* cache,
             RowPieces& pieces) {
  if (!cache) {
    Stream stream(model, std::span(&text, 1), pieces.of_encoder());
    while (stream.layer() <= pieces.last()) stream.advance(&pieces, pieces.of_encoder());
    return;
  }
  const ModelInfo& info = model.info();
  if (!info.decoder() || info.encoder_decoder())
    fail(ErrorCode::bad_value, function, "a cache is of decoders, the model is of type {}", info.type);
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

}  // namespace attend::inline v0::analysis
