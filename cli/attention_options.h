// What `run` and `plan` share: which keys a query sees, and numbers on the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/attention.h"
#include "cli/line.h"

namespace attend::cli {

// --causal, --offset and --window, as they stand on the command line.
struct Visibility {
  bool causal = false;
  std::string offset, window;
};

void add_visibility(App& app, Visibility& visibility);
// Throws UsageError.
AttentionOptions parse_visibility(const Visibility& visibility);

// "--alibi-slopes", of an option's name.
std::string flag_of(std::string_view name);

// Throws UsageError for an offset that nothing uses: it would change nothing without a word.
void check_offset(const AttentionOptions& options);

// Throws UsageError, naming the option.
double parse_real(const std::string& option, const std::string& text);
// Whole numbers with commas between, at least one; none where the text is anything else.
std::optional<std::vector<std::int64_t>> parse_whole_numbers(std::string_view text);

}  // namespace attend::cli
