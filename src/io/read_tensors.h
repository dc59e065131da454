// Files of tensors, whatever their format, that are already open.
#pragma once

#include "attend/io.h"
#include "io/file.h"

namespace attend::inline v1 {

// Throws bad_file.
TensorMap read_tensors(const InputFile& file);

}  // namespace attend::inline v1
