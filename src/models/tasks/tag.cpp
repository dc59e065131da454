// A label of each token, and spans of tokens that belong together.
#include <algorithm>
#include <utility>

#include "core/message.h"
#include "core/utf8.h"
#include "models/tasks/task_texts.h"

namespace attend::inline v1 {

namespace {

constexpr const char* tag_function = "tag";
constexpr Aggregation all_aggregations[] = {Aggregation::none, Aggregation::simple, Aggregation::first,
                                            Aggregation::max, Aggregation::average};

// A token, or a word of several, on its way into a span.
struct Part {
  std::vector<float> scores;  // of each label
  Range span;
  bool goes_on = false;  // with the word of the token before it

  std::size_t label() const { return static_cast<std::size_t>(std::ranges::max_element(scores) - scores.begin()); }
  float score() const { return scores[label()]; }
};

std::int64_t characters(std::string_view text) {
  return std::ranges::count_if(text, begins_character);
}

// Transformers' rule. A tokenizer that marks what goes on with a word writes such a token longer than its text is;
// without marks a token goes on with a word where no space stands beside its beginning.
bool goes_on(const Tokenizer& tokenizer, std::int64_t id, std::string_view text, Range span) {
  if (id == tokenizer.unknown()) return false;
  const auto begin = static_cast<std::size_t>(span.begin), end = static_cast<std::size_t>(span.end);
  if (tokenizer.continuation().empty()) {
    if (begin == 0) return false;
    const std::size_t before = begin - 1;
    return text[before] != ' ' && (begin >= text.size() || text[begin] != ' ');
  }
  return characters(tokenizer.token(id)) != characters(text.substr(begin, end - begin));
}

std::vector<Part> parts_of(const Tokenizer& tokenizer, std::string_view text, const Tagged& of) {
  const std::int64_t labels = of.scores.size(1);
  std::vector<Part> parts;
  for (std::size_t n = 0; n < of.tokens.ids.size(); ++n) {
    if (of.tokens.special[n]) continue;
    const float* row = of.scores.data<float>() + static_cast<std::int64_t>(n) * labels;
    parts.push_back(
        {{row, row + labels}, of.tokens.offsets[n], goes_on(tokenizer, of.tokens.ids[n], text, of.tokens.offsets[n])});
  }
  return parts;
}

// Words of the parts that go on with each other.
std::vector<Part> words_of(const std::vector<Part>& parts, Aggregation how) {
  std::vector<Part> words;
  for (std::size_t begin = 0, end = 0; begin < parts.size(); begin = end) {
    for (end = begin + 1; end < parts.size() && parts[end].goes_on;) ++end;
    const std::span<const Part> of = std::span(parts).subspan(begin, end - begin);
    Part word = how == Aggregation::max ? *std::ranges::max_element(of, {}, &Part::score) : of.front();
    if (how == Aggregation::average) {
      for (std::size_t l = 0; l < word.scores.size(); ++l) {
        double sum = 0;
        for (const Part& each : of) sum += static_cast<double>(each.scores[l]);
        word.scores[l] = static_cast<float>(sum / static_cast<double>(of.size()));
      }
    }
    word.span = {of.front().span.begin, of.back().span.end};
    words.push_back(std::move(word));
  }
  return words;
}

struct Name {
  bool begins = false;  // "B-": a span begins here, whatever stands before it
  std::string_view tag;
};
Name name_of(std::string_view label) {
  if (label.starts_with("B-")) return {true, label.substr(2)};
  return {false, label.starts_with("I-") ? label.substr(2) : label};
}

// What stands behind the first hyphen: "PER" of "B-PER".
std::string group_name(const std::string& label) {
  const std::size_t at = label.find('-');
  return at == std::string::npos ? label : label.substr(at + 1);
}

std::vector<Tag> grouped(const std::vector<Part>& parts, const std::vector<std::string>& labels) {
  std::vector<Tag> tags;
  for (std::size_t begin = 0, end = 0; begin < parts.size(); begin = end) {
    double sum = static_cast<double>(parts[begin].score());
    for (end = begin + 1; end < parts.size(); ++end) {
      const Name last = name_of(labels[parts[end - 1].label()]), next = name_of(labels[parts[end].label()]);
      if (next.begins || next.tag != last.tag) break;
      sum += static_cast<double>(parts[end].score());
    }
    tags.push_back({group_name(labels[parts[begin].label()]),
                    sum / static_cast<double>(end - begin),
                    {parts[begin].span.begin, parts[end - 1].span.end}});
  }
  return tags;
}

std::vector<Tag> tags_of(const Tokenizer& tokenizer, std::string_view text, const Tagged& of,
                         const std::vector<std::string>& labels, const TagOptions& options) {
  std::vector<Part> parts = parts_of(tokenizer, text, of);
  std::vector<Tag> tags;
  if (options.aggregation == Aggregation::none) {
    for (const Part& part : parts) tags.push_back({labels[part.label()], static_cast<double>(part.score()), part.span});
  } else {
    if (options.aggregation != Aggregation::simple) parts = words_of(parts, options.aggregation);
    tags = grouped(parts, labels);
  }
  std::erase_if(tags, [&](const Tag& tag) { return std::ranges::count(options.without, tag.label) > 0; });
  return tags;
}

}  // namespace

std::string_view name_of(Aggregation aggregation) {
  constexpr std::string_view names[] = {"none", "simple", "first", "max", "average"};
  if (const auto n = static_cast<std::size_t>(aggregation); n < std::size(names)) return names[n];
  fail(ErrorCode::bad_value, "name_of", "there is no aggregation {}", static_cast<int>(aggregation));
}

std::span<const Aggregation> aggregations() {
  return all_aggregations;
}

std::vector<Tagged> tag(const Model& model, std::span<const std::string_view> texts, const TagOptions& options) {
  const models::TaskRun run(tag_function, "texts", model, ModelTask::tag, options);
  const std::vector<std::string>& labels = model.info().labels;
  std::vector<Tagged> made(texts.size());
  run.run({
      .count = texts.size(),
      .bytes = [&](std::size_t n) { return texts[n].size(); },
      .tokens =
          [&](std::size_t n) {
            made[n].tokens = run.encode(n, {texts[n]}, made[n].cut);
            return models::TextTokens{made[n].tokens.ids, made[n].tokens.types, made[n].cut};
          },
      .use =
          [&](const models::TextPass& pass) {
            Tensor scores = run.head().logits(pass.hidden);
            models::apply(ScoreFunction::softmax, scores);
            for (std::size_t n = 0; n < pass.texts.size(); ++n) {
              Tagged& one = made[pass.texts[n]];
              one.scores = scores.view().slice(0, pass.starts[n], pass.starts[n + 1]).clone();
              one.tags = tags_of(run.tokenizer(), texts[pass.texts[n]], one, labels, options);
            }
          },
      .progress = options.progress,
  });
  return made;
}

std::vector<Tagged> tag(const Model& model, std::span<const std::string> texts, const TagOptions& options) {
  return tag(model, std::vector<std::string_view>(texts.begin(), texts.end()), options);
}

}  // namespace attend::inline v1
