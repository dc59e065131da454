// Tensors named on the command line.
#pragma once

#include <optional>
#include <string>

#include "attend/io.h"

namespace attend::cli {

// FILE, or FILE:NAME for one tensor of a file.
struct TensorPath {
  std::string file;
  std::optional<std::string> name;
};

// A file of that whole name comes first; else the name begins after the first colon that follows an existing file.
TensorPath parse_tensor_path(const std::string& argument);

// The tensor that the path names; without a name, the only one of the file. Throws UsageError for a name that the file
// does not hold, or none where it holds several.
std::string choose_tensor(const TensorPath& path, const TensorMap& tensors);

// The same of a file's names.
std::string choose_tensor(const TensorPath& path, const std::vector<std::string>& names);

// Reads one tensor.
Tensor read_tensor(const std::string& argument);

}  // namespace attend::cli
