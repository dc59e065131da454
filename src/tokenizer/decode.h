// From tokens to text.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/json_member.h"

namespace attend::tokenizer {

// Changes the parts that make up the text.
using Decoder = std::function<void(std::vector<std::string>&)>;

// The steps of a file, in order; null: there is none, and tokens are joined with spaces. Throws bad_file.
std::optional<std::vector<Decoder>> read_decoders(const Member& from);

}  // namespace attend::tokenizer
