// What is asked of a pass while it runs: attribute() and lens() by themselves, and with all else that run() is asked
// for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "analysis/stream.h"
#include "attend/analysis.h"
#include "models/model.h"

namespace attend::inline v1::analysis {

// Why a token comes. The pass is over ids() and decoder_ids(), with cache(), before watcher()'s eyes.
class Attributing {
 public:
  // Throws as attribute().
  Attributing(const Model& model, const Text& text, const AttributeOptions& options);
  ~Attributing();
  Attributing(const Attributing&) = delete;
  Attributing& operator=(const Attributing&) = delete;

  // Told by finish() along which direction the answer reads what stands at each place of the row.
  using Directions = std::function<void(ModelPlace place, std::int64_t layer, std::span<const double> u)>;
  void tell(Directions directions);

  models::Watcher& watcher();
  ModelCache* cache();  // null: of an encoder, which a call gives none
  // Of a pass over several texts: the row at which ids() begin.
  void begin_at(std::int64_t row);
  // What options.cache lacks of the text.
  std::span<const std::int64_t> ids() const;
  std::span<const std::int64_t> decoder_ids() const;
  // The row that is explained, of the pass's.
  std::int64_t row() const;
  // Of the pass's hidden states, and where they are known the row's logits [vocabulary], uncapped. Called once.
  Attribution finish(const Tensor& hidden, const std::optional<View>& logits = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What the layers would answer. The pass is over all of the text, before watcher()'s eyes.
class Lensing {
 public:
  // Throws as lens(). Of many positions a pass of its own finds first what the model answers at last.
  Lensing(const Model& model, const Text& text, const LensOptions& options);
  ~Lensing();
  Lensing(const Lensing&) = delete;
  Lensing& operator=(const Lensing&) = delete;

  models::Watcher& watcher();
  // Of a pass over several texts: the row at which this one begins.
  void begin_at(std::int64_t row);
  // Of the pass's hidden states. Called once.
  Lens finish(const Tensor& hidden);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attend::inline v1::analysis
