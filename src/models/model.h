// What a Model is made of.
#pragma once

#include <optional>
#include <variant>

#include "attend/error.h"
#include "attend/models.h"
#include "models/bert.h"
#include "models/gpt2.h"
#include "models/llama.h"

namespace attend {

struct Model::Parts {
  models::Loading::Kept kept;  // the family borrows it
  std::variant<models::Bert, models::Gpt2, models::Llama> family;
  ModelInfo info;
  std::optional<Error> pooling;  // what embed() fails with, where the folder says that it is computed otherwise
};

}  // namespace attend
