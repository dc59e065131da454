// What a pretrained model is.
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

namespace attend::inline v0 {

// How a model computes (docs/models.md says what of each is known).
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
  llama_encoder,  // Llama's layers where tokens see both sides: EmbeddingGemma
  static_table,   // no layers, a row for each token: model2vec, StaticEmbedding
};
// As it is written there: "bert", "gpt2", "llama", ...
ATTEND_API std::string_view name_of(ModelFamily family);

// What a task's head behind a model answers: attend/tasks.h.
enum class ATTEND_API ModelTask : std::uint8_t {
  classify,  // a class of a text or a pair of texts, or how well the second of a pair answers the first
  tag,       // a label of each token
  fill,      // a word for a mask
};
// "classify", "tag", "fill"
ATTEND_API std::string_view name_of(ModelTask task);

// What a folder's files say that a text becomes: one vector (Model::embed), a vector for each of its tokens
// (attend/late_interaction.h), or weights of the vocabulary's words (attend/sparse_vectors.h).
enum class ATTEND_API VectorKind : std::uint8_t { sentence, token, sparse };
// "sentence", "token", "sparse"
ATTEND_API std::string_view name_of(VectorKind kind);

// What a model is, as its config.json has it.
struct ATTEND_API ModelInfo {
  std::string type;  // its model_type: "bert", "qwen2", ...
  ModelFamily family = ModelFamily::bert;
  std::int64_t layers = 0, heads = 0, kv_heads = 0;
  std::int64_t head_size = 0, embedding_size = 0;
  std::int64_t mlp_size = 0;  // hidden units of an MLP; of an encoder-decoder's encoder: encoder_mlp_size
  std::int64_t input_size =
      0;                  // of an id's row in the table of embeddings: embedding_size, but of ALBERT, ELECTRA, OPT-350m
  bool parallel = false;  // attention and MLP read the same stream (Pythia)
  std::int64_t vocabulary = 0;
  std::int64_t longest = 0;  // tokens of a sequence, at most; without a limit the largest number
  // Of an encoder-decoder: what is above is its decoder's. Its encoder has heads of encoder_head_size numbers.
  std::int64_t encoder_layers = 0, encoder_heads = 0, encoder_head_size = 0, encoder_mlp_size = 0;
  std::int64_t encoder_vocabulary = 0;
  std::int64_t start = -1;  // the id that its decoder's text begins with
  // What its generation_config.json says besides, and, such as "num_beams 4", what of it generate() does not follow.
  GenerationSettings generation = {};
  std::vector<std::string> not_followed = {};
  std::int64_t parameters = 0;  // how many numbers its weights are, embeddings shared with the output counted once
  DType dtype = DType::f32;     // that it computes in
  Activations activations = Activations::exact;  // as ModelOptions say
  // What the file has them in, that of the most bytes first: "f32", "Q4_1", ...; and the bytes of its matrices as they
  // are computed with: of quantized ones, unless ModelOptions says a dtype, those of the file; of those that int8
  // rounds, 34 for 32 numbers.
  std::vector<std::string> formats = {};
  std::int64_t weight_bytes = 0;
  std::vector<std::int64_t> end;  // the ids that end a text; empty for encoders
  // A task's layers behind the model: "SequenceClassification", "MaskedLM", ..., as config.json's architectures have
  // it, else what its tensors' names begin with, "classifier"; empty: there are none. Without a task they are left out.
  std::string head = {};
  std::optional<ModelTask> task = {};    // what they answer
  std::vector<std::string> labels = {};  // of classify and tag, as id2label has them
  VectorKind vectors = VectorKind::sentence;
  bool embeds = true;                          // whether embed() can make what the folder says its embeddings are
  std::int64_t vector_size = 0;                // numbers of a vector; 0: it makes none
  std::int64_t max_seq_length = 0;             // tokens of a sentence, or of a document, at most
  std::map<std::string, std::string> prompts;  // what may stand before each sentence, by names that embed() takes
  // Whether it answers with a next token.
  bool decoder() const;
  bool encoder_decoder() const;
};

}  // namespace attend::inline v0
