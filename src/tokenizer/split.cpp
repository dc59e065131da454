#include <optional>
#include <utility>

#include "core/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pattern.h"
#include "tokenizer/read.h"
#include "tokenizer/steps.h"

namespace attend::inline v1::tokenizer {

namespace {

constexpr const char* gpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The character that begins there, of text that is UTF-8; moves behind it.
char32_t next_character(std::string_view text, std::size_t& at) {
  const auto byte = [&] { return static_cast<char32_t>(static_cast<unsigned char>(text[at++])); };
  const char32_t first = byte();
  if (first < 0x80) return first;
  const int more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
  char32_t point = first & (0x3fu >> more);
  for (int n = 0; n < more; ++n) point = point << 6 | (byte() & 0x3f);
  return point;
}

// Each character for which matches() is true is a match.
template <class Matches>
std::vector<Part> character_parts(std::string_view text, Matches matches) {
  std::vector<Part> parts;
  std::size_t last = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    if (!matches(next_character(text, at))) continue;
    if (last < begin) parts.push_back({last, begin, false});
    parts.push_back({begin, at, true});
    last = at;
  }
  if (last < text.size()) parts.push_back({last, text.size(), false});
  return parts;
}

// Cuts each word into the parts that find(word) gives. Empty ones are left out.
template <class Find>
void cut(Words& words, Behavior behavior, Find find) {
  std::vector<Word> out;
  out.reserve(words.words.size());
  for (const Word& word : words.words) {
    if (word.token >= 0) {
      out.push_back(word);
      continue;
    }
    const std::string_view text = words.text.text().substr(word.begin, word.end - word.begin);
    for (const Part& part : arrange(behavior, find(text))) {
      if (part.begin < part.end) out.push_back({word.begin + part.begin, word.begin + part.end});
    }
  }
  words.words = std::move(out);
}

template <class Matches>
void cut_at(Words& words, Behavior behavior, Matches matches) {
  cut(words, behavior, [&](std::string_view text) { return character_parts(text, matches); });
}

// Sets `with` before each word for which wants() is true.
template <class Wants>
void set_before(Words& words, std::string_view with, Wants wants) {
  Words out{.text = AlignedText::begun(words.text), .words = {}};
  for (Word word : words.words) {
    const std::size_t begin = out.text.text().size();
    if (word.token < 0 && word.begin < word.end && wants(word)) {
      std::size_t first = word.begin;
      next_character(words.text.text(), first);
      out.text.append(with, words.text.span(word.begin, first));
    }
    out.text.append(words.text, word.begin, word.end);
    out.words.push_back({begin, out.text.text().size(), word.token});
  }
  words.text = std::move(out.text), words.words = std::move(out.words);
}

// Puts `with` in the place of each space.
void replace_spaces(Words& words, std::string_view with) {
  if (words.text.text().find(' ') == std::string_view::npos) return;
  Words out{.text = AlignedText::begun(words.text), .words = {}};
  for (const Word& word : words.words) {
    const std::size_t begin = out.text.text().size();
    std::size_t at = word.begin;
    while (word.token < 0) {
      const std::size_t space = words.text.text().find(' ', at);
      if (space >= word.end) break;
      out.text.append(words.text, at, space);
      out.text.append(with, words.text.span(space, space + 1));
      at = space + 1;
    }
    out.text.append(words.text, at, word.end);
    out.words.push_back({begin, out.text.text().size(), word.token});
  }
  words.text = std::move(out.text), words.words = std::move(out.words);
}

bool begins_with(const Words& words, const Word& word, std::string_view with) {
  return words.text.text().substr(word.begin, word.end - word.begin).starts_with(with);
}

// Each byte as the visible character that stands for it.
void words_to_byte_characters(Words& words) {
  Words out{.text = AlignedText::begun(words.text), .words = {}};
  for (const Word& word : words.words) {
    const std::size_t begin = out.text.text().size();
    if (word.token >= 0) {
      out.text.append(words.text, word.begin, word.end);
    } else {
      for (std::size_t at = word.begin; at < word.end; ++at) {
        const auto byte = static_cast<unsigned char>(words.text.text()[at]);
        out.text.append(byte_characters()[byte], words.text.span(at, at + 1));
      }
    }
    out.words.push_back({begin, out.text.text().size(), word.token});
  }
  words = std::move(out);
}

// Runs of word characters, runs of others, and white space, which is a match.
std::vector<Part> word_parts(std::string_view text) {
  enum class Kind { space, word, other };
  std::vector<Part> parts;
  std::optional<Kind> last;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t point = next_character(text, at);
    const Kind kind = is_word(point) ? Kind::word : is_white_space(point) ? Kind::space : Kind::other;
    if (kind == last) {
      parts.back().end = at;
    } else {
      parts.push_back({begin, at, kind == Kind::space});
    }
    last = kind;
  }
  return parts;
}

// Runs of a script, with what is of any script behind it. What is of any before the first is a match.
std::vector<Part> script_parts(std::string_view text) {
  std::vector<Part> parts;
  int last = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const int script = script_of(next_character(text, at));
    if (parts.empty() || (script != 0 && script != last)) {
      parts.push_back({begin, at, script == 0});
    } else {
      parts.back().end = at;
    }
    if (script != 0) last = script;
  }
  return parts;
}

// ---- Readers ----

