// One forward pass of a model: its inputs, its cache, and the places where it can be read or changed.
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

namespace attend::inline v1 {

// The keys and values that a decoder has computed for one sequence, in every layer. For an encoder-decoder also those
// of the encoder's text. A copy is a fork. With longrope (docs/models.md), cached keys keep the rotation they were
// stored with, even when the sequence later grows past the original length.
class ATTEND_API ModelCache {
 public:
  std::int64_t length() const { return layers_.empty() ? 0 : layers_.front().length(); }
  // tokens of the encoder's text; 0: not read yet, or no encoder
  std::int64_t encoder_length() const { return static_cast<std::int64_t>(encoder_ids_.size()); }
  // The setting of the model that made the cache. A model with another setting refuses it.
  Activations activations() const { return activations_; }
  // Throws bad_value unless 0 <= length <= this->length().
  void truncate(std::int64_t length);

 private:
  friend class Model;
  friend struct ModelAccess;
  std::vector<KvCache> layers_, cross_;          // cross_: for the encoder's text
  std::vector<std::int64_t> ids_, encoder_ids_;  // of the cached tokens
  Activations activations_ = Activations::exact;
};

// Where a forward pass can be read and changed, in the order of a layer. N: ids of the call; F: ModelInfo::mlp_size.
enum class ATTEND_API ModelPlace : std::uint8_t {
  embeddings,    // [N,ModelInfo::input_size] f32, before layer 0: the raw rows of the embedding table
  residual,      // [N,E] f32: the residual stream before the layer (BERT: after the previous layer's last norm)
  q,             // [N,H*D]: the query projection, before head norms and rotary positions
  k,             // [N,Hkv*D]: the same for keys
  v,             // [N,Hkv*Dv]: the value projection
  rotated_q,     // [N,H*D]: the queries that attention gets (q if there are no head norms or rotary positions)
  rotated_k,     // [N,Hkv*D]: the same for keys
  z,             // [N,H*Dv]: the heads' outputs side by side, before the output projection
  attention,     // [N,E]: what the layer's attention adds to the stream
  residual_mid,  // [N,E] f32: the stream before the MLP (BERT: after the norm). Parallel layers (Pythia) lack it.
  mlp_input,     // [N,E]: what the MLP reads, after its norm if it has one in front
  mlp_hidden,    // [N,F]: the MLP's hidden units after activation and gating, before the last projection
  mlp,           // [N,E]: what the MLP adds
  // An encoder-decoder's decoder has these after attention. M: ids of the encoder's text. [N,E] f32: the stream before
  // cross-attention; residual_mid comes after it.
  cross_residual,
  cross_q,          // [N,H*D]
  cross_k,          // [M,H*D], only in the call that reads the encoder's text, not over a cache that holds it
  cross_v,          // [M,H*D]
  cross_z,          // as z
  cross_attention,  // as attention
  // The encoder of an encoder-decoder comes first and has its own places, with N the number of its ids.
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
// All places in the order of the enum.
ATTEND_API std::span<const ModelPlace> model_places();

// Replaces or changes what a pass computed at a place: zeros, the mean over the rows, given values, values added, or a
// factor. Adding 0 and scaling by 1 keep the bits.
struct ATTEND_API Edit {
  enum class Set : std::uint8_t { zero, mean, values, add, scale };

  std::int64_t layer = 0;  // at residual also ModelInfo::layers: after the last layer
  ModelPlace at = ModelPlace::z;
  // At z, q, k and the like: edit this head, [rows,D]. For k and v it is a key head. None: all heads, [rows,H*D].
  std::optional<std::int64_t> head = {};
  std::optional<std::int64_t> unit = {};               // at mlp_hidden: edit this hidden unit, [rows,1]
  std::optional<std::vector<std::int64_t>> rows = {};  // ids of the call, ascending; none: all
  Set set = Set::zero;
  // For Set::values, add and scale: floating point, broadcast to [rows,columns] as in NumPy, so [columns] applies to
  // every row. The memory must outlive the call. Without values, scale uses `by` alone.
  FieldView values = {};
  double by = 1;  // add: factor of values; scale: factor
};

// Which attention. self: the model's own, or the decoder's among its own tokens. cross: the decoder's over the
// encoder's text. encoder: the encoder's.
enum class AttentionKind : std::uint8_t { self, cross, encoder };

// Hides keys from rows: softmax runs over the remaining keys, as attention() does with that mask (Geva et al. 2023,
// arXiv:2304.14767). A row that sees no key gets zeros.
struct ATTEND_API Knockout {
  // Positions in each sequence, cached ones included; negative ones count from the end. No rows: all.
  std::optional<std::vector<std::int64_t>> rows = {};
  std::vector<std::int64_t> keys = {};
  std::optional<std::int64_t> layer = {}, head = {};  // the query heads; none: all
  AttentionKind attention = AttentionKind::self;      // cross: rows are the decoder's, keys the encoder's
};

// One forward pass over one sequence, or over several concatenated sequences that don't see each other.
struct ATTEND_API ModelCall {
  // [sequences + 1]: where each sequence begins, then the end; empty: one sequence
  std::span<const std::int64_t> starts = {};
  std::span<const std::int64_t> types = {};  // BERT's token_type_ids, one for each id; empty: all 0
  // decoders: one for each sequence. It holds what came before, and gets the new tokens.
  std::span<ModelCache* const> caches = {};
  // For an encoder-decoder: the decoder's text so far, which begins with ModelInfo::start. Its sequences, as many as
  // the encoder's, begin at decoder_starts.
  std::span<const std::int64_t> decoder_ids = {}, decoder_starts = {};
  // Records each layer's attention as "0.self", "1.self", ...; for an encoder-decoder as "encoder.0.self",
  // "decoder.0.self", "decoder.0.cross", .... Takes one sequence. A recorder that grows continues over a cache.
  Recorder* recorder = nullptr;
  // Applied in this order, each when the pass reaches its place. Set::mean averages over the edited rows of each
  // sequence; it is refused for a sequence's only row over a cache, where it would change nothing.
  std::span<const Edit> edits = {};
  // Refused with a recorder, which recomputes weights from q and k.
  std::span<const Knockout> knockouts = {};
  // Called with the (edited) values at each place. Layer ModelInfo::layers, after the last one, has residual only. The
  // view is valid until the call returns.
  std::function<void(ModelPlace place, std::int64_t layer, const View& values)> observe = {};
};

}  // namespace attend::inline v1
