// The steps from text to words: normalisers, which change characters, and pre-tokenisers, which cut.
#pragma once

#include <functional>
#include <vector>

#include "io/json_member.h"
#include "tokenizer/text.h"

namespace attend::inline v1::tokenizer {

using Normalizer = std::function<void(Characters&)>;

// What is cut out of a text: words to be tokenised, or tokens already.
struct Word {
  std::size_t begin, end;
  std::int64_t token = -1;
};
struct Words {
  AlignedText text;
  std::vector<Word> words;
  bool byte_level = false;  // the last step was ByteLevel, and BPE writes the bytes as characters itself
};
using PreTokenizer = std::function<void(Words&)>;

// The steps of a file, in order; none for null. Throw bad_file.
std::vector<Normalizer> read_normalizers(const Member& from);
// `model`: the type of model that the words are for: BPE takes words of bytes.
std::vector<PreTokenizer> read_pre_tokenizers(const Member& from, const std::string& model);

}  // namespace attend::inline v1::tokenizer