Behavior read_behavior(const Member& from) {
  constexpr std::pair<const char*, Behavior> behaviors[] = {{"Removed", Behavior::removed},
                                                            {"Isolated", Behavior::isolated},
                                                            {"MergedWithPrevious", Behavior::merged_with_previous},
                                                            {"MergedWithNext", Behavior::merged_with_next},
                                                            {"Contiguous", Behavior::contiguous}};
  for (const auto& [name, behavior] : behaviors) {
    if (from.text() == name) return behavior;
  }
  fail_at(from.place(), "{} is not known", quote(from.text()));
}

PreTokenizer read_byte_level(const Member& from) {
  from.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  std::optional<Pattern> pattern;
  if (!from.has("use_regex") || from["use_regex"].truth()) pattern.emplace(from.place(), gpt2);
  return [pattern, add_space = from["add_prefix_space"].truth()](Words& words) {
    if (add_space) set_before(words, " ", [&](const Word& word) { return !begins_with(words, word, " "); });
    if (pattern) cut(words, Behavior::isolated, [&](std::string_view text) { return pattern->parts(text); });
    words.byte_level = true;
  };
}

enum class Prepend { always, first, never };

Prepend read_prepend(const Member& from) {
  if (!from.has("prepend_scheme")) return from["add_prefix_space"].truth() ? Prepend::always : Prepend::never;
  const std::string scheme = from["prepend_scheme"].text();
  if (scheme == "always") return Prepend::always;
  if (scheme == "first") return Prepend::first;
  if (scheme == "never") return Prepend::never;
  fail_at(from.place().in("prepend_scheme"), "{} is not known", quote(scheme));
}

PreTokenizer read_metaspace(const Member& from) {
  from.only({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  const std::string mark = from["replacement"].text();
  if (count_characters(mark) != 1) from["replacement"].refuse("one character");
  const Prepend prepend = read_prepend(from);
  const bool splits = !from.has("split") || from["split"].truth();
  const auto wants = [mark, prepend](const Words& words, const Word& word) {
    if (begins_with(words, word, mark)) return false;
    return prepend == Prepend::always || words.text.span(word.begin, word.end).begin == 0;
  };
  return [mark, pattern = Pattern::literal(from.place(), mark), prepend, splits, wants](Words& words) {
    replace_spaces(words, mark);
    if (prepend != Prepend::never) set_before(words, mark, [&](const Word& word) { return wants(words, word); });
    if (splits) cut(words, Behavior::merged_with_next, [&](std::string_view text) { return pattern.parts(text); });
  };
}

PreTokenizer read_split(const Member& from) {
  from.only({"type", "pattern", "behavior", "invert"});
  return [pattern = read_pattern(from["pattern"]), behavior = read_behavior(from["behavior"]),
          invert = from["invert"].truth()](Words& words) {
    cut(words, behavior, [&](std::string_view text) {
      std::vector<Part> parts = pattern.parts(text);
      for (Part& part : parts) part.match ^= invert;
      return parts;
    });
  };
}

PreTokenizer read_pre_tokenizer(const Member& from, const std::string& type) {
  if (type == "ByteLevel") return read_byte_level(from);
  if (type == "Metaspace") return read_metaspace(from);
  if (type == "Split") return read_split(from);
  if (type == "BertPreTokenizer") {
    from.only({"type"});
    return [](Words& words) {
      cut_at(words, Behavior::removed, is_white_space);
      cut_at(words, Behavior::isolated, is_punctuation);
    };
  }
  if (type == "Whitespace" || type == "UnicodeScripts") {
    from.only({"type"});
    const auto find = type == "Whitespace" ? word_parts : script_parts;
    return [find](Words& words) { cut(words, Behavior::removed, find); };
  }
  if (type == "CharDelimiterSplit") {
    from.only({"type", "delimiter"});
    const std::u32string delimiter = decode_utf8(from["delimiter"].text(), {});
    if (delimiter.size() != 1) from["delimiter"].refuse("one character");
    return [at = delimiter.front()](Words& words) {
      cut_at(words, Behavior::removed, [at](char32_t point) { return point == at; });
    };
  }
  if (type == "WhitespaceSplit") {
    from.only({"type"});
    return [](Words& words) { cut_at(words, Behavior::removed, is_white_space); };
  }
  if (type == "Digits") {
    from.only({"type", "individual_digits"});
    const Behavior behavior = from["individual_digits"].truth() ? Behavior::isolated : Behavior::contiguous;
    return [behavior](Words& words) { cut_at(words, behavior, is_number); };
  }
  if (type == "Punctuation") {
    from.only({"type", "behavior"});
    const Behavior behavior = from.has("behavior") ? read_behavior(from["behavior"]) : Behavior::isolated;
    return [behavior](Words& words) { cut_at(words, behavior, is_punctuation); };
  }
  fail_at(from.place(), "the pre-tokenizer {} is not known", quote(type));
}

}  // namespace

std::vector<PreTokenizer> read_pre_tokenizers(const Member& from, const std::string& model) {
  std::vector<PreTokenizer> steps;
  bool byte_level = false;
  const auto read = [&](const Member& step, const std::string& type) {
    if (byte_level) steps.emplace_back(words_to_byte_characters);
    byte_level = type == "ByteLevel";
    steps.push_back(read_pre_tokenizer(step, type));
  };
  for_each_step(from, "pretokenizers", read);
  if (byte_level && model != "BPE") steps.emplace_back(words_to_byte_characters);
  return steps;
}

}  // namespace attend::inline v1::tokenizer
