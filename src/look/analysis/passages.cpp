// What passages() found, as a picture and as CSV.
#include <algorithm>
#include <limits>

#include "core/message.h"
#include "core/utf8.h"
#include "look/analysis/shared.h"
#include "look/csv.h"

namespace attend::inline v1 {

namespace {

void check_passages(const char* function, const Passages& x) {
  check_numbers(function, "estimated", x.estimated, 1);
  const std::int64_t count = x.estimated.count();
  if (std::ssize(x.spans) != count)
    fail(ErrorCode::bad_shape, function, "{} spans, expected those of {} passages", x.spans.size(), count);
  if (!x.hidden.empty()) check_numbers(function, "measured", x.measured, 1);
  if (x.measured.count() != std::ssize(x.hidden))
    fail(ErrorCode::bad_shape, function, "measured has {} numbers, expected those of {} hidden passages",
         x.measured.count(), x.hidden.size());
  for (const std::int64_t n : x.hidden)
    if (n < 0 || n >= count)
      fail(ErrorCode::bad_value, function, "passage {} was hidden, expected one of {}", n, count);
}

std::string on_one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  text.erase(0, text.find_first_not_of(' '));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string text_of(const Range& span, std::span<const std::int64_t> ids, const AnalysisOf& of) {
  if (std::ssize(ids) < span.end) return fmt::format("tokens {} to {}", span.begin, span.end);
  const std::span own =
      ids.subspan(static_cast<std::size_t>(span.begin), static_cast<std::size_t>(span.end - span.begin));
  const bool known =
      of.tokenizer && std::ranges::all_of(own, [&](std::int64_t id) { return of.tokenizer->text(id).has_value(); });
  if (known) return on_one_line(of.tokenizer->decode(own, false));
  return fmt::format("{}", fmt::join(own, " "));
}

// NaN: it was not hidden.
std::vector<float> measured_of(const Passages& x) {
  std::vector<float> all(x.spans.size(), std::numeric_limits<float>::quiet_NaN());
  for (std::size_t n = 0; n < x.hidden.size(); ++n)
    all[static_cast<std::size_t>(x.hidden[n])] = x.measured.data<float>()[n];
  return all;
}

}  // namespace

std::vector<std::string> passage_texts(const Passages& x, const AnalysisOf& of) {
  if (!of.names.empty()) return column_texts("passage_texts", of, std::ssize(x.spans));
  std::vector<std::string> texts;
  texts.reserve(x.spans.size());
  for (const Range& span : x.spans)
    texts.push_back(text_of(span, of.encoder_ids.empty() ? of.ids : of.encoder_ids, of));
  return texts;
}

Picture passages_picture(const Passages& x, const AnalysisOf& of) {
  constexpr const char* function = "passages_picture";
  constexpr int columns = 48;
  check_passages(function, x);
  const std::int64_t count = x.estimated.count();
  const bool both = !x.hidden.empty();
  Tensor values({count, both ? 2 : 1});
  const std::vector<float> measured = measured_of(x);
  for (std::int64_t n = 0; n < count; ++n) {
    float* row = values.data<float>() + n * values.size(1);
    row[0] = x.estimated.data<float>()[n];
    if (both) row[1] = measured[static_cast<std::size_t>(n)];
  }
  HeatMap map = head_map(values);
  map.row_axis = "passages", map.column_axis = "what each gave";
  map.column_labels = {"estimated"};
  if (both) map.column_labels.emplace_back("measured");
  for (const std::string& text : passage_texts(x, of))
    map.row_labels.push_back(encode_utf8(fit_to_columns(decode_utf8(text, {function, "passage"}), columns)));
  map.nan_is_hidden = true;
  const std::string what = x.token ? answer_of(of, *x.token, x.against) : "the answer";
  map.caption = fmt::format("The number is {:.2f}.", x.value);
  if (both)
    map.caption += fmt::format(" Measured: what it loses where later rows can't see the passage ({} of {}).",
                               x.hidden.size(), count);
  if (both && std::ssize(x.hidden) < count) map.caption += " Hatched, the legend's “hidden”: not measured.";
  return picture_of(std::move(values), std::move(map), titled(of, fmt::format("which passages make {}", what)));
}

std::string passages_csv(const Passages& x, const AnalysisOf& of) {
  check_passages("passages_csv", x);
  std::string text = "passage,begin,end,text,estimated,measured\n";
  const std::vector<std::string> texts = passage_texts(x, of);
  const std::vector<float> measured = measured_of(x);
  for (std::size_t n = 0; n < texts.size(); ++n) {
    const std::string own = measured[n] == measured[n] ? fmt::format("{}", measured[n]) : "";
    text += fmt::format("{},{},{},{},{},{}\n", n, x.spans[n].begin, x.spans[n].end, csv_cell(texts[n]),
                        x.estimated.data<float>()[n], own);
  }
  return text;
}

}  // namespace attend::inline v1
