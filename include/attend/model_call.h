// One pass of a model: what it is given, what it keeps for the next one, and where it can be looked at and changed.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no model_call.h"
#endif

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "attend/api.h"
#include "attend/kv_cache.h"
#include "attend/quantized.h"
#include "attend/recording.h"
#include "attend/tensor.h"

namespace attend::inline v0 {

// What a decoder has computed of one sequence: keys and values of every layer, and of an encoder-decoder those of the
// encoder's text too. A copy is a fork. Of a model with
// longrope (docs/models.md), keys keep the rotation that they had when they came, also where the sequence grows beyond
// the original length.
class ATTEND_API ModelCache {
 public:
  std::int64_t length() const { return layers_.empty() ? 0 : layers_.front().length(); }
  // Tokens of the encoder's text; 0: it has not been seen, or there is no encoder.
  std::int64_t encoder_length() const { return static_cast<std::int64_t>(encoder_ids_.size()); }
  // Of the model that made it; one of another setting refuses it.
  Activations activations() const { return activations_; }
  // Throws bad_value unless 0 <= length <= this->length().
  void truncate(std::int64_t length);

 private:
  friend class Model;
  friend struct ModelAccess;
  std::vector<KvCache> layers_, cross_;          // cross_: of the encoder's text
  std::vector<std::int64_t> ids_, encoder_ids_;  // of the tokens that it holds
  Activations activations_ = Activations::exact;
};

// Where a forward pass can be looked at and changed, in the order in which each layer comes there. Of the N ids of a
// call; F is ModelInfo::mlp_size.
enum class ATTEND_API ModelPlace : std::uint8_t {
  embeddings,    // [N,ModelInfo::input_size] f32, before layer 0: the ids' rows of the table, nothing done to them yet
  residual,      // [N,E] f32: the stream before the layer (BERT: after the norm that ends the layer before)
  q,             // [N,H*D]: what the projection of the queries gives, before norms of heads and rotary positions
  k,             // [N,Hkv*D]: likewise of the keys
  v,             // [N,Hkv*Dv]: of the values
  rotated_q,     // [N,H*D]: the queries as attention gets them; without norms and rotary positions q again
  rotated_k,     // [N,Hkv*D]: the keys likewise
  z,             // [N,H*Dv]: the heads' outputs side by side, before the output projection
  attention,     // [N,E]: what the layer's attention adds to the stream
  residual_mid,  // [N,E] f32: the stream before the MLP (BERT: after the norm); where attention and MLP read the same
                 // (Pythia), there is none
  mlp_input,     // [N,E]: what the MLP reads, after its norm where it has one before it
  mlp_hidden,    // [N,F]: the MLP's hidden units after the activation and what it gates, before the last projection
  mlp,           // [N,E]: what its MLP adds
  // An encoder-decoder's decoder has more, after attention, of what it reads in the encoder's text of M ids:
  cross_residual,   // [N,E] f32: the stream before it; residual_mid is after it
  cross_q,          // [N,H*D]
  cross_k,          // [M,H*D], where the call reads the encoder's text: not over a cache that has it
  cross_v,          // [M,H*D]
  cross_z,          // as z
  cross_attention,  // as attention
  // and its encoder comes first, with places of its own; N is of the encoder's ids there:
  encoder_embeddings,
  encoder_residual,
  encoder_q,
  encoder_k,
  encoder_v,
  encoder_z,
  encoder_attention,
  encoder_residual_mid,
  encoder_mlp_input,
  encoder_mlp_hidden,
  encoder_mlp,
};
// "residual", "z", "attention", "mlp", "cross_z", ...
ATTEND_API std::string_view name_of(ModelPlace place);
// All of them, in that order.
ATTEND_API std::span<const ModelPlace> model_places();

// Something else where a pass computed one thing: zeros, the mean over the rows, given numbers, or these added to what
// is there, or times it. What is there with 0 added, or times 1, keeps its bits.
struct ATTEND_API Edit {
  enum class Set : std::uint8_t { zero, mean, values, add, scale };

  std::int64_t layer = 0;  // at residual also ModelInfo::layers: after the last
  ModelPlace at = ModelPlace::z;
  // At z, q, k and the like: of that head [rows,D]; none: all side by side [rows,H*D]. k, v: of a head of the keys.
  std::optional<std::int64_t> head = {};
  std::optional<std::int64_t> unit = {};               // at mlp_hidden: of that hidden unit [rows,1]
  std::optional<std::vector<std::int64_t>> rows = {};  // of the call's ids, rising; none: all
  Set set = Set::zero;
  // Of Set::values, add and scale: floating point, broadcast to [rows,columns] as NumPy does, so that [columns] is for
  // every row. The memory must outlive the call. Of scale without values: `by` alone.
  FieldView values = {};
  double by = 1;  // add: times values; scale: a factor
};

// Which attention: the model's own; of an encoder-decoder its decoder's among its own tokens, its decoder's in
// the encoder's text, or its encoder's.
enum class AttentionKind : std::uint8_t { self, cross, encoder };

// Rows that may not see keys: softmax is over the rest, as of attention() with that mask (Geva et al. 2023,
// arXiv:2304.14767). Rows that see no key get zeros.
struct ATTEND_API Knockout {
  // Positions in each sequence, what a cache has counted; below 0 from the end of it. rows: none: all.
  std::optional<std::vector<std::int64_t>> rows = {};
  std::vector<std::int64_t> keys = {};
  std::optional<std::int64_t> layer = {}, head = {};  // of the queries; none: all
  AttentionKind attention = AttentionKind::self;      // cross: rows are the decoder's, keys the encoder's
};

// One forward pass over one sequence, or over several that stand one after another and don't see each other.
struct ATTEND_API ModelCall {
  std::span<const std::int64_t> starts = {};  // [sequences + 1]: where each begins, and the end; empty: one sequence
  std::span<const std::int64_t> types = {};   // token_type_ids of BERT and its like, one for each id; empty: all 0
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
  // Not before a recorder's eyes: it makes weights again from q and k.
  std::span<const Knockout> knockouts = {};
  // Shown what is at each place, edited; of ModelInfo::layers, one after the last layer, the residual alone. What is
  // shown lasts until it returns.
  std::function<void(ModelPlace place, std::int64_t layer, const View& values)> observe = {};
};

}  // namespace attend::inline v0
