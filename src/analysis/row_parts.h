// What some rows of a text are made of where an attention reads them: the embedding, what each earlier head and MLP
// wrote, and all biases.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "analysis/answers.h"
#include "analysis/held_norm.h"
#include "attend/analysis.h"
#include "layers/rows.h"
#include "models/model.h"

namespace attend::inline v1::analysis {

// Where a stream is looked at: before what reads it.
enum class ReadBy : std::uint8_t {
  attention,          // a layer's own
  encoder_attention,  // the same of an encoder that a decoder reads
  cross_attention,    // the queries of a decoder's that reads the encoder's text: behind the layer's own
  memory,             // the keys of these: behind all of the encoder's layers, which are its number
};

// What a head read, token by token.
struct ReadTokens {
  Tensor weights, values;  // [R,N], [N,Dv]
};

// Of some rows, rising: what each part before the last of some layers wrote, the norms that it went through, and what
// these layers make of the stream.
class RowPieces : public models::Watcher {
 public:
  // by_token: earlier heads of which it is kept what they read.
  RowPieces(std::vector<std::int64_t> rows, std::span<const std::int64_t> layers, ReadBy read_by = ReadBy::attention,
            std::span<const Head> by_token = {});

  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override;
  void attends(const models::AttentionStep& own, const View& q, const View& v) override;
  void normalises(models::NormPlace place, std::int64_t layer, const models::Norm& norm, const View& x) override;
  // The stream after all layers.
  void ends(const Tensor& x);

  const Tensor* find(ModelPlace place, std::int64_t layer) const {
    const auto found = kept_.find({place, layer});
    return found == kept_.end() ? nullptr : &found->second;
  }
  const Tensor& get(ModelPlace place, std::int64_t layer) const { return kept_.at({place, layer}); }
  const HeldNorm* norm(models::NormPlace place, std::int64_t layer) const {
    const auto found = norms_.find({place, layer});
    return found == norms_.end() ? nullptr : &found->second;
  }
  std::size_t row(std::int64_t of) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(rows_, of) - rows_.begin());
  }
  const ReadTokens* read(Head head) const {
    const auto found = read_.find(head);
    return found == read_.end() ? nullptr : &found->second;
  }
  // The keys that one of the layers' attention gets, of all rows of the pass: [M,Hkv*D].
  const Tensor& keys(std::int64_t layer) const { return keys_.at(layer); }
  const std::vector<std::int64_t>& rows() const { return rows_; }
  // Which of the pass's rows they are, where it has not all of the text.
  void stand_at(std::vector<std::int64_t> rows) { at_ = std::move(rows); }
  ReadBy read_by() const { return read_by_; }
  bool of_encoder() const { return read_by_ == ReadBy::encoder_attention || read_by_ == ReadBy::memory; }
  std::int64_t last() const { return steps_.rbegin()->first; }  // of the layers
  const models::AttentionStep& step(std::int64_t layer) const { return steps_.at(layer); }

 private:
  Tensor gathered(const View& x) const { return rows_at(x.to(DType::f32), at_.empty() ? rows_ : at_); }
  bool crosses() const { return read_by_ == ReadBy::cross_attention; }
  // That of the layers whose keys and weights are looked at.
  bool is_of_keys(ModelPlace place, std::int64_t layer) const;
  void keep_read(const models::AttentionStep& own, const View& q, const View& v, std::int64_t head);

  std::vector<std::int64_t> rows_, at_;  // rising
  ReadBy read_by_;
  std::map<Head, ReadTokens> read_;
  std::map<std::int64_t, Tensor> keys_;
  std::map<std::int64_t, models::AttentionStep> steps_;
  std::map<std::pair<ModelPlace, std::int64_t>, Tensor> kept_;
  std::map<std::pair<models::NormPlace, std::int64_t>, HeldNorm> norms_;
};

using PartBody = std::function<void(const AttributionPart& which, const Tensor& part)>;
// Calls body with each part [R,E] of the stream where one of the layers reads it, which norms divide as they do
// there; the biases come last. Together they are the stream. A head by token comes once for each token, its key.
void for_each_part(const Model::Parts& parts, const RowPieces& pieces, std::int64_t layer, const PartBody& body);

}  // namespace attend::inline v1::analysis
