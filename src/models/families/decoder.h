// What decoders read alike.
#pragma once

#include <vector>

#include "attend/models.h"
#include "models/config.h"
#include "models/loading.h"

namespace attend::inline v1::models {

// What the usual keys say: as many heads of keys and values as of queries, and no size of them yet.
ModelInfo read_decoder(const Loading& loading, const Member& config, ModelFamily family);

// Which layers a type's window is of.
struct WindowRule {
  bool by_type = true;  // layer_types say it; else the rule alone, whatever these say
  // Where layer_types do not; null: no layer.
  std::vector<bool> (*slides)(const Member& config, std::int64_t layers) = nullptr;
  const char* used = nullptr;  // whether there are windows at all; null: there are
  bool needed = false;         // sliding_window is a number, though no layer may have it
};

// Of each layer how many keys a query sees; 0: all. Throws bad_file.
std::vector<std::int64_t> read_windows(const Member& config, const WindowRule& rule, std::int64_t layers);

}  // namespace attend::inline v1::models
