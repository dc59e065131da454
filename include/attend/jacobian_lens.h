// The Jacobian lens: what the stream after a layer already means for the stream after the last one, by the mean of the
// derivatives between the two over many texts (Gurnee et al. 2026), where the logit lens takes them for the same.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no jacobian_lens.h"
#endif

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "attend/api.h"
#include "attend/models.h"
#include "attend/tensor.h"

namespace attend::inline v0 {

// J of layer l: row e is the derivative of number e of the stream after the last layer, before the last norm, by what
// stands after layer l: of a row the sum of those of this row and of all behind, and of that a mean over the rows and
// over the prompts.
struct ATTEND_API JacobianLens {
  std::vector<Tensor> jacobians = {};  // of each layer but the last [E,E], f32
  std::int64_t prompts = 0;            // that they are means over
  std::string texts = {};  // SHA-256 of all their ids and of `skip`, in hexadecimal; empty: unknown, as of other files

  // With those of other prompts: the mean over all. Throws bad_value for those of another model.
  void merge(const JacobianLens& other);

  // A .safetensors file: "J.0", "J.1", ..., and as metadata n_prompts, d_model, source_layers and texts. Throws
  // bad_file, also for a file that is none.
  void save(const std::filesystem::path& path) const;
  static JacobianLens load(const std::filesystem::path& path);
};

struct ATTEND_API JacobianOptions {
  std::int64_t skip = 16;   // rows at the beginning that are of no mean, as attention sinks are; nor is the last row
  std::int64_t block = 32;  // so many of the E numbers go back in one pass: time and memory, and no other result
  std::function<void(double)> progress = {};           // told the share that is done, from 0 to 1; may throw
  std::function<void(const JacobianLens&)> keep = {};  // given what is there after each prompt; may throw
};
// The mean over the prompts, on from `so_far`, what the first of them gave: the same bits as without. Throws bad_value
// for encoders and encoder-decoders, for fewer than skip + 2 ids, for a so_far of other prompts or of another model,
// and for what Model::forward() refuses. Time: for each prompt E passes back, about as long as forward. Memory: 2 L E^2
// 4 bytes, and for each of a block's numbers a layer of the text. Bits: the same for any threads.
ATTEND_API JacobianLens jacobian_lens(const Model& model, std::span<const std::vector<std::int64_t>> prompts,
                                      const JacobianOptions& options = {}, JacobianLens so_far = {});

}  // namespace attend::inline v0
