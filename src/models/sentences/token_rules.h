// What a folder's files say of a model with a vector for each token: ColBERT and what came of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "attend/late_interaction.h"
#include "models/sentences/modules.h"

namespace attend::inline v1::models {

// A query that is filled up, to so many tokens, with one more token again and again.
struct QueryExpansion {
  std::int64_t length = 32;
  bool cuts = true;                       // longer queries are cut to it
  bool attends = false;                   // tokens see those that fill up; these see the text in either case
  std::optional<std::string> token = {};  // none: the mask, or what ends a text where there is none
};

struct TokenRules {
  TextRules texts = {};  // of a document
  std::int64_t query_tokens = 0;
  std::optional<QueryExpansion> expansion = {};
  // PyLate and ColBERT's own program put it there as a token, whatever the tokenizer makes of its text: a prompt that
  // begins with one stands for it.
  std::vector<std::string> markers = {};
  std::vector<std::string> skipped = {};  // tokens that have no vector
  bool skips_in_queries = false, skips_in_documents = true;
  std::vector<SentenceModule> after = {};  // Dense layers, and then Normalize
  std::int64_t vector_size = 0;
  std::string mask = {}, end = {};  // tokens as tokenizer_config.json has them; empty: it does not say

  const std::string& prompt(TextRole role) const;
};

// What config_sentence_transformers.json, or the class that config.json names, says that the folder's vectors are.
// config: that of the model.
VectorKind vector_kind(const std::filesystem::path& folder, const Member& config);
// Whether its projection stands among the model's own tensors, as "linear.weight".
bool has_own_projection(const Member& config);
// E: of its hidden states. longest: tokens that it takes. Throws bad_file, naming file and key, for what is not known
// here.
TokenRules read_token_rules(const std::filesystem::path& folder, const Member& config, std::int64_t E,
                            std::int64_t longest);

}  // namespace attend::inline v1::models
