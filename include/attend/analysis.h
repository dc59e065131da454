// What the heads and MLPs of a model do to its answer: how much of a logit each wrote, what the layers in between would
// have answered, and what changes where heads are taken out or replaced. docs/why.md tells how to read it.
//
// One sequence of ids [T]. Of an encoder-decoder ids are the encoder's text, and decoder_ids the decoder's so far,
// which begins with ModelInfo::start; positions and rows are of these. Results are f32 and the same bits for any number
// of threads. Functions throw bad_value for what Model::forward() refuses, for tokens outside the vocabulary and
// positions outside the text; attribute() but for labels, lens() and patch() for encoders and bare decoders, which
// answer with no token.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no analysis.h"
#endif

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/api.h"
#include "attend/gradient.h"
#include "attend/models.h"
#include "attend/tensor.h"
#include "attend/tokenizer.h"

namespace attend::inline v0 {

class SparseAutoencoder;  // features.h
struct JacobianLens;      // jacobian_lens.h

// The id of a text that is one token. Throws bad_value, which shows its tokens, for any other.
ATTEND_API std::int64_t single_token(const Tokenizer& tokenizer, std::string_view text);
// The id of the text behind a space, where that is one token, and another one: "Paris" goes on with a word, and "
// Paris" begins one.
ATTEND_API std::optional<std::int64_t> token_of_word(const Tokenizer& tokenizer, std::string_view text);

// ---- JSON ----

// Numbers of analyses as docs/json.md has them. A tensor is nested lists, one level for each axis; or what `tensor`
// makes of it, which is JSON too.
using TensorJson = std::function<std::string(std::string_view name, const Tensor& tensor)>;
ATTEND_API std::string to_json(const View& tensor);  // floating point or i64, of an axis or more

// ---- Why this token ----

struct ATTEND_API AttributeOptions {
  // Of logit, or of label: token and against are labels of a task's head then, as GradientOptions has them.
  GradientOf of = GradientOf::logit;
  std::optional<std::int64_t> token = {};    // whose logit is explained; none: of the likeliest
  std::optional<std::int64_t> against = {};  // the difference to this token's logit is explained
  // Of the row whose next token it is, of label that the head reads, where it reads each by itself; -1: the last.
  std::int64_t position = -1;
  // What a pass over ids, or over their beginning, has filled: it is not changed, and only what it lacks is computed.
  // It must hold these ids. Null: none.
  const ModelCache* cache = nullptr;
  std::span<const std::int64_t> types = {}, decoder_ids = {};  // as ModelCall has them
  bool neurons = false;                                        // what each hidden unit of the MLPs wrote is told too
  // What each of its features wrote is told too, of the place that it writes: a place of the stream, or what a layer's
  // attention, MLP, heads (z) or hidden units write into it.
  const SparseAutoencoder* features = nullptr;
};

// Direct effects (Elhage et al. 2021; Wang et al. 2022): what each part of the model wrote into the stream of that row,
// times the direction that the last norm, its divisor held, and the output layer read the logit from. What a part does
// through later layers is theirs. heads + cross + mlps + embedding + bias + rounding = logit.
//
// Of a label the direction goes on through the head. Its dense layer's activation f is held as a norm's divisor is:
// each unit counts with f(x) / x as it is there (DeepLIFT's rescale rule against 0, Shrikumar et al. 2017,
// arXiv:1704.02685), so that the parts sum to the logit. Of a head that reads the mean of all rows they are sums over
// these.
struct ATTEND_API Attribution {
  GradientOf of = GradientOf::logit;  // as given
  std::int64_t token = 0;
  std::optional<std::int64_t> against = {};
  std::int64_t position = 0;  // -1: of the mean of all rows
  double logit = 0;           // the model's own, before a final softcap; with `against` the difference of the two
  double capped_logit = 0;    // the same after a final softcap; without one, logit
  Tensor heads;               // [L,H,position + 1], of encoders [L,H,T]: of each head, by the token that it read
  Tensor cross;               // encoder-decoders: [L,H,Tk], of each head of the cross-attention, by the encoder's token
  Tensor mlps;                // [L]
  // With AttributeOptions::neurons: [L,F], of each hidden unit (Geva et al. 2022, arXiv:2203.14680), and [L] of the
  // MLPs' output biases, which together are mlps.
  Tensor neurons, mlp_biases;
  // With AttributeOptions::features another account of what one place holds: [features], of each, of the decoder's bias
  // (and what a skip transcoder passes by), and of what they leave out. Together they are all that the place writes:
  // of `mlp` that layer's of mlps, of `residual` all parts before that layer.
  Tensor features;
  double feature_bias = 0, feature_error = 0;
  double embedding = 0;  // of the row's own token (GPT-2: and position)
  double bias = 0;       // the attentions' output biases, the last norm's and the output layer's
  double rounding = 0;   // bf16: what rounding leaves; f32: 0
};
ATTEND_API Attribution attribute(const Model& model, std::span<const std::int64_t> ids,
                                 const AttributeOptions& options = {});
// The same of several texts, in passes of several at a time; each has its options, or all have the one. Each result has
// the bits that its text has alone. Throws bad_value for another number of options.
ATTEND_API std::vector<Attribution> attribute(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                                              std::span<const AttributeOptions> options);
ATTEND_API std::string to_json(const Attribution& attribution, const TensorJson& tensor = {});

// One of its parts.
struct ATTEND_API AttributionPart {
  enum class Kind : std::uint8_t { head, cross, mlp, embedding, bias, rounding, neuron, feature };

