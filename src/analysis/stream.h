// A pass over one text, layer by layer, and copies of it that go on from a layer in another way.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "analysis/watchers.h"
#include "models/model.h"

namespace attend::inline v0::analysis {

// What a model is asked about: ids, and of an encoder-decoder those of its decoder's text.
struct Text {
  std::span<const std::int64_t> ids, decoder_ids = {};

  // Those that answers come after.
  std::span<const std::int64_t> answering() const { return decoder_ids.empty() ? ids : decoder_ids; }
};

// What is known of the tokens before a position. Throws bad_value for another text's.
ModelCache known_before(std::string_view function, const ModelCache& given, const Text& text, std::int64_t position);

// Throws bad_value, as Model::forward().
void check_text(const Text& text, const ModelInfo& info);

// `count` of some ids, one after another.
struct Copies {
  Copies(std::span<const std::int64_t> of, std::int64_t count);

  std::vector<std::int64_t> ids, starts;
};

class Stream {
 public:
  // Before the first layer; of an encoder-decoder, ids are the encoder's and the stream is the decoder's, or the
  // encoder's. before: of a decoder alone, what its first rows have filled; the stream is of those behind them. Throws
  // as Model::forward().
  Stream(const Model& model, const Text& text, bool of_encoder = false, std::optional<ModelCache> before = {});

  std::int64_t layer() const { return layer_; }  // the one that comes next
  const Tensor& state() const { return x_; }     // before that layer
  // Runs that layer; the watcher, or null, sees it.
  void advance(models::Watcher* watcher = nullptr);

  // So many copies go together: more rows at a time would not be faster.
  std::int64_t together() const;
  // What `copies` of the stream come to from this layer on, one after another in one pass, that the edits are of: the
  // last hidden states [copies * P,E] of the `rows` [P] of each. Throws as Model::forward().
  Tensor branch(std::int64_t copies, std::span<const Edit> edits, std::span<const std::int64_t> rows) const;
  // The same of the stream as it is.
  Tensor rest(std::span<const std::int64_t> rows) const { return branch(1, {}, rows); }

  // Of the stream.
  std::int64_t layers() const { return of_encoder_ ? parts_.info.encoder_layers : parts_.info.layers; }
  std::int64_t heads() const { return of_encoder_ ? parts_.info.encoder_heads : parts_.info.heads; }
  std::int64_t length() const { return std::ssize(ids_); }
  // The rows of a copy, for its edits.
  std::vector<std::int64_t> rows_of_copy(std::int64_t copy) const;

 private:
  using Forks = std::deque<std::vector<KvCache>>;
  models::Batch batch(const Copies& copies) const;
  Forks forks(models::Batch& batch, std::int64_t first, std::int64_t last) const;
  // The decoder's stream after all layers, of copies that each read what comes of x in the encoder.
  Tensor decode(Tensor x, const std::vector<std::int64_t>& starts, std::int64_t copies) const;

  const Model::Parts& parts_;
  Text text_;
  bool of_encoder_;
  std::span<const std::int64_t> ids_;   // of the stream
  std::optional<ModelCache> before_;    // of the rows before them
  std::int64_t layer_ = 0, first_ = 0;  // first_: the stream's first row
  models::Memory memory_;               // of a decoder's stream that reads one
  Tensor x_;
};

// Shares of a work that is done layer by layer, told to `progress`: what is above a layer is run for each of its parts.
class LayerProgress {
 public:
  LayerProgress(std::int64_t layers, const std::function<void(double)>& progress)
      : layers_(layers), progress_(progress) {}
  // `share` of the parts of that layer are done, and all of the layers before.
  void tell(std::int64_t layer, double share);

 private:
  std::int64_t layers_;
  const std::function<void(double)>& progress_;
};

}  // namespace attend::inline v0::analysis
