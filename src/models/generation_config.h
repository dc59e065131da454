// What a folder says of how its model writes.
#pragma once

#include "attend/models.h"
#include "io/json_member.h"

namespace attend::inline v1::models {

// Of a generation_config.json, or without one of config.json, as Transformers reads them: the ids that end a text and
// that begin an encoder-decoder's, the settings of generate(), and what else it asks for, which generate() does not
// follow: that is what can't be read, too. Throws bad_file for what is no object.
void read_generation(const Member& from, bool is_config, ModelInfo& info);

}  // namespace attend::inline v1::models
