#include <nlohmann/json.hpp>

#include "explain/walk.h"

namespace attend::inline v1 {

std::string made_json(const ExplainOptions& options) {
  const auto optional = [](const std::optional<std::string>& text) {
    return text ? nlohmann::ordered_json(*text) : nlohmann::ordered_json();
  };
  return nlohmann::ordered_json{{"text", optional(options.text)},
                                {"second_text", optional(options.second_text)},
                                {"seed", options.seed},
                                {"embedding_size", options.embedding_size},
                                {"d_k", options.d_k},
                                {"d_v", options.d_v},
                                {"heads", options.heads},
                                {"weights", options.weights == WeightInit::linear ? "linear" : "uniform"},
                                {"causal", options.causal},
                                {"positions", options.positions},
                                {"scale", options.scale},
                                {"window", options.window ? nlohmann::ordered_json(*options.window) : nullptr}}
      .dump();
}

}  // namespace attend::inline v1
