// The regular expressions of tokenizer.json, and what a text is cut into at their matches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/message.h"

namespace attend::inline v1::tokenizer {

// A part of a text: a match of a pattern, or what lies between.
struct Part {
  std::size_t begin, end;
  bool match;
};

// A regular expression as Oniguruma, which `tokenizers` uses, understands it; compiled by PCRE2. What the two mean
// differently is written otherwise for PCRE2, or refused.
class Pattern {
 public:
  // Throws bad_file, naming the place, for what is no pattern or not known here.
  Pattern(const Place& place, std::string_view expression);
  // The text itself, wherever it stands.
  static Pattern literal(const Place& place, std::string_view text);

  // Whether there may be a match without a character.
  bool may_match_empty() const;
  // Parts that cover the text. Throws bad_value where matching takes too many steps.
  std::vector<Part> parts(std::string_view text) const;

 private:
  struct Code;
  Pattern() = default;

  std::string literal_;  // empty: a regular expression
  std::shared_ptr<const Code> code_;
};

// What becomes of matches: names and meanings are `tokenizers`'.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// The parts that are left, in order; `match` no longer means anything.
std::vector<Part> arrange(Behavior behavior, const std::vector<Part>& parts);

}  // namespace attend::inline v1::tokenizer
