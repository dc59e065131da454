#include <algorithm>

#include "analysis/asked.h"
#include "analysis/splits.h"
#include "attend/linear.h"
#include "core/from_end.h"
#include "core/message.h"
#include "layers/rows.h"

namespace attend::inline v1 {

namespace {

using analysis::HeldNorm;
using analysis::ReadBy;

constexpr const char* value_split_function = "explain_value";

class ValueOfHead {
 public:
  ValueOfHead(const Model& model, std::span<const std::int64_t> ids, Head head, std::int64_t key,
              const ValueOptions& options)
      : model_(model), parts_(ModelAccess::parts(model)), options_(options), text_{ids, options.decoder_ids} {
    const ModelInfo& info = parts_.info;
    models::check_exact(info, value_split_function);
    analysis::check_text(text_, info);
    analysis::check_attention(value_split_function, options.attention, info);
    const std::int64_t tokens = std::ssize(of_encoder() ? text_.ids : text_.answering());
    layer_ = from_end(value_split_function, "layer is", head.first, of_encoder() ? info.encoder_layers : info.layers);
    head_ = from_end(value_split_function, "head is", head.second, of_encoder() ? info.encoder_heads : info.heads);
    out_.key = from_end(value_split_function, "key is", key, crosses() ? std::ssize(text_.ids) : tokens);
    out_.position = from_end(value_split_function, "position is", options.position, tokens);
    const bool causal = options.attention == AttentionKind::self && (info.decoder() || info.encoder_decoder());
    if (causal && out_.key > out_.position)
      fail(ErrorCode::bad_value, value_split_function, "position {} does not see key {}", out_.position, out_.key);
    const bool encoder = of_encoder() || crosses();  // its rows are the key's
    analysis::check_by_token(value_split_function, options.by_token, options.cache,
                             crosses() ? info.encoder_layers : layer_, encoder ? info.encoder_heads : info.heads);
    if (of_encoder() && !options.direction)
      fail(ErrorCode::bad_value, value_split_function,
           "a head of the encoder needs a direction: the answer does not read it");
  }

  ValueSplit take() {
    analysis::RowPieces pieces = pieces_of_key();
    analysis::pass_of(value_split_function, model_, text_, options_.cache, pieces);
    const models::LayerParts of = models::parts_of_layer(parts_, static_cast<std::size_t>(layer_), of_encoder());
    analysis::SplittingValue value(parts_, pieces, {layer_, head_}, out_.key,
                                   options_.direction ? given_direction(of, pieces) : direction_of_answer());
    analysis::for_each_part(parts_, pieces, pieces.read_by() == ReadBy::memory ? pieces.last() : layer_,
                            [&](const AttributionPart& which, const Tensor& part) { value.add(which, part); });
    ValueSplit split = value.take();
    out_.parts = std::move(split.parts), out_.rest = split.rest, out_.value = split.value;
    return std::move(out_);
  }

 private:
  std::int64_t size() const { return of_encoder() ? parts_.info.encoder_head_size : parts_.info.head_size; }
  bool of_encoder() const { return options_.attention == AttentionKind::encoder; }
  bool crosses() const { return options_.attention == AttentionKind::cross; }

  // And of the row that reads it, where that is of the same text.
  analysis::RowPieces pieces_of_key() const {
    if (crosses()) {
      const std::int64_t layers = parts_.info.encoder_layers;
      return {{out_.key}, {&layers, 1}, ReadBy::memory, options_.by_token};
    }
    std::vector<std::int64_t> rows{std::min(out_.key, out_.position), std::max(out_.key, out_.position)};
    rows.erase(std::ranges::unique(rows).begin(), rows.end());
    return {rows, {&layer_, 1}, of_encoder() ? ReadBy::encoder_attention : ReadBy::attention, options_.by_token};
  }

  // How the answer reads the head's z: [Dv].
  Tensor direction_of_answer() {
    const AttributeOptions options{.token = options_.token,
                                   .against = options_.against,
                                   .position = out_.position,
                                   .cache = options_.cache,
                                   .decoder_ids = options_.decoder_ids};
    analysis::Attributing asked(model_, text_, options);
    Tensor direction({size()});
    asked.tell([&](ModelPlace place, std::int64_t layer, std::span<const double> u) {
      if (place != (crosses() ? ModelPlace::cross_z : ModelPlace::z) || layer != layer_) return;
      for (std::int64_t d = 0; d < size(); ++d)
        direction.data<float>()[d] = static_cast<float>(u[static_cast<std::size_t>(head_ * size() + d)]);
    });
    ModelCache* const caches[] = {asked.cache()};
    const Tensor hidden = ModelAccess::forward(
        model_, asked.ids(), {.caches = caches, .decoder_ids = asked.decoder_ids()}, &asked.watcher());
    const Attribution found = asked.finish(hidden);
    out_.token = found.token, out_.against = found.against;
    return direction;
  }

