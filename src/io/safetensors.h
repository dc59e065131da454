// Reading .safetensors from a file that is open already.
#pragma once

#include "attend/io.h"
#include "io/file.h"

namespace attend {

Safetensors read_safetensors(const InputFile& file);

}  // namespace attend
