// --vary and --over: whether a head does in other texts what it does in one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "attend/error.h"
#include "attend/io.h"
#include "attend/variants.h"
#include "cli/command.h"
#include "cli/model.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

using Json = nlohmann::ordered_json;

// ---- The texts ----

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, '\t');) cells.push_back(cell);
  return cells;
}

// A file's lines; of a table with tabs its columns text, query, target and other.
std::vector<VariantText> texts_over(const std::string& file, const std::optional<std::string>& query) {
  std::istringstream in(read_text(file));
  std::vector<VariantText> texts;
  std::map<std::string, std::size_t> columns;
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    const std::vector<std::string> cells = cells_of(line);
    if (texts.empty() && columns.empty() && cells.size() > 1) {
      for (std::size_t n = 0; n < cells.size(); ++n) columns[cells[n]] = n;
      if (!columns.contains("text"))
        throw Failure(fmt::format(
            "{}: the first line names no column text; expected the columns text, query, target, other", file));
      continue;
    }
    const auto cell = [&](const char* name) {
      const auto found = columns.find(name);
      return found != columns.end() && found->second < cells.size() ? cells[found->second] : std::string();
    };
    texts.push_back(columns.empty() ? VariantText{.text = line}
                                    : VariantText{cell("text"), cell("query"), cell("target"), cell("other")});
  }
  if (texts.empty()) throw Failure(fmt::format("{} has no texts", file));
  for (VariantText& text : texts) {
    if (query) text.query = *query;
    if (text.query.empty()) throw UsageError("--over: needs a word, with --query or a column query");
  }
  return texts;
}

std::vector<VariantText> texts_of(const std::string& text, const ModelArguments& x) {
  if (!x.vary.over.empty()) return texts_over(x.vary.over, x.what.query);
  std::vector<VariantText> texts{{.text = text, .query = *x.what.query}};
  for (const std::string& words : x.vary.words) {
    const std::vector<std::string> varied = varied_texts(text, words);
    for (std::size_t n = 1; n < varied.size(); ++n) texts.push_back({.text = varied[n], .query = *x.what.query});
  }
  return texts;
}

// ---- In words ----

// What differs stands at the end more often than at the beginning.
std::string end_of(const std::string& text, int columns) {
  std::string shown = printable(text);
  const auto room = static_cast<std::size_t>(columns);
  if (columns_of(shown) <= room) return shown;
  while (columns_of(shown) >= room) {
    const auto next = std::find_if(shown.begin() + 1, shown.end(), [](char c) { return (c & 0xc0) != 0x80; });
    shown.erase(shown.begin(), next);
  }
  return "…" + shown;
}

bool has_claims(const Variants& x) {
  return std::ranges::all_of(x.rows, [](const VariantRow& row) { return row.target && row.other; });
}

class HeadOfTexts {
 public:
  HeadOfTexts(const Variants& x, const Head& head) : x_(x), head_(head) {}

  // "animal 0.65"
  std::string told(const VariantRow& row, const Range& tokens) const {
    std::string words;
    for (const VariantWord& word : row.words)
      if (word.tokens.begin >= tokens.begin && word.tokens.end <= tokens.end)
        words += (words.empty() ? "" : " ") + printable(word.word);
    return fmt::format("{} {:.2f}", words, given(row, head_, tokens));
  }
  std::string text(int width) const {
    const bool claims = has_claims(x_);
    std::vector<Column> columns{{.heading = "the text", .left = true}};
    for (const char* heading : claims ? std::vector{"it should", "rather than", "holds"} : std::vector{"looks most at"})
      columns.push_back({.heading = heading, .left = true});
    const int room = std::max(20, width - (claims ? 44 : 22));
    for (const VariantRow& row : x_.rows) {
      std::vector<std::string> cells{end_of(row.text, room)};
      const std::optional<VariantWord> most = top_word(row, head_);
      if (!claims) cells.push_back(most ? told(row, most->tokens) : "-");
      if (claims) {
        cells.push_back(told(row, *row.target)), cells.push_back(told(row, *row.other));
        cells.emplace_back(given(row, head_, *row.target) > given(row, head_, *row.other) ? "yes" : "no");
      }
      add_line(columns, cells);
    }
    return fmt::format("{}\n", fmt::join(lines_of(columns), "\n"));
  }

