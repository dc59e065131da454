// Pretrained models: a Hugging Face folder, or a GGUF file, opened and computed. Forward only.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no models.h"
#endif

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/kv_cache.h"
#include "attend/quantized.h"
#include "attend/recording.h"
#include "attend/tensor.h"
#include "attend/tokenizer.h"

#pragma GCC visibility push(default)

namespace attend {

// How a model computes (docs/models.md says what of each is known).
enum class ModelFamily : std::uint8_t {
  bert,        // encoders: BERT, RoBERTa, MiniLM, DistilBERT, MPNet, ALBERT
  gpt2,        // decoders with learned positions
  llama,       // decoders with rotary positions, RMSNorm and SwiGLU: Llama, Mistral, Qwen, Phi-3, OLMo 2, Gemma
  gpt_neox,    // decoders with rotary positions and LayerNorm: Pythia
  opt,         // decoders with learned positions: OPT
  modernbert,  // encoders with rotary positions
  bart,        // encoder-decoders with norms after each sum: BART, Marian's translators
  t5,          // encoder-decoders with a bias by distance: T5, Flan-T5
  t5_encoder,  // T5's encoder alone: sentence-T5
};
// As it is written there: "bert", "gpt2", "llama", ...
std::string_view name_of(ModelFamily family);

// What a model is, as its config.json has it.
struct ModelInfo {
  std::string type;  // its model_type: "bert", "qwen2", ...
  ModelFamily family = ModelFamily::bert;
  std::int64_t layers = 0, heads = 0, kv_heads = 0;
  std::int64_t head_size = 0, embedding_size = 0;
  std::int64_t vocabulary = 0;
  std::int64_t longest = 0;  // tokens of a sequence, at most; without a limit the largest number
  // Of an encoder-decoder: what is above is its decoder's. Its encoder has heads of encoder_head_size numbers.
  std::int64_t encoder_layers = 0, encoder_heads = 0, encoder_head_size = 0;
  std::int64_t encoder_vocabulary = 0;
  std::int64_t start = -1;  // the id that its decoder's text begins with
  // What its generation_config.json says besides: an id that a text of one token, as an encoder-decoder's start, goes
  // on with (forced_bos_token_id), an id that comes last where max_new_tokens are reached (forced_eos_token_id), ids
  // that never come (suppress_tokens, bad_words_ids), and, such as "num_beams 4", what generate() does not follow.
  std::optional<std::int64_t> first = {}, last = {};
  std::vector<std::int64_t> never = {};
  std::vector<std::string> not_followed = {};
  std::int64_t parameters = 0;  // how many numbers its weights are, embeddings shared with the output counted once
  DType dtype = DType::f32;     // that it computes in
  // What the file has them in, that of the most bytes first: "f32", "Q4_1", ...; and the bytes of its matrices as they
  // are computed with: of quantized ones, unless ModelOptions says a dtype, those of the file.
  std::vector<std::string> formats = {};
  std::int64_t weight_bytes = 0;
  std::vector<std::int64_t> end;  // the ids that end a text; empty for encoders
  // A task's layers behind the model, which are left out: "SequenceClassification", "MaskedLM", ..., as config.json's
  // architectures have it, else what its tensors' names begin with, "classifier"; empty: there are none.
  std::string head = {};
  bool embeds = true;                          // whether embed() can make what the folder says its embeddings are
  std::int64_t vector_size = 0;                // of embed()'s vectors; 0: it makes none
  std::int64_t max_seq_length = 0;             // tokens of a sentence that embed() takes, at most
  std::map<std::string, std::string> prompts;  // what may stand before each sentence, by names that embed() takes
  // Whether it answers with a next token.
  bool decoder() const {
    return family != ModelFamily::bert && family != ModelFamily::modernbert && family != ModelFamily::t5_encoder;
  }
  bool encoder_decoder() const { return family == ModelFamily::bart || family == ModelFamily::t5; }
};

struct ModelOptions {
  // f32 or bf16, quantized weights too. Default: these stay as they are, computed with in f32; others: what config.json
  // says, f16 as f32; where it says nothing, bf16 if all matrices are, else f32.
  std::optional<DType> dtype = {};
};

// A model that attend model --get or Hugging Face's tools left in their caches: $XDG_CACHE_HOME/attend/models (else
// ~/.cache/...), and $HF_HUB_CACHE (else $HF_HOME/hub, else ~/.cache/huggingface/hub).
struct CachedModel {
  std::string name;            // which Model::load() takes: "minilm", "sentence-transformers/all-MiniLM-L6-v2"
  std::filesystem::path path;  // the folder or .gguf file
  std::string type;            // its model_type, or "gguf"; empty: it says none
  std::int64_t bytes = 0;      // that its files have
};
std::vector<CachedModel> cached_models();
// The folder or .gguf file that a path or a name stands for: what is there under it, else a cached model. A folder with
// one .gguf file, and no config.json, stands for the file; of several, "org/model/file.gguf" names one. Touches no
// network. Throws bad_file.
std::filesystem::path find_model(const std::filesystem::path& path);

// What a decoder has computed of one sequence: keys and values of every layer, and of an encoder-decoder those of the
// encoder's text too. A copy is a fork. Of a model with
// longrope (docs/models.md), keys keep the rotation that they had when they came, also where the sequence grows beyond
// the original length.
class ModelCache {
 public:
  std::int64_t length() const { return layers_.empty() ? 0 : layers_.front().length(); }
  // Tokens of the encoder's text; 0: it has not been seen, or there is no encoder.
  std::int64_t encoder_length() const { return static_cast<std::int64_t>(encoder_ids_.size()); }
  // Throws bad_value unless 0 <= length <= this->length().
  void truncate(std::int64_t length);

