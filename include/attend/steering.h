// A direction in the stream of a model that makes it say more of one thing: added after each layer while it writes
// (Turner et al. 2023, arXiv:2308.10248; Rimsky et al. 2023, arXiv:2312.06681).
//
//   const attend::Steering calm = attend::make_steering(model, pairs).scaled(0.8);
//   const std::vector<attend::Edit> edits = calm.edits();
//   model.generate("The meeting was", {.edits = edits});
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

namespace attend::inline v0 {

// llama.cpp's control vector. Layers count as there: what belongs to layer n is added to that layer's output, which is
// the stream before layer n + 1 (ModelPlace::residual). Layer 0 can't have one there, and so has none here.
struct ATTEND_API Steering {
  std::map<std::int64_t, Tensor> directions;  // [E], f32, by layer from 1 to ModelInfo::layers - 1
  std::string model;                          // the type of the model that they are of: "llama"

  // So many times it. Throws bad_value for a scale that is not finite.
  Steering scaled(double scale) const;
  // What adds the directions to every row: edits of all tokens, whose values are this one's memory.
  std::vector<Edit> edits() const;

  // A GGUF file of the architecture "controlvector", as llama.cpp's cvector-generator writes it. Throws bad_file, also
  // for a file that is none.
  void save(const std::filesystem::path& path) const;
  static Steering load(const std::filesystem::path& path);
};

struct ATTEND_API SteeringOptions {
  enum class Method : std::uint8_t {
    mean,       // of the differences of the two texts' streams
    principal,  // their first principal component, not centred, as long as their mean is along it
  };

  Method method = Method::mean;
  std::int64_t first = 1, last = -1;          // layers, as Steering counts them; -1: the last
  std::function<void(double)> progress = {};  // told the share that is done, from 0 to 1; may throw
};

// Of pairs of texts, the first of which has what the other lacks: by the stream at each text's last token. Throws
// bad_value for no pairs, for encoders and encoder-decoders, and for layers that are not there.
using TextPair = std::pair<std::string, std::string>;
ATTEND_API Steering make_steering(const Model& model, std::span<const TextPair> pairs,
                                  const SteeringOptions& options = {});

}  // namespace attend::inline v0
