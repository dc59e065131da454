// What a model is, and what comes next, as JSON.
#include "analysis/json.h"

#include <limits>

#include "attend/session.h"

namespace attend::inline v1 {

std::string to_json(const ModelInfo& x) {
  return text_of({{"type", x.type},
                  {"family", name_of(x.family)},
                  {"head", x.head.empty() ? Json() : Json(x.head)},
                  {"task", x.task ? Json(name_of(*x.task)) : Json()},
                  {"labels", x.labels},
                  {"layers", x.layers},
                  {"heads", x.heads},
                  {"kv_heads", x.kv_heads},
                  {"head_size", x.head_size},
                  {"embedding_size", x.embedding_size},
                  {"vocabulary", x.vocabulary},
                  {"longest", x.longest == std::numeric_limits<std::int64_t>::max() ? Json() : Json(x.longest)},
                  {"encoder_layers", x.encoder_layers},
                  {"encoder_heads", x.encoder_heads},
                  {"parameters", x.parameters},
                  {"dtype", name_of(x.dtype)},
                  {"activations", name_of(x.activations)},
                  {"formats", x.formats},
                  {"weight_bytes", x.weight_bytes}});
}

std::string to_json(std::span<const NextToken> next) {
  Json list = Json::array();
  for (const NextToken& each : next)
    list.push_back({{"id", each.id}, {"token", each.token}, {"probability", each.probability}});
  return text_of(list);
}

}  // namespace attend::inline v1
