// The layers behind a model that answer a task: a class of a text, a label of each token, a word for a mask.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attend/layers.h"
#include "attend/model_info.h"
#include "models/loading.h"

namespace attend::inline v1::models {

// output(norm(activation(dense(rows)))), of rows of the hidden states.
struct TaskHead {
  // Which rows of a sequence it reads: one, or each by itself. end: that of the last token that ends a text.
  enum class Reads : std::uint8_t { first, mean, last, end, each };
  struct Dense {
    Linear linear;
    Activation activation = Activation::linear;
    std::optional<LayerNorm> norm = {};
  };

  ModelTask task = ModelTask::classify;
  Reads reads = Reads::first;
  std::optional<std::int64_t> padding = {};  // of last: rows of this id are passed over
  std::vector<std::int64_t> ends = {};       // of end: the ids that end a text
  std::int64_t start = 0;                    // of an encoder-decoder's: what its decoder reads first
  std::optional<Dense> dense = {};
  Linear output;
  bool several = false;     // of classify: a text may have several labels
  bool regression = false;  // of classify: its one output is a number and no probability

  // Whether its outputs are of alternatives, one of which holds: softmax makes probabilities of them.
  bool chooses() const;
  // What an encoder-decoder's decoder reads of such sequences, as many rows: the same text, behind `start`.
  std::vector<std::int64_t> decoder_ids(std::span<const std::int64_t> ids, std::span<const std::int64_t> starts) const;
  // Of `first`, `last` and `end`: which row of a sequence it reads. Throws bad_value where no token ends the text.
  std::int64_t row_read(std::span<const std::int64_t> ids) const;
  // The rows that it reads of hidden states [N,E] of sequences that begin at starts: [sequences,E], of `each` all
  // [N,E].
  Tensor rows(const Tensor& hidden, std::span<const std::int64_t> ids, std::span<const std::int64_t> starts) const;
  // Of such rows: [rows,outputs], f32. A row has the same bits alone as among others.
  Tensor logits(const View& rows) const;
  // d [outputs], the gradient of one row's logits -> that of the row [E].
  Tensor row_gradient(const View& row, const Tensor& d) const;
  // The same of the hidden states [N,E] of one sequence, of `each` by the logits of its row `position`.
  Tensor input_gradient(const Tensor& hidden, std::span<const std::int64_t> ids, std::int64_t position,
                        const Tensor& d) const;
};

// The task that the file is of, by the class that config.json names, and where the tensors are; none: it is of no task
// that is known here. Asked before the family is built, which has no output layer of its own then.
std::optional<ModelTask> task_of(const Loading& loading, const Member& config);
// Its head. words: the model's embeddings. Called twice, as families are built.
TaskHead read_head(Loading& loading, const Member& config, ModelTask task, const Matrix& words, const ModelInfo& info);
// id2label, in order; where there is none, LABEL_0 and LABEL_1, as Transformers has it. Throws bad_file for labels that
// are not numbered from 0 on.
std::vector<std::string> read_labels(const Member& config);

}  // namespace attend::inline v1::models
