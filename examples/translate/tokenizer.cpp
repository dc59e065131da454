#include "tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "attend/error.h"
#include "unicode.h"

namespace translate {
namespace {

using IdPair = std::pair<std::int64_t, std::int64_t>;

bool is_letter(char byte) {
  const auto code = static_cast<unsigned char>(byte);
  return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') || code >= 0x80;
}

// A text in pieces that no merge crosses: a run of letters, or one other byte, each with the blank before it.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    if (text[at] == ' ' && end < text.size()) ++end;
    if (is_letter(text[end - 1]))
      while (end < text.size() && is_letter(text[end])) ++end;
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

Ids bytes_of(std::string_view word) {
  Ids ids;
  for (const char byte : word) ids.push_back(Tokenizer::first_byte + static_cast<unsigned char>(byte));
  return ids;
}

void merge_in(Ids& ids, IdPair pair, std::int64_t merged) {
  std::size_t out = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool found = i + 1 < ids.size() && ids[i] == pair.first && ids[i + 1] == pair.second;
    ids[out++] = found ? merged : ids[i];
    i += found ? 1 : 0;
  }
  ids.resize(out);
}

// The distinct words of a text, how often they stand there, and which of them hold which pair of neighbours.
class PairCounts {
 public:
  explicit PairCounts(std::span<const std::string> texts) {
    std::map<std::string_view, std::int64_t> counts;
    for (const std::string& text : texts)
      for (const std::string_view word : words_of(text)) ++counts[word];
    for (const auto& [word, count] : counts) words_.push_back({bytes_of(word), count});
    for (std::size_t i = 0; i < words_.size(); ++i) count(i, 1);
  }

  // The most frequent pair, of equals the first, and how often it occurs.
  std::pair<IdPair, std::int64_t> most_frequent() const {
    if (ranked_.empty()) return {{0, 0}, 0};
    return {ranked_.begin()->second, -ranked_.begin()->first};
  }

  void merge(IdPair pair, std::int64_t merged) {
    const std::set<std::size_t> holders = pairs_.at(pair).words;
    for (const std::size_t i : holders) {
      count(i, -1);
      merge_in(words_[i].ids, pair, merged);
      count(i, 1);
    }
  }

 private:
  struct Word {
    Ids ids;
    std::int64_t count;
  };
  struct Entry {
    std::int64_t count = 0;
    std::set<std::size_t> words;
  };

  void count(std::size_t i, std::int64_t sign) {
    const Word& word = words_[i];
    for (std::size_t at = 0; at + 1 < word.ids.size(); ++at) {
      const IdPair pair{word.ids[at], word.ids[at + 1]};
      Entry& entry = pairs_[pair];
      ranked_.erase({-entry.count, pair});
      entry.count += sign * word.count;
      if (entry.count > 0) ranked_.insert({-entry.count, pair});
      if (sign > 0) entry.words.insert(i);
      if (sign < 0) entry.words.erase(i);
    }
  }

  std::vector<Word> words_;
  std::map<IdPair, Entry> pairs_;
  std::set<std::pair<std::int64_t, IdPair>> ranked_;  // {-count, pair}: the most frequent first
};

}  // namespace

Tokenizer::Tokenizer() : pieces_{"", ""} {
  for (int byte = 0; byte < 256; ++byte) pieces_.emplace_back(1, static_cast<char>(byte));
}

void Tokenizer::add(IdPair merge) {
  merged_.emplace(merge, size());
  pieces_.push_back(pieces_[static_cast<std::size_t>(merge.first)] + pieces_[static_cast<std::size_t>(merge.second)]);
  merges_.push_back(merge);
}

Tokenizer Tokenizer::learn(std::span<const std::string> texts, std::int64_t size) {
  Tokenizer tokenizer;
  PairCounts counts(texts);
  while (tokenizer.size() < size) {
    const auto [pair, count] = counts.most_frequent();
    if (count < 2) break;
    counts.merge(pair, tokenizer.size());
    tokenizer.add(pair);
  }
  return tokenizer;
}

Tokenizer::Tokenizer(const attend::View& merges) : Tokenizer() {
  if (merges.rank() != 2 || merges.size(1) != 2) {
    throw attend::Error(attend::ErrorCode::bad_shape, "Tokenizer",
                        fmt::format("merges has shape {}, expected [merges,2]", merges.shape().str()));
  }
  const attend::Tensor rows = merges.clone();
  const std::int64_t* ids = rows.data<std::int64_t>();
  for (std::int64_t i = 0; i < merges.size(0); ++i, ids += 2) {
    if (std::min(ids[0], ids[1]) < first_byte || std::max(ids[0], ids[1]) >= size()) {
      throw attend::Error(
          attend::ErrorCode::bad_value, "Tokenizer",
          fmt::format("merge {} is of {} and {}, expected {} to {}", i, ids[0], ids[1], first_byte, size() - 1));
    }
    add({ids[0], ids[1]});
  }
}

attend::Tensor Tokenizer::merges() const {
  attend::Tensor out({static_cast<std::int64_t>(merges_.size()), 2}, attend::DType::i64);
  std::int64_t* ids = out.data<std::int64_t>();
  for (const auto& [left, right] : merges_) {
    *ids++ = left;
    *ids++ = right;
  }
  return out;
}

Ids Tokenizer::encode(std::string_view text) const {
  Ids out;
  for (const std::string_view word : words_of(text)) {
    Ids ids = bytes_of(word);
    while (true) {  // the merge that was learned first
      auto first = merged_.end();
      for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto found = merged_.find({ids[i], ids[i + 1]});
        if (found != merged_.end() && (first == merged_.end() || found->second < first->second)) first = found;
      }
      if (first == merged_.end()) break;
      merge_in(ids, first->first, first->second);
    }
    out.insert(out.end(), ids.begin(), ids.end());
  }
  return out;
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids) const {
  std::string text;
  for (const std::int64_t id : ids) text += pieces_.at(static_cast<std::size_t>(id));
  return to_utf8(code_points(text));
}

std::string Tokenizer::label(std::int64_t id) const {
  if (id == begin) return "<begin>";
  if (id == end) return "<end>";
  const std::string text = decode(std::span(&id, 1));
  return text.size() > 1 && text.starts_with(' ') ? text.substr(1) : text;
}

}  // namespace translate
