// What a place of a model says in features: a sparse autoencoder of it (Bricken et al. 2023; Cunningham et al. 2023,
// arXiv:2309.08600), or a transcoder, which reads what an MLP reads and says what it writes (Dunefsky et al. 2024,
// arXiv:2406.11944). Both come of SAELens' files. docs/why.md tells how to use them.
//
//   const attend::SparseAutoencoder sae = attend::SparseAutoencoder::load("resid_post_8");
//   const attend::Features found = attend::features(model, sae, ids);
//   for (const auto& [feature, value] : attend::strongest_features(found)) ...
//   const attend::FeatureEdit without = sae.scaled(found, 812);
//   model.forward(ids, {.edits = {{without.edit()}}});
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no features.h"
#endif

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/api.h"
#include "attend/models.h"
#include "attend/tensor.h"
#include "attend/tensor_files.h"

namespace attend::inline v0 {

// A place of one layer.
struct ATTEND_API LayerPlace {
  ModelPlace at = ModelPlace::residual;
  std::int64_t layer = 0;  // below 0 from the end
};

struct ATTEND_API SparseAutoencoderOptions {
  // In place of what the file says: where it reads, and where a transcoder writes.
  std::optional<LayerPlace> reads = {}, writes = {};
  // The stream, and what is added to it, is read less its mean: of a model whose weights TransformerLens has centred
  // (center_writing_weights, as of gpt2-small-res-jb). Such a model has LayerNorms, which take the mean out too.
  // Default: as model_from_pretrained_kwargs says, else false.
  std::optional<bool> centred = {};
};

struct Features;

// What adds to a place of a pass.
struct ATTEND_API FeatureEdit {
  LayerPlace place;
  std::optional<std::vector<std::int64_t>> rows = {};  // none: all
  Tensor values;                                       // [rows,out], or [out] for each row

  Edit edit() const;  // its values are this one's memory
};

// values = activation(W_enc (x - b_dec) + b_enc), and W_dec values + b_dec + W_skip x. Computed in f32, of weights of
// any floating-point dtype. Copies share the weights. Bits: the same for any number of threads and any other rows.
class ATTEND_API SparseAutoencoder {
 public:
  // A folder of SAELens: cfg.json and sae_weights.safetensors. The architectures standard, gated, jumprelu, topk,
  // transcoder, skip_transcoder, jumprelu_transcoder and jumprelu_skip_transcoder, and files of SAELens before 6, whose
  // TopK stands under another name. Throws bad_file, naming what is missing, unexpected or of another shape, and for
  // what is not known here: what is computed is never a guess.
  static SparseAutoencoder load(const std::filesystem::path& folder, const SparseAutoencoderOptions& options = {});
  // Of the text of a cfg.json and the tensors.
  static SparseAutoencoder of(std::string_view config, const TensorMap& weights,
                              const SparseAutoencoderOptions& options = {});

  const std::string& architecture() const;
  std::int64_t in_size() const;
  std::int64_t size() const;  // features
  std::int64_t out_size() const;
  // hook_name and hook_name_out as places: blocks.5.hook_resid_post is `residual` of layer 6, and blocks.5.mlp.hook_in
  // `mlp_input` of layer 5. None: the file does not say it. An autoencoder writes where it reads.
  const std::optional<LayerPlace>& reads() const;
  const std::optional<LayerPlace>& writes() const;
  // It reads mlp_input before the norm's weight, where that norm is an RMSNorm: TransformerLens' ln2.hook_normalized.
  bool reads_before_weight() const;
  bool transcoder() const;
  bool centred() const;

  // x [N,in] -> [N,size], f32. Throws bad_shape, bad_dtype; bad_value for NaN and infinity.
  Tensor encode(const View& x) const;
  // values [N,size] -> [N,out], f32. x [N,in], which they were of: a skip transcoder passes it by, and
  // normalize_activations gives each row its size back. Without x: bad_value there.
  Tensor decode(const View& values, const std::optional<View>& x = {}) const;
  // What 1 of a feature decodes to, [out]. Throws bad_value.
  Tensor direction(std::int64_t feature) const;

  // What gives a feature `factor` times its value in each row of the pass that features() saw, 0: takes it out; or
  // this value. Throws bad_value for a feature that is not there, and where writes() is none.
  FeatureEdit scaled(const Features& found, std::int64_t feature, double factor = 0) const;
  FeatureEdit set_to(const Features& found, std::int64_t feature, double value) const;
  // What adds so much of a feature to every row.
  FeatureEdit added(std::int64_t feature, double value) const;

  // What it was made of: the text of cfg.json, and the tensors, f32.
  const std::string& config() const;
  const TensorMap& weights() const;

  struct State;  // the library's own

 private:
  friend struct SparseAutoencoderAccess;
  explicit SparseAutoencoder(std::shared_ptr<const State> state);

  std::shared_ptr<const State> state_;
};

// Of the N rows of a pass, f32.
struct ATTEND_API Features {
  Tensor activations;     // [N,size]
  Tensor reconstruction;  // [N,out]: what they decode to
  Tensor error;           // [N,out]: what stands at the place less reconstruction, rounded once
  Tensor scales;          // [N]: by what normalize_activations multiplies what a row's features decode to; else 1
};
// Of a pass over ids. call: as forward() has it, edits and caches too. Throws bad_value where the model has no such
// place, bad_shape where it is of another size.
ATTEND_API Features features(const Model& model, const SparseAutoencoder& autoencoder,
                             std::span<const std::int64_t> ids, const ModelCall& call = {});

struct ATTEND_API FeatureValue {
  std::int64_t feature = 0;
  float value = 0;
};
// The largest of a row, falling, those that are not 0. row: -1 is the last.
ATTEND_API std::vector<FeatureValue> strongest_features(const Features& found, std::int64_t row = -1,
                                                        std::int64_t count = 10);

}  // namespace attend::inline v0
