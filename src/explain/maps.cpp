// What of a trace every form shows alike: the names of its words, its maps, which pairs are visible.
#include <map>

#include "attention/positions.h"
#include "core/message.h"
#include "core/utf8.h"
#include "explain/recipe.h"
#include "explain/walk.h"
#include "kernels/rules.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

std::string subscript(std::size_t number) {
  std::u32string out;
  for (const char digit : std::to_string(number)) out += U"₀₁₂₃₄₅₆₇₈₉"[digit - '0'];
  return encode_utf8(out);
}

}  // namespace

void check_text(const Trace& trace) {
  const auto check = [](const std::vector<std::string>& tokens, std::size_t ids, std::int64_t rows) {
    if (tokens.size() != ids || (!tokens.empty() && static_cast<std::int64_t>(tokens.size()) != rows))
      fail(ErrorCode::bad_shape, "explain", "the trace has {} words and {} ids for {} embeddings", tokens.size(), ids,
           rows);
    for (const std::string& token : tokens) decode_utf8(token, {"explain", "the trace's word"});
  };
  for (const auto& text : {trace.options.text, trace.options.second_text})
    if (text) decode_utf8(*text, {"explain", "the trace's text"});
  check(trace.tokens, trace.ids.size(), trace.embeddings.size(0));
  if (trace.embeddings_2) check(trace.tokens_2, trace.ids_2.size(), trace.embeddings_2->size(0));
}

std::string shown(const std::string& text) {
  return encode_utf8(one_line(text, {"explain", "text"}));
}

std::vector<std::string> labels_of(const std::vector<std::string>& tokens, std::int64_t count) {
  std::map<std::string_view, int> times;
  for (const std::string& token : tokens) ++times[token];
  std::vector<std::string> labels;
  for (std::size_t t = 0; t < tokens.size(); ++t)
    labels.push_back(shown(tokens[t]) + (times[tokens[t]] > 1 ? subscript(t + 1) : ""));
  for (auto t = std::ssize(labels); t < count; ++t) labels.push_back(fmt::format("x{}", t + 1));
  return labels;
}

std::pair<std::int64_t, std::int64_t> visible_keys(const Trace& trace, std::int64_t i) {
  const Window window = visible_window(attention_options(trace));
  const kernels::KeyRange keys = kernels::visible_keys(
      {.window_left = window.left, .window_right = window.right, .key_length = trace.keys.size(-2)}, i);
  return {keys.lo, keys.hi};
}

bool visible(const Trace& trace, std::int64_t i, std::int64_t j) {
  const auto [begin, end] = visible_keys(trace, i);
  return begin <= j && j < end;
}

std::pair<std::int64_t, std::int64_t> drawn_heads(const Trace& trace, const std::optional<std::int64_t>& head) {
  const std::int64_t heads = trace.multi_head() ? trace.queries.size(0) : 1;
  const std::optional<std::int64_t> one = head ? head : trace.kept_head;
  if (one) check_head(*one, heads);
  if (trace.kept_head && one != trace.kept_head)
    fail(ErrorCode::bad_value, "explain", "head is {}, the trace has kept head {} alone", *one, *trace.kept_head);
  return one ? std::pair{*one, *one + 1} : std::pair{std::int64_t{0}, heads};
}

std::vector<HeatMap> weight_maps(const Trace& trace, const std::optional<std::int64_t>& head) {
  const auto [first, end] = drawn_heads(trace, head);
  std::vector<HeatMap> maps;
  for (std::int64_t h = first; h < end; ++h) {
    HeatMap map;
    map.values = trace.multi_head() ? trace.weights.view().select(0, trace.kept_head ? 0 : h) : trace.weights.view();
    map.row_labels = labels_of(trace.tokens, map.values.size(0));
    map.column_labels = trace.embeddings_2 ? labels_of(trace.tokens_2, map.values.size(1)) : map.row_labels;
    if (trace.multi_head() && trace.queries.size(0) > 1) map.title = fmt::format("head {}", h);
    if (trace.masked()) map.visible = [&trace](std::int64_t i, std::int64_t j) { return visible(trace, i, j); };
    maps.push_back(std::move(map));
  }
  return maps;
}

std::string picture_title(const Trace& trace) {
  const std::optional<std::int64_t>& window = trace.options.window;
  return fmt::format("{}attention weights{}{}: {}",
                     trace.embeddings_2 ? "Cross-"
                     : trace.causal     ? "Causal self-"
                                        : "Self-",
                     window ? fmt::format(", window {}", *window) : "", trace.options.scale ? "" : ", not scaled",
                     trace.title);
}

}  // namespace attend::inline v1
