// What SpladePooling makes of a text's logits of words.
#pragma once

#include <filesystem>

namespace attend::inline v1::models {

struct SparsePooling {
  bool sums = false;        // over the tokens, instead of the largest
  bool logs_twice = false;  // log(1 + log(1 + max(0, logit)))
};

// What modules.json says, and the file of its SpladePooling. Throws bad_file for what is not known here.
SparsePooling read_sparse_pooling(const std::filesystem::path& folder);

}  // namespace attend::inline v1::models
