#include "look/analysis/shared.h"

#include <algorithm>
#include <array>

#include "attend/error.h"
#include "core/message.h"

namespace attend::inline v1 {

std::string token_text(const AnalysisOf& of, std::int64_t id) {
  const std::optional<std::string> text = of.tokenizer != nullptr ? of.tokenizer->text(id) : std::nullopt;
  return text ? *text : fmt::format("{}", id);
}

std::vector<std::string> token_texts(const char* function, const AnalysisOf& of, std::span<const std::int64_t> ids,
                                     std::int64_t count) {
  if (!ids.empty() && std::ssize(ids) < count)
    fail(ErrorCode::bad_shape, function, "{} ids, expected those of {} tokens", ids.size(), count);
  std::vector<std::string> texts;
  texts.reserve(static_cast<std::size_t>(count));
  std::vector<std::optional<std::string>> known(static_cast<std::size_t>(count));
  if (!ids.empty() && of.tokenizer != nullptr) known = of.tokenizer->texts(ids.first(known.size()));
  for (std::size_t n = 0; n < known.size(); ++n)
    texts.push_back(known[n] ? *known[n] : fmt::format("{}", ids.empty() ? static_cast<std::int64_t>(n) : ids[n]));
  return texts;
}

std::vector<std::string> column_texts(const char* function, const AnalysisOf& of, std::int64_t count) {
  if (of.names.empty()) return token_texts(function, of, of.ids, count);
  if (std::ssize(of.names) != count)
    fail(ErrorCode::bad_shape, function, "{} names, expected those of {} spans", of.names.size(), count);
  return {of.names.begin(), of.names.end()};
}

void check_numbers(const char* function, const char* name, const View& x, int rank, DType dtype) {
  if (x.dtype() != dtype) fail(ErrorCode::bad_dtype, function, "{} is {}, expected {}", name, x.dtype(), dtype);
  if (x.rank() != rank || x.count() == 0)
    fail(ErrorCode::bad_shape, function, "{} has shape {}, expected {} axes, and none of them empty", name, x.shape(),
         rank);
}

std::string seen(std::string_view token) {
  std::string shown;
  const bool blank = token.find_first_not_of(' ') == std::string_view::npos;
  for (const char c : token) {
    if (c == '\n' || c == '\r')
      shown += "↵";
    else if (c == '\t')
      shown += "⇥";
    else if (c == ' ' && blank)
      shown += "␣";
    else
      shown += c;
  }
  return shown;
}

// As a recording has it.
std::string name_of(const AnalysisOf& of, std::int64_t layer, std::int64_t head, AttentionKind attention) {
  if (of.encoder_ids.empty()) return head_name(fmt::format("{}.self", layer), head);
  const char* stack = attention == AttentionKind::encoder ? "encoder" : "decoder";
  return head_name(fmt::format("{}.{}.{}", stack, layer, attention == AttentionKind::cross ? "cross" : "self"), head);
}

// ---- Pictures ----

std::string titled(const AnalysisOf& of, const std::string& what) {
  if (of.title) return *of.title;
  return of.model.empty() ? what : fmt::format("{}: {}", of.model, what);
}

std::string in_quotes(const AnalysisOf& of, std::int64_t token) {
  std::string text = seen(token_text(of, token));
  for (std::size_t at = 0; (at = text.find(' ', at)) != std::string::npos;) text.replace(at, 1, "\u00a0");
  return "“" + text + "”";
}

std::string answer_of(const AnalysisOf& of, std::int64_t token, const std::optional<std::int64_t>& against) {
  if (token < 0) return "the answers";  // an average over texts with different ones
  const auto quoted = [&](std::int64_t n) {
    return n < std::ssize(of.labels) ? fmt::format("“{}”", of.labels[static_cast<std::size_t>(n)]) : in_quotes(of, n);
  };
  std::string text = quoted(token);
  if (against) text += *against < 0 ? ", not others" : fmt::format(", not {}", quoted(*against));
  return text;
}

std::string text_caption(const AnalysisOf& of) {
  if (of.ids.empty()) return "";
  const auto tokens = token_texts("", of, of.ids, std::ssize(of.ids));
  return fmt::format("“{}”, {} tokens.", caption_text(tokens), tokens.size());
}

std::vector<std::string> all_seen(std::vector<std::string> texts) {
  std::ranges::transform(texts, texts.begin(), seen);
  return texts;
}

std::vector<std::string> numbers_to(std::int64_t count, std::string_view last) {
  std::vector<std::string> labels;
  for (std::int64_t n = 0; n < count; ++n) labels.push_back(fmt::format("{}", n));
  if (!last.empty()) labels.emplace_back(last);
  return labels;
}

HeatMap head_map(const View& values) {
  HeatMap map;
  map.values = values;
  map.row_axis = "layers", map.column_axis = "heads";
  map.scale = PictureScale::diverging;
  map.wide = true;
  return map;
}

Picture picture_of(Tensor values, HeatMap map, std::string title) {
  Picture picture;
  picture.numbers.push_back(std::move(values));
  map.values = picture.numbers[0];
  HeatMaps& drawn = picture.drawing.emplace<HeatMaps>();
  drawn.title = std::move(title);
  drawn.maps.push_back(std::move(map));
  return picture;
}

}  // namespace attend::inline v1
