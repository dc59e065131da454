#include "corpus.h"

#include <fmt/format.h>

#include <fstream>
#include <string_view>

#include "attend/error.h"

namespace translate {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw attend::Error(attend::ErrorCode::bad_file, "", fmt::format("{}: {}", path.string(), what));
}

std::vector<Pair>* split_named(Corpus& corpus, std::string_view name) {
  if (name == "train") return &corpus.train;
  if (name == "valid") return &corpus.valid;
  if (name == "test") return &corpus.test;
  return nullptr;
}

}  // namespace

Corpus read_corpus(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, "can't be opened; `make translate-data` writes build/translate/pairs.tsv");
  Corpus corpus;
  corpus.hash = 0xCBF29CE484222325u;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    for (const char byte : line + '\n') corpus.hash = (corpus.hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
    const std::size_t first = line.find('\t');
    const std::size_t second = first == std::string::npos ? first : line.find('\t', first + 1);
    if (second == std::string::npos || line.find('\t', second + 1) != std::string::npos)
      fail(path, fmt::format("line {} should hold a split, an English and an Italian message, parted by tabs", number));
    std::vector<Pair>* split = split_named(corpus, std::string_view(line).substr(0, first));
    if (split == nullptr)
      fail(path,
           fmt::format("line {} should begin with train, valid or test, got '{}'", number, line.substr(0, first)));
    split->push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
    if (split->back().english.empty() || split->back().italian.empty())
      fail(path, fmt::format("line {} has an empty message", number));
  }
  if (file.bad()) fail(path, "can't be read");
  return corpus;
}

}  // namespace translate
