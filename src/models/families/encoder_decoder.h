// What encoder-decoders read alike.
#pragma once

#include "attend/models.h"
#include "models/config.h"
#include "models/loading.h"

namespace attend::inline v1::models {

// What the usual keys say, without lengths and layers: one vocabulary for both stacks.
inline ModelInfo read_encoder_decoder(const Loading& loading, const Member& config, ModelFamily family) {
  ModelInfo info;
  info.type = config["model_type"].text();
  info.family = family;
  info.dtype = loading.dtype();
  info.embedding_size = config["d_model"].whole(1);
  info.encoder_vocabulary = info.vocabulary = config["vocab_size"].whole(1);
  info.end = end_ids(config);
  if (config.given("decoder_start_token_id")) info.start = id_of(config["decoder_start_token_id"]);
  return info;
}

template <class Stack>
void describe_stacks(const Stack& encoder, const Stack& decoder, ModelInfo& info) {
  info.encoder_layers = encoder.layers();
  info.encoder_heads = encoder.heads();
  info.encoder_head_size = encoder.head_size();
  info.encoder_mlp_size = encoder.mlp_size();
  info.layers = decoder.layers();
  info.heads = info.kv_heads = decoder.heads();
  info.head_size = decoder.head_size();
  info.mlp_size = decoder.mlp_size();
}

}  // namespace attend::inline v1::models
