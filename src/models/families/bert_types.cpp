#include "models/families/bert_types.h"

#include <array>

#include "models/model_types.h"

namespace attend::inline v1::models {

namespace {

using Gate = BertType::Gate;
using Names = BertType::Names;
using Positions = BertType::Positions;

// What Transformers' modules of NomicBERT and GTE are called: it saves the names that the first files had.
constexpr Names gated_modules{.layers = "layers",
                              .query = "self_attn.q_proj",
                              .key = "self_attn.k_proj",
                              .value = "self_attn.v_proj",
                              .output = "self_attn.o_proj",
                              .attention_norm = "post_attention_layernorm",
                              .wide = "mlp.up_proj",
                              .narrow = "mlp.down_proj",
                              .norm = "post_mlp_layernorm",
                              .gate = "mlp.gate_proj"};

constexpr std::array<BertType, 11> bert_types = {{
    {.name = "bert"},
    {.name = "roberta", .padding = "pad_token_id"},
    {.name = "xlm-roberta", .padding = "pad_token_id"},
    {.name = "camembert", .padding = "pad_token_id"},
    {.name = "distilbert",
     .keys = {"dim", "n_layers", "n_heads", "hidden_dim", "activation"},
     .names = {"transformer.layer", "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin",
               "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"},
     .eps = nullptr,
     .token_types = false},
    {.name = "mpnet",
     .names = {"encoder.layer", "attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o",
               "attention.LayerNorm"},
     .token_types = false,
     .distance_bias = true},
    {.name = "albert",
     .names = {"encoder.albert_layer_groups", "attention.query", "attention.key", "attention.value", "attention.dense",
               "attention.LayerNorm", "ffn", "ffn_output", "full_layer_layer_norm"},
     .widened = "encoder.embedding_hidden_mapping_in",
     .shared = true},
    {.name = "electra", .widened = "embeddings_project"},
    {.name = "nomic_bert",
     .names = {.layers = "encoder.layers",
               .query = "attn.Wqkv",
               .key = nullptr,
               .value = nullptr,
               .output = "attn.out_proj",
               .attention_norm = "norm1",
               .wide = "mlp.fc11",
               .narrow = "mlp.fc2",
               .norm = "norm2",
               .gate = "mlp.fc12",
               .embedding_norm = "emb_ln"},
     .other_names = gated_modules,
     .positions = Positions::rotary,
     .rotary = {.usual_theta = 1000},
     .null_head_size = true,
     .attention_bias = false,
     .wide_bias = false,
     .narrow_bias = false},
    {.name = "gte",
     .names = {.query = "attention.qkv_proj",
               .key = nullptr,
               .value = nullptr,
               .output = "attention.o_proj",
               .attention_norm = "attn_ln",
               .wide = "mlp.up_gate_proj",
               .narrow = "mlp.down_proj",
               .norm = "mlp_ln"},
     .other_names = gated_modules,
     .may_lack_types = true,
     .positions = Positions::rotary,
     .rotary = {.usual_theta = 160'000},
     .gate = Gate::last_rows,
     .wide_bias = false},
    {.name = "jina_bert",
     .names = {.wide = "mlp.gated_layers", .narrow = "mlp.wo", .norm = "mlp.layernorm"},
     .positions = Positions::alibi,
     .gate = Gate::first_rows,
     .wide_bias = false},
}};

}  // namespace

const BertType& bert_type(std::string_view name) {
  return row_of_type(bert_types, name);
}

}  // namespace attend::inline v1::models
