// What a pretrained model is: its family, sizes, dtype, task and prompts.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no model_info.h"
#endif

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/api.h"
#include "attend/dtype.h"
#include "attend/generation.h"
#include "attend/quantized.h"

namespace attend::inline v1 {

// How a model computes; docs/models.md lists the known models.
enum class ATTEND_API ModelFamily : std::uint8_t {
  bert,           // encoders: BERT, RoBERTa, MiniLM, DistilBERT, MPNet, ALBERT, ELECTRA, NomicBERT, GTE, Jina v2
  gpt2,           // decoders with learned positions
  llama,          // decoders with rotary positions, RMSNorm and SwiGLU: Llama, Mistral, Qwen, Phi-3, OLMo 2, Gemma
  gpt_neox,       // decoders with rotary positions and LayerNorm: Pythia
  opt,            // decoders with learned positions: OPT
  modernbert,     // encoders with rotary positions
  bart,           // encoder-decoders with norms after each sum: BART, Marian's translators
  t5,             // encoder-decoders with a bias by distance: T5, Flan-T5
  t5_encoder,     // T5's encoder alone: sentence-T5
  llama_encoder,  // Llama's layers with attention in both directions: EmbeddingGemma
  static_table,   // no layers, one row for each token: model2vec, StaticEmbedding
};
// "bert", "gpt2", "llama", ...
ATTEND_API std::string_view name_of(ModelFamily family);

// What a task's head answers; attend/tasks.h computes it.
enum class ATTEND_API ModelTask : std::uint8_t {
  classify,  // a class for a text or a pair, or how well the second text answers the first
  tag,       // a label for each token
  fill,      // a word for a mask
};
// "classify", "tag", "fill"
ATTEND_API std::string_view name_of(ModelTask task);

// What the folder turns a text into: one vector (Model::embed()), a vector for each token (attend/late_interaction.h),
// or weights for words of the vocabulary (attend/sparse_vectors.h).
enum class ATTEND_API VectorKind : std::uint8_t { sentence, token, sparse };
// "sentence", "token", "sparse"
ATTEND_API std::string_view name_of(VectorKind kind);

// A model's properties, from its config.json.
struct ATTEND_API ModelInfo {
  std::string type;  // its model_type: "bert", "qwen2", ...
  ModelFamily family = ModelFamily::bert;
  std::int64_t layers = 0, heads = 0, kv_heads = 0;
  std::int64_t head_size = 0, embedding_size = 0;
  std::int64_t mlp_size = 0;  // hidden units of an MLP; for an encoder-decoder's encoder see encoder_mlp_size
  std::int64_t input_size =
      0;  // length of a row of the embedding table; differs from embedding_size in ALBERT, ELECTRA and OPT-350m
  bool parallel = false;  // attention and MLP read the same stream (Pythia)
  std::int64_t vocabulary = 0;
  std::int64_t longest = 0;  // most tokens in a sequence; the largest integer if there is no limit
  // For an encoder-decoder's encoder, whose heads have encoder_head_size numbers; the fields above are the decoder's.
  std::int64_t encoder_layers = 0, encoder_heads = 0, encoder_head_size = 0, encoder_mlp_size = 0;
  std::int64_t encoder_vocabulary = 0;
  std::int64_t start = -1;  // the first id of the decoder's text
  // Settings in generation_config.json, and those that generate() does not follow ("num_beams 4").
  GenerationSettings generation = {};
  std::vector<std::string> not_followed = {};
  std::int64_t parameters = 0;  // count of all weights; an output layer shared with the embeddings counts once
  DType dtype = DType::f32;     // of the computation
  Activations activations = Activations::exact;  // as in ModelOptions
  // formats: dtypes in the file, the one with most bytes first ("f32", "Q4_1", ...). weight_bytes: size of the matrices
  // as they are computed with. Quantized matrices keep the file's size unless ModelOptions::dtype is given. Matrices
  // rounded by int8 take 34 bytes for 32 numbers.
  std::vector<std::string> formats = {};
  std::int64_t weight_bytes = 0;
  std::vector<std::int64_t> end;  // ids that end a text; empty for encoders
  // A task's layers behind the model: "SequenceClassification", "MaskedLM", ..., from config.json's architectures or
  // else from tensor names ("classifier"). Empty: none. Layers without a known task are not loaded.
  std::string head = {};
  std::optional<ModelTask> task = {};    // what these layers answer
  std::vector<std::string> labels = {};  // for classify and tag, from id2label
  VectorKind vectors = VectorKind::sentence;
  bool embeds = true;                          // whether embed() can do what the folder asks for
  std::int64_t vector_size = 0;                // length of an embedding; 0: none
  std::int64_t max_seq_length = 0;             // most tokens of a sentence or document
  std::map<std::string, std::string> prompts;  // texts to put before a sentence, by the names that embed() takes
  // Whether it predicts a next token.
  bool decoder() const;
  bool encoder_decoder() const;
};

}  // namespace attend::inline v1
