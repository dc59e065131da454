// The library for the page: explain(), compiled to WebAssembly. A request and its answer are JSON in UTF-8; the numbers
// stay where they are, and the answer says at which byte of the module's memory each tensor begins.
#include <stdexcept>

#include "attend/explain.h"
#include "attend/summary.h"
#include "explain/recipe.h"
#include "explain/walk.h"
#include "page/engine/json.h"

namespace attend {

namespace {

using page::error_json, page::Json, page::Request, page::tensor_json;

// What the page looks at, until it asks for something else.
struct Answer {
  Trace trace;
  Tensor entropy;
  std::string json;
};
Answer answer;

std::optional<WeightInit> weights_of(Request& request) {
  Json name;
  if (!request.take("weights", name) || name.is_null()) return std::nullopt;
  if (name == "linear") return WeightInit::linear;
  if (name == "uniform") return WeightInit::uniform;
  request.refuse("weights", "\"linear\" or \"uniform\"", name);
}

ExplainOptions options_of(Request request) {
  ExplainOptions options;
  request.take("text", options.text);
  request.take("second_text", options.second_text);
  request.take("seed", options.seed);
  request.take("embedding_size", options.embedding_size);
  request.take("d_k", options.d_k);
  request.take("d_v", options.d_v);
  request.take("heads", options.heads);
  options.weights = weights_of(request);
  request.take("causal", options.causal);
  request.take("positions", options.positions);
  request.take("scale", options.scale);
  request.take("window", options.window);
  request.end();
  return options;
}

Trace trace_of(const Json& json) {
  Request request("explain", json);
  if (!request.has("preset")) return explain(options_of(std::move(request)));
  if (json.size() > 1)
    fail(ErrorCode::bad_value, "explain", "a preset is what its document says, without other options");
  return explain_preset(request.need<std::string>("preset"));
}

std::vector<std::string> all_shown(const std::vector<std::string>& tokens) {
  std::vector<std::string> out;
  for (const std::string& token : tokens) out.push_back(shown(token));
  return out;
}

Json json_of(const Trace& trace, const Tensor& entropy) {
  Json tensors;
  for (const auto& [name, tensor] : trace.tensors()) tensors[name] = tensor_json(tensor);
  tensors["entropy"] = tensor_json(entropy);
  return {{"preset", trace.preset.empty() ? Json() : Json(trace.preset)},
          {"title", shown(trace.title)},
          {"made", Json::parse(made_json(trace.options))},
          {"tokens", all_shown(trace.tokens)},
          {"ids", trace.ids},
          {"tokens_2", all_shown(trace.tokens_2)},
          {"ids_2", trace.ids_2},
          {"labels", labels_of(trace.tokens, trace.embeddings.size(0))},
          {"key_labels", trace.embeddings_2 ? labels_of(trace.tokens_2, trace.embeddings_2->size(0))
                                            : labels_of(trace.tokens, trace.embeddings.size(0))},
          {"vocabulary_size", trace.vocabulary_size},
          {"focus", trace.focus},
          {"causal", trace.causal},
          {"weights_in_out", trace.weights_in_out},
          {"tensors", tensors}};
}

Tensor entropy_of(const Trace& trace) {
  return attention_summary(trace.queries, trace.keys, {}, attention_options(trace), {.top = 0}).entropy;
}

const char* explain_json(const char* request) {
  try {
    answer = {};  // the memory of the last one is free for this one
    answer.trace = trace_of(Json::parse(request));
    answer.entropy = entropy_of(answer.trace);
    answer.json = json_of(answer.trace, answer.entropy).dump();
  } catch (const Error& error) {
    answer.json = error_json(error);
  } catch (const Json::exception& error) {
    answer.json = error_json("bad_value", fmt::format("explain: the request is no JSON: {}", error.what()));
  }
  return answer.json.c_str();
}

}  // namespace

}  // namespace attend

extern "C" {

// The request: {"preset": its name}, or the names of ExplainOptions. The answer, and the tensors that it names, live
// until the next call. A failure is {"error": {"code", "message"}}.
const char* attend_explain(const char* request) {
  try {
    return attend::explain_json(request);
  } catch (const std::exception&) {  // no memory for a list or a text, or one longer than 32 bits can count
    return R"({"error":{"code":"out_of_memory","message":"explain: no memory"}})";
  }
}

// [{"name", "document", "summary"}]: what {"preset": name} takes.
const char* attend_presets() {
  static const std::string list = [] {
    attend::page::Json out = attend::Json::array();
    for (const attend::Preset& preset : attend::presets())
      out.push_back({{"name", preset.name}, {"document", preset.document}, {"summary", preset.summary}});
    return out.dump();
  }();
  return list.c_str();
}

// The names of ExplainOptions but `text`, each with what is taken for it where a request has a text alone.
const char* attend_defaults() {
  static const std::string defaults = [] {
    attend::page::Json out = attend::page::Json::parse(attend::made_json(attend::recipe_of({.text = "a"}).options));
    out.erase("text");
    return out.dump();
  }();
  return defaults.c_str();
}
}
