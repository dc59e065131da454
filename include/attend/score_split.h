// Why a head looks where it looks, and what it reads there: a score q . k as a sum over pairs of parts of the two rows,
// and a value as a sum over parts of the key's row (Elhage et al. 2021, "A Mathematical Framework for Transformer
// Circuits").
//
//     const attend::ScoreSplit split = attend::explain_score(model, ids, {5, 3}, -1, 0);  // head 3 of layer 5
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no score_split.h"
#endif

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attend/analysis.h"
#include "attend/api.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

struct ATTEND_API ScoreOptions {
  // Softmax depends only on differences of scores. So subtract the mean score of all keys that the query sees, one
  // key's score, or nothing.
  enum class Against : std::uint8_t { mean, key, nothing };
  // query: split only the query's row, with the whole key. With Against::mean this needs no pass over all rows.
  enum class Sides : std::uint8_t { both, query };

  Against against = Against::mean;
  std::int64_t against_key = 0;  // for Against::key; negative: from the end
  Sides sides = Sides::both;
  // Earlier heads over the query's text that become one part for each token they read.
  std::span<const Head> by_token = {};
  // Decoders: filled by a pass over ids or over their beginning, and not changed. Only the two rows are computed on top
  // of it. Not used with Against::mean and Sides::both, which need all rows.
  const ModelCache* cache = nullptr;
  std::span<const std::int64_t> decoder_ids = {};  // for an encoder-decoder
  // For an encoder-decoder. self: the decoder's own. cross: keys are rows of the encoder's text. encoder: both rows
  // are.
  AttentionKind attention = AttentionKind::self;
};

// A row before a layer is a sum of parts: what each earlier head and MLP wrote, the embedding, and all biases. Norms
// (divisors held fixed) and rotary positions apply to each part. So the score is a sum over pairs of a query part and a
// key part: pairs + bias + rest = score. Rows of an encoder's text split into what the encoder's heads and MLPs wrote.
struct ATTEND_API ScoreSplit {
  std::vector<AttributionPart> parts = {};  // [A]: kind, layer, head; value: this query part with the whole key
  // [B]: the same for the key. Equal to parts except in cross-attention. Empty with Sides::query.
  std::vector<AttributionPart> key_parts = {};
  Tensor pairs;                     // [A,B]: query part a with key part b; [A,1] with Sides::query
  double bias = 0;                  // the score's own bias: T5's and MPNet's by distance
  double rest = 0;                  // what rounding leaves; nearly 0 in f32
  double score = 0;                 // scale (q . k) + bias, before a softcap, minus `against`
  double scale = 0;                 // factor of q . k
  std::int64_t query = 0, key = 0;  // rows, from 0
};

// Splits the score of head (layer, number) for two rows; negative rows count from the end. Against::mean holds z and
// mlp of all earlier layers and rows: N (H Dv + E) 4 bytes for each layer. Throws bad_value for what Model::forward()
// refuses, heads and rows that do not exist, a key hidden from the query, and by_token heads that are not earlier, or
// with a cache.
ATTEND_API ScoreSplit explain_score(const Model& model, std::span<const std::int64_t> ids, Head head,
                                    std::int64_t query, std::int64_t key, const ScoreOptions& options = {});

// The sums of pairs over the other side: for query parts [A], for key parts [B].
ATTEND_API Tensor sums_of_query(const ScoreSplit& split);
ATTEND_API Tensor sums_of_key(const ScoreSplit& split);
// score, bias, rest, parts and key_parts {kind, layer, head, key}, the sums query [A] and key [B], and pairs [A,B].
ATTEND_API std::string to_json(const ScoreSplit& split, const TensorJson& tensor = {});

struct ATTEND_API ValueOptions {
  // The direction in the residual stream, [E], along which the head's output counts. None: the direction in which the
  // answer reads it, as attribute() does with token and against (AttributeOptions).
  OptionalView direction = {};
  std::optional<std::int64_t> token = {}, against = {};
  std::int64_t position = -1;  // the row that reads the value; -1: the last
  // As in ScoreOptions; by_token heads are over the key's text. The encoder's attention needs a direction, because the
  // answer does not read it directly.
  std::span<const Head> by_token = {};
  const ModelCache* cache = nullptr;
  std::span<const std::int64_t> decoder_ids = {};
  AttentionKind attention = AttentionKind::self;
};

// A head's value at a key along a direction, as a sum of A parts of the key's row, norm divisors held fixed: parts +
// rest = value. The head's weight on the key times value is the attribute() entry.
struct ATTEND_API ValueSplit {
  std::vector<AttributionPart> parts = {};  // [A]: kind, layer, head; value: the part's share
  double rest = 0;                          // what rounding leaves
  double value = 0;
  std::int64_t key = 0, position = 0;                    // rows, from 0
  std::optional<std::int64_t> token = {}, against = {};  // if the direction is the answer's
};

// Throws bad_value for what explain_score() refuses, a key after the position in a decoder, and a missing direction if
// the model predicts no token; bad_shape and bad_dtype for a direction that is not [E] floating point.
ATTEND_API ValueSplit explain_value(const Model& model, std::span<const std::int64_t> ids, Head head, std::int64_t key,
                                    const ValueOptions& options = {});

}  // namespace attend::inline v1
