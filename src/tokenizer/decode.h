// From tokens to text.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/json_member.h"
#include "tokenizer/growth.h"

namespace attend::inline v1::tokenizer {

// Changes the parts that make up the text. What one step could make of them without end is held against the growth.
using Decoder = std::function<void(std::vector<std::string>&, const Growth&)>;

constexpr std::string_view space_mark = "\xe2\x96\x81";  // U+2581, SentencePiece's space

void replace_all(std::string& text, std::string_view from, std::string_view to);
// The white space before punctuation and in English short forms goes. do_not: " do not" becomes " don't", as
// `tokenizers` has it, and Transformers has not.
void clean_up(std::string& text, bool do_not);

// The steps of a file, in order; null: there is none, and tokens are joined with spaces. Throws bad_file.
std::optional<std::vector<Decoder>> read_decoders(const Member& from);

}  // namespace attend::inline v1::tokenizer
