// Pretrained models: load a Hugging Face folder or a GGUF file, then run it, embed texts with it or generate text.
//
//     const attend::Model model = attend::Model::load("smollm2");
//     fmt::print("{}\n", model.generate("The capital of France is", {.max_new_tokens = 5}));
//
// gradient.h has the gradients.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no model.h"
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

#include "attend/api.h"
#include "attend/generation.h"
#include "attend/model_call.h"
#include "attend/model_info.h"
#include "attend/quantized.h"
#include "attend/recording.h"
#include "attend/tensor.h"
#include "attend/tokenizer.h"

namespace attend::inline v1 {

struct ATTEND_API ModelOptions {
  // Compute in f32 or bf16. By default quantized weights stay quantized and are computed in f32. Other models use the
  // dtype in config.json (f16 becomes f32). If it names none: bf16 when every matrix is bf16, else f32.
  std::optional<DType> dtype = {};
  // How rows are rounded before they are multiplied by weights. fast and int8 round the rows that meet quantized
  // weights. int8 also makes Q8_0 copies of f32, bf16 and f16 weights if their rows are a multiple of 32 long. It then
  // computes everything between the products in f32, whatever dtype says. Analyses refuse fast and int8.
  Activations activations = Activations::exact;
};

struct ATTEND_API GenerateOptions {
  std::int64_t max_new_tokens = 64;
  GenerationSettings settings = {};                   // for example {.temperature = 0.8, .top_p = 0.95}
  std::uint64_t seed = 0;                             // for the random draws
  std::optional<std::vector<std::int64_t>> end = {};  // ids that end the text; default: ModelInfo::end
  std::function<bool(std::int64_t)> on_token = {};    // called with each new id; return false to stop
  std::function<bool(std::int64_t prompt, std::int64_t id)> on_token_of = {};  // the same for several prompts
  // Called with the text that each token adds, once that text is final. A character made of several tokens comes with
  // the last of them. Text that may begin a stop string is held back until it is clear that it does not. Return false
  // to stop.
  std::function<bool(std::string_view)> on_text = {};
  // For decoders only. The part of the prompt that the cache already holds is not computed again; anything else in the
  // cache is dropped. Afterwards it holds all tokens but the last.
  ModelCache* cache = nullptr;
  Recorder* recorder = nullptr;  // as in ModelCall; must be made with RecordOptions::grows
  // Edits with rows apply to the prompt only. Edits without rows apply to all tokens, and their values must be one row.
  std::span<const Edit> edits = {};
  std::span<const Knockout> knockouts = {};  // applied in each pass
  // As in ModelCall, for each pass: one over the prompt, then one with a single row for each new token but the last.
  std::function<void(ModelPlace place, std::int64_t layer, const View& values)> observe = {};
};

// How sentences become vectors, with the folder's sentence-transformers files.
struct ATTEND_API EmbedOptions {
  // Text put before each sentence: a name in ModelInfo::prompts, or the text itself. Default: the folder's default
  // prompt, if it has one.
  std::optional<std::string> prompt = {};
  // true: vectors of length 1. false: leave out the folder's last module if it is Normalize. Default: as the folder
  // says.
  std::optional<bool> normalize = {};
  bool truncate = true;                       // cut texts longer than ModelInfo::max_seq_length; false: bad_value
  std::function<void(double)> progress = {};  // called with the share done, 0 to 1; may throw
};
struct ATTEND_API Embeddings {
  Tensor vectors;        // [sentences,vector_size], f32, in the order given
  std::int64_t cut = 0;  // how many sentences were longer than ModelInfo::max_seq_length
};

// A loaded model. Copies share the weights. Weights already in the dtype of the computation are mapped from the file,
// others are copied; so the file must not change while the model exists. All functions may be called from several
// threads, except two calls with one cache. Bits: the same for any number of threads, and for a sequence alone or with
// others.
class ATTEND_API Model {
 public:
  struct Parts;  // internal

  // path: a folder with config.json and model.safetensors (or model.safetensors.index.json and its shards), a .gguf
  // file, or the name of a cached model (find_model()). Throws bad_file with one message that names everything missing,
  // unexpected or of another shape, and for anything that attend does not know: it never guesses.
  static Model load(const std::filesystem::path& path, const ModelOptions& options = {});
  // The tokenizer that belongs to the model: the folder's (Tokenizer::load()), or the GGUF file's own. Throws bad_file.
  static Tokenizer load_tokenizer(const std::filesystem::path& path);

  const ModelInfo& info() const;
  // The same tokenizer, read on first use. Throws bad_file.
  const Tokenizer& tokenizer() const;

  // A layer's weights as f32 copies, in the form y = W x + b; quantized ones are dequantized. Names: W_Q [H,D,E], W_K
  // and W_V [Hkv,D,E], W_O [H,E,D], W_in and W_gate [F,E], W_out [E,F]; biases b_Q [H,D], ..., b_out [E]; norms [E]
  // (attention_norm, mlp_norm, ..., attention_norm_bias); with cross-attention also cross_W_Q and so on. For Gemma a
  // norm is 1 + the number in the file. encoder: a layer of an encoder-decoder's encoder. Throws bad_value for a layer
  // that does not exist.
  std::map<std::string, Tensor> weights(std::int64_t layer, bool encoder = false) const;
  // Weights outside the layers: embeddings [vocabulary,info().input_size], last norm and norm_bias [E], W_output
  // [vocabulary,E], b_output.
  std::map<std::string, Tensor> weights() const;
  // The weights by their names in Transformers, also for a GGUF file; weight() gives one of them in f32. Throws
  // bad_value.
  std::vector<std::string> weight_names() const;
  Tensor weight(std::string_view name) const;