 private:
  const Variants& x_;
  Head head_;
};

std::string baseline_text(const Variants& x, bool of_all) {
  if (!has_claims(x)) return "";
  const VariantBaselines by = baselines(x);
  std::string text = fmt::format("The one of the two words that stands first would be right in {}, the nearer in {}",
                                 by.first, by.nearest);
  if (of_all) text += fmt::format(".\nIf all heads guessed, the best would be right in some {}", by.chance);
  return text + ".\n";
}

std::string heads_text(const Variants& x, std::int64_t most) {
  const Tensor held = times_held(x);
  const std::int64_t H = held.size(1);
  std::vector<std::int64_t> order(static_cast<std::size_t>(held.count()));
  for (std::size_t n = 0; n < order.size(); ++n) order[n] = static_cast<std::int64_t>(n);
  std::ranges::stable_sort(order, std::greater(), [&](std::int64_t n) { return held.data<std::int64_t>()[n]; });
  order.resize(std::min(order.size(), static_cast<std::size_t>(most)));
  std::vector<Column> columns{
      {.heading = "head", .left = true}, {.heading = "holds in"}, {.heading = "most, in the first text", .left = true}};
  for (const std::int64_t n : order) {
    const HeadOfTexts head(x, {n / H, n % H});
    const std::optional<VariantWord> word = top_word(x.rows.front(), {n / H, n % H});
    add_line(columns,
             {fmt::format("{}.{}", n / H, n % H), fmt::format("{} of {}", held.data<std::int64_t>()[n], x.rows.size()),
              word ? head.told(x.rows.front(), word->tokens) : "-"});
  }
  return fmt::format("{}\n", fmt::join(lines_of(columns), "\n"));
}

std::string words_of(const Variants& x, const std::optional<Head>& head, const AnalysisOf& of,
                     const ModelArguments& arguments) {
  const TerminalStyle style = style_of(arguments.what.form);
  const std::string query = in_quotes(*of.tokenizer, x.rows[0].ids[static_cast<std::size_t>(x.rows[0].query)]);
  if (!head) {
    const std::int64_t most = arguments.what.limit.value_or(10);
    AnalysisOf untitled = of;
    untitled.title = "";
    return fmt::format("What {} gives in each head: in how many of {} texts {}:\n", query, x.rows.size(), claim_of(x)) +
           heads_text(x, most) + baseline_text(x, true) + "\n" + *held_picture(x, untitled).terminal(style);
  }
  const std::int64_t held = times_held(x).data<std::int64_t>()[head->first * x.rows[0].weights.size(1) + head->second];
  return fmt::format("What {} gives in head {}.{}, of 1 in all:\n", query, head->first, head->second) +
         HeadOfTexts(x, *head).text(style.width) +
         fmt::format("In {} of {} texts {}.\n", held, x.rows.size(), claim_of(x)) + baseline_text(x, false);
}

// ---- Where it goes ----

std::optional<Head> head_of(const Model& model, const ModelArguments& arguments) {
  if (arguments.what.head.empty()) return std::nullopt;
  const NamedHead named = head_named(arguments.what.head);
  const ModelInfo& info = model.info();
  Head head = named.head;
  if (head.first < 0) head.first += info.layers;
  if (head.second < 0) head.second += info.heads;
  if (named.attention || head.first < 0 || head.first >= info.layers || head.second < 0 || head.second >= info.heads)
    throw UsageError(fmt::format("--head: {} has {} layers of {} heads, got {}", arguments.model, info.layers,
                                 info.heads, arguments.what.head));
  return head;
}

std::string json_of(const Variants& x, const Model& model, const std::string& name) {
  Json json = Json::parse(to_json(x));
  for (std::size_t n = 0; n < x.rows.size(); ++n) {
    Json& tokens = json["texts"][n]["tokens"] = Json::array();
    for (const std::int64_t id : x.rows[n].ids) tokens.push_back(model.tokenizer().token(id));
  }
  if (const VariantBaselines by = baselines(x); by.chance > 0)
    json["baselines"] = {{"first", by.first}, {"nearest", by.nearest}, {"chance", by.chance}};
  return json_text({{"schema_version", 1},
                    {"model", name},
                    {"info", Json::parse(to_json(model.info()))},
                    {"variants", std::move(json)}});
}

}  // namespace

