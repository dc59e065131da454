// What a decoder answers, row by row.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "attend/analysis.h"
#include "attend/models.h"
#include "models/model.h"

namespace attend::inline v1::analysis {

// The family's last norm of x [R,E] -> [R,E], f32.
Tensor finished(const Model::Parts& parts, Tensor x);

// A row's logits as probabilities: log_probability = logit - log_sum.
double log_sum(std::span<const float> logits);
// The likeliest; of equal ones the first.
std::int64_t likeliest(std::span<const float> logits);

void check_token(std::string_view function, std::string_view name, std::int64_t token, const ModelInfo& info);
// The task's head whose labels these are. Throws bad_value for a model without one, and for others' numbers.
const models::TaskHead& head_of(std::string_view function, const Model::Parts& parts,
                                const std::optional<std::int64_t>& label, const std::optional<std::int64_t>& against);
// Throws bad_value for what is no logit's.
void check_of(std::string_view function, GradientOf of);
// Throws bad_value for attentions that a model has not.
void check_attention(std::string_view function, AttentionKind attention, const ModelInfo& info);
// Where its heads are apart.
ModelPlace place_of(AttentionKind attention);
// Rising, and within the text; counted from 0.
std::vector<std::int64_t> checked_positions(std::string_view function, std::string_view name,
                                            std::span<const std::int64_t> positions, std::int64_t count);

// Rows whose logits, so many each, take some memory together.
std::int64_t answers_at_once(std::int64_t logits);
// Calls body(row, logits) for each row of hidden [R,E], several threads, with memory for some rows at a time.
void for_each_answer(const models::Output& output, const Tensor& hidden,
                     const std::function<void(std::int64_t, std::span<const float>)>& body);

}  // namespace attend::inline v1::analysis
