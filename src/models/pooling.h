// What the files of sentence-transformers say about a folder's model.
#pragma once

#include <filesystem>

namespace attend::models {

// Throws bad_file, naming file and key, where they say that a text's embedding is not the mean over all tokens, as
// Model::embed() has it. A folder without them says nothing.
void check_pooling(const std::filesystem::path& folder);

}  // namespace attend::models
