// How a text is written, for the commands that let a model go on: its settings, and what is shown of it as it grows.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/models.h"
#include "cli/line.h"

namespace attend::cli {

// The command line. Empty: as the model's folder says.
struct WritingArguments {
  std::string temperature, top_p, min_p, repetition_penalty, begin_suppress_tokens, length_penalty, early_stopping;
  std::optional<std::int64_t> top_k, no_repeat_ngram_size, min_new_tokens, forced_eos_token_id, num_beams;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop, sequence_bias;  // " Paris=-5"

  bool any() const;
};
void add_writing(App& app, WritingArguments& arguments);
// Throws UsageError for what is no number, no ids, or no "TEXT=NUMBER".
GenerateOptions generate_options(const WritingArguments& arguments, const Tokenizer& tokenizer);

// So many tokens more, or up to the longest text that the model takes. What adds to the text with each is told.
struct WrittenText {
  std::vector<std::int64_t> ids;
  std::string text;
};
using Told = std::function<void(std::string_view)>;
WrittenText write_text(const Model& model, std::span<const std::int64_t> ids, GenerateOptions options,
                       const Told& told);
// To standard output, at once.
void show_at_once(std::string_view text);

// Says what the folder asks for and generate() does not do.
void announce_generation(const ModelInfo& info, const std::string& name);

}  // namespace attend::cli
