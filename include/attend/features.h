// Features of a place in a model: sparse autoencoders (Bricken et al. 2023; Cunningham et al. 2023, arXiv:2309.08600)
// and transcoders, which read an MLP's input and give its output (Dunefsky et al. 2024, arXiv:2406.11944), from
// SAELens' files. docs/why.md explains their use.
//
//     const attend::SparseAutoencoder sae = attend::SparseAutoencoder::load("resid_post_8");
//     const attend::Features found = attend::features(model, sae, ids);
//     for (const auto& [feature, value] : attend::strongest_features(found)) ...
//     const attend::FeatureEdit without = sae.scaled(found, 812);
//     model.forward(ids, {.edits = {{without.edit()}}});
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

namespace attend::inline v1 {

// A place in one layer.
struct ATTEND_API LayerPlace {
  ModelPlace at = ModelPlace::residual;
  std::int64_t layer = 0;  // negative: from the end
};

struct ATTEND_API SparseAutoencoderOptions {
  // Replace what the file says: where it reads, and where a transcoder writes.
  std::optional<LayerPlace> reads = {}, writes = {};
  // Subtract the mean from the stream and from what is added to it, as in models whose weights TransformerLens centred
  // (center_writing_weights, as for gpt2-small-res-jb); their LayerNorms remove the mean anyway. Default: as
  // model_from_pretrained_kwargs says, else false.
  std::optional<bool> centred = {};
};

struct Features;

// An addition at a place of a pass.
struct ATTEND_API FeatureEdit {
  LayerPlace place;
  std::optional<std::vector<std::int64_t>> rows = {};  // none: all
  Tensor values;                                       // [rows,out], or [out] for each row

  Edit edit() const;  // uses this object's memory
};

// values = activation(W_enc (x - b_dec) + b_enc); output = W_dec values + b_dec + W_skip x. Computed in f32 from
// weights of any floating-point dtype. Copies share the weights. Bits: the same for any number of threads and any other
// rows.
class ATTEND_API SparseAutoencoder {
 public:
  // A SAELens folder with cfg.json and sae_weights.safetensors. Architectures: standard, gated, jumprelu, topk,
  // transcoder, skip_transcoder, jumprelu_transcoder, jumprelu_skip_transcoder; also files of SAELens before 6, where
  // TopK has another name. Throws bad_file, naming what is missing, unexpected or of another shape, and for anything
  // that attend does not know: it never guesses.
  static SparseAutoencoder load(const std::filesystem::path& folder, const SparseAutoencoderOptions& options = {});
  // From a cfg.json's text and the tensors.
  static SparseAutoencoder of(std::string_view config, const TensorMap& weights,
                              const SparseAutoencoderOptions& options = {});

  const std::string& architecture() const;
  std::int64_t in_size() const;
  std::int64_t size() const;  // features
  std::int64_t out_size() const;
  // The places of hook_name and hook_name_out: blocks.5.hook_resid_post is `residual` of layer 6, blocks.5.mlp.hook_in
  // is `mlp_input` of layer 5. None: not in the file. An autoencoder writes where it reads.
  const std::optional<LayerPlace>& reads() const;
  const std::optional<LayerPlace>& writes() const;
  // Whether it reads mlp_input before the weight of an RMSNorm: TransformerLens' ln2.hook_normalized.
  bool reads_before_weight() const;
  bool transcoder() const;
  bool centred() const;

  // x [N,in] -> [N,size], f32. Throws bad_shape, bad_dtype; bad_value for NaN and infinity.
  Tensor encode(const View& x) const;
  // values [N,size] -> [N,out], f32. x [N,in], the input of encode(), is needed by skip transcoders and
  // normalize_activations (which restores each row's size); without it they throw bad_value.
  Tensor decode(const View& values, const std::optional<View>& x = {}) const;
  // The output for 1 of a feature, [out]. Throws bad_value.
  Tensor direction(std::int64_t feature) const;

  // Multiplies a feature by `factor` in each row of the pass seen by features() (0 removes it), or sets its value.
  // Throws bad_value for a feature that does not exist, and if writes() is none.
  FeatureEdit scaled(const Features& found, std::int64_t feature, double factor = 0) const;
  FeatureEdit set_to(const Features& found, std::int64_t feature, double value) const;
  // Adds this much of a feature to every row.
  FeatureEdit added(std::int64_t feature, double value) const;

  // Its source: the text of cfg.json, and the tensors in f32.
  const std::string& config() const;
  const TensorMap& weights() const;

  struct State;  // internal

 private:
  friend struct SparseAutoencoderAccess;
  explicit SparseAutoencoder(std::shared_ptr<const State> state);

  std::shared_ptr<const State> state_;
};

// For the N rows of a pass, f32.
struct ATTEND_API Features {
  Tensor activations;     // [N,size]
  Tensor reconstruction;  // [N,out]: what they decode to
  Tensor error;           // [N,out]: the place's values minus reconstruction, rounded once
  Tensor scales;          // [N]: factor of normalize_activations on a row's decoded features; else 1
};
// The features in a pass over ids. call: as for forward(), with edits and caches. Throws bad_value if the model lacks
// the place, bad_shape if its size differs.
ATTEND_API Features features(const Model& model, const SparseAutoencoder& autoencoder,
                             std::span<const std::int64_t> ids, const ModelCall& call = {});

struct ATTEND_API FeatureValue {
  std::int64_t feature = 0;
  float value = 0;
};
// A row's largest non-zero features, descending. row: -1 is the last.
ATTEND_API std::vector<FeatureValue> strongest_features(const Features& found, std::int64_t row = -1,
                                                        std::int64_t count = 10);

}  // namespace attend::inline v1
