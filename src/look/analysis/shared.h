// What pictures and tables of analyses share: tokens as text, names of heads, maps of layers and heads.
#pragma once

#include <string>
#include <vector>

#include "attend/analysis_look.h"
#include "look/maps.h"

namespace attend::inline v1 {

// One token by itself; an id that no tokenizer knows is a number.
std::string token_text(const AnalysisOf& of, std::int64_t id);
// Those of the ids, or of [0, count) where there are none the indices. Throws bad_shape for another count.
std::vector<std::string> token_texts(const char* function, const AnalysisOf& of, std::span<const std::int64_t> ids,
                                     std::int64_t count);

// The tokens of ids, or the names of spans where there are some.
std::vector<std::string> column_texts(const char* function, const AnalysisOf& of, std::int64_t count);

// A tensor of an analysis that was made by hand. Throws bad_shape and bad_dtype.
void check_numbers(const char* function, const char* name, const View& numbers, int rank, DType dtype = DType::f32);
// With signs for what would not be seen: line breaks, tabs, and blanks alone.
std::string seen(std::string_view token);

// As a recording has it.
std::string name_of(const AnalysisOf& of, std::int64_t layer, std::int64_t head, AttentionKind attention);

// ---- Pictures ----

std::string titled(const AnalysisOf& of, const std::string& what);
// No line of a title ends within.
std::string in_quotes(const AnalysisOf& of, std::int64_t token);
// "“ Paris”, not “ London”"
std::string answer_of(const AnalysisOf& of, std::int64_t token, const std::optional<std::int64_t>& against);
// "“The capital of France is”, 5 tokens."; without ids nothing.
std::string text_caption(const AnalysisOf& of);
std::vector<std::string> all_seen(std::vector<std::string> texts);
std::vector<std::string> numbers_to(std::int64_t count, std::string_view last);
// One map of so many layers and heads, on the diverging scale.
HeatMap head_map(const View& values);
Picture picture_of(Tensor values, HeatMap map, std::string title);

}  // namespace attend::inline v1
