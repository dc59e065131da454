#include "cli/run_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/attention_options.h"
#include "cli/command.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

// ---- The command line ----

MapSize parse_map(const std::string& text) {
  const auto sizes = parse_whole_numbers(text);
  if (sizes && sizes->size() == 2 && std::ranges::min(*sizes) >= 1) return {sizes->front(), sizes->back()};
  throw UsageError(
      fmt::format("--map: expected ROWS,COLUMNS, two whole numbers of at least 1 such as 64,64, got '{}'", text));
}

// A number, or nothing where there is no text; none where the text is anything else.
bool parse_side(std::string_view text, std::optional<std::int64_t>& side) {
  if (text.empty()) return true;
  const auto numbers = parse_whole_numbers(text);
  if (!numbers || numbers->size() != 1 || numbers->front() < 0) return false;
  side = numbers->front();
  return true;
}

std::optional<Slice> parse_slice(std::string_view text) {
  const std::size_t colon = text.find(':');
  std::optional<std::int64_t> begin, end;
  if (colon == std::string_view::npos || !parse_side(text.substr(0, colon), begin) ||
      !parse_side(text.substr(colon + 1), end))
    return std::nullopt;
  return Slice{begin.value_or(0), end};
}

std::string text_of(const Slice& slice) {
  return fmt::format("{}:{}", slice.begin, slice.end ? fmt::format("{}", *slice.end) : "");
}

std::pair<Slice, Slice> parse_part(const std::string& text) {
  const std::size_t comma = std::min(text.find(','), text.size());
  const auto rows = parse_slice(std::string_view(text).substr(0, comma));
  const auto columns = comma < text.size() ? parse_slice(std::string_view(text).substr(comma + 1)) : std::nullopt;
  if (!rows || !columns)
    throw UsageError(
        fmt::format("--weights: expected ROWS,COLUMNS, two ranges such as 0:10,90:100 or :,5: (counted "
                    "from 0, without their ends), got '{}'",
                    text));
  for (const Slice& slice : {*rows, *columns})
    if (slice.end && *slice.end <= slice.begin)
      throw UsageError(fmt::format("--weights: {} is empty: expected an end after the beginning", text_of(slice)));
  return {*rows, *columns};
}

// ---- The part ----

// None where there is no such axis: the library says so.
std::optional<Range> resolve(const Slice& slice, const View& tensor) {
  if (tensor.rank() < 2) return std::nullopt;
  return Range{slice.begin, slice.end.value_or(tensor.size(-2))};
}

void check_slice(const Slice& slice, const char* name, const View& tensor) {
  const std::optional<Range> range = resolve(slice, tensor);
  if (!range) return;
  const std::int64_t size = tensor.size(-2);
  if (range->end > size || (range->begin > 0 && range->begin >= size))
    throw UsageError(fmt::format("--weights: {} reaches beyond the {} {}", text_of(slice), size, name));
}

// ---- The table ----

struct Peak {
  std::int64_t key = -1;
  double lift = 0;
};

// The first of the largest, of the keys that uniform attention would give at least half of what it gives one on
// average: the few queries that see a causal model's last keys give them a hundred times as much in any head that looks
// nearby. None where the numbers are NaN.
Peak largest(const double* received, const double* lift, std::int64_t keys) {
  double uniform = 0;
  std::int64_t seen = 0;
  for (std::int64_t j = 0; j < keys; ++j)
    if (lift[j] > 0) uniform += received[j] / lift[j], ++seen;
  Peak peak;
  for (std::int64_t j = 0; j < keys; ++j)
    if (lift[j] > peak.lift && 2 * received[j] / lift[j] * static_cast<double>(seen) >= uniform) peak = {j, lift[j]};
  return peak;
}

std::vector<std::string> row_of(const HeadScores& s, const Peak& peak) {
  const auto key = [](std::int64_t j) { return j < 0 ? "-" : fmt::format("{}", j); };
  return {fmt::format("{}", s.batch),
          fmt::format("{}", s.head),
          fmt::format("{:.3f}", s.entropy),
          fmt::format("{:.1f}", s.effective_keys),
          s.distance ? fmt::format("{:.1f}", *s.distance) : "-",
          s.sink ? fmt::format("{:.3f}", *s.sink) : "-",
          key(s.sink_key),
          peak.key < 0 ? "-" : fmt::format("{:.2f}", peak.lift),
          key(peak.key),
          s.label_text()};
}