  Kind kind = Kind::head;
  std::int64_t layer = -1, head = -1, key = -1;  // -1: it is of none
  double value = 0;
  std::int64_t unit = -1;
};
// The `count` largest magnitudes, falling. Where neurons are there, they stand for the MLPs, whose output biases are
// among `bias` then. Features that are not 0 stand beside the parts that they are another account of.
ATTEND_API std::vector<AttributionPart> strongest_parts(const Attribution& attribution, std::int64_t count);

// What heads wrote together by reading each token, [position + 1] or [T]; with `cross` those of the cross-attention,
// [Tk].
ATTEND_API Tensor sums_by_token(const Attribution& attribution, bool cross = false);

// ---- What the layers think ----

// Of L layers and P positions: what the stream before each layer, and at last after all, would answer by the model's
// last norm and output layer (nostalgebraist 2020).
struct ATTEND_API Lens {
  Tensor ids;                // [L+1,P,top] i64, the likeliest next tokens, falling
  Tensor log_probabilities;  // [L+1,P,top]
  Tensor rank;               // [L+1,P] i64: the place, from 0, of the token that the model answers at last
};
struct ATTEND_API LensOptions {
  std::vector<std::int64_t> positions = {};  // rising, -1 is the last; empty: all
  std::int64_t top = 5;                      // at least 1, at most the vocabulary
  std::span<const std::int64_t> decoder_ids = {};
  // By its mean derivatives, where it has some: between the first layer and the last. null: as the logit lens.
  const JacobianLens* jacobian = nullptr;
};
ATTEND_API Lens lens(const Model& model, std::span<const std::int64_t> ids,
                     std::span<const std::int64_t> positions = {}, std::int64_t top = 5,
                     std::span<const std::int64_t> decoder_ids = {}, const JacobianLens* jacobian = nullptr);
// The same of several texts, in passes of several at a time; each has its options, or all have the one. Throws
// bad_value for another number of options.
ATTEND_API std::vector<Lens> lens(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                                  std::span<const LensOptions> options);
ATTEND_API std::string to_json(const Lens& lens, std::span<const std::int64_t> positions,
                               const TensorJson& tensor = {});

// ---- What if ----

// A query head by layer and number.
using Head = std::pair<std::int64_t, std::int64_t>;

// A head by the name that recordings have for it: "18.6"; of an encoder-decoder "encoder.0.self.1", "decoder.3.self.6"
// or "decoder.3.cross.6", which say the attention too. Layers and heads below 0 count from the end.
struct ATTEND_API NamedHead {
  Head head = {};
  std::optional<AttentionKind> attention = {};
};
// Throws bad_value for a text that is no such name.
ATTEND_API NamedHead head_named(std::string_view name);
// The heads of several names. attention becomes that of the names that say one. Throws bad_value for two attentions.
ATTEND_API std::vector<Head> heads_named(std::span<const std::string> names, AttentionKind& attention);

struct ATTEND_API AblateOptions {
  GradientOf of = GradientOf::logit;         // or label, as AttributeOptions has it; of all texts the same
  std::optional<std::int64_t> token = {};    // none: see rows
  std::optional<std::int64_t> against = {};  // `logit` is the difference to this token's then
  // Whose answers count, rising; -1 is the last; empty: the last one's. Of label of heads that read each row by itself.
  std::vector<std::int64_t> rows = {};
  std::vector<Head> heads = {};     // all of these at once; empty: each head of the model by itself
  Edit::Set set = Edit::Set::zero;  // what z is set to in every row: zeros, its mean over the rows, or `values`
  // Of Set::values, floating point: [L,H*Dv], as means over other texts (mean ablation), or [L,T,H*Dv], as another
  // text's z (resample ablation, Chan et al. 2022).
  FieldView values = {};
  // Heads are taken out from this row on alone, and rows before it keep what they say: another question, whose answer
  // needs what stands before the row computed once. Of decoders alone, -1: the last; none: every row.
  std::optional<std::int64_t> first_row = {};
  // With first_row: what a pass over ids, or over their beginning, has filled. It is not changed.
  const ModelCache* cache = nullptr;
  std::function<void(double)> progress = {};  // told the share that is done, from 0 to 1; may throw
  AttentionKind attention = AttentionKind::self;
  std::span<const std::int64_t> types = {}, decoder_ids = {};  // as ModelCall has them
};

// After less before (Michel et al. 2019), means over the rows. The token of a row is options.token; without it, where
// `rows` are given, the one that follows in the text, else the likeliest. [L,H]; with `heads` [1].
struct ATTEND_API Ablation {
  GradientOf of = GradientOf::logit;  // as given
  // Of labels that don't exclude each other, as of a single one, there is `logit` alone.
  Tensor logit, log_probability;
  Tensor kl;               // KL(before, after), nats
  Tensor cosine_distance;  // encoders but for labels, in place of the others: 1 - cosine of the mean hidden state
                           // before and after
  // Whose numbers these are; none: of `rows` those that follow, or of labels each row's likeliest, or an encoder's.
  std::optional<std::int64_t> token = {};
  std::optional<std::int64_t> against = {};  // as given
  std::vector<Head> heads = {};              // as given, counted from 0
  AttentionKind attention = AttentionKind::self;
};
ATTEND_API Ablation ablate(const Model& model, std::span<const std::int64_t> ids, const AblateOptions& options = {});
// The same of several texts, in passes of several at a time; each has its options, or all have the one, and the first's
// progress is told of all. Each result has the bits that its text has alone. Throws bad_value for another number of
// options.
ATTEND_API std::vector<Ablation> ablate(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                                        std::span<const AblateOptions> options);
ATTEND_API std::string to_json(const Ablation& ablation, const TensorJson& tensor = {});

struct ATTEND_API PatchOptions {
  enum class What : std::uint8_t {
    heads,     // z of a head, in all rows
    residual,  // the stream before a layer, and at last after all, at a token or a span
    q,         // the queries of a head, in all rows
    k,         // the keys of a head of the keys
    v,         // the values of one
  };