 private:
  friend class Model;
  friend struct ModelAccess;
  std::vector<KvCache> layers_, cross_;          // cross_: of the encoder's text
  std::vector<std::int64_t> ids_, encoder_ids_;  // of the tokens that it holds
};

// Where a forward pass can be looked at and changed, in the order in which each layer comes there. Of the N ids of a
// call:
enum class ModelPlace : std::uint8_t {
  residual,   // [N,E] f32: the stream before the layer (BERT: after the norm that ends the layer before)
  z,          // [N,H*Dv]: the heads' outputs side by side, before the output projection
  attention,  // [N,E]: what the layer's attention adds to the stream
  mlp,        // [N,E]: what its MLP adds
  // An encoder-decoder's decoder has two more, after attention, of what it reads in the encoder's text:
  cross_z,          // as z
  cross_attention,  // as attention
  // and its encoder comes first, with places of its own; N is of the encoder's ids there:
  encoder_residual,
  encoder_z,
  encoder_attention,
  encoder_mlp,
};
// "residual", "z", "attention", "mlp", "cross_z", ...
std::string_view name_of(ModelPlace place);

// Something else where a pass computed one thing: zeros, the mean over the rows, or given numbers.
struct Edit {
  enum class Set : std::uint8_t { zero, mean, values };

  std::int64_t layer = 0;  // at residual also ModelInfo::layers: after the last
  ModelPlace at = ModelPlace::z;
  std::optional<std::int64_t> head =
      {};  // at z, cross_z and encoder_z: of that query head [rows,Dv]; none: all [rows,H*Dv]
  std::optional<std::vector<std::int64_t>> rows = {};  // of the call's ids, rising; none: all
  Set set = Set::zero;
  FieldView values = {};  // of Set::values: a row for each of `rows`, floating point; the memory must outlive the call
};

// One forward pass over one sequence, or over several that stand one after another and don't see each other.
struct ModelCall {
  std::span<const std::int64_t> starts = {};  // [sequences + 1]: where each begins, and the end; empty: one sequence
  std::span<const std::int64_t> types = {};   // token_type_ids of BERT and ALBERT, one for each id; empty: all 0
  std::span<ModelCache* const> caches = {};   // decoders: for each sequence, what came before it, and now it too
  // Of an encoder-decoder: the decoder's text so far, which begins with ModelInfo::start; its sequences, as many as the
  // encoder's, begin at decoder_starts.
  std::span<const std::int64_t> decoder_ids = {}, decoder_starts = {};
  // Each layer's attention is added to it, as "0.self", "1.self", ...; for one sequence. Where it grows, a call over a
  // cache continues it. Of an encoder-decoder as "encoder.0.self", "decoder.0.self", "decoder.0.cross", ...
  Recorder* recorder = nullptr;
  // In their order, each where the pass comes to its place. The mean is over the rows edited of each sequence; of a
  // sequence's only row over a cache it would change nothing, and is refused.
  std::span<const Edit> edits = {};
  // Shown what is at each place, edited; of ModelInfo::layers, one after the last layer, the residual alone. What is
  // shown lasts until it returns.
  std::function<void(ModelPlace place, std::int64_t layer, const View& values)> observe = {};
};

// The next token is the likeliest one, or drawn: softmax(logits / temperature) of the top_k likeliest, of which the
// fewest are kept that have top_p of the probability together (Holtzman et al. 2020).
struct GenerateOptions {
  std::int64_t max_new_tokens = 64;
  double temperature = 0;  // 0: the likeliest
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;
  std::uint64_t seed = 0;
  std::optional<std::vector<std::int64_t>> end = {};  // ids that end the text; default: ModelInfo::end
  std::function<bool(std::int64_t)> on_token = {};    // called with each new id; false ends the text there
  std::function<bool(std::int64_t prompt, std::int64_t id)> on_token_of = {};  // the same, of several prompts
  Recorder* recorder = nullptr;                                                // as ModelCall's; must grow
  std::span<const Edit> edits = {};  // of all tokens; those with rows, of the prompt's alone
};

// Sentences to vectors as the folder's files of sentence-transformers say.
struct EmbedOptions {
  // What stands before each sentence: the name of one of ModelInfo::prompts, or a text. Default: the folder's default
  // prompt, if it has one.
  std::optional<std::string> prompt = {};
  // true: vectors of length 1; false: without the folder's last module where that is Normalize; default: as it says.
  std::optional<bool> normalize = {};
  bool truncate = true;                       // what is longer than ModelInfo::max_seq_length is cut; false: bad_value
  std::function<void(double)> progress = {};  // told the share that is done, from 0 to 1; may throw
};
struct Embeddings {
  Tensor vectors;        // [sentences,vector_size], f32, in the order given
  std::int64_t cut = 0;  // how many sentences were longer than ModelInfo::max_seq_length
};

// Weights are mapped from the file where they are in the dtype that is computed in, and copied otherwise; the file must
// not change while a model of it is there. Copies share them. All functions may be called from several threads, but for
// two calls with one cache. Bits: the same for any number of threads, and for a sequence alone or among others.
class Model {
 public:
  struct Parts;  // the library's own