  // ids [N] -> the last hidden states [N,E], f32, after the last norm. (OPT-350m gives [N,512], its word size.) An
  // encoder-decoder gives the hidden states of call.decoder_ids, which it needs. If call.caches already hold the
  // encoder's text, ids are empty. Throws bad_value for no ids, ids outside the vocabulary, sequences longer than
  // info().longest, edits at places that the model lacks, and NaN or infinity in a result.
  Tensor forward(std::span<const std::int64_t> ids, const ModelCall& call = {}) const;
  Tensor forward(std::span<const std::int32_t> ids, const ModelCall& call = {}) const {
    return forward(std::vector<std::int64_t>(ids.begin(), ids.end()), call);
  }
  Tensor forward(std::initializer_list<std::int64_t> ids, const ModelCall& call = {}) const {
    return forward(std::span(ids.begin(), ids.size()), call);
  }
  // The same for a text, with the tokens that the tokenizer adds.
  Tensor forward(std::string_view text, const ModelCall& call = {}) const;
  // The output of an encoder-decoder's encoder, [N,E], f32: what its decoder reads, not an input of logits(). Throws
  // bad_value for other models, decoder_ids and caches, and what forward() throws.
  Tensor encoder_states(std::span<const std::int64_t> ids, const ModelCall& call = {}) const;
  Tensor encoder_states(std::string_view text, const ModelCall& call = {}) const;
  // hidden [...,E] -> logits [...,vocabulary], f32. Throws bad_value for encoders, and for decoders whose file has no
  // output layer (no lm_head.weight, and none shared with the embeddings). generate() does the same.
  Tensor logits(const View& hidden) const;
  // One vector for each sequence, [sequences,vector_size], f32, computed as sentence-transformers does from the modules
  // in modules.json (docs/models.md lists those that attend knows). Without that file: the mean of the hidden states,
  // or for a ...ForCausalLM decoder the last one. normalize: as EmbedOptions has it. Throws bad_file for settings that
  // attend does not know, and for a model with a task's head but no modules.json.
  Tensor embed(std::span<const std::int64_t> ids, const ModelCall& call = {}, std::optional<bool> normalize = {}) const;
  Tensor embed(std::span<const std::int32_t> ids, const ModelCall& call = {},
               std::optional<bool> normalize = {}) const {
    return embed(std::vector<std::int64_t>(ids.begin(), ids.end()), call, normalize);
  }
  Tensor embed(std::initializer_list<std::int64_t> ids, const ModelCall& call = {},
               std::optional<bool> normalize = {}) const {
    return embed(std::span(ids.begin(), ids.size()), call, normalize);
  }
  // Embeds sentences: a std::vector<std::string>, a list in braces, or one text (one vector). Memory beyond the vectors
  // does not grow with their number. Throws bad_value for a sentence without tokens, and bad_file.
  Embeddings embed(std::span<const std::string_view> sentences, const EmbedOptions& options = {}) const;
  Embeddings embed(std::span<const std::string> sentences, const EmbedOptions& options = {}) const;
  Embeddings embed(std::initializer_list<std::string_view> sentences, const EmbedOptions& options = {}) const {
    return embed(std::span(sentences.begin(), sentences.size()), options);
  }
  Embeddings embed(std::string_view sentence, const EmbedOptions& options = {}) const {
    return embed(std::span(&sentence, 1), options);
  }

  // An empty cache for one sequence. dtype: the model's, or i8 (see KvCache). Throws bad_value for encoders, bad_dtype.
  ModelCache cache(std::optional<DType> dtype = {}) const;
  // The ids that follow, up to info().longest, without the id that ends them. For an encoder-decoder: the decoder's
  // ids, which begin with info().start. A stop string's ids are included. Throws bad_value like forward(), and for
  // settings out of range.
  std::vector<std::int64_t> generate(std::span<const std::int64_t> ids, const GenerateOptions& options = {}) const;
  std::vector<std::int64_t> generate(std::span<const std::int32_t> ids, const GenerateOptions& options = {}) const {
    return generate(std::vector<std::int64_t>(ids.begin(), ids.end()), options);
  }
  std::vector<std::int64_t> generate(std::initializer_list<std::int64_t> ids,
                                     const GenerateOptions& options = {}) const {
    return generate(std::span(ids.begin(), ids.size()), options);
  }
  // num_return_sequences texts. Beam search gives the best scores, best first. Otherwise text n is drawn with seed + n,
  // as generate() does; so generate() gives the first. With beams, on_token and on_text are called for the best text at
  // the end, and a recorder, observer or cache is refused.
  std::vector<GeneratedSequence> generate_sequences(std::span<const std::int64_t> ids,
                                                    const GenerateOptions& options = {}) const;
  std::vector<GeneratedSequence> generate_sequences(std::string_view text, const GenerateOptions& options = {}) const;
  // The text that follows, without the stop string that ended it.
  std::string generate(std::string_view text, const GenerateOptions& options = {}) const;
  // Several prompts of any lengths. Prompt n gets what generate() gives it alone with seed + n. Up to 32 prompts grow
  // in each pass; when one ends, the next takes its place. Throws bad_value for a recorder, on_token, on_text, a cache,
  // and edits with rows or values.
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

}  // namespace attend::inline v1
