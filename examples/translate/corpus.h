// The messages that prepare.py writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace translate {

struct Pair {
  std::string english;
  std::string italian;
};

struct Corpus {
  std::vector<Pair> train;
  std::vector<Pair> valid;  // for the curve of losses
  std::vector<Pair> test;   // for the scores
  std::uint64_t hash = 0;   // FNV-1a of the file's bytes
};

// Lines of a split (train, valid or test), an English message and an Italian one, parted by tabs; no line is empty.
// Throws bad_file, naming the line.
Corpus read_corpus(const std::filesystem::path& path);

}  // namespace translate
