// What heads and MLPs do to a model's answer: how much of a logit each wrote, what each layer would answer, and what
// changes when heads are removed or replaced. docs/why.md explains how to read the results.
//
//     const attend::Attribution why = attend::attribute(model, ids);
//     for (const attend::AttributionPart& part : attend::strongest_parts(why, 5)) ...
//
// ids [T] are one sequence. For an encoder-decoder they are the encoder's text, and decoder_ids, which begin with
// ModelInfo::start, are the decoder's text; positions and rows then count in decoder_ids. Results are f32, with the
// same bits for any number of threads. Functions throw bad_value for what Model::forward() refuses, for tokens outside
// the vocabulary and positions outside the text. attribute() (except for labels), lens() and patch() also throw it for
// encoders and decoders without an output layer.
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

namespace attend::inline v1 {

class SparseAutoencoder;  // features.h
struct JacobianLens;      // jacobian_lens.h

// The id of a text that is a single token. Throws bad_value for others, and shows their tokens.
ATTEND_API std::int64_t single_token(const Tokenizer& tokenizer, std::string_view text);
// The id of the text with a space before it, which begins a word where the text alone continues one. None unless that
// is a single token and a different one.
ATTEND_API std::optional<std::int64_t> token_of_word(const Tokenizer& tokenizer, std::string_view text);

// Writes a tensor in the JSON of docs/json.md. Without it a tensor is nested lists, one level for each axis.
using TensorJson = std::function<std::string(std::string_view name, const Tensor& tensor)>;
ATTEND_API std::string to_json(const View& tensor);  // floating point or i64, at least one axis

struct ATTEND_API AttributeOptions {
  // logit or label. For label, token and against are labels of a task's head, as in GradientOptions.
  GradientOf of = GradientOf::logit;
  std::optional<std::int64_t> token = {};    // explain this token's logit; none: the likeliest
  std::optional<std::int64_t> against = {};  // explain the difference to this token's logit
  // The row whose next token is explained; for label the row that the head reads, if it reads rows singly. -1: the
  // last.
  std::int64_t position = -1;
  // Filled by a pass over ids or over their beginning. It is not changed, and only missing rows are computed. Null:
  // none.
  const ModelCache* cache = nullptr;
  std::span<const std::int64_t> types = {}, decoder_ids = {};  // as in ModelCall
  bool neurons = false;                                        // also give what each hidden unit of the MLPs wrote
  // Also give what each feature wrote at the place that the autoencoder writes: a place of the stream, or what a
  // layer's attention, MLP, heads (z) or hidden units write into it.
  const SparseAutoencoder* features = nullptr;
};

// Direct effects (Elhage et al. 2021; Wang et al. 2022): what each part of the model wrote into the residual stream of
// one row, times the direction in which the last norm (its divisor held fixed) and the output layer read the logit.
// Effects through later layers belong to those layers. heads + cross + mlps + embedding + bias + rounding = logit.
//
// For a label the direction continues through the task's head. Its dense layer's activation f is held fixed too: each
// unit counts with f(x) / x (DeepLIFT's rescale rule against 0, Shrikumar et al. 2017, arXiv:1704.02685), so the parts
// sum to the logit. If the head reads the mean of all rows, the parts are sums over rows.
struct ATTEND_API Attribution {
  GradientOf of = GradientOf::logit;  // as given
  std::int64_t token = 0;
  std::optional<std::int64_t> against = {};
  std::int64_t position = 0;  // -1: the mean of all rows
  double logit = 0;           // the model's own, before a final softcap; with `against` a difference
  double capped_logit = 0;    // after a final softcap, if there is one
  Tensor heads;               // [L,H,position + 1], encoders [L,H,T]: each head, by the token it read
  Tensor cross;               // encoder-decoders: [L,H,Tk], each cross-attention head, by the encoder's token
  Tensor mlps;                // [L]
  // With AttributeOptions::neurons: each hidden unit [L,F] (Geva et al. 2022, arXiv:2203.14680), and the MLPs' output
  // biases [L]. Together they sum to mlps.
  Tensor neurons, mlp_biases;
  // With AttributeOptions::features: another account of what one place writes. [features] for each feature,
  // feature_bias for the decoder's bias (and what a skip transcoder passes on), feature_error for the remainder.
  // Together they sum to what the place writes: at `mlp` that layer's entry in mlps, at `residual` all parts before
  // that layer.
  Tensor features;
  double feature_bias = 0, feature_error = 0;
  double embedding = 0;  // the row's own token (GPT-2: and position)
  double bias = 0;       // output biases of attention, last norm's and output layer's biases
  double rounding = 0;   // bf16: what rounding leaves; f32: 0
};
ATTEND_API Attribution attribute(const Model& model, std::span<const std::int64_t> ids,
                                 const AttributeOptions& options = {});
// The same for several texts, several in each pass. Give options for each text or one for all. Each result has the bits
// of its text alone. Throws bad_value for another number of options.
ATTEND_API std::vector<Attribution> attribute(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                                              std::span<const AttributeOptions> options);
ATTEND_API std::string to_json(const Attribution& attribution, const TensorJson& tensor = {});

// One part of an Attribution.
struct ATTEND_API AttributionPart {
  enum class Kind : std::uint8_t { head, cross, mlp, embedding, bias, rounding, neuron, feature };

