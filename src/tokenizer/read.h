// What the readers of the parts of a tokenizer.json share.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/utf8.h"
#include "io/json_member.h"
#include "tokenizer/pattern.h"

namespace attend::inline v1::tokenizer {

// Calls read(step, type) for the part, or for each of a Sequence, whose list has that name; for null, not at all.
template <class Read>
void for_each_step(const Member& from, const char* list, Read& read, int depth = 0) {
  if (from.value().is_null()) return;
  const std::string type = from["type"].text();
  if (type != "Sequence") return read(from, type);
  from.only({"type", list});
  if (depth == 8) from.refuse("fewer Sequences in each other");  // each takes stack
  for (const Member& step : from[list].list()) for_each_step(step, list, read, depth + 1);
}

// {"String": ".."} or {"Regex": ".."}
inline Pattern read_pattern(const Member& from) {
  from.only({"String", "Regex"});
  if (from.has("Regex")) return {from.place(), from["Regex"].text()};
  return Pattern::literal(from.place(), from["String"].text());
}

inline std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

}  // namespace attend::inline v1::tokenizer
