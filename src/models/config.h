// config.json as Transformers reads it: what is missing has a value there, and what is there may be computed with.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attend/layers.h"
#include "io/json_member.h"

namespace attend::inline v1::models {

// All that a family's page reads: keys that are missing have the values of the type's class, and what stands under
// another name of a key comes under its own. Throws bad_file for null where that class takes none, and for keys that
// Transformers computes with and that are not known here, but for values that change nothing. The file's model_type is
// known.
nlohmann::json complete_config(const Member& file);

// only: keys, and the values of each that are known here. Throws bad_file for another one.
void refuse_others(const Member& file, const nlohmann::json& only);
// aliases: other names of keys. What stands there comes under the key itself, too. Throws bad_file where that has
// another value.
void rename(const Member& file, const nlohmann::json& aliases, nlohmann::json& config);

// A number that is not negative, or not 0 either.
double number_from_0(const Member& of);
double number_above_0(const Member& of);
// E / heads; throws bad_file where that leaves a rest.
std::int64_t whole_divided(const Member& config, std::int64_t embedding_size, std::int64_t heads);
// The class of Transformers that it names, "BertForMaskedLM"; "": none.
std::string class_of_model(const Member& config);
// An id, or a list of them. One below 0 stands for none: no token has it.
std::vector<std::int64_t> ids_of(const Member& of);
// An id, which may stand alone in a list.
std::int64_t id_of(const Member& of);
// eos_token_id: none, one or several.
std::vector<std::int64_t> end_ids(const Member& config);
// What it says that the weights are computed in: f16 is widened. None: it does not say.
std::optional<DType> said_dtype(const Member& config);
// A name of Transformers' ACT2FN. Throws bad_file for one that is not known here.
Activation read_activation(const Member& name);

}  // namespace attend::inline v1::models
