// Rerankers that are decoders with a yes and a no: sentence-transformers' LogitScore, behind a Transformer in
// modules.json. Qwen3-Reranker was published so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "models/output.h"
#include "models/tasks/head.h"

namespace attend::inline v1::models {

// A passage's score is the logit of the token that would be next, less that of another where there is one.
struct LogitScore {
  std::int64_t yes = 0;
  std::optional<std::int64_t> no = {};
};
// none: the folder's modules.json has no such module. Throws bad_file, naming file and key, for what is not known here.
std::optional<LogitScore> read_logit_score(const std::filesystem::path& folder, std::int64_t vocabulary);
// As a head of one label behind the last row. Throws bad_file for an output layer that a softcap follows.
TaskHead head_of(const LogitScore& score, const Output& output);

}  // namespace attend::inline v1::models
