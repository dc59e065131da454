// How a text grows, a token at a time: what generate() does with many texts, and Growth with one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/model.h"
#include "models/sampling.h"

namespace attend::inline v0::models {

// A text, and what is known of it so far.
struct Growing {
  std::int64_t number = 0;               // of its prompt
  std::span<const std::int64_t> prompt;  // of an encoder-decoder its encoder's text
  std::vector<std::int64_t> start;       // of an encoder-decoder what its decoder's text begins with
  ModelCache cache;                      // empty: the next pass reads all of the text
  Sampler sampler;
  std::vector<std::int64_t> made = {};
  bool ended = false;

  // Tokens of the stack that writes.
  std::int64_t length() const { return std::ssize(start.empty() ? prompt : start) + std::ssize(made); }
};

// What the text of an encoder-decoder's decoder begins with; of other models nothing. Throws bad_value where
// config.json does not say it.
std::vector<std::int64_t> first_decoder_ids(const ModelInfo& info);

class Writer {
 public:
  // Throws bad_value for options outside their ranges, and for a model that does not write. Both must outlive it.
  Writer(const Model& model, const GenerateOptions& options);

  Growing begin(std::int64_t number, std::span<const std::int64_t> prompt) const;
  // One pass over all of these texts, or, where it has been read before, over the last token of each: the logits of
  // what comes next [texts,vocabulary], -infinity for tokens that never come.
  Tensor read(std::span<Growing* const> texts) const;
  // What each text goes on with, by the logits that read() gave of it, or where the model says so, by its place.
  std::vector<std::int64_t> choose(std::span<Growing* const> texts, const Tensor& logits) const;
  // Whether the token is in the text: not where it ends it. Says in text.ended whether another one follows.
  bool write(Growing& text, std::int64_t token) const;

 private:
  std::optional<std::int64_t> forced(const Growing& text) const;
  void read_again(Growing& text) const;

  const Model& model_;
  const ModelInfo& info_;
  const GenerateOptions& options_;
  std::int64_t again_;         // after how many tokens a text is computed again from its beginning; 0: never
  std::vector<Edit> lasting_;  // the edits of every token
};

}  // namespace attend::inline v0::models
