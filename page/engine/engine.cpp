// The library for the page: explain(), compiled to WebAssembly. A request and its answer are JSON in UTF-8; the numbers
// stay where they are, and the answer says at which byte of the module's memory each tensor begins.
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "attend/explain.h"
#include "attend/summary.h"
#include "core/message.h"
#include "explain/recipe.h"
#include "explain/walk.h"

namespace attend {

namespace {

using Json = nlohmann::ordered_json;

// What the page looks at, until it asks for something else.
struct Answer {
  Trace trace;
  Tensor entropy;
  std::string json;
};
Answer answer;

// Nothing is taken for what it is not: 16.5 is no size, and 1 no bool.
template <class T>
T taken(const std::string& name, const Json& value) = delete;

[[noreturn]] void refuse(const std::string& name, const char* expected, const Json& value) {
  fail(ErrorCode::bad_value, "explain", "{} is {}, expected {}", name, value.dump(), expected);
}
template <>
bool taken<bool>(const std::string& name, const Json& value) {
  if (!value.is_boolean()) refuse(name, "true or false", value);
  return value.get<bool>();
}
template <>
std::string taken<std::string>(const std::string& name, const Json& value) {
  if (!value.is_string()) refuse(name, "a text", value);
  return value.get<std::string>();
}
template <>
std::uint64_t taken<std::uint64_t>(const std::string& name, const Json& value) {
  if (!value.is_number_unsigned()) refuse(name, "a whole number from 0 to 2^64 - 1", value);
  return value.get<std::uint64_t>();
}
template <>
std::int64_t taken<std::int64_t>(const std::string& name, const Json& value) {
  const bool too_large = value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX;
  if (!value.is_number_integer() || too_large) refuse(name, "a whole number", value);
  return value.get<std::int64_t>();
}
template <>
WeightInit taken<WeightInit>(const std::string& name, const Json& value) {
  if (value == "linear") return WeightInit::linear;
  if (value == "uniform") return WeightInit::uniform;
  refuse(name, "\"linear\" or \"uniform\"", value);
}

template <class T>
void take(const std::string& name, const Json& value, T& option) {
  option = taken<T>(name, value);
}
// null: as if it were not there.
template <class T>
void take(const std::string& name, const Json& value, std::optional<T>& option) {
  if (!value.is_null()) option = taken<T>(name, value);
}

ExplainOptions options_of(Json request) {
  ExplainOptions options;
  const auto take_out = [&](const char* name, auto& option) {
    const auto at = request.find(name);
    if (at == request.end()) return;
    take(name, *at, option);
    request.erase(at);
  };
  take_out("text", options.text);
  take_out("second_text", options.second_text);
  take_out("seed", options.seed);
  take_out("embedding_size", options.embedding_size);
  take_out("d_k", options.d_k);
  take_out("d_v", options.d_v);
  take_out("heads", options.heads);
  take_out("weights", options.weights);
  take_out("causal", options.causal);
  take_out("positions", options.positions);
  take_out("scale", options.scale);
  take_out("window", options.window);
  if (!request.empty()) fail(ErrorCode::bad_value, "explain", "there is no option '{}'", request.begin().key());
  return options;
}

Trace trace_of(const Json& request) {
  if (!request.is_object()) fail(ErrorCode::bad_value, "explain", "the request is no JSON object");
  if (!request.contains("preset")) return explain(options_of(request));
  if (request.size() > 1)
    fail(ErrorCode::bad_value, "explain", "a preset is what its document says, without other options");
  return explain_preset(taken<std::string>("preset", request["preset"]));
}

Json tensor_json(const View& tensor) {
  return {{"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
          {"at", reinterpret_cast<std::uintptr_t>(tensor.raw())}};
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

std::string error_json(const char* code, std::string_view message) {
  return Json{{"error", {{"code", code}, {"message", message}}}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}
std::string error_json(const Error& error) {
  constexpr std::array names{"bad_shape", "bad_dtype", "bad_value", "bad_file", "out_of_memory", "interrupted"};
  return error_json(names[static_cast<std::size_t>(error.code())], error.what());
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
    attend::Json out = attend::Json::array();
    for (const attend::Preset& preset : attend::presets())
      out.push_back({{"name", preset.name}, {"document", preset.document}, {"summary", preset.summary}});
    return out.dump();
  }();
  return list.c_str();
}

// The names of ExplainOptions but `text`, each with what is taken for it where a request has a text alone.
const char* attend_defaults() {
  static const std::string defaults = [] {
    attend::Json out = attend::Json::parse(attend::made_json(attend::recipe_of({.text = "a"}).options));
    out.erase("text");
    return out.dump();
  }();
  return defaults.c_str();
}
}
