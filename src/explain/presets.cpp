#include <algorithm>
#include <array>

#include "attend/io.h"
#include "core/message.h"
#include "explain/recipe.h"

namespace attend::inline v1 {

namespace {

// Documents 000, 002 and 004: one sentence of six words, E = 16, d_k = 24, d_v = 28.
// 002 and 004 seed the generator again before they draw the weights; 000 goes on.
Recipe life(bool reseed) {
  Recipe recipe = recipe_of(ExplainOptions{});
  recipe.reseed = reseed;
  return recipe;
}

Recipe life_multihead(bool reseed) {
  Recipe recipe = life(reseed);
  recipe.draws.push_back({.heads = 3});
  return recipe;
}

Recipe life_cross() {
  Recipe recipe = life(true);
  recipe.random_rows_2 = 8;
  return recipe;
}

// Document 001: the embeddings are given, three numbers a word.
Recipe journey() {
  Recipe recipe;
  recipe.tokens = split_words("Your journey starts with one step");
  recipe.ids = Vocabulary(recipe.tokens).ids(recipe.tokens);
  recipe.embeddings = Tensor::from({6, 3}, {.43f, .15f, .89f, .55f, .87f, .66f, .57f, .85f, .64f,  //
                                            .22f, .58f, .33f, .77f, .25f, .10f, .05f, .80f, .55f});
  recipe.options = {.embedding_size = 3, .d_k = 2, .d_v = 2};
  recipe.draws = {{.orientation = Orientation::in_out}};
  recipe.focus = 1;
  return recipe;
}

// Its second object holds Linear layers; it is built after the first, from the same generator.
Recipe journey_linear() {
  Recipe recipe = journey();
  recipe.draws.push_back({.init = WeightInit::linear});
  return recipe;
}

// Document 003: five ids in a vocabulary of ten, seed 0.
Recipe my_name() {
  Recipe recipe;
  recipe.tokens = split_words("my name is Marcello Politi");
  recipe.ids = {2, 6, 8, 3, 1};
  recipe.vocabulary_size = 10;
  recipe.options = {.seed = 0, .d_k = 16, .d_v = 16};
  recipe.draws = {{.key_first = true}};
  return recipe;
}

// Its multi-head part seeds again and draws the same embedding, so it starts afresh here.
Recipe my_name_multihead() {
  Recipe recipe = my_name();
  recipe.options.d_k = recipe.options.d_v = 4;
  recipe.draws = {{.orientation = Orientation::in_out, .heads = 4, .output = true}};
  return recipe;
}

// Some editors begin a file with the byte order mark U+FEFF, which is no part of the text.
std::string without_mark(const std::string& text) {
  return text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text;
}

struct Entry {
  Preset preset;
  Recipe (*recipe)();
};

constexpr std::array entries{
    Entry{{"journey", "001", "Your journey starts with one step: bare parameters, x @ w"}, journey},
    Entry{{"journey-linear", "001", "the same sentence with Linear layers"}, journey_linear},
    Entry{{"life", "002, 004", "Life is short, eat dessert first: one head"}, [] { return life(true); }},
    Entry{{"life-multihead", "002, 004", "the same with three heads"}, [] { return life_multihead(true); }},
    Entry{{"life-cross", "002", "cross-attention with a second sequence of eight"}, life_cross},
    Entry{{"life-continued", "000", "one head, the weights drawn on from the embedding"}, [] { return life(false); }},
    Entry{{"life-continued-multihead", "000", "the same with three heads"}, [] { return life_multihead(false); }},
    Entry{{"my-name", "003", "my name is Marcello Politi: one head"}, my_name},
    Entry{{"my-name-multihead", "003", "four heads, concatenated and projected"}, my_name_multihead},
};

}  // namespace

std::span<const Preset> presets() {
  static const auto list = [] {
    std::array<Preset, entries.size()> out;
    std::transform(entries.begin(), entries.end(), out.begin(), [](const Entry& entry) { return entry.preset; });
    return out;
  }();
  return list;
}

Recipe recipe_of_preset(std::string_view name) {
  for (const Entry& entry : entries) {
    if (entry.preset.name != name) continue;
    Recipe recipe = entry.recipe();
    recipe.preset = name;
    const std::string sentence = recipe.title.empty() ? fmt::format("{}", fmt::join(recipe.tokens, " ")) : recipe.title;
    recipe.options.text = sentence;
    recipe.options.heads = recipe.draws.back().heads;
    recipe.options.weights = recipe.draws.back().init;
    const bool several = entry.preset.document.find(',') != std::string_view::npos;
    recipe.title = fmt::format("{} (document{} {})", sentence, several ? "s" : "", entry.preset.document);
    return recipe;
  }
  fail(ErrorCode::bad_value, "explain", "no preset is called '{}'", name);
}

Recipe recipe_of(const ExplainOptions& asked) {
  ExplainOptions options = asked;
  // Without a text, everything is drawn as documents 002 and 004 draw it.
  options.weights = asked.weights.value_or(asked.text ? WeightInit::linear : WeightInit::uniform);
  options.text = without_mark(asked.text.value_or("Life is short, eat dessert first"));
  if (asked.second_text) options.second_text = without_mark(*asked.second_text);
  const auto sentence = [](const std::string& text, const char* which) {
    std::vector<std::string> words = split_words(text);
    if (words.empty()) fail(ErrorCode::bad_value, "explain", "the {} has no words, expected at least one", which);
    return words;
  };
  const auto at_least = [](std::int64_t least, const char* name, std::int64_t size) {
    if (size < least) fail(ErrorCode::bad_value, "explain", "{} is {}, expected at least {}", name, size, least);
  };
  at_least(1, "embedding_size", options.embedding_size);
  at_least(1, "d_k", options.d_k);
  at_least(1, "d_v", options.d_v);
  at_least(0, "heads", options.heads);
  if (options.window) at_least(0, "window", *options.window);
  if ((options.causal || options.window) && options.second_text) {
    fail(ErrorCode::bad_value, "explain",
         "{} can't be used with a second sentence: its words stand neither before nor after the first's",
         options.causal ? "causal" : "window");
  }
  Recipe recipe;
  recipe.title = *options.text;
  recipe.tokens = sentence(*options.text, "sentence");
  const Vocabulary vocabulary(recipe.tokens);
  recipe.ids = vocabulary.ids(recipe.tokens);
  recipe.vocabulary_size = vocabulary.size();
  if (options.second_text) recipe.tokens_2 = sentence(*options.second_text, "second sentence");
  recipe.reseed = true;
  recipe.draws = {{.init = *options.weights, .heads = options.heads, .output = options.heads > 0}};
  recipe.focus = recipe.tokens.size() > 1 ? 1 : 0;
  recipe.options = std::move(options);
  return recipe;
}

}  // namespace attend::inline v1
