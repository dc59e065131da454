// What settings make of the logits of a text's next token, before one is chosen.
#pragma once

#include <cstdint>
#include <span>

#include "core/parallel.h"
#include "models/settings.h"

namespace attend::inline v1::models {

// A text so far, and how it is written.
struct LogitsOf {
  const Settings& settings;
  std::span<const std::int64_t> text;  // the prompt and what was written; of an encoder-decoder the decoder's
  std::int64_t written = 0;            // tokens of it that generate() wrote
  std::int64_t max_new_tokens = 0;
  std::span<const std::int64_t> ends;  // ids that end it
};

// As Transformers 5.23 has them, in its order, but for the tokens that are forced: these come whatever suppress_tokens
// say.
void process_logits(const LogitsOf& of, std::span<float> logits);

// body(n, row) for the rows of logits, several at once.
template <class Logits, class Body>
void for_each_row(Logits& logits, Body body) {
  const auto size = static_cast<std::size_t>(logits.size(1));
  auto* const rows = logits.template data<float>();
  parallel_for(logits.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto n = static_cast<std::size_t>(begin); n < static_cast<std::size_t>(end); ++n)
      body(n, std::span(rows + n * size, size));
  });
}

// Of logits of which one at least is a number: with others no order and no share is known, and a draw had no end.
// Throws bad_value for NaN and infinity, and where all are -inf.
float largest_logit(std::span<const float> logits);
// The sum of e^((x - largest) scale), of logits of which none is larger, to 1e-6 of it: -infinity adds nothing.
double sum_of_shares(std::span<const float> logits, float largest, double scale);
// log softmax, in place. Throws as largest_logit().
void to_log_probabilities(std::span<float> logits);

}  // namespace attend::inline v1::models
