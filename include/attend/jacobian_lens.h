// The Jacobian lens: what the stream after a layer already means for the last one, through mean derivatives over many
// texts (Gurnee et al. 2026). The logit lens takes the identity instead.
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

namespace attend::inline v1 {

// J of layer l [E,E]: row e is the derivative of number e of the stream after the last layer (before the last norm) by
// the stream after layer l. For each row it sums over this and all later rows, then averages over rows and prompts.
struct ATTEND_API JacobianLens {
  std::vector<Tensor> jacobians = {};  // each layer but the last, [E,E], f32
  std::int64_t prompts = 0;            // how many were averaged
  std::string texts = {};  // SHA-256 of all ids and `skip`, in hexadecimal; empty: unknown, as for foreign files

  // Averages with the lens of other prompts. Throws bad_value for another model's.
  void merge(const JacobianLens& other);

  // A .safetensors file: "J.0", "J.1", ...; metadata n_prompts, d_model, source_layers and texts. Throws bad_file.
  void save(const std::filesystem::path& path) const;
  static JacobianLens load(const std::filesystem::path& path);
};

struct ATTEND_API JacobianOptions {
  std::int64_t skip = 16;   // first rows to ignore, because of attention sinks; the last is ignored too
  std::int64_t block = 32;  // numbers of E in one backward pass: affects time and memory, not the result
  std::function<void(double)> progress = {};           // called with the share done, 0 to 1; may throw
  std::function<void(const JacobianLens&)> keep = {};  // called with the lens so far after each prompt; may throw
};
// The mean over prompts. It continues from `so_far`, the lens of the first prompts, with the same bits. Throws
// bad_value for encoders and encoder-decoders, prompts of fewer than skip + 2 ids, a so_far of other prompts or another
// model, and what Model::forward() refuses. Time: E backward passes for each prompt, each about as long as forward.
// Memory: 2 L E^2 4 bytes, and for each number of a block a layer of the text. Bits: the same for any number of
// threads.
ATTEND_API JacobianLens jacobian_lens(const Model& model, std::span<const std::vector<std::int64_t>> prompts,
                                      const JacobianOptions& options = {}, JacobianLens so_far = {});

}  // namespace attend::inline v1
