// Text to the ids that a model was trained on, and back: the tokenizer.json of a Hugging Face folder.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no tokenizer.h"
#endif

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/api.h"
#include "attend/tensor.h"

namespace attend::inline v0 {

// The tokens of a text, or of a pair of texts, in order.
struct ATTEND_API Encoding {
  std::vector<std::int64_t> ids;
  // The bytes of its text that each token stands for, whole characters: two tokens that share a character both have all
  // of it. 0 to 0 for what the tokenizer adds.
  std::vector<Range> offsets;
  std::vector<bool> special;        // what the tokenizer added: [CLS], <s>, ...
  std::vector<std::int64_t> types;  // 0 or 1, as BERT's token_type_ids
  std::vector<std::int64_t> texts;  // 0: of the text, 1: of the pair's second, -1: of none
};

// What someone says to a model, or it says.
struct ATTEND_API Message {
  std::string role;  // system, user or assistant
  std::string content;
};

// Gives the ids, offsets and texts that the package `tokenizers` gives, for WordPiece, BPE, Unigram and WordLevel
// (docs/models.md lists the parts). Truncation and padding, which a file may ask for too, are left to the
// caller. A copy shares what was read; all functions may be called from several threads.
class ATTEND_API Tokenizer {
 public:
  // Throws bad_file, naming the place: for a part of a type, or with an option, that is not known here, too. What is
  // computed is never a guess.
  // path: a tokenizer.json, or a folder that has one, or that has Marian's files: source.spm, vocab.json and
  // tokenizer_config.json, as Transformers' MarianTokenizer reads them.
  static Tokenizer load(const std::filesystem::path& path);
  // From what is in such a file.
  static Tokenizer parse(std::string_view json);

  // special: with the tokens that the model expects around a text. Throws bad_value, naming the byte, for text that is
  // not UTF-8, and for one of 4 GiB or more.
  Encoding encode(std::string_view text, bool special = true) const;
  Encoding encode_pair(std::string_view text, std::string_view second, bool special = true) const;

  // Bytes that make no character become U+FFFD. skip_special: without the tokens that the file calls special. Throws
  // bad_value for an id that is none.
  std::string decode(std::span<const std::int64_t> ids, bool skip_special = true) const;
  // One token by itself, a special one too, as decode() gives it; none for an id that the tokenizer does not know, as
  // models may have.
  std::optional<std::string> text(std::int64_t id) const;
  // Each of these by itself, as text() gives it. Tokens that have bytes of a character between them, which alone would
  // be U+FFFD, say the character and which part of it they are: "猫 1/2", "猫 2/2".
  std::vector<std::optional<std::string>> texts(std::span<const std::int64_t> ids) const;

  // The messages as the text that the model was trained on: its folder's or file's chat template, where that is exactly
  // one of a list (docs/models.md). Its special tokens are in the text: encode(text, false) has its ids.
  // add_generation_prompt: with what begins an answer. Throws bad_value for a role, or an order of roles, that the
  // template does not take, and bad_file where there is no template, or another.
  std::string chat(std::span<const Message> messages, bool add_generation_prompt = true) const;

  // How many tokens there are, those added to the model's included. Ids may have gaps.
  std::int64_t size() const;
  std::optional<std::int64_t> id(std::string_view token) const;
  // The token as the vocabulary writes it: "##ing", "Ġthe". Throws bad_value.
  const std::string& token(std::int64_t id) const;
  // What a token that goes on with a word begins with, as the vocabulary writes it: "##". Empty: nothing marks it.
  std::string_view continuation() const;
  // The token for what no token stands for; none: there is none.
  std::optional<std::int64_t> unknown() const;

 private:
  friend class Model;  // whose load_tokenizer() has the parts of a GGUF file
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const Parts> parts_;
};

}  // namespace attend::inline v0
