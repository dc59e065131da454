// Pairs of a clean and a corrupt text.
#pragma once

#include <span>
#include <string_view>

#include "attend/circuits.h"
#include "models/model.h"

namespace attend::inline v1::analysis {

// Throws bad_value for none, for texts of different lengths, tokens outside the vocabulary and positions outside the
// text.
void check_pairs(std::string_view function, std::span<const AnswerPair> pairs, const ModelInfo& info);

// Of a text's hidden states [N,E]: the logit of the pair's token less that of `against`, at its row.
double difference(const Model::Parts& parts, std::string_view function, const Tensor& hidden, const AnswerPair& pair);

}  // namespace attend::inline v1::analysis
