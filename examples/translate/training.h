// Training: batches, losses, Adam, and all of it as one file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "corpus.h"
#include "model.h"

namespace translate {

struct Settings {
  std::int64_t vocabulary = 4000;  // ids at the most
  ModelSizes sizes;                // sizes.vocabulary: the ids that there are
  std::int64_t steps = 3000;
  std::int64_t batch = 128;  // pairs
  std::uint64_t seed = 1;
  double learning_rate =
      2e-3;  // the highest: it grows evenly for `warmup` steps, then falls evenly to 0 at the last one
  std::int64_t warmup = 300;
  double dropout = 0.1;
  std::int64_t validate_every = 100;  // steps
};

// A pair as ids, without begin and end.
struct Example {
  Ids source;
  Ids target;
};
std::vector<Example> encode(const Tokenizer& tokenizer, std::span<const Pair> pairs);

// What a step learns from.
struct Batch {
  Sentences source;  // the source, then end
  Sentences target;  // begin, then the target
  Ids next;          // the target, then end
  void append(const Example& example);
};

// torch.optim.Adam, without weight decay.
struct Adam {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  TensorMap exp_avg = {}, exp_avg_sq = {};
  // step counts from 1.
  void update(TensorMap& parameters, const TensorMap& gradients, double learning_rate, std::int64_t step);
};

// One step: the loss of the batch, the mean over its tokens, before the parameters change.
double train_step(TensorMap& parameters, Adam& adam, const ModelSizes& sizes, const Batch& batch, double learning_rate,
                  std::int64_t step, const Dropping& dropping);

// The mean over all tokens, without dropout.
double mean_loss(const TensorMap& parameters, const ModelSizes& sizes, std::span<const Example> examples);

// All that a training is, after `step` steps: going on from it gives the same bits as never having stopped.
struct Training {
  Settings settings;
  std::uint64_t data_hash = 0;  // of the corpus
  Tokenizer tokenizer;
  TensorMap parameters = {};
  Adam adam = {};
  std::int64_t step = 0;
  std::vector<double> train_losses = {};  // of each step's batch
  std::vector<double> valid_losses = {};  // after each validate_every steps

  // Learns the vocabulary from the messages to train on, and draws the parameters.
  static Training start(const Settings& settings, const Corpus& corpus);
  // The learning rate of the step, counted from 1.
  double learning_rate(std::int64_t step) const;
};

// Which pairs a step learns from: each epoch shuffles anew, and leaves out the rest that fills no batch. The examples
// are borrowed.
class Batches {
 public:
  // Throws bad_value where there are fewer examples than a batch has.
  Batches(const Settings& settings, std::span<const Example> examples);
  // Of the step, counted from 1.
  Batch at(std::int64_t step);

 private:
  std::int64_t size_;
  std::uint64_t seed_;
  std::span<const Example> examples_;
  std::int64_t epoch_ = -1;
  std::vector<std::size_t> order_;  // of that epoch
};

// A .safetensors file: the parameters under their names in torch; adam.exp_avg.NAME and adam.exp_avg_sq.NAME;
// losses.train and losses.valid, f64; tokenizer.merges. The metadata has the settings, as JSON, the step and the hash
// of the data. The file is replaced in one step: a training that is killed leaves the last checkpoint whole.
void write_checkpoint(const std::filesystem::path& path, const Training& training);
// Throws bad_file for what is no such file.
Training read_checkpoint(const std::filesystem::path& path);

}  // namespace translate
