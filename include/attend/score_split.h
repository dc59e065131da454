// Why a head looks where it looks: a score, q . k of one query and one key, as a sum over pairs of what the two rows
// are made of; and what it reads there: its value, as a sum over what the key's row is made of (Elhage et al. 2021, "A
// Mathematical Framework for Transformer Circuits").
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

namespace attend::inline v0 {

struct ATTEND_API ScoreOptions {
  // Softmax sees differences of scores alone: less the mean of those of all keys that the query sees, or that of one
  // key, or less nothing.
  enum class Against : std::uint8_t { mean, key, nothing };
  // query: of the query's row alone, with the whole key. Against the mean that needs no pass over all rows.
  enum class Sides : std::uint8_t { both, query };

  Against against = Against::mean;
  std::int64_t against_key = 0;  // of Against::key; below 0: from the end
  Sides sides = Sides::both;
  // Earlier heads, of the query's text, which are a part for each token that they read.
  std::span<const Head> by_token = {};
  // Of decoders: what a pass over ids, or over their beginning, has filled. The rows that are looked at are computed on
  // what it has before them, and no others; against the mean those of both sides are all, and it is not used. It is
  // not changed.
  const ModelCache* cache = nullptr;
  std::span<const std::int64_t> decoder_ids = {};  // of an encoder-decoder
  // Of an encoder-decoder: its decoder's own, where the decoder reads the encoder's text, whose rows the keys are, or
  // the encoder's own, whose rows both are.
  AttentionKind attention = AttentionKind::self;
};

// What stands before a layer in a row is the sum of parts: what each earlier head and MLP wrote, the embedding, and
// all biases. Each norm divides as it does there, and rotary positions turn as they do. So the score is a sum over
// pairs of a part of the query's row and one of the key's:
//   pairs + bias + rest = score
// A row of an encoder's text, which a decoder reads, is a sum of what the encoder's heads and MLPs wrote.
struct ATTEND_API ScoreSplit {
  std::vector<AttributionPart> parts = {};  // [A]: kind, layer, head; value: of the query's part with the whole key
  // [B]: likewise of the key's; the same ones but in a cross-attention. Empty with Sides::query.
  std::vector<AttributionPart> key_parts = {};
  Tensor pairs;                     // [A,B]: of the query's part a and the key's part b; [A,1] with Sides::query
  double bias = 0;                  // the score's own: T5's and MPNet's by distance
  double rest = 0;                  // what rounding leaves; in f32 next to nothing
  double score = 0;                 // scale (q . k), before a softcap, with the bias; less what it is against
  double scale = 0;                 // by which q . k is multiplied
  std::int64_t query = 0, key = 0;  // rows, counted from 0
};

// Of the text that ids are, head (layer, number), and rows counted from 0 or, below 0, from the end. Against the mean,
// what z and mlp are of all rows before the layer is held meanwhile: N (H Dv + E) 4 bytes for each layer. Throws
// bad_value for what Model::forward() refuses, heads and rows that are not there, a key that the query does not see,
// heads by token that do not come before the head, and those with a cache.
ATTEND_API ScoreSplit explain_score(const Model& model, std::span<const std::int64_t> ids, Head head,
                                    std::int64_t query, std::int64_t key, const ScoreOptions& options = {});

// What the parts of one side come to with all of the other side's: of the query's [A], or of the key's [B].
ATTEND_API Tensor sums_of_query(const ScoreSplit& split);
ATTEND_API Tensor sums_of_key(const ScoreSplit& split);
// score, bias, rest, parts and key_parts {kind, layer, head, key}, query [A] and key [B], these sums, and pairs [A,B].
ATTEND_API std::string to_json(const ScoreSplit& split, const TensorJson& tensor = {});

struct ATTEND_API ValueOptions {
  // Along which direction of the stream, [E], the value counts, by what the head's output makes of it. None: along
  // which the answer reads what the head writes, as attribute() has it: of these, as AttributeOptions have them.
  OptionalView direction = {};
  std::optional<std::int64_t> token = {}, against = {};
  std::int64_t position = -1;  // the row that reads the value; -1: the last
  // As ScoreOptions has them; by_token: of the key's text. The answer reads no head of an encoder: they need a
  // direction.
  std::span<const Head> by_token = {};
  const ModelCache* cache = nullptr;
  std::span<const std::int64_t> decoder_ids = {};
  AttentionKind attention = AttentionKind::self;
};

// A head's value at a key along a direction is the sum of A parts of the key's row, norms divided as they do there:
// parts + rest = value. The head's weight on the key times value is what attribute() says of it.
struct ATTEND_API ValueSplit {
  std::vector<AttributionPart> parts = {};  // [A]: kind, layer and head; value: what the part comes to
  double rest = 0;                          // what rounding leaves
  double value = 0;
  std::int64_t key = 0, position = 0;                    // rows, counted from 0
  std::optional<std::int64_t> token = {}, against = {};  // where the direction is the answer's
};

// Throws bad_value for what explain_score() refuses, for a key behind the position in a decoder, and without a
// direction for models that answer with no token; bad_shape and bad_dtype for a direction that is not [E] floating
// point.
ATTEND_API ValueSplit explain_value(const Model& model, std::span<const std::int64_t> ids, Head head, std::int64_t key,
                                    const ValueOptions& options = {});

}  // namespace attend::inline v0
