// A model run on a text, with the results that the command, Python and the pages need.
//
//     const attend::Model model = attend::Model::load("smollm2");
//     const attend::ModelText text{.ids = attend::encode(model, "The capital of France is").ids};
//     const attend::Pass pass = attend::run(model, text, {.next = 5});
//     for (const attend::NextToken& next : pass.next) fmt::print("{} {:.3f}\n", next.token, next.probability);
//
// Functions throw what Model::forward() and attend/analysis.h throw, and bad_file if the model has no tokenizer.
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

namespace attend::inline v1 {

struct ATTEND_API TextOptions {
  std::optional<std::string> second = {};  // the second text of a pair
  bool special = true;                     // add the tokens that the model expects around a text
  bool chat = false;                       // treat the text as a user's message in the model's chat template
};
ATTEND_API Encoding encode(const Model& model, std::string_view text, const TextOptions& options = {});
// Throws bad_file if the tokenizer has more tokens than the model embeds. path: the model's name in the message.
ATTEND_API void check_tokenizer(const Model& model, std::string_view path);

// A model's input.
struct ATTEND_API ModelText {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> types = {};        // BERT's token_type_ids; empty: all 0
  std::vector<std::int64_t> decoder_ids = {};  // for an encoder-decoder, whose ids are the encoder's

  // The ids that answers follow.
  const std::vector<std::int64_t>& answering() const { return decoder_ids.empty() ? ids : decoder_ids; }
};
// The decoder's first ids in an encoder-decoder, {ModelInfo::start}; empty for other models. Throws bad_value if
// config.json does not give the start.
ATTEND_API std::vector<std::int64_t> first_decoder_ids(const ModelInfo& info);

struct ATTEND_API NextToken {
  std::int64_t id = 0;
  std::string token;  // as text; empty if unknown to the tokenizer
  double probability = 0;
};
// The `count` likeliest tokens by softmax(logits [vocabulary]), descending (ties: lower id first).
ATTEND_API std::vector<NextToken> likeliest(const Model& model, const View& logits, std::int64_t count);

// The cosine of two vectors of any shape; 0 if one has length 0. Throws bad_shape for different counts.
ATTEND_API double cosine(const View& a, const View& b);

// Approximate bytes of a recording of a text with that many tokens.
ATTEND_API std::int64_t recording_bytes(const ModelInfo& info, std::int64_t tokens, const RecordOptions& options);
// The finished recording, with the text's ids and tokens. For a generation it excludes the last token, which was not
// read. named: false leaves out the tokens, which need a tokenizer.
ATTEND_API Recording finish_recording(Recorder& recorder, const Model& model, ModelText text, bool named = true);

// What to keep of a pass: a place in one layer (negative: from the end), or without `layer` in all.
struct ATTEND_API Keep {
  ModelPlace at = ModelPlace::residual;
  std::optional<std::int64_t> layer = {};
};
// The f32 bytes that this takes for so many tokens; an encoder and its decoder count the same. Throws bad_value for a
// place that the model lacks.
ATTEND_API std::int64_t kept_bytes(const ModelInfo& info, std::span<const Keep> keep, std::int64_t tokens);

// Keeps values of passes in f32. bf16 converts exactly, so an Edit that sets them gives the same bits. Pass at() to
// ModelCall::observe. Rows of several passes over a cache follow each other.
class ATTEND_API Keeper {
 public:
  // Throws bad_value for a place that the model lacks.
  Keeper(const ModelInfo& info, std::span<const Keep> keep);
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  void at(ModelPlace place, std::int64_t layer, const View& values);
  // In the order of `keep`: [rows,columns] for one layer and for embeddings, [layers,rows,columns] for all layers; 0
  // rows for a place that no pass reached. Call once.
  std::vector<Tensor> finish();

 private:
  friend std::int64_t kept_bytes(const ModelInfo& info, std::span<const Keep> keep, std::int64_t tokens);
  class Kept;
  std::vector<Kept> kept_;
};

// Means over passes of several texts, f32, in the order of `keep`: over all tokens, [columns] or for all layers
// [layers,columns], as AblateOptions::values takes them. by_position: over texts at each position, [T,columns] or
// [layers,T,columns], T of the longest text. Throws bad_value for no texts, and what forward() throws.
ATTEND_API std::vector<Tensor> means(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                                     std::span<const Keep> keep, bool by_position = false);

// What to compute in a pass.
struct ATTEND_API PassOptions {
  std::span<const Edit> edits = {};
  std::span<const Knockout> knockouts = {};
  Recorder* recorder = nullptr;              // records the pass into Pass::recording
  std::int64_t next = 0;                     // decoders: how many likeliest next tokens
  bool vector = false;                       // encoders: Model::embed()
  bool values = false;                       // the values of each attention's keys
  std::span<const Keep> keep = {};           // values at places
  std::optional<AttributeOptions> why = {};  // its cache and decoder_ids are set by run()
  std::optional<LensOptions> lens = {};      // likewise
};

struct ATTEND_API Pass {
  Tensor hidden;                      // [N,E], as Model::forward()
  Tensor logits;                      // decoders, if `next` is asked for: [vocabulary], after the last token
  std::vector<NextToken> next = {};   // descending
  std::optional<Tensor> vector = {};  // [1,V]
  std::optional<Recording> recording = {};
  std::map<std::string, Tensor> values = {};  // f32 [1,Hkv,Tk,Dv], by the recording's layer names
  std::optional<Attribution> why = {};
  std::optional<Lens> lens = {};
  std::vector<Tensor> kept = {};  // as Keeper::finish()
};
// Runs the text through the model once. An encoder-decoder without decoder_ids runs only its encoder.
ATTEND_API Pass run(const Model& model, const ModelText& text, const PassOptions& options = {});

// Model::generate(), one token at a time.
class ATTEND_API Growth {
 public:
  // Reads the text. A recorder in options is refused.
  Growth(const Model& model, ModelText text, const GenerateOptions& options = {});
  Growth(Growth&&) noexcept;
  Growth& operator=(Growth&&) noexcept;
  ~Growth();

  struct Step {
    std::int64_t id = 0;
    bool written = true;  // part of the text; false: it ended the text
    bool ended = false;   // no token follows
  };
  // Writes `token`, or else what generate() would write, and reads it unless the text ends. Throws bad_value after the
  // end.
  Step step(std::optional<std::int64_t> token = {});

  // [1,vocabulary], f32: what the next token is chosen from; -infinity for tokens that never come.
  const Tensor& logits() const;
  // Everything read and written.
  const ModelText& text() const;
  // The ids written.
  std::span<const std::int64_t> written() const;
  // The cache of what was read.
  const ModelCache& cache() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// JSON as in docs/json.md. attend/analysis.h has that of analyses.
ATTEND_API std::string to_json(const ModelInfo& info);
ATTEND_API std::string to_json(std::span<const NextToken> next);

}  // namespace attend::inline v1
