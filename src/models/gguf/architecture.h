// In what the architectures of GGUF files differ: what their tensors are called, what became of them, and which keys
// say how they are computed.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "attend/models.h"
#include "io/json_member.h"
#include "models/gguf/file.h"

namespace attend::inline v1::models {

class GgufKeys;
struct GgufDescription;

// Of every so many layers of SmolLM3 the last sees no positions.
inline constexpr std::int64_t smollm3_interval = 4;

struct GgufRenamed {
  std::string_view from, to;
};

struct GgufArchitecture {
  std::string_view type;  // model_type of config.json
  // Adds what config.json has besides sizes and tokens. Throws bad_file.
  void (*configure)(const GgufKeys& keys, nlohmann::json& config);
  // The other way: of a folder's complete configuration. Throws bad_file for what no key can say.
  void (*describe)(const Member& config, const ModelInfo& info, GgufDescription& to);
  std::span<const GgufRenamed> outer, inner;  // names outside the layers and inside: "attn_q" is "self_attn.q_proj"
  std::string_view layers = "model.layers.";  // what stands before a layer's number
  // What llama.cpp's converter makes of the folder's tensors.
  bool permuted = false;    // the rows of q and k are in another order
  bool norms_of_1 = false;  // the weights of norms have 1 more
  bool transposed = false;  // the layers' matrices are [out,in], and [in,out] in the folder

  std::string_view name() const;  // of general.architecture
};

// Throws bad_file for another one than those that are known.
const GgufArchitecture& gguf_architecture(const GgufFile& file);
// Of a folder's model_type. Throws bad_file likewise.
const GgufArchitecture& gguf_architecture_of(const Member& type);

// What is in config.json. Throws bad_file for a key that would change what is computed and is not known.
nlohmann::json gguf_config(const GgufFile& file, const GgufArchitecture& of);

// A tensor's name, cut: "blk.12." "attn_q" ".weight".
struct GgufName {
  std::string_view layer;  // "12"; empty: outside the layers
  std::string_view part, kind;
};
// None: it is no tensor of a model.
std::optional<GgufName> cut_gguf_name(std::string_view name);
// What the folder calls it. None: it is not known.
std::optional<std::string> folder_name(const GgufArchitecture& of, const GgufName& name);

}  // namespace attend::inline v1::models
