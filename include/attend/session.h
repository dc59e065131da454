// A model at work on a text: what the command, Python and the pages that compute ask of a model, once.
//
//   const attend::Model model = attend::Model::load("smollm2");
//   const attend::ModelText text{.ids = attend::encode(model, "The capital of France is").ids};
//   const attend::Pass pass = attend::run(model, text, {.next = 5});
//   for (const attend::NextToken& next : pass.next) fmt::print("{} {:.3f}\n", next.token, next.probability);
//
// Functions throw what Model::forward() and the functions of attend/analysis.h throw, and bad_file where the model has
// no tokenizer.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no session.h"
#endif

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/analysis.h"
#include "attend/api.h"
#include "attend/models.h"
#include "attend/recording.h"
#include "attend/tokenizer.h"

namespace attend::inline v0 {

// ---- Texts ----

struct ATTEND_API TextOptions {
  std::optional<std::string> second = {};  // the second text of a pair
  bool special = true;                     // with the tokens that the model expects around a text
  bool chat = false;                       // the text is a user's message, put as the model's chat template has it
};
ATTEND_API Encoding encode(const Model& model, std::string_view text, const TextOptions& options = {});
// Throws bad_file where the tokenizer has more tokens than the model embeds. path: what a message calls the model.
ATTEND_API void check_tokenizer(const Model& model, std::string_view path);

// What a model is given.
struct ATTEND_API ModelText {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> types = {};        // token_type_ids of BERT and those like it; empty: all 0
  std::vector<std::int64_t> decoder_ids = {};  // of an encoder-decoder, whose ids are its encoder's

  // Those that answers come after.
  const std::vector<std::int64_t>& answering() const { return decoder_ids.empty() ? ids : decoder_ids; }
};
// What an encoder-decoder's decoder has read before it says anything, {ModelInfo::start}; of other models nothing.
// Throws bad_value where config.json does not say how a decoder's text begins.
ATTEND_API std::vector<std::int64_t> first_decoder_ids(const ModelInfo& info);

// ---- One pass ----

struct ATTEND_API NextToken {
  std::int64_t id = 0;
  std::string token;  // as text; empty where the tokenizer does not know the id
  double probability = 0;
};
// The `count` likeliest of logits [vocabulary], falling, by softmax(logits); of equal ones the lower id first.
ATTEND_API std::vector<NextToken> likeliest(const Model& model, const View& logits, std::int64_t count);

// The cosine of two vectors, of any shape; 0 where one has no length. Throws bad_shape for other counts.
ATTEND_API double cosine(const View& a, const View& b);

// Bytes that a recorder takes for a text of so many tokens, about.
ATTEND_API std::int64_t recording_bytes(const ModelInfo& info, std::int64_t tokens, const RecordOptions& options);
// What a recorder recorded, with the text's ids and tokens: of a generation, whose last token was not read, without
// that. named: false leaves the tokens out, which need a tokenizer.
ATTEND_API Recording finish_recording(Recorder& recorder, const Model& model, ModelText text, bool named = true);

// What is kept of a pass: a place of one layer, below 0 counted from the end, or without `layer` of all.
struct ATTEND_API Keep {
  ModelPlace at = ModelPlace::residual;
  std::optional<std::int64_t> layer = {};
};
// f32 bytes that this takes of so many tokens, an encoder's as many as its decoder's. Throws bad_value for a place that
// the model does not have.
ATTEND_API std::int64_t kept_bytes(const ModelInfo& info, std::span<const Keep> keep, std::int64_t tokens);

// Keeps what passes compute, in f32; bf16 becomes that exactly, so that an Edit that sets it gives the pass's own bits.
// at() is ModelCall::observe; of passes over a cache, one after another, the rows follow each other.
class ATTEND_API Keeper {
 public:
  // Throws bad_value for a place that the model does not have.
  Keeper(const ModelInfo& info, std::span<const Keep> keep);
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  void at(ModelPlace place, std::int64_t layer, const View& values);
  // In the order of `keep`: [rows,columns] of a layer and of embeddings, [layers,rows,columns] of all layers; of a
  // place that no pass came to, 0 rows. Called once.
  std::vector<Tensor> finish();

 private:
  friend std::int64_t kept_bytes(const ModelInfo& info, std::span<const Keep> keep, std::int64_t tokens);
  class Kept;
  std::vector<Kept> kept_;
};

// Means of what passes over several texts compute, in the order of `keep`, f32: over all their tokens [columns], or of
// all layers [layers,columns], as AblateOptions::values take them. by_position: over the texts at each position,
// [T,columns] or [layers,T,columns], T of the longest text. Throws bad_value for no texts, and as forward().
ATTEND_API std::vector<Tensor> means(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                                     std::span<const Keep> keep, bool by_position = false);

// What is asked of a pass.
struct ATTEND_API PassOptions {
  std::span<const Edit> edits = {};
  std::span<const Knockout> knockouts = {};
  Recorder* recorder = nullptr;              // the pass is recorded: Pass::recording is what came of it
  std::int64_t next = 0;                     // decoders: how many likeliest next tokens
  bool vector = false;                       // encoders: what Model::embed() gives
  bool values = false;                       // the values of each attention's keys
  std::span<const Keep> keep = {};           // what it computes at places
  std::optional<AttributeOptions> why = {};  // its cache and decoder_ids are the pass's own
  std::optional<LensOptions> lens = {};      // likewise
};

struct ATTEND_API Pass {
  Tensor hidden;                      // [N,E], as Model::forward() gives them
  Tensor logits;                      // decoders, where next tokens were asked for: [vocabulary], after the last token
  std::vector<NextToken> next = {};   // falling
  std::optional<Tensor> vector = {};  // [1,V]
  std::optional<Recording> recording = {};
  std::map<std::string, Tensor> values = {};  // f32 [1,Hkv,Tk,Dv], by the names of a recording's layers
  std::optional<Attribution> why = {};
  std::optional<Lens> lens = {};
  std::vector<Tensor> kept = {};  // as Keeper::finish() gives it
};
// Runs the text through the model, once. An encoder-decoder without decoder_ids runs its encoder alone.
ATTEND_API Pass run(const Model& model, const ModelText& text, const PassOptions& options = {});

// ---- A text that grows ----

// What Model::generate() does, a token at a time.
class ATTEND_API Growth {
 public:
  // Reads the text; options' recorder is refused.
  Growth(const Model& model, ModelText text, const GenerateOptions& options = {});
  Growth(Growth&&) noexcept;
  Growth& operator=(Growth&&) noexcept;
  ~Growth();

  struct Step {
    std::int64_t id = 0;
    bool written = true;  // it is in the text; false: it ended it
    bool ended = false;   // no token follows
  };
  // Writes `token`, or the one that generate() would write, and reads it unless the text ends. Throws bad_value after
  // the end.
  Step step(std::optional<std::int64_t> token = {});

  // [1,vocabulary], f32: what the next token is chosen by. Tokens that never come have -infinity.
  const Tensor& logits() const;
  // All that has been read and written.
  const ModelText& text() const;
  // What was written.
  std::span<const std::int64_t> written() const;
  // Of what was read.
  const ModelCache& cache() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// ---- JSON ----

// As docs/json.md has it. What analyses found: attend/analysis.h.
ATTEND_API std::string to_json(const ModelInfo& info);
ATTEND_API std::string to_json(std::span<const NextToken> next);

}  // namespace attend::inline v0