  // A folder with config.json and model.safetensors (or model.safetensors.index.json and its shards), a .gguf file, or
  // the name of a cached model (find_model).
  // Throws bad_file, naming what is missing, unexpected or of another shape, all of it in one message; and for what is
  // not known here: what is computed is never a guess.
  static Model load(const std::filesystem::path& path, const ModelOptions& options = {});
  // The tokenizer beside it: the folder's, as Tokenizer::load() reads it, or the GGUF file's own. Throws bad_file.
  static Tokenizer load_tokenizer(const std::filesystem::path& path);

  const ModelInfo& info() const;
  // That tokenizer, read when it is first asked for. Throws bad_file.
  const Tokenizer& tokenizer() const;

  // ids [N] -> the last hidden states [N,E], f32, after the last norm (OPT-350m: [N,512], projected to the size of its
  // words). Throws bad_value for no ids, ids outside the
  // vocabulary, sequences longer than info().longest, edits that name no place of the model, NaN or infinity in a
  // result.
  // An encoder-decoder: the hidden states of call.decoder_ids [N,E]; bad_value without these. A cache keeps what the
  // encoder made of ids: with one that has it, ids are empty.
  Tensor forward(std::span<const std::int64_t> ids, const ModelCall& call = {}) const;
  Tensor forward(std::span<const std::int32_t> ids, const ModelCall& call = {}) const {
    return forward(std::vector<std::int64_t>(ids.begin(), ids.end()), call);
  }
  Tensor forward(std::initializer_list<std::int64_t> ids, const ModelCall& call = {}) const {
    return forward(std::span(ids.begin(), ids.size()), call);
  }
  // Of a text's tokens, what the tokenizer adds included.
  Tensor forward(std::string_view text, const ModelCall& call = {}) const;
  // What an encoder-decoder's encoder makes of ids, or of a text's tokens: [N,E], f32, which its decoder reads and
  // logits() does not take. Throws bad_value for other models, for decoder_ids and caches, and as forward() does.
  Tensor encoder_states(std::span<const std::int64_t> ids, const ModelCall& call = {}) const;
  Tensor encoder_states(std::string_view text, const ModelCall& call = {}) const;
  // hidden [...,E] -> logits [...,vocabulary], f32. Throws bad_value for encoders, and for a decoder whose file is
  // of the bare model, without an output layer (lm_head.weight, unless that is the embeddings): so does generate().
  Tensor logits(const View& hidden) const;
  // A vector for each sequence, [sequences,vector_size], f32: what the modules of the folder's modules.json make of its
  // hidden states (docs/models.md has those that are known), as sentence-transformers does; without that file the mean,
  // of a decoder's ...ForCausalLM the last token's. normalize: EmbedOptions has it. Throws bad_file where the folder's
  // files say what is not known here, and where the model has a task's head and no modules.json.
  Tensor embed(std::span<const std::int64_t> ids, const ModelCall& call = {}, std::optional<bool> normalize = {}) const;
  Tensor embed(std::span<const std::int32_t> ids, const ModelCall& call = {},
               std::optional<bool> normalize = {}) const {
    return embed(std::vector<std::int64_t>(ids.begin(), ids.end()), call, normalize);
  }
  Tensor embed(std::initializer_list<std::int64_t> ids, const ModelCall& call = {},
               std::optional<bool> normalize = {}) const {
    return embed(std::span(ids.begin(), ids.size()), call, normalize);
  }
  // Of sentences, with the tokenizer: std::vector<std::string>, a list in braces, or one text, which has one vector.
  // Memory beside the vectors does not grow with their number. Throws bad_value for one that has no tokens, bad_file.
  Embeddings embed(std::span<const std::string_view> sentences, const EmbedOptions& options = {}) const;
  Embeddings embed(std::span<const std::string> sentences, const EmbedOptions& options = {}) const;
  Embeddings embed(std::initializer_list<std::string_view> sentences, const EmbedOptions& options = {}) const {
    return embed(std::span(sentences.begin(), sentences.size()), options);
  }
  Embeddings embed(std::string_view sentence, const EmbedOptions& options = {}) const {
    return embed(std::span(&sentence, 1), options);
  }

