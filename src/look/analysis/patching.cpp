// What patch() found, as a picture and as CSV.
#include "core/message.h"
#include "look/analysis/shared.h"
#include "look/csv.h"

namespace attend::inline v1 {

namespace {

using What = PatchOptions::What;

// "q 3.1": as a recording has the head, with what was taken of it; of z the name alone.
std::string taken_name(const Patching& x, const AnalysisOf& of, std::int64_t layer, std::int64_t head) {
  std::string name = name_of(of, layer, head, x.attention);
  if (x.what == What::heads) return name;
  return fmt::format("{} {}", x.what == What::q ? "q" : x.what == What::k ? "k" : "v", name);
}

// What brings something back, as a title says it.
std::string_view takers(What what) {
  switch (what) {
    case What::heads:
      return "heads that bring back";
    case What::residual:
      return "what the layers bring back";
    case What::q:
      return "heads whose queries bring back";
    case What::k:
      return "heads whose keys bring back";
    case What::v:
      return "heads whose values bring back";
  }
  return "";
}

// Those of a text from the first row that was taken.
std::vector<std::string> taken_texts(const char* function, const AnalysisOf& of, std::span<const std::int64_t> ids,
                                     const Patching& x) {
  std::vector<std::string> texts = token_texts(function, of, ids, x.first_row + x.recovered.size(1));
  texts.erase(texts.begin(), texts.begin() + static_cast<std::ptrdiff_t>(x.first_row));
  return texts;
}

// A token of both texts; where they differ, "France / Italy". Or the names of spans.
std::vector<std::string> both_texts(const char* function, const AnalysisOf& of, const Patching& x) {
  if (!of.names.empty()) return all_seen(column_texts(function, of, x.recovered.size(1)));
  std::vector<std::string> texts = all_seen(taken_texts(function, of, of.ids, x));
  if (of.corrupt.empty()) return texts;
  const std::vector<std::string> corrupt = all_seen(taken_texts(function, of, of.corrupt, x));
  for (std::size_t n = 0; n < texts.size(); ++n)
    if (corrupt[n] != texts[n]) texts[n] += " /" + corrupt[n];
  return texts;
}

}  // namespace

Picture patching_picture(const Patching& x, const AnalysisOf& of) {
  constexpr const char* function = "patching_picture";
  check_numbers(function, "recovered", x.recovered, 2);
  const bool heads = x.what != What::residual;
  HeatMap map = head_map(x.recovered);
  if (!heads) {
    map.row_axis = "layer", map.column_axis = of.names.empty() ? "tokens" : "spans";
    map.row_labels = numbers_to(x.recovered.size(0) - 1, "answer");
    map.column_labels = both_texts(function, of, x);
  }
  map.reduction = "the share of the clean text's difference of logits that comes back";
  if (x.estimate) map.reduction += ", estimated by the gradient at the corrupt text";
  map.caption = text_caption(of);
  if (!of.corrupt.empty()) {
    const auto corrupt = token_texts(function, of, of.corrupt, std::ssize(of.corrupt));
    map.caption = fmt::format("Clean: {} Corrupt: “{}”.", map.caption, caption_text(corrupt));
  }
  const std::string answer = x.token < 0 ? "the clean answer" : answer_of(of, x.token, x.against);
  const std::string what = fmt::format("{} {}{}", takers(x.what), answer, x.estimate ? ", estimated" : "");
  return picture_of(x.recovered.clone(), std::move(map), titled(of, what));
}

std::string patching_csv(const Patching& x, const AnalysisOf& of) {
  check_numbers("patching_csv", "recovered", x.recovered, 2);
  const bool heads = x.what != What::residual;
  const std::int64_t columns = x.recovered.size(1);
  const auto tokens = heads              ? std::vector<std::string>()
                      : of.names.empty() ? taken_texts("patching_csv", of, of.ids, x)
                                         : column_texts("patching_csv", of, columns);
  std::string text = heads ? "layer,head,name,recovered\n" : "layer,position,token,recovered\n";
  for (std::int64_t n = 0; n < x.recovered.count(); ++n) {
    text += fmt::format("{},{},", n / columns, (heads || !of.names.empty() ? 0 : x.first_row) + n % columns);
    text +=
        heads ? taken_name(x, of, n / columns, n % columns) : csv_cell(tokens[static_cast<std::size_t>(n % columns)]);
    text += fmt::format(",{}\n", x.recovered.data<float>()[n]);
  }
  return text;
}

}  // namespace attend::inline v1
