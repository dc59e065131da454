// The tokens of what was analysed, as text.
#pragma once

#include <string>
#include <vector>

#include "attend/analysis_look.h"

namespace attend::inline v0 {

// One token by itself; an id that no tokenizer knows is a number.
std::string token_text(const AnalysisOf& of, std::int64_t id);
// Those of the ids, or of [0, count) where there are none the indices. Throws bad_shape for another count.
std::vector<std::string> token_texts(const char* function, const AnalysisOf& of, std::span<const std::int64_t> ids,
                                     std::int64_t count);

// A tensor of an analysis that was made by hand. Throws bad_shape and bad_dtype.
void check_numbers(const char* function, const char* name, const View& numbers, int rank, DType dtype = DType::f32);
void check_attribution(const char* function, const Attribution& attribution);
void check_lens(const char* function, const Lens& lens, std::span<const std::int64_t> positions);

// With signs for what would not be seen: line breaks, tabs, and blanks alone.
std::string seen(std::string_view token);

// A tensor of an ablation, by its name; empty: the one that its kind of model is judged by. Throws bad_value.
struct AblationChange {
  std::string_view name;
  View values;  // [L,H]
};
AblationChange change_of(const char* function, const Ablation& ablation, std::string_view name);
// All that it has: [L,H], or [1] of heads that were taken out together. Throws bad_shape where they differ.
std::vector<AblationChange> changes_of(const char* function, const Ablation& ablation);

}  // namespace attend::inline v0