  // An empty cache for one sequence. dtype: that of the model, or i8 (KvCache has what that changes). Throws bad_value
  // for encoders, bad_dtype.
  ModelCache cache(std::optional<DType> dtype = {}) const;
  // The ids that follow, up to info().longest, without the one that ends them; of an encoder-decoder those of the
  // decoder's text, which begins with info().start. Throws bad_value as forward() does.
  std::vector<std::int64_t> generate(std::span<const std::int64_t> ids, const GenerateOptions& options = {}) const;
  std::vector<std::int64_t> generate(std::span<const std::int32_t> ids, const GenerateOptions& options = {}) const {
    return generate(std::vector<std::int64_t>(ids.begin(), ids.end()), options);
  }
  std::vector<std::int64_t> generate(std::initializer_list<std::int64_t> ids,
                                     const GenerateOptions& options = {}) const {
    return generate(std::span(ids.begin(), ids.size()), options);
  }
  // The text that follows.
  std::string generate(std::string_view text, const GenerateOptions& options = {}) const;
  // Of several prompts, of any lengths, what follows each: prompt n has what generate() gives it alone, by seed + n.
  // Up to 32 grow in each pass; where one ends, the next comes in. Throws bad_value for a recorder, on_token, and edits
  // that have rows or set values.
  std::vector<std::vector<std::int64_t>> generate(std::span<const std::vector<std::int64_t>> prompts,
                                                  const GenerateOptions& options = {}) const;
  std::vector<std::string> generate(std::span<const std::string_view> texts, const GenerateOptions& options = {}) const;
  std::vector<std::string> generate(std::span<const std::string> texts, const GenerateOptions& options = {}) const;
  std::vector<std::string> generate(std::initializer_list<std::string_view> texts,
                                    const GenerateOptions& options = {}) const {
    return generate(std::span(texts.begin(), texts.size()), options);
  }

 private:
  friend struct ModelAccess;
  explicit Model(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const Parts> parts_;
};

// What a file has: bits of a parameter are 8 * bytes / parameters.
struct Quantized {
  std::int64_t tensors = 0, quantized = 0;  // how many, and of these those in blocks
  std::int64_t parameters = 0, bytes = 0;
};

// Writes a model to a GGUF file that Model::load() and llama.cpp open, with its tokenizer. model: what Model::load()
// takes: a folder of type llama, mistral, qwen2, qwen3, gemma2, gemma3_text, phi3, gpt2, bert or distilbert, or a
// .gguf file whose matrices are F32, F16 or BF16. Matrices become `type`, rounded as by ggml, those whose rows are no
// multiple of 32 F16; norms, biases and tables of positions F32. The file appears when it is whole. Throws bad_file,
// also for what a GGUF file can't say: a task's head, a tokenizer or a configuration that would be read as another one;
// bad_value for a type other than q8_0 and q4_0.
Quantized quantize(const std::filesystem::path& model, const std::filesystem::path& out, QuantizedType type);

}  // namespace attend

#pragma GCC visibility pop
