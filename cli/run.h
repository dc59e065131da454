// What `run` was asked for; alone (run.cpp), or as one of several ranks (run_ranks.cpp).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "attend/attention.h"
#include "cli/attention_options.h"
#include "cli/ranks.h"
#include "cli/run_weights.h"

namespace attend::cli {

struct RunArguments {
  std::string q, k, v;
  std::map<std::string_view, std::string> tensors;  // the files of the tensor options that were given
  std::string out, lse;
  std::string scale, dropout;
  std::map<std::string_view, std::string> numbers;  // the number options that were given
  std::optional<std::uint64_t> seed;
  Visibility visibility;
  InsideArguments inside;
  std::string sharding;
  bool no_mpi = false;
};

// Throws UsageError for what is given without use, missing, or written where it has no place.
void check_line(const RunArguments& arguments);
// All but the tensors.
AttentionOptions parse_options(const RunArguments& arguments);
// However the two are spelled: the second would replace the first.
bool same_file(const std::string& a, const std::string& b);

// This rank's part of it: its slice of the files, its rows of the result.
void run_on_ranks(const RunArguments& arguments, Ranks& ranks);

}  // namespace attend::cli
