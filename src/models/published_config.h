// Configurations of models that were published with code of their own (trust_remote_code), which is not run: what their
// keys mean is known, and here they become what Transformers' class of the type has.
#pragma once

#include <nlohmann/json.hpp>

#include "io/json_member.h"

namespace attend::inline v1::models {

// Another configuration is what it was. Throws bad_file for what those models' code computes with and is not known
// here.
nlohmann::json native_config(const Member& file);

}  // namespace attend::inline v1::models
