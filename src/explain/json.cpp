#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "attend/explain.h"
#include "explain/walk.h"

namespace attend::inline v1 {

namespace {

// The shortest decimal that reads back as the same f32. JSON has no NaN and no infinity: null.
void append_number(std::string& out, float value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, end);
}

// Nested lists, one for each axis. A long sentence has millions of numbers: a view for each would take most of the
// time.
void append_lists(std::string& out, const View& tensor) {
  out += '[';
  for (std::int64_t i = 0; i < tensor.size(0); ++i) {
    if (i > 0) out += ',';
    if (tensor.rank() > 1)
      append_lists(out, tensor.select(0, i));
    else
      append_number(out, tensor.data<float>()[i * tensor.strides()[0]]);
  }
  out += ']';
}

}  // namespace

std::string to_json(const Trace& trace) {
  check_text(trace);
  nlohmann::ordered_json head;
  head["schema_version"] = 1;
  head["preset"] = trace.preset.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(trace.preset);
  head["tokens"] = trace.tokens;
  head["ids"] = trace.ids;
  if (trace.embeddings_2) {
    head["tokens_2"] = trace.tokens_2;
    head["ids_2"] = trace.ids_2;
  }
  head["weights_in_out"] = trace.weights_in_out;
  std::string out = head.dump();
  out.back() = ',';
  out += "\"made\":" + made_json(trace.options) + ",\"tensors\":";
  char separator = '{';
  for (const auto& [name, tensor] : trace.tensors()) {
    out += separator;
    out += '"' + name + "\":";
    append_lists(out, tensor);
    separator = ',';
  }
  out += "}}";
  return out;
}

}  // namespace attend::inline v1