// Their names.
std::string statistics_of_rows_and_keys() {
  std::vector<std::string_view> names;
  for (const SummaryStatistic& statistic : summary_statistics())
    if (statistic.shape != SummaryStatistic::Shape::map) names.push_back(statistic.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void add_inside(App& app, InsideArguments& arguments) {
  app.add_flag(
      "--summary", arguments.summary,
      fmt::format(
          "Also write what attend::attention_summary() finds, before dropout: {}. Without V, write only this. Without "
          "-o, print a line for each head instead: its mean entropy, mean number of keys attended to and mean "
          "distance, the keys with the largest mean weight (sink) and the largest lift, and its labels",
          statistics_of_rows_and_keys()));
  whole_number(
      app.add_option("--top", arguments.top, "How many of each row's largest weights --summary writes (default: 8)"),
      0);
  app.add_option("--map", arguments.map,
                 "With --summary: also write map and map_max, the weights in R x C blocks. R is at most the number of "
                 "queries, C at most the number of keys")
      ->type_name("R,C");
  app.add_option("--weights", arguments.weights,
                 "Also write the exact weights of these queries and keys, such as 0:10,90:100 or :,5: (counted from 0, "
                 "end not included; before dropout). Without V, write only these")
      ->type_name("ROWS,COLUMNS");
}

InsideOptions parse_inside(const InsideArguments& arguments) {
  if (arguments.top && !arguments.summary) throw UsageError("--top: nothing uses it without --summary");
  if (!arguments.map.empty() && !arguments.summary) throw UsageError("--map: nothing uses it without --summary");
  InsideOptions inside{.summary = arguments.summary};
  if (arguments.top) inside.top = *arguments.top;
  if (!arguments.map.empty()) inside.map = parse_map(arguments.map);
  if (!arguments.weights.empty()) inside.weights = parse_part(arguments.weights);
  return inside;
}

void check_part(const InsideOptions& inside, const View& q, const View& k) {
  if (!inside.weights) return;
  check_slice(inside.weights->first, "queries", q);
  check_slice(inside.weights->second, "keys", k);
}

NamedViews Inside::named() const {
  NamedViews named;
  for (const SummaryStatistic& statistic : summary_statistics()) {
    const Tensor* found = summary ? statistic.in(*summary) : nullptr;
    // Where none were asked for, top keys would be columns of nothing.
    const bool none = statistic.shape == SummaryStatistic::Shape::top && found && found->size(-1) == 0;
    if (found && !none) named.emplace_back(statistic.name, *found);
  }
  if (weights) named.emplace_back("weights", *weights);
  return named;
}

Inside look_inside(const InsideOptions& inside, const View& q, const View& k, const AttentionOptions& options,
                   const AttentionResult* result) {
  std::optional<View> lse, lse_low;
  if (result) lse = result->lse;
  if (result && result->lse_low) lse_low = *result->lse_low;
  Inside found;
  Progress progress;
  if (inside.summary) {
    const SummaryOptions wanted{.lse_low = lse_low, .top = inside.top, .map = inside.map, .progress = progress.stage()};
    found.summary = attention_summary(q, k, lse, options, wanted);
  }
  if (inside.weights) {
    const auto& [queries, keys] = *inside.weights;
    found.weights = attention_weights(q, k, lse, options,
                                      {.lse_low = lse_low, .queries = resolve(queries, q), .keys = resolve(keys, k)});
  }
  return found;
}

std::string head_table(const View& q, const View& k, const AttentionOptions& options) {
  Progress progress;
  const AttentionSummary summary = attention_summary(q, k, {}, options, {.top = 0, .progress = progress.stage(0, 0.5)});
  const std::vector<HeadScores> heads = head_scores(q, k, {}, options);
  const Tensor received = summary.received.view().to(DType::f64), lift = summary.lift.view().to(DType::f64);
  const std::int64_t keys = k.size(-2);
  std::vector<Column> columns = {{"batch"}, {"head"},   {"entropy"}, {"keys"},   {"distance"},
                                 {"sink"},  {"at key"}, {"lift"},    {"at key"}, {"labels", true}};
  for (std::int64_t n = 0; n < std::ssize(heads); ++n) {
    const Peak peak = largest(received.data<double>() + n * keys, lift.data<double>() + n * keys, keys);
    add_line(columns, row_of(heads[static_cast<std::size_t>(n)], peak));
  }
  if (heads.empty() || heads.back().batch == 0) columns.erase(columns.begin());
  return fmt::format("q {}  k {}  {}\n  {}\n", q.shape().str(), k.shape().str(), name_of(q.dtype()),
                     fmt::join(lines_of(columns), "\n  "));
}

}  // namespace attend::cli
