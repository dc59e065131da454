// Reading .npz from a file that is open already.
#pragma once

#include "attend/io.h"
#include "io/file.h"

namespace attend::inline v1 {

TensorMap read_npz(const InputFile& file);

}  // namespace attend::inline v1
