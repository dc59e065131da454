// Steering vectors: directions added to the stream after each layer that make a model say more of one thing (Turner et
// al. 2023, arXiv:2308.10248; Rimsky et al. 2023, arXiv:2312.06681).
//
//     const attend::Steering calm = attend::make_steering(model, pairs).scaled(0.8);
//     const std::vector<attend::Edit> edits = calm.edits();
//     model.generate("The meeting was", {.edits = edits});
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no steering.h"
#endif

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attend/api.h"
#include "attend/models.h"

namespace attend::inline v1 {

// llama.cpp's control vector, with its numbering: the direction of layer n is added to that layer's output, the stream
// before layer n + 1 (ModelPlace::residual). As there, layer 0 has none.
struct ATTEND_API Steering {
  std::map<std::int64_t, Tensor> directions;  // [E], f32, for layers 1 to ModelInfo::layers - 1
  std::string model;                          // the model's type: "llama"

  // Multiplied by scale. Throws bad_value if scale is not finite.
  Steering scaled(double scale) const;
  // Edits that add the directions to every row; they use this object's memory.
  std::vector<Edit> edits() const;

  // A GGUF file of architecture "controlvector", as llama.cpp's cvector-generator writes it. Throws bad_file.
  void save(const std::filesystem::path& path) const;
  static Steering load(const std::filesystem::path& path);
};

struct ATTEND_API SteeringOptions {
  enum class Method : std::uint8_t {
    mean,       // mean of the differences of the two texts' streams
    principal,  // their first principal component, not centred, scaled to their mean along it
  };

  Method method = Method::mean;
  std::int64_t first = 1, last = -1;          // layers, as in Steering; -1: the last
  std::function<void(double)> progress = {};  // called with the share done, 0 to 1; may throw
};

// Two texts; the first has what the second lacks. make_steering() compares the streams at their last tokens. It throws
// bad_value for no pairs, encoders and encoder-decoders, and layers that do not exist.
using TextPair = std::pair<std::string, std::string>;
ATTEND_API Steering make_steering(const Model& model, std::span<const TextPair> pairs,
                                  const SteeringOptions& options = {});

}  // namespace attend::inline v1