  // W_O^h^T of the direction, which a norm of what is written divides as it does at the position.
  Tensor given_direction(const models::LayerParts& of, const analysis::RowPieces& pieces) const {
    const View& given = *options_.direction;
    const std::int64_t E = parts_.info.embedding_size;
    if (given.shape() != Dims{E})
      fail(ErrorCode::bad_shape, value_split_function, "direction has shape {}, expected [{}]", given.shape(), E);
    if (!is_floating(given.dtype()))
      fail(ErrorCode::bad_dtype, value_split_function, "direction is {}, expected floating point", given.dtype());
    const Linear& output = crosses() ? *of.cross->output : *of.self.output;
    const Tensor u = given.to(DType::f32);
    Tensor direction({size()});
    const Tensor columns =
        output.weight_rows(0, output.out_size()).view().slice(1, head_ * size(), (head_ + 1) * size()).clone();
    Tensor along = columns.view().transpose(0, 1).clone();  // [Dv,E]
    if (of.attention_writes_by && !crosses()) {
      const auto row = static_cast<std::int64_t>(pieces.row(out_.position));
      const Tensor z = pieces.get(ModelPlace::z, layer_).view().slice(0, row, row + 1).clone();
      HeldNorm norm(*of.attention_writes_by, converted(output.forward(z), DType::f32));
      norm.factors.assign(static_cast<std::size_t>(size()), norm.factors.front());
      norm.apply(along);
    }
    for (std::int64_t d = 0; d < size(); ++d)
      direction.data<float>()[d] = static_cast<float>(dot(along.data<float>() + d * E, u.data<float>(), E));
    return direction;
  }

  const Model& model_;
  const Model::Parts& parts_;
  const ValueOptions& options_;
  analysis::Text text_;
  std::int64_t layer_ = 0, head_ = 0;
  ValueSplit out_;
};

}  // namespace

analysis::SplittingValue::SplittingValue(const Model::Parts& parts, const RowPieces& pieces, Head head,
                                         std::int64_t key, Tensor direction)
    : direction_(std::move(direction)), row_(static_cast<std::int64_t>(pieces.row(key))) {
  const bool memory = pieces.read_by() == ReadBy::memory;
  const models::LayerParts of = models::parts_of_layer(parts, static_cast<std::size_t>(head.first),
                                                       pieces.read_by() == ReadBy::encoder_attention);
  rows_ = memory ? of.cross->v : of.self.v;
  // Encoder-decoders have a key for each head.
  const std::int64_t of_group = memory ? 1 : pieces.step(head.first).heads / pieces.step(head.first).kv_heads,
                     group = head.second / of_group, D = direction_.count();
  first_ = rows_.first + group * (rows_.step > 0 ? rows_.step : D);
  weight_ = rows_.of->weight_rows(first_, first_ + D);
  Tensor stream = of_key(pieces.get(ModelPlace::residual, memory ? pieces.last() : head.first));
  const std::optional<models::Norm> norm = memory ? models::last_norm_of_encoder(parts) : of.self.reads_by;
  if (norm) {
    reads_by_.emplace(*norm, stream);
    reads_by_->apply(stream), reads_by_->add_bias(stream);
  }
  out_.value = out_.rest = along(stream, true);
}

Tensor analysis::SplittingValue::of_key(const Tensor& rows) const {
  return rows.view().slice(0, row_, row_ + 1).clone();
}

double analysis::SplittingValue::along(const Tensor& row, bool biases) const {
  const std::int64_t D = direction_.count();
  Tensor values = Linear::borrow(weight_).forward(row);
  if (biases && rows_.of->bias()) add_row(rows_.of->bias()->view().slice(0, first_, first_ + D), values);
  return dot(values.data<float>(), direction_.data<float>(), D);
}

void analysis::SplittingValue::add(const AttributionPart& which, const Tensor& part) {
  const bool biases = which.kind == AttributionPart::Kind::bias;
  Tensor row = of_key(part);
  if (reads_by_) reads_by_->apply(row);
  if (reads_by_ && biases) reads_by_->add_bias(row);
  out_.parts.push_back(which);
  out_.parts.back().value = along(row, biases);
  out_.rest -= out_.parts.back().value;
}

ValueSplit analysis::SplittingValue::take() {
  return std::move(out_);
}

ValueSplit explain_value(const Model& model, std::span<const std::int64_t> ids, Head head, std::int64_t key,
                         const ValueOptions& options) {
  return ValueOfHead(model, ids, head, key, options).take();
}

}  // namespace attend::inline v1
