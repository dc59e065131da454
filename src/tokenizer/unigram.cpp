#include "tokenizer/unigram.h"

#include <algorithm>

#include "core/utf8.h"

namespace attend::inline v1::tokenizer {

// ---- Tokens that a text begins with ----

namespace {

// The first eight bytes as a number, by which most texts are told apart: a vocabulary is sorted in a third of the time.
std::uint64_t head_of(std::string_view text) {
  std::uint64_t head = 0;
  for (std::size_t n = 0; n < 8; ++n) head = head << 8 | (n < text.size() ? static_cast<unsigned char>(text[n]) : 0U);
  return head;
}

void sort_by_text(std::vector<Trie::Entry>& entries) {
  std::vector<std::pair<std::uint64_t, Trie::Entry>> keyed;
  keyed.reserve(entries.size());
  for (const Trie::Entry& each : entries) keyed.emplace_back(head_of(each.text), each);
  std::ranges::sort(keyed, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second.text < b.second.text;
  });
  std::ranges::transform(keyed, entries.begin(), [](const auto& each) { return each.second; });
}

}  // namespace

Trie::Trie(std::vector<Entry> entries) : nodes_(1) {
  sort_by_text(entries);
  struct Range {
    std::size_t begin, end, depth;  // entries that are one text up to there
  };
  std::vector<Range> ranges = {{0, entries.size(), 0}};
  for (std::size_t at = 0; at < ranges.size(); ++at) {
    auto [begin, end, depth] = ranges[at];
    if (begin < end && entries[begin].text.size() == depth) nodes_[at].id = entries[begin++].id;
    nodes_[at].first = static_cast<std::uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = entries[begin].text[depth];
      std::size_t next = begin + 1;
      while (next < end && entries[next].text[depth] == byte) ++next;
      ranges.push_back({begin, next, depth + 1});
      nodes_.push_back({.byte = static_cast<unsigned char>(byte)});
      ++nodes_[at].count;
      begin = next;
    }
  }
  for (int byte = 0; byte < 256; ++byte)
    roots_[static_cast<std::size_t>(byte)] = child(nodes_[0], static_cast<char>(byte));
}

namespace {

std::vector<Trie::Entry> entries_of(const TokenMap& vocabulary) {
  std::vector<Trie::Entry> entries;
  entries.reserve(vocabulary.size());
  for (const auto& [token, id] : vocabulary.ids()) entries.push_back({token, id});
  return entries;
}

}  // namespace

Trie::Trie(const TokenMap& vocabulary) : Trie(entries_of(vocabulary)) {}

std::uint32_t Trie::child(const Node& of, char byte) const {
  const auto wanted = static_cast<unsigned char>(byte);
  const Node* first = nodes_.data() + of.first;
  const Node* end = first + of.count;
  auto found = first;
  if (of.count > 8) found = std::lower_bound(first, end, wanted, [](const Node& a, int b) { return a.byte < b; });
  while (found < end && found->byte < wanted) ++found;
  return found < end && found->byte == wanted ? static_cast<std::uint32_t>(found - nodes_.data()) : 0;
}

// ---- The best path ----

namespace {

constexpr std::uint32_t none = ~std::uint32_t{0};

// Of the paths that end at a place, the best: its last token.
template <class Score>
struct Best {
  Score score = 0;
  std::uint32_t begin = none;
  std::optional<TokenId> id;
};

}  // namespace

template <class Score>
std::vector<PathToken> best_path(std::string_view text, const Trie& trie, std::span<const Score> scores,
                                 Score unknown) {
  std::vector<Best<Score>> best(text.size() + 1);
  for (std::uint32_t begin = 0, next = 0; begin < text.size(); begin = next) {
    next = begin + 1;
    while (next < text.size() && !begins_character(text[next])) ++next;
    const Score till_here = best[begin].score;
    const auto offer = [&](std::size_t end, Score sum, std::optional<TokenId> id) {
      if (best[end].begin == none || sum > best[end].score) best[end] = Best<Score>{sum, begin, id};
    };
    bool is_token = false;  // the character itself
    trie.prefixes(text.substr(begin), [&](std::size_t size, TokenId id) {
      offer(begin + size, till_here + scores[id], id);
      is_token |= begin + size == next;
    });
    if (!is_token) offer(next, till_here + unknown, std::nullopt);
  }
  std::vector<PathToken> path;
  for (auto end = static_cast<std::uint32_t>(text.size()); end > 0; end = path.back().begin)
    path.push_back({best[end].begin, end, best[end].id});
  std::ranges::reverse(path);
  return path;
}

template std::vector<PathToken> best_path(std::string_view, const Trie&, std::span<const double>, double);
template std::vector<PathToken> best_path(std::string_view, const Trie&, std::span<const float>, float);

// ---- Unigram ----

namespace {

constexpr double unknown_penalty = 10;  // below the least score: SentencePiece's

double least(const std::vector<double>& scores) {
  const auto found = std::ranges::min_element(scores);
  return found == scores.end() ? std::numeric_limits<double>::infinity() : *found;
}

}  // namespace

Unigram::Unigram(TokenMap vocabulary, std::vector<double> scores, UnigramOptions options)
    : vocabulary_(std::move(vocabulary)),
      scores_(std::move(scores)),
      options_(options),
      unknown_score_(least(scores_) - unknown_penalty),
      trie_(vocabulary_) {
  if (options_.byte_fallback) bytes_ = byte_tokens(vocabulary_);
}

void Unigram::tokenize(std::string_view word, std::vector<WordToken>& to) const {
  append_cached(number_, word, to, [&] { find(word, to); });
}

// What is unknown is one token as far as it goes; that token too, where the text has it.
void Unigram::find(std::string_view word, std::vector<WordToken>& to) const {
  const auto path = best_path<double>(word, trie_, scores_, unknown_score_);
  const auto is_unknown = [&](const PathToken& token) { return !token.id || token.id == options_.unknown; };
  for (std::size_t n = 0; n < path.size(); ++n) {
    if (!is_unknown(path[n])) {
      to.push_back({*path[n].id, path[n].begin, path[n].end});
      continue;
    }
    const std::uint32_t begin = path[n].begin;
    while (n + 1 < path.size() && is_unknown(path[n + 1])) ++n;
    append(word, begin, path[n].end, to);
  }
}

bool Unigram::is_bytes(std::string_view part) const {
  return !vocabulary_.id(part) &&
         std::ranges::all_of(part, [&](char byte) { return bytes_[static_cast<unsigned char>(byte)].has_value(); });
}

void Unigram::append(std::string_view word, std::uint32_t begin, std::uint32_t end, std::vector<WordToken>& to) const {
  const std::string_view text = word.substr(begin, end - begin);
  if (const auto id = vocabulary_.id(text)) {
    to.push_back({*id, begin, end});
  } else if (is_bytes(text)) {
    for (const char byte : text) to.push_back({*bytes_[static_cast<unsigned char>(byte)], begin, end});
  } else {
    if (!options_.unknown) fail_unknown(text);
    to.push_back({*options_.unknown, begin, end});
  }
}

}  // namespace attend::inline v1::tokenizer
