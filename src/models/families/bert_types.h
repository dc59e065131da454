// In what the types of BERT's family differ: nowhere else is one asked for its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "models/families/rotary.h"

namespace attend::inline v1::models {

struct BertType {
  // What config.json calls the sizes and the activation.
  struct Keys {
    const char *size = "hidden_size", *layers = "num_hidden_layers", *heads = "num_attention_heads";
    const char *wide = "intermediate_size", *activation = "hidden_act";
  };
  // What the tensors are called.
  struct Names {
    const char* layers = "encoder.layer";
    // Without names of keys and values the query's has all three, as rows one after another.
    const char *query = "attention.self.query", *key = "attention.self.key", *value = "attention.self.value";
    const char *output = "attention.output.dense", *attention_norm = "attention.output.LayerNorm";
    const char *wide = "intermediate.dense", *narrow = "output.dense", *norm = "output.LayerNorm";
    const char* gate = nullptr;
    const char* embedding_norm = "embeddings.LayerNorm";
  };
  // Of gated MLPs whose gate has no name of its own: which of `wide`'s rows it is.
  enum class Gate : std::uint8_t { none, first_rows, last_rows };
  enum class Positions : std::uint8_t { learned, rotary, alibi };

  std::string_view name;
  Keys keys = {};
  Names names = {};
  std::optional<Names> other_names = {};  // which files may have instead
  const char* eps = "layer_norm_eps";     // null: 1e-12
  bool token_types = true;
  bool may_lack_types = false;    // type_vocab_size may be 0
  const char* padding = nullptr;  // the id that positions begin after; null: there is none
  bool distance_bias = false;     // what all layers add to the scores; padding is 1
  // Embeddings have a size of their own; this brings them to the layers'. Null: they have that size.
  const char* widened = nullptr;
  bool shared = false;  // groups of layers, whose embeddings are widened whatever their size is
  Positions positions = Positions::learned;
  RotaryKeys rotary = {};
  bool null_head_size = false;  // head_dim may be null
  Gate gate = Gate::none;
  bool attention_bias = true, wide_bias = true, narrow_bias = true;
};

// Throws bad_value for a type of another family.
const BertType& bert_type(std::string_view name);

}  // namespace attend::inline v1::models
