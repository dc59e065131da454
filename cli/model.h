// What `model` does: finds a model's weights, computes a text, and tells what the model made of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/analysis.h"
#include "attend/models.h"
#include "attend/picture.h"
#include "attend/recording.h"
#include "cli/show.h"

namespace attend::cli {

// ---- Weights that can be fetched ----

// "minilm|smollm2"
extern const char* const known_models;
// A file or folder of that name, else what was fetched under it. Throws bad_file where there is neither.
std::filesystem::path find_model(const std::string& name);
// Fetches the weights of a known name into the user's cache, unless they are there. Throws Failure, and says what a
// person can do instead.
void fetch_model(const std::string& name);

// ---- What was computed ----

struct Candidate {
  std::int64_t id = 0;
  std::string token;
  double probability = 0;
};

struct Neighbour {
  std::string text;
  double similarity = 0;  // cosine
};

struct Why {
  std::string token, against;  // as given
  Attribution attribution = {};
};

struct Without {
  std::string token;                    // whose numbers change
  std::vector<std::string> names = {};  // of the heads that are taken out
  Ablation ablation = {};
};

struct Computed {
  ModelInfo info;
  Encoding encoding;
  Recording recording = {};              // of the text: one layer for each of the model's
  std::vector<Candidate> next = {};      // decoders: the likeliest, falling
  std::optional<Tensor> embedding = {};  // encoders: [1,E]
  std::vector<Neighbour> nearest = {};   // of the sentences given, falling
  std::optional<std::string> generated = {};
  std::vector<std::int64_t> generated_ids = {};
  std::optional<Why> why = {};
  std::optional<Without> without = {};
};

// Throw UsageError for a text that is not one token, and for heads that can't be read. against: empty where there is
// none; token: empty for the likeliest, whose text that is.
Why explain_why(const Model& model, const Tokenizer& tokenizer, std::span<const std::int64_t> ids,
                const std::string& token, const std::string& against);
Without take_out(const Model& model, const Tokenizer& tokenizer, std::span<const std::int64_t> ids,
                 const std::string& heads, const std::string& token, const std::string& likeliest);

// ---- Text ----

// The model, the tokens with their ids.
std::string model_text(const Computed& computed, int width);
std::string next_text(const Computed& computed);
// What each part wrote into a logit, the strongest of each sign; by token, too.
std::string why_text(const Computed& computed, const Why& why);
std::string without_text(const Computed& computed, const Without& without);
std::string nearest_text(const Computed& computed, int width);
// A line for each layer, and in it for each head its label; where none is known, why, and what tells heads apart.
std::string labels_text(const Selection& selection, const TerminalStyle& style);
std::string links_text(const Computed& computed, const std::vector<TellingHead>& heads, int width);
// The tokens on the colour of their lift in the most telling head.
std::string lift_text(const Computed& computed, const TellingHead& head, const TerminalStyle& style);

}  // namespace attend::cli
