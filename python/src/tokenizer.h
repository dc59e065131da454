// What Python calls a Tokenizer.
#pragma once

#include "attend/tokenizer.h"

#include <nanobind/nanobind.h>

namespace attend::python {

// how(of) makes it again in another process.
struct GivenTokenizer {
  Tokenizer tokenizer;
  nanobind::object how, of;
};

}  // namespace attend::python
