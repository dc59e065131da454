// What a model expects around a text and between the two of a pair.
#pragma once

#include <cstdint>
#include <vector>

#include "io/json_member.h"

namespace attend::inline v1::tokenizer {

// A text, or tokens that are added.
struct TemplatePiece {
  int text = -1;  // 0 or 1; -1: tokens
  std::vector<std::int64_t> ids = {};
  std::int64_t type = 0;
};

struct Template {
  std::vector<TemplatePiece> single = {{.text = 0}};
  std::vector<TemplatePiece> pair = {{.text = 0}, {.text = 1, .type = 1}};
  // White space at the ends of tokens is left out of their offsets; keeps_space: but for the one space that was set
  // before the text.
  bool trims = false, keeps_space = false;
};

// Throws bad_file.
Template read_template(const Member& from);

}  // namespace attend::inline v1::tokenizer
