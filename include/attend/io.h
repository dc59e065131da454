// Tensor files (tensor_files.h), words and their ids (words.h).
#pragma once

#include "attend/tensor_files.h"
#include "attend/words.h"