  Kind kind = Kind::head;
  std::int64_t layer = -1, head = -1, key = -1;  // -1: not applicable
  double value = 0;
  std::int64_t unit = -1;
};
// The `count` parts of largest magnitude, descending. If neurons are there they replace the MLPs, whose output biases
// move to `bias`. Non-zero features are listed beside the parts that they also account for.
ATTEND_API std::vector<AttributionPart> strongest_parts(const Attribution& attribution, std::int64_t count);

// Sums over heads by the token they read: [position + 1] or [T]; `cross`: over cross-attention heads, [Tk].
ATTEND_API Tensor sums_by_token(const Attribution& attribution, bool cross = false);

// What the stream before each of L layers, and after the last, would answer through the last norm and output layer, at
// P positions (the logit lens, nostalgebraist 2020).
struct ATTEND_API Lens {
  Tensor ids;                // [L+1,P,top] i64, likeliest next tokens, descending
  Tensor log_probabilities;  // [L+1,P,top]
  Tensor rank;               // [L+1,P] i64: rank, from 0, of the token that the model finally answers
};
struct ATTEND_API LensOptions {
  std::vector<std::int64_t> positions = {};  // ascending, -1 is the last; empty: all
  std::int64_t top = 5;                      // 1 to the size of the vocabulary
  std::span<const std::int64_t> decoder_ids = {};
  // Use its mean derivatives for the layers that it has. Null: the plain logit lens.
  const JacobianLens* jacobian = nullptr;
};
ATTEND_API Lens lens(const Model& model, std::span<const std::int64_t> ids,
                     std::span<const std::int64_t> positions = {}, std::int64_t top = 5,
                     std::span<const std::int64_t> decoder_ids = {}, const JacobianLens* jacobian = nullptr);
// The same for several texts, several in each pass. Give options for each text or one for all. Throws bad_value for
// another number of options.
ATTEND_API std::vector<Lens> lens(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                                  std::span<const LensOptions> options);
ATTEND_API std::string to_json(const Lens& lens, std::span<const std::int64_t> positions,
                               const TensorJson& tensor = {});

// A query head: layer, number.
using Head = std::pair<std::int64_t, std::int64_t>;

// A head by its name in recordings: "18.6"; for an encoder-decoder "encoder.0.self.1", "decoder.3.self.6" or
// "decoder.3.cross.6", which also gives the attention. Negative layers and heads count from the end.
struct ATTEND_API NamedHead {
  Head head = {};
  std::optional<AttentionKind> attention = {};
};
// Throws bad_value for any other text.
ATTEND_API NamedHead head_named(std::string_view name);
// Several names. Sets attention if a name gives one. Throws bad_value if names give two different ones.
ATTEND_API std::vector<Head> heads_named(std::span<const std::string> names, AttentionKind& attention);

struct ATTEND_API AblateOptions {
  GradientOf of = GradientOf::logit;         // or label, as in AttributeOptions; the same for all texts
  std::optional<std::int64_t> token = {};    // none: see rows
  std::optional<std::int64_t> against = {};  // `logit` is then the difference to this token's
  // Rows whose answers count, ascending, -1 is the last; empty: the last. For label: only heads that read rows singly.
  std::vector<std::int64_t> rows = {};
  std::vector<Head> heads = {};     // remove all of these at once; empty: each head of the model in turn
  Edit::Set set = Edit::Set::zero;  // what z becomes in every row: zeros, its mean over the rows, or `values`
  // For Set::values, floating point: [L,H*Dv], such as means over other texts (mean ablation), or [L,T,H*Dv], another
  // text's z (resample ablation, Chan et al. 2022).
  FieldView values = {};
  // Remove heads only from this row on, and leave earlier rows as they are; these are then computed once. That asks a
  // different question. Decoders only; -1: the last; none: every row.
  std::optional<std::int64_t> first_row = {};
  // With first_row: filled by a pass over ids or over their beginning; not changed.
  const ModelCache* cache = nullptr;
  std::function<void(double)> progress = {};  // called with the share done, 0 to 1; may throw
  AttentionKind attention = AttentionKind::self;
  std::span<const std::int64_t> types = {}, decoder_ids = {};  // as in ModelCall
};

// After minus before (Michel et al. 2019), means over the rows: [L,H], with `heads` [1]. A row's token is
// options.token. Without it: the next token of the text if rows are given, else the likeliest.
struct ATTEND_API Ablation {
  GradientOf of = GradientOf::logit;  // as given
  // Labels that don't exclude each other, or a single label, have only `logit`.
  Tensor logit, log_probability;
  Tensor kl;  // KL(before, after), nats
  // encoders without a label, instead of the others: 1 - cosine of the mean hidden state before and after
  Tensor cosine_distance;
  // The token or label measured. None: with rows each row's next token (or likeliest label), or an encoder's result.
  std::optional<std::int64_t> token = {};
  std::optional<std::int64_t> against = {};  // as given
  std::vector<Head> heads = {};              // as given, counted from 0
  AttentionKind attention = AttentionKind::self;
};
ATTEND_API Ablation ablate(const Model& model, std::span<const std::int64_t> ids, const AblateOptions& options = {});
// The same for several texts, several in each pass. Give options for each text or one for all; the first's progress is
// called for all. Each result has the bits of its text alone. Throws bad_value for another number of options.
ATTEND_API std::vector<Ablation> ablate(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                                        std::span<const AblateOptions> options);
ATTEND_API std::string to_json(const Ablation& ablation, const TensorJson& tensor = {});

struct ATTEND_API PatchOptions {
  enum class What : std::uint8_t {
    heads,     // z of a head, in all rows
    residual,  // the stream before each layer and after the last, at a token or span
    q,         // a head's queries, in all rows
    k,         // a key head's keys
    v,         // a key head's values
  };

