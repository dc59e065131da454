#include "cli/analyses.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "attend/error.h"
#include "attend/io.h"
#include "cli/attention_options.h"
#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {

std::unique_ptr<Analysis> analysis_why();
std::unique_ptr<Analysis> analysis_trace();
std::unique_ptr<Analysis> analysis_lens();
std::unique_ptr<Analysis> analysis_saliency();
std::unique_ptr<Analysis> analysis_passages();
std::unique_ptr<Analysis> analysis_without();
std::unique_ptr<Analysis> analysis_ablate();
std::unique_ptr<Analysis> analysis_patch();
std::unique_ptr<Analysis> analysis_circuit();

// In the order of the help, and of what is told.
AnalysisArguments::AnalysisArguments() {
  for (const auto& make : {analysis_why, analysis_trace, analysis_saliency, analysis_passages, analysis_lens,
                           analysis_without, analysis_ablate, analysis_patch, analysis_circuit})
    all.push_back(make());
}

std::vector<const Analysis*> AnalysisArguments::asked() const {
  std::vector<const Analysis*> found;
  for (const auto& each : all)
    if (each->asked(*this)) found.push_back(each.get());
  return found;
}

// ---- What is asked ----

namespace {

constexpr int bar_width = 20;
constexpr std::size_t most_heads = 8;  // of each sign

std::optional<std::int64_t> token_of(const char* option, const Tokenizer& tokenizer, const std::string& text) {
  if (text.empty()) return {};
  try {
    return single_token(tokenizer, text);
  } catch (const Error& error) {
    throw UsageError(fmt::format("{}: {}", option, error.detail()));
  }
}

// A screen has no room for more.
void keep_last(TokenStrip& strip) {
  constexpr std::int64_t most = 150;
  const std::int64_t count = strip.values.count(), first = count - most;
  if (first <= 0) return;
  strip.tokens.erase(strip.tokens.begin(), strip.tokens.begin() + first);
  strip.values = strip.values.slice(0, first, count);
  strip.title = fmt::format("The last {} of {} tokens:", most, count);
}

std::string drawing(const Finding& found, const Computed& x, const TerminalStyle& style) {
  AnalysisOf of = analysis_of(x);
  of.title = "";
  if (found.drawing) return found.drawing(of, style);
  Picture picture = found.picture(of);
  if (auto* stack = std::get_if<PictureStack>(&picture.drawing)) keep_last(std::get<TokenStrip>(stack->parts[0]));
  return *picture.terminal(style);
}

void check_graphs(const std::vector<const Analysis*>& asked, const std::vector<std::string>& files) {
  const bool graph = std::ranges::any_of(asked, &AnalysisKind::graph);
  for (const std::string& file : files)
    if (!graph && ending_of(file) == ".dot") throw UsageError(fmt::format("-o {}: only --circuit makes a graph", file));
}

}  // namespace

AnalysisOf analysis_of(const Computed& x) {
  AnalysisOf of{.ids = x.answering_ids(), .tokenizer = &x.tokenizer, .model = x.recording.model};
  if (x.info.encoder_decoder())
    of.encoder_ids = x.encoding.ids;
  else if (const Finding* found = pictured(x))
    of.corrupt = found->corrupt;
  return of;
}

void add_analyses(App& app, AnalysisArguments& arguments) {
  app.begin_group("Why it answers so");
  for (const auto& each : arguments.all) each->add(app, arguments);
}

void check_analyses(const AnalysisArguments& x, const ShowArguments& what, const std::vector<std::string>& files) {
  if (!x.against.empty() && x.why.empty()) throw UsageError("--against: nothing uses it without --why");
  std::vector<const Analysis*> asked = x.asked();
  if (!x.attention.empty() && std::ranges::none_of(asked, &AnalysisKind::takes_attention))
    throw UsageError("--attention: nothing uses it without --ablate, --without or --patch");
  for (const auto& each : x.all) each->check(x);
  std::ranges::stable_partition(asked, &AnalysisKind::drawn);
  const auto is_alone = std::ranges::find_if(asked, &AnalysisKind::alone);
  const auto beside = is_alone == asked.end()
                          ? is_alone
                          : std::find_if(is_alone + 1, asked.end(), [](auto* each) { return each->alone; });
  if (beside != asked.end())
    throw UsageError(fmt::format("{} and {} can't stand together", (*beside)->option, (*is_alone)->option));
  check_graphs(asked, files);
  // .json has both, and so has the terminal.
  const bool one = std::ranges::any_of(
      files, [](const std::string& file) { return ending_of(file) != ".attend" && ending_of(file) != ".json"; });
  if (!asked.empty() && asked[0]->drawn && (what.any() || what.by != "weight") && (one || what.csv))
    throw UsageError(fmt::format(
        "{}: the file holds this analysis, so options that choose heads, layers or labels can't stand beside it",
        asked[0]->option));
}

