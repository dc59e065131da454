// A pass over one text, layer by layer, and copies of it that go on from a layer in another way.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "analysis/texts.h"
#include "analysis/watchers.h"
#include "attend/tensor.h"
#include "models/model.h"

namespace attend::inline v1::analysis {

// Which texts of a stream go together, one after another: a text may go several times.
using Copies = std::vector<std::size_t>;

class Stream {
 public:
  // Before the first layer, of texts that stand one after another; of an encoder-decoder, of one text: ids are the
  // encoder's and the stream is the decoder's, or the encoder's. before: of decoders alone, for each text what its
  // first rows have filled; the stream is of those behind them. Throws as Model::forward().
  Stream(const Model& model, std::span<const Text> texts, bool of_encoder = false, std::vector<ModelCache> before = {});

  std::int64_t layer() const { return layer_; }  // the one that comes next
  const Tensor& state() const { return x_; }     // before that layer, of all texts
  // Runs that layer; the watcher, or null, sees it. plain: of an encoder that a decoder reads as of one alone, with its
  // attention and norms, and with places that have no name of the encoder's.
  void advance(models::Watcher* watcher = nullptr, bool plain = false);

  // What copies of texts come to from this layer on, in one pass, that the edits are of: the last hidden states of each
  // text's rows, copy after copy [R,E]. Throws as Model::forward().
  Tensor branch(const Copies& copies, std::span<const Edit> edits,
                std::span<const std::vector<std::int64_t>> rows) const;
  // The same of the stream as it is.
  Tensor rest(std::span<const std::vector<std::int64_t>> rows) const { return branch(all(), {}, rows); }

  // Of the stream.
  std::int64_t layers() const { return of_encoder_ ? parts_.info.encoder_layers : parts_.info.layers; }
  std::int64_t heads() const { return of_encoder_ ? parts_.info.encoder_heads : parts_.info.heads; }
  std::size_t texts() const { return texts_.size(); }
  // Of a text: its rows in the stream, and how many stand before them.
  std::int64_t length(std::size_t text) const { return std::ssize(ids_[text]); }
  std::int64_t first(std::size_t text) const { return before_.empty() ? 0 : before_[text].length(); }
  Range rows(std::size_t text) const { return {begins_[text], begins_[text + 1]}; }

 private:
  using Forks = std::deque<std::vector<KvCache>>;
  // Copies' ids one after another.
  struct Line {
    std::vector<std::int64_t> ids, starts, types = {};
  };
  Copies all() const;
  Line line(const Copies& copies) const;
  models::Batch batch(const Line& line, const Copies& copies) const;
  Forks forks(models::Batch& batch, const Copies& copies, std::int64_t first, std::int64_t last) const;
  // The decoder's stream after all layers, of copies that each read what comes of x in the encoder.
  Tensor decode(Tensor x, const std::vector<std::int64_t>& starts, std::int64_t copies) const;

  const Model::Parts& parts_;
  std::vector<Text> texts_;
  bool of_encoder_;
  std::vector<std::span<const std::int64_t>> ids_;  // of the stream
  std::vector<ModelCache> before_;                  // of the rows before them
  std::vector<std::int64_t> begins_{0};
  std::int64_t layer_ = 0;
  models::Memory memory_;  // of a decoder's stream that reads one
  Tensor x_;
};

// Parts of a layer's work, each a copy of a text with edits of its own, in passes of as many as go well together.
struct Part {
  std::size_t text = 0;
  std::vector<Edit> edits;  // rows are the text's own, and are moved to its copy's
};
// Calls body(hidden, first, last) with what parts [first, last) come to, pass after pass: Stream::branch()'s.
void for_each_pass(const Stream& stream, std::span<Part> parts, std::span<const std::vector<std::int64_t>> rows,
                   const std::function<void(const Tensor& hidden, std::size_t first, std::size_t last)>& body);

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

}  // namespace attend::inline v1::analysis