  What what = What::heads;
  // Estimate all results from one clean pass and one corrupt pass forward and back (attribution patching, Nanda 2023):
  // (clean - corrupt) . gradient of the logit difference at the corrupt pass. For q and k, where softmax is far from
  // linear, weights are recomputed with the taken values and their change in z is used (AtP*, Kramar et al. 2024,
  // arXiv:2403.00745). Caches are not read.
  bool estimate = false;
  std::int64_t position = -1;  // the row whose next token counts; -1: the last
  std::function<void(double)> progress = {};
  AttentionKind attention = AttentionKind::self;  // residual: self or encoder, whose stream it is
  std::span<const std::int64_t> decoder_ids = {};
  // residual: take all tokens of each span together, instead of each token alone.
  std::vector<Range> spans = {};
  // Take only rows from here on; earlier rows stay the corrupt text's, which asks a different question. They are
  // computed once, or read from the caches, which hold their text or its beginning and are not changed. Decoders only;
  // -1: the last; none: every row.
  std::optional<std::int64_t> first_row = {};
  const ModelCache* clean_cache = nullptr;
  const ModelCache* corrupt_cache = nullptr;
};

// "heads", "residual", "q", "k", "v"
ATTEND_API std::string_view name_of(PatchOptions::What what);

// Activation patching (Vig et al. 2020; Meng et al. 2022): runs the corrupt ids with one activation taken from the
// clean pass. recovered is (after - corrupt) / (clean - corrupt) of the two tokens' logit difference. Its shape is
// [L,H] for heads and queries, [L,Hkv] for keys and values, [L+1,T - first_row] for the stream at tokens, [L+1,spans]
// at spans. Throws bad_value if the texts differ in length, or if their logit differences are equal.
struct ATTEND_API Patching {
  double clean = 0, corrupt = 0;  // the logit differences
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
// The same for several pairs, several in each pass. Each pair has its tokens; give options for each pair or one for
// all, and the first's progress is called for all. Each result has the bits of its pair alone. Throws bad_value for
// lists of other lengths.
ATTEND_API std::vector<Patching> patch(const Model& model, std::span<const std::vector<std::int64_t>> clean,
                                       std::span<const std::vector<std::int64_t>> corrupt,
                                       std::span<const std::int64_t> tokens, std::span<const std::int64_t> against,
                                       std::span<const PatchOptions> options);
ATTEND_API std::string to_json(const Patching& patching, const TensorJson& tensor = {});

// A mean over texts with the standard error of each number: the standard deviation between texts (n - 1) over sqrt(n).
// For one text it is 0.
template <class Found>
struct Averaged {
  Found mean, standard_error;
  std::int64_t texts = 0;
};

// The mean of several results. Throws bad_value for none, bad_shape if their shapes differ.
ATTEND_API Averaged<Ablation> average(std::span<const Ablation> found);
// recovered is mean(after - corrupt) / mean(clean - corrupt), so a pair with nearly equal answers weighs little. Its
// standard error is that of a ratio of means (delta method).
ATTEND_API Averaged<Patching> average(std::span<const Patching> found);
// heads and cross become [L,H,S], by spans of tokens in one order for all texts; without spans [L,H,1], all tokens.
// token, against and position are -1 if they differ between texts. Throws bad_value for spans outside a text.
ATTEND_API Averaged<Attribution> average(std::span<const Attribution> found,
                                         std::span<const std::vector<Range>> spans = {});

}  // namespace attend::inline v1