AttentionKind Question::attention() const {
  if (!computed.info.encoder_decoder() || arguments.attention == "self") return AttentionKind::self;
  return arguments.attention == "encoder" ? AttentionKind::encoder : AttentionKind::cross;
}

Question question_of(const Model& model, const Computed& x, const AnalysisArguments& arguments) {
  return {.model = model,
          .computed = x,
          .arguments = arguments,
          .token = token_of("--why", x.tokenizer, arguments.why),
          .against = token_of("--against", x.tokenizer, arguments.against)};
}

// ---- What was found ----

const Finding* pictured(const Computed& x) {
  const auto found = std::ranges::find_if(x.findings, [](const Finding& each) { return bool(each.picture); });
  return found == x.findings.end() ? nullptr : &*found;
}

std::string findings_csv(const Computed& x) {
  return printable_lines(pictured(x)->csv(analysis_of(x)));
}

void write_findings(const std::string& file, const Computed& x) {
  if (ending_of(file) == ".dot") {
    const auto graph = std::ranges::find_if(x.findings, [](const Finding& each) { return bool(each.dot); });
    return writing([&] { write_file(file, graph->dot()); });
  }
  if (ending_of(file) == ".csv") return writing([&] { write_file(file, findings_csv(x)); });
  write_picture(file, pictured(x)->picture(analysis_of(x)));
}

std::string findings_text(const Computed& x, const TerminalStyle& style) {
  std::vector<std::string> parts;
  parts.reserve(x.findings.size() + 1);
  for (const Finding& found : x.findings) parts.push_back(found.words(x));
  if (const Finding* found = pictured(x)) parts.push_back(drawing(*found, x, style));
  std::erase(parts, "");
  return fmt::format("{}", fmt::join(parts, "\n"));
}

std::string with_corrupt_ids(const std::string& json, const std::vector<std::int64_t>& corrupt) {
  nlohmann::ordered_json all = {{"corrupt_ids", corrupt}};
  all.update(nlohmann::ordered_json::parse(json));
  return json_text(all);
}

// ---- Words ----

std::string in_quotes(std::string_view token) {
  return "\"" + printable(token) + "\"";
}

std::string in_quotes(const Tokenizer& tokenizer, std::int64_t token) {
  return in_quotes(tokenizer.decode(std::array{token}, false));
}

std::string signed_lines(const std::vector<double>& values, std::size_t most,
                         const std::function<std::string(std::size_t)>& name, bool of_sum) {
  std::vector<std::pair<std::string, double>> shown;
  for (const double sign : {1.0, -1.0}) {
    std::vector<std::size_t> these;
    for (std::size_t n = 0; n < values.size(); ++n)
      if (values[n] * sign > 0) these.push_back(n);
    std::ranges::stable_sort(these, std::greater(), [&](std::size_t n) { return std::abs(values[n]); });
    these.resize(std::min(these.size(), most));
    for (const std::size_t n : these) shown.emplace_back(name(n), values[n]);
  }
  const std::string others = fmt::format("the {} others", values.size() - shown.size());
  std::size_t room = others.size();
  double largest = 0, rest = 0, size = 0;
  for (const double value : values) rest += value, size += std::abs(value);
  for (const auto& [text, value] : shown) {
    room = std::max(room, columns_of(text)), largest = std::max(largest, std::abs(value));
    rest -= value;
  }
  std::string lines;
  const int decimals = largest < 0.1 ? 4 : 2;
  const auto add = [&](const std::string& text, double value, std::string_view end) {
    lines +=
        fmt::format("  {}{}  {:+7.{}f}{}\n", text, std::string(room - columns_of(text), ' '), value, decimals, end);
  };
  for (const auto& [text, value] : shown) {
    const std::string share = of_sum ? fmt::format("  {:3.0f} %", 100 * std::abs(value) / size) : "";
    add(text, value, fmt::format("{}  {}", share, bar(std::abs(value) / largest, bar_width)));
  }
  if (of_sum && shown.size() < values.size()) add(others, rest, "");
  return lines;
}

std::string head_lines(const Tensor& values) {
  const std::int64_t H = values.size(1);
  const std::vector<double> all(values.data<float>(), values.data<float>() + values.count());
  const auto name = [&](std::size_t n) {
    const auto head = static_cast<std::int64_t>(n);
    return fmt::format("layer {}, head {}", head / H, head % H);
  };
  return signed_lines(all, most_heads, name, false);
}

}  // namespace attend::cli
