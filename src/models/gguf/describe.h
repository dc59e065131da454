// A folder's model in the keys of a GGUF file: what llama.cpp's converter makes of it.
#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "attend/models.h"
#include "io/json_member.h"
#include "models/gguf/architecture.h"
#include "models/gguf/write.h"
#include "models/weights.h"

namespace attend::inline v1::models {

struct GgufDescription {
  GgufValues values;
  std::vector<GgufSource> tensors;
  std::deque<Tensor> made;  // which some of the tensors are
  std::string prefix;       // of the architecture's keys: "llama."
};

// Of GgufArchitecture::describe.
void describe_llama(const Member& config, const ModelInfo& info, GgufDescription& to);
void describe_smollm3(const Member& config, const ModelInfo& info, GgufDescription& to);
void describe_gemma2(const Member& config, const ModelInfo& info, GgufDescription& to);
void describe_gemma3(const Member& config, const ModelInfo& info, GgufDescription& to);
void describe_phi3(const Member& config, const ModelInfo& info, GgufDescription& to);
void describe_gpt2(const Member& config, const ModelInfo& info, GgufDescription& to);
void describe_bert(const Member& config, const ModelInfo& info, GgufDescription& to);
void describe_modernbert(const Member& config, const ModelInfo& info, GgufDescription& to);

// The weights, without their types. tied: as config.json has it. Throws bad_file.
void describe_weights(const GgufArchitecture& of, const Weights& weights, const ModelInfo& info, bool tied,
                      GgufDescription& to);

// The tokenizer of a folder, its chat template and its special tokens. whole: tokenizer.json as it stands, too. Throws
// bad_file for what no key can say.
void describe_tokenizer(std::string_view function, const std::filesystem::path& folder, const ModelInfo& info,
                        bool whole, GgufValues& to);

}  // namespace attend::inline v1::models
