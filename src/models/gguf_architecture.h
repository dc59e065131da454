// In what the architectures of GGUF files differ: what their configuration and their tensors are called, and what
// becomes of them in a Hugging Face folder.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "models/gguf_file.h"

namespace attend::models {

struct GgufRenamed {
  std::string_view from, to;
};

struct GgufArchitecture {
  std::string_view name;                                  // of general.architecture
  std::string_view type, class_name;                      // model_type and architectures of config.json
  std::span<const GgufRenamed> outer_names, layer_names;  // "attn_q" is "self_attn.q_proj"
  std::string_view layers;                                // what stands before a layer's number: "model.layers."
  bool permuted =
      false;  // whether the rows of q and k have been put in another order (llama.cpp's for rotary positions)
};

// Throws bad_file for another one than those that are known.
const GgufArchitecture& gguf_architecture(const GgufFile& file);

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
// Whether it has become a part of the configuration.
bool is_in_config(const GgufArchitecture& of, std::string_view tensor);

}  // namespace attend::models
