// What a Model is made of.
#pragma once

#include <optional>
#include <variant>

#include "attend/error.h"
#include "attend/models.h"
#include "models/families/bart.h"
#include "models/families/bert.h"
#include "models/families/gpt2.h"
#include "models/families/gpt_neox.h"
#include "models/families/llama.h"
#include "models/families/modernbert.h"
#include "models/families/opt.h"
#include "models/families/static_table.h"
#include "models/families/t5.h"
#include "models/own_tokenizer.h"
#include "models/sentences/modules.h"
#include "models/sentences/sparse_pooling.h"
#include "models/sentences/token_rules.h"
#include "models/tasks/head.h"

namespace attend::inline v1 {

namespace models {

struct TaskTexts;

using Family = std::variant<Bert, ModernBert, Gpt2, Llama, GptNeox, Opt, Bart, T5, T5Encoder, StaticTable>;

// A family's layers: its decoder's where it has an encoder too.
template <class Of>
const auto& layers_of(const Of& family) {
  if constexpr (requires { family.decoder(); })
    return family.decoder();
  else
    return family;
}

}  // namespace models

struct Model::Parts {
  models::Loading::Kept kept;  // the family borrows it
  models::Family family;
  ModelInfo info;
  std::optional<models::TaskHead> head = {};
  std::shared_ptr<const models::TaskTexts> texts = {};  // of a model with a head; null: they can't be read, which says
  std::optional<Error> texts_error = {};
  std::optional<models::SentenceModules> sentences = {};
  std::optional<models::TokenRules> tokens = {};     // of VectorKind::token
  std::optional<models::SparsePooling> sparse = {};  // of a head for masked words, unless its vectors are others
  std::optional<Error> pooling = {};  // what making vectors fails with, where what says how can't be read
  std::unique_ptr<const models::OwnTokenizer> tokenizer = {}, of_sentences = {};  // of sentences: where that is another
  std::unique_ptr<const models::OwnTokenizer> of_texts = {};                      // of a task's texts, likewise
};

// For a room that looks inside of a model.
struct ModelAccess {
  // Model::forward(), before a watcher's eyes.
  static Tensor forward(const Model& model, std::span<const std::int64_t> ids, const ModelCall& call,
                        models::Watcher* watcher);
  // Last hidden states as what reads texts has them: forward(), and of an encoder-decoder with a task's head those of
  // its decoder, which reads the same texts behind the token that begins one (BartForSequenceClassification).
  static Tensor text_states(const Model& model, std::span<const std::int64_t> ids, const ModelCall& call);
  // Of each sequence the first token's last hidden state, [sequences,E], without what the last layer makes of the other
  // rows where the family can leave that out.
  static Tensor first_rows(const Model& model, std::span<const std::int64_t> ids, const ModelCall& call);
  static const Model::Parts& parts(const Model& model) { return *model.parts_; }
  static std::vector<KvCache>& layers(ModelCache& cache) { return cache.layers_; }
  static const std::vector<KvCache>& layers(const ModelCache& cache) { return cache.layers_; }
  static std::vector<KvCache>& cross(ModelCache& cache) { return cache.cross_; }
  static std::vector<std::int64_t>& ids(ModelCache& cache) { return cache.ids_; }
  static const std::vector<std::int64_t>& ids(const ModelCache& cache) { return cache.ids_; }
  static std::vector<std::int64_t>& encoder_ids(ModelCache& cache) { return cache.encoder_ids_; }
  static const std::vector<std::int64_t>& encoder_ids(const ModelCache& cache) { return cache.encoder_ids_; }
};

namespace models {

// ids, starts, positions, types and recorder of a call, checked; without its caches and edits. Throws bad_value.
Batch batch_of(std::span<const std::int64_t> ids, const ModelCall& call, const ModelInfo& info);
// The two of an encoder-decoder.
Batch encoder_batch_of(std::span<const std::int64_t> ids, const ModelCall& call, const ModelInfo& info);
Batch decoder_batch_of(const ModelCall& call, const ModelInfo& info);
// Where each sequence begins, and the end; `name` is what a message calls it. Throws bad_value.
std::vector<std::int64_t> checked_starts(std::string_view name, std::span<const std::int64_t> starts,
                                         std::int64_t count);
// Throws bad_value for no ids, and for one outside the vocabulary.
void check_ids(std::string_view name, std::span<const std::int64_t> ids, std::int64_t vocabulary);
// The text. Throws bad_file for a token that the model has no embedding of: files of two models lie side by side.
Encoding embedded(Encoding text, const Tokenizer& tokenizer, const ModelInfo& info);
Encoding encoded(const Tokenizer& tokenizer, std::string_view text, const ModelInfo& info);
// Throws bad_value in the name of the function that asked, of encoders. argument: "caches: ", where that one asks it.
void check_decoder(const ModelInfo& info, std::string_view asked, std::string_view argument = {});
// Throws bad_value in the name of the analysis that asked, of a model that rounds the rows its layers read: what it
// computes is no longer the sum of its parts, nor has it the gradient that they say.
void check_exact(const ModelInfo& info, std::string_view asked);
// Throws bad_value for NaN or infinity in hidden states [N,E].
void check_finite(const Tensor& hidden);
// The mean of rows [begin, end) of hidden states [N,E], scaled to length 1.
std::vector<double> mean_direction(const Tensor& hidden, std::int64_t begin, std::int64_t end);
// The output layer. Throws bad_value in the name of the function that asked, for encoders and bare decoders.
const Output& output_of(const Model::Parts& parts, std::string_view asked);
// A layer of the model, or of its encoder.
LayerParts parts_of_layer(const Model::Parts& parts, std::size_t n, bool encoder = false);
// The norm behind an encoder-decoder's encoder, where it has one.
std::optional<Norm> last_norm_of_encoder(const Model::Parts& parts);
// How embed() makes vectors of hidden states. Throws what embed() does where the folder's files can't be followed.
const SentenceModules& sentence_modules(const Model::Parts& parts);

}  // namespace models

}  // namespace attend::inline v1
