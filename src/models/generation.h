// What a folder says of how its model writes.
#pragma once

#include "attend/models.h"
#include "io/json_member.h"

namespace attend::models {

// Of a generation_config.json, or without one of config.json: the ids that end a text, that begin an encoder-decoder's,
// and that never come; and what generate() does not follow. Throws bad_file. What can't be read of config.json, which
// is not there for it, is not followed either.
void read_generation(const Member& from, bool is_config, ModelInfo& info);

}  // namespace attend::models