  What what = What::heads;
  // Attribution patching (Nanda 2023): nothing is taken, and what would come back is estimated, of all by one pass over
  // the clean text and one forward and back over the corrupt one: (clean - corrupt) . gradient of the difference at the
  // corrupt pass. Where q or k is taken softmax is far from linear: weights are made again with what is taken, and what
  // they change in z is weighed (AtP*, Kramar et al. 2024, arXiv:2403.00745). Caches are not read.
  bool estimate = false;
  std::int64_t position = -1;  // the row whose next token counts; -1: the last
  std::function<void(double)> progress = {};
  AttentionKind attention = AttentionKind::self;  // of residual: self or encoder, whose stream it is
  std::span<const std::int64_t> decoder_ids = {};
  // Of residual: the stream is taken at all tokens of each of these spans together, in place of each token by itself.
  std::vector<Range> spans = {};
  // Only rows from this one on are taken, -1: the last; rows before it stay the corrupt text's, which is another
  // question. What stands before it is computed once, or taken from the caches, which are not changed and hold that
  // text or its beginning. Of decoders alone; none: every row.
  std::optional<std::int64_t> first_row = {};
  const ModelCache* clean_cache = nullptr;
  const ModelCache* corrupt_cache = nullptr;
};

// "heads", "residual", "q", "k", "v"
ATTEND_API std::string_view name_of(PatchOptions::What what);

// A pass over the corrupt ids with one activation of the pass over the clean ones: what a head has in all rows, [L,H],
// of keys and values [L,Hkv]; or of the stream at one token [L+1,T - first_row] or span [L+1,spans]: (after - corrupt)
// / (clean - corrupt) of the difference of the two tokens' logits (Vig et al. 2020; Meng et al. 2022). Throws bad_value
// where the texts differ in length, or the differences don't.
struct ATTEND_API Patching {
  double clean = 0, corrupt = 0;  // the differences
  Tensor recovered;
  PatchOptions::What what = PatchOptions::What::heads;
  AttentionKind attention = AttentionKind::self;
  std::int64_t token = -1, against = -1;  // as given
  std::int64_t first_row = 0;             // counted from 0
  bool estimate = false;                  // as given
};
ATTEND_API Patching patch(const Model& model, std::span<const std::int64_t> clean_ids,
                          std::span<const std::int64_t> corrupt_ids, std::int64_t token, std::int64_t against,
                          const PatchOptions& options = {});
// The same of several pairs of texts, in passes of several at a time; each has its tokens and its options, or all have
// the one, and the first's progress is told of all. Each result has the bits that its pair has alone. Throws bad_value
// for lists of other lengths.
ATTEND_API std::vector<Patching> patch(const Model& model, std::span<const std::vector<std::int64_t>> clean,
                                       std::span<const std::vector<std::int64_t>> corrupt,
                                       std::span<const std::int64_t> tokens, std::span<const std::int64_t> against,
                                       std::span<const PatchOptions> options);
ATTEND_API std::string to_json(const Patching& patching, const TensorJson& tensor = {});

// ---- Over texts ----

// A mean over texts, and the standard error of each of its numbers: the standard deviation between the texts (n - 1)
// over the square root of n; of one text 0.
template <class Found>
struct Averaged {
  Found mean, standard_error;
  std::int64_t texts = 0;
};

// What was found of several texts. Functions throw bad_value for none, and bad_shape for results that differ in shape.
ATTEND_API Averaged<Ablation> average(std::span<const Ablation> found);
// recovered: the mean of (after - corrupt) over the mean of (clean - corrupt), so that a pair whose answers differ
// little weighs little; its standard error is that of a ratio of means (the delta method).
ATTEND_API Averaged<Patching> average(std::span<const Patching> found);
// heads: [L,H,S], by spans of tokens that each text has, in one order; without spans [L,H,1], of all tokens, and so
// cross. token, against and position are -1 where the texts' differ. Throws bad_value for spans outside a text's
// tokens.
ATTEND_API Averaged<Attribution> average(std::span<const Attribution> found,
                                         std::span<const std::vector<Range>> spans = {});

}  // namespace attend::inline v0
