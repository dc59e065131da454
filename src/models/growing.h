// How a text grows, a token at a time: what generate() does with many texts, and Growth with one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/model.h"
#include "models/sampling.h"
#include "models/settings.h"
#include "models/written_text.h"

namespace attend::inline v1::models {

// A text, and what is known of it so far.
struct Growing {
  std::int64_t number = 0;               // of its prompt
  std::span<const std::int64_t> prompt;  // of an encoder-decoder its encoder's text
  std::vector<std::int64_t> start;       // of an encoder-decoder what its decoder's text begins with
  ModelCache cache;                      // the next pass reads what it has not read of the text
  Sampler sampler;
  std::optional<WrittenText> words = {};  // where the text is shown, or a stop string may end it
  std::vector<std::int64_t> made = {};
  bool ended = false;
  bool hushed = false;  // on_text wants no more of it

  // Of the stack that writes: its text, and whether the next pass reads more than the last token.
  std::vector<std::int64_t> text() const;
  bool reads() const { return made.empty() || cache.length() == 0; }
};

// What the text of an encoder-decoder's decoder begins with; of other models nothing. Throws bad_value where
// config.json does not say it.
std::vector<std::int64_t> first_decoder_ids(const ModelInfo& info);

class Writer {
 public:
  // Throws bad_value for options outside their ranges, and for a model that does not write. Both must outlive it.
  Writer(const Model& model, const GenerateOptions& options);

  Growing begin(std::int64_t number, std::span<const std::int64_t> prompt) const;
  // One pass over what was not read of these texts, all of which reads() or none: the logits of what comes next
  // [texts,vocabulary], before and after the settings had their say.
  Tensor read(std::span<Growing* const> texts) const;
  void process(std::span<Growing* const> texts, Tensor& logits) const;
  // What each text goes on with, by its logits.
  std::vector<std::int64_t> choose(std::span<Growing* const> texts, const Tensor& logits) const;
  // Whether the token is in the text: not where it ends it. Says in text.ended whether another one follows.
  bool write(Growing& text, std::int64_t token) const;
  bool is_end(std::int64_t token) const;
  // Called with a text that goes on: where the model's next token needs all before it computed again, it will be.
  void keep_up(Growing& text) const;

  const GenerateOptions& options() const { return options_; }
  const Settings& settings() const { return settings_; }
  const ModelInfo& info() const { return info_; }
  std::span<const std::int64_t> ends() const { return options_.end ? *options_.end : info_.end; }

 private:
  bool tell(Growing& text, std::int64_t token) const;

  const Model& model_;
  const ModelInfo& info_;
  const GenerateOptions& options_;
  Settings settings_;
  std::int64_t again_;         // after how many tokens a text is computed again from its beginning; 0: never
  std::vector<Edit> lasting_;  // the edits of every token
};

// What generate() wrote after a prompt, and how many bytes of the whole text, up to its end, a stop string takes.
struct Written {
  std::vector<std::int64_t> ids = {};
  std::size_t cut = 0;
  double score = 0;
};
std::vector<Written> generate_all(const Model& model, std::span<const std::vector<std::int64_t>> prompts,
                                  const GenerateOptions& options);
std::vector<Written> generate_sequences(const Model& model, const std::vector<std::int64_t>& prompt,
                                        const GenerateOptions& options);
// As text, without the stop string.
std::string continuation(const Model& model, std::span<const std::int64_t> prompt, const Written& written);
// The num_return_sequences best texts after one prompt.
std::vector<Written> search_beams(const Writer& writer, std::span<const std::int64_t> prompt);

}  // namespace attend::inline v1::models
