// What a folder says and GGUF has no keys for, in keys of attend's own: "attend.sentences.max_seq_length". Without such
// a key a file is read by GGUF's alone, and where that is the same, none is written.
#pragma once

#include <nlohmann/json.hpp>

#include "attend/models.h"
#include "models/gguf/file.h"
#include "models/gguf/write.h"
#include "models/sentences/modules.h"
#include "tokenizer/chat.h"

namespace attend::inline v1::models {

// plain: what is read without the keys.
void describe_sentences(const SentenceModules& of, const SentenceModules& plain, GgufValues& to);
void describe_chat_tokens(const tokenizer::Chat& of, const tokenizer::Chat& plain, GgufValues& to);
// config.json, and generation_config.json where it is no null, as they stand: a text is read by GGUF's keys, how one is
// written and what class the model is by these.
void describe_folder(const nlohmann::json& config, const nlohmann::json& generation, GgufValues& to);

// The other way: what the keys say is changed in what is there. E: a hidden state's numbers. Throw bad_file.
void read_own_sentences(const GgufFile& file, std::int64_t E, SentenceModules& to);
void read_own_chat_tokens(const GgufFile& file, tokenizer::Chat& to);
void read_own_generation(const GgufFile& file, ModelInfo& to);
// config: of GGUF's keys.
void read_own_classes(const GgufFile& file, nlohmann::json& config);
// Throws bad_file for a key of attend's that none of these asks for: it could change what is computed.
void check_own_keys(const GgufFile& file);

}  // namespace attend::inline v1::models