void add_vary(App& app, VaryArguments& arguments) {
  app.begin_group("Whether a head does the same in other texts");
  app.add_option("--vary", arguments.words,
                 "Put other words in the place of one, as in \"tired=wide,full\". Shows what the --query word looks at "
                 "in each text, and for which heads that stays the same. May be given several times")
      ->type_name("WORD=WORDS");
  app.add_option(
         "--over", arguments.over,
         "The same for the lines of FILE, in place of TEXT. FILE may also be a table with tabs between the columns "
         "text, query (in place of --query), target and other: it shows how often a head gives target more than other")
      ->type_name("FILE");
}

void check_vary(const ModelArguments& x) {
  const std::string option = x.vary.over.empty() ? "--vary" : "--over";
  if (!x.vary.over.empty() && !x.vary.words.empty()) throw UsageError("--vary and --over can't stand together");
  if (!x.vary.over.empty() && (x.text || !x.text_file.empty()))
    throw UsageError("--over: takes its texts from the file, so TEXT and --file can't stand beside it");
  const ShowArguments& what = x.what;
  if (!x.vary.words.empty() && !what.query) throw UsageError("--vary: needs a word, with --query");
  for (const auto& [form, given] : {std::pair{"--json", what.json}, std::pair{"--csv", what.csv}})
    if (given && (!x.files.empty() || (what.json && what.csv)))
      throw UsageError(fmt::format("{} and {} can't stand together", form, x.files.empty() ? "--csv" : "-o"));
  const std::pair<const char*, bool> others[] = {{"--near", !x.near.empty()},
                                                 {"--generate", x.generate > 0},
                                                 {"--chat", x.chat},
                                                 {"--said", !x.said.empty()},
                                                 {"--steer", !x.steer.empty()},
                                                 {"--keep", !x.keep.empty()},
                                                 {"--place", !x.places.empty()},
                                                 {"--live", x.live},
                                                 {"--open", x.page.open},
                                                 {"--layer", !what.layer.empty()},
                                                 {"--strip", !what.strip.empty()},
                                                 {"--links", what.links},
                                                 {"--by", what.by != "weight"},
                                                 {"--sort", !what.sort.empty()},
                                                 {"--label", !what.label.empty()},
                                                 {"--limit", what.limit.has_value() && !what.head.empty()}};
  for (const auto& [other, given] : others)
    if (given) throw UsageError(fmt::format("{} and {} can't stand together", option, other));
  if (!x.analysis.asked().empty() || !x.analysis.why.empty())
    throw UsageError(fmt::format("{} and {} can't stand together", option,
                                 x.analysis.asked().empty() ? "--why" : x.analysis.asked().front()->option));
  for (const std::string& file : x.files)
    if (const std::string ending = ending_of(file);
        ending != ".svg" && ending != ".png" && ending != ".csv" && ending != ".json")
      throw UsageError(fmt::format("-o {}: {} goes into .svg, .png, .csv or .json", file, option));
}

void run_vary(const Model& model, const std::string& text, const ModelArguments& arguments) {
  const std::optional<Head> head = head_of(model, arguments);
  const Variants found = [&] {
    Progress progress;
    try {
      return vary(model, texts_of(text, arguments), progress.stage());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_value) throw;
      throw UsageError(fmt::format("{}: {}", arguments.vary.over.empty() ? "--vary" : "--over", error.detail()));
    }
  }();
  const AnalysisOf of{.tokenizer = &model.tokenizer(), .model = file_name(arguments.model)};
  if (arguments.what.json) return print(json_of(found, model, of.model));
  if (arguments.what.csv) return print(variants_csv(found, of));
  for (const std::string& file : arguments.files) {
    const std::string ending = ending_of(file);
    if (ending == ".json" || ending == ".csv") {
      writing([&] { write_file(file, ending == ".json" ? json_of(found, model, of.model) : variants_csv(found, of)); });
    } else {
      const Picture picture = head ? variants_picture(found, *head, of) : held_picture(found, of);
      write_picture(file, picture);
    }
    tell("attend: wrote " + file);
  }
  if (arguments.files.empty()) print(words_of(found, head, of, arguments));
}

}  // namespace attend::cli
