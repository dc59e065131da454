// Pretrained models: a Hugging Face folder, or a GGUF file, opened and computed. gradient.h goes back through them.
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

namespace attend::inline v0 {

struct ATTEND_API ModelOptions {
  // f32 or bf16, quantized weights too. Default: these stay as they are, computed with in f32; others: what config.json
  // says, f16 as f32; where it says nothing, bf16 if all matrices are, else f32.
  std::optional<DType> dtype = {};
  // What becomes of the rows that layers multiply their weights by. fast and int8 are of quantized weights. int8: f32,
  // bf16 and f16 weights of rows of 32 n numbers are rounded to Q8_0 besides, in memory of their own, and all between
  // the products is f32, whatever dtype says; quantized weights stay as they are. Analyses refuse fast and int8.
  Activations activations = Activations::exact;
};

struct ATTEND_API GenerateOptions {
  std::int64_t max_new_tokens = 64;
  GenerationSettings settings = {};                   // {.temperature = 0.8, .top_p = 0.95}
  std::uint64_t seed = 0;                             // of what is drawn
  std::optional<std::vector<std::int64_t>> end = {};  // ids that end the text; default: ModelInfo::end
  std::function<bool(std::int64_t)> on_token = {};    // called with each new id; false ends the text there
  std::function<bool(std::int64_t prompt, std::int64_t id)> on_token_of = {};  // the same, of several prompts
  // Called with what each token adds to the text, once it can't change: a character that takes several tokens comes
  // with its last, and what may begin a stop string comes when it is none. false ends the text there.
  std::function<bool(std::string_view)> on_text = {};
  // What it has read of the prompt's beginning is not computed again; what it has beyond is dropped. Afterwards it has
  // read all but the last token. Of decoders alone.
  ModelCache* cache = nullptr;
  Recorder* recorder = nullptr;  // as ModelCall's; must grow
  // Of all tokens: with values of one row; those with rows, of the prompt's alone.
  std::span<const Edit> edits = {};
  std::span<const Knockout> knockouts = {};  // of each pass
  // As ModelCall's, of each pass: one over the prompt, and one of a row for each new token but the last.
  std::function<void(ModelPlace place, std::int64_t layer, const View& values)> observe = {};
};

// Sentences to vectors as the folder's files of sentence-transformers say.
struct ATTEND_API EmbedOptions {
  // What stands before each sentence: the name of one of ModelInfo::prompts, or a text. Default: the folder's default
  // prompt, if it has one.
  std::optional<std::string> prompt = {};
  // true: vectors of length 1; false: without the folder's last module where that is Normalize; default: as it says.
  std::optional<bool> normalize = {};
  bool truncate = true;                       // what is longer than ModelInfo::max_seq_length is cut; false: bad_value
  std::function<void(double)> progress = {};  // told the share that is done, from 0 to 1; may throw
};
struct ATTEND_API Embeddings {
  Tensor vectors;        // [sentences,vector_size], f32, in the order given
  std::int64_t cut = 0;  // how many sentences were longer than ModelInfo::max_seq_length
};

// Weights are mapped from the file where they are in the dtype that is computed in, and copied otherwise; the file must
// not change while a model of it is there. Copies share them. All functions may be called from several threads, but for
// two calls with one cache. Bits: the same for any number of threads, and for a sequence alone or among others.
class ATTEND_API Model {
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

  // Its weights, f32, copied; of quantized ones their numbers. Of a layer, where y = W x + b: W_Q [H,D,E], W_K and W_V
  // [Hkv,D,E], W_O [H,E,D], W_in and W_gate [F,E], W_out [E,F], biases b_Q [H,D], ..., b_out [E], and norms
  // (attention_norm, mlp_norm, ..., and attention_norm_bias) [E]; of a decoder that reads an encoder cross_W_Q, ...
  // too. A Gemma's norm is 1 + its file's. encoder: of an encoder-decoder's encoder. Throws bad_value for a layer that
  // is not there.
  std::map<std::string, Tensor> weights(std::int64_t layer, bool encoder = false) const;
  // embeddings [vocabulary,info().input_size]; norm and norm_bias [E], the last; W_output [vocabulary,E], b_output.
  std::map<std::string, Tensor> weights() const;
  // By the names that Transformers has for them, also of a GGUF file; and one of them: f32. Throws bad_value.
  std::vector<std::string> weight_names() const;
  Tensor weight(std::string_view name) const;

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
  // decoder's text, which begins with info().start. A text that a stop string ended has its ids. Throws bad_value as
  // forward() does, and for settings out of their ranges.
  std::vector<std::int64_t> generate(std::span<const std::int64_t> ids, const GenerateOptions& options = {}) const;
  std::vector<std::int64_t> generate(std::span<const std::int32_t> ids, const GenerateOptions& options = {}) const {
    return generate(std::vector<std::int64_t>(ids.begin(), ids.end()), options);
  }
  std::vector<std::int64_t> generate(std::initializer_list<std::int64_t> ids,
                                     const GenerateOptions& options = {}) const {
    return generate(std::span(ids.begin(), ids.size()), options);
  }
  // The num_return_sequences texts that follow: of beams those with the best scores, the best one first; else each as
  // generate() draws it, by seed, seed + 1 and so on. generate() gives the first. Of beams, on_token and on_text are
  // told of that when it is known, and a recorder, an observer and a cache are refused.
  std::vector<GeneratedSequence> generate_sequences(std::span<const std::int64_t> ids,
                                                    const GenerateOptions& options = {}) const;
  std::vector<GeneratedSequence> generate_sequences(std::string_view text, const GenerateOptions& options = {}) const;
  // The text that follows, without the stop string that ended it.
  std::string generate(std::string_view text, const GenerateOptions& options = {}) const;
  // Of several prompts, of any lengths, what follows each: prompt n has what generate() gives it alone, by seed + n.
  // Up to 32 grow in each pass; where one ends, the next comes in. Throws bad_value for a recorder, on_token, on_text,
  // a cache, and edits that have rows or set values.
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

}  // namespace attend::inline v0
