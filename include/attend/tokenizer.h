// Text to a model's token ids and back, from a tokenizer.json.
//
//     const attend::Tokenizer tokenizer = attend::Tokenizer::load("tokenizer.json");
//     const attend::Encoding encoding = tokenizer.encode("Hello, world!");
//     std::string text = tokenizer.decode(encoding.ids);
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

namespace attend::inline v1 {

// The tokens of a text or a pair, in order.
struct ATTEND_API Encoding {
  std::vector<std::int64_t> ids;
  // Bytes of the text for each token, in whole characters; tokens that share a character all have all of it. 0 to 0 for
  // added tokens.
  std::vector<Range> offsets;
  std::vector<bool> special;        // added by the tokenizer: "[CLS]", "[SEP]", ...
  std::vector<std::int64_t> types;  // 0 or 1, BERT's token_type_ids
  std::vector<std::int64_t> texts;  // 0: the text, 1: the pair's second text, -1: neither
};

// One message of a conversation.
struct ATTEND_API Message {
  std::string role;  // system, user or assistant
  std::string content;
};

// Gives the ids, offsets and texts of the package `tokenizers`, for WordPiece, BPE, Unigram and WordLevel
// (docs/models.md lists the supported parts). It never truncates or pads, even if the file asks for it. Copies share
// data. All functions may be called from several threads.
class ATTEND_API Tokenizer {
 public:
  // path: a tokenizer.json, a folder with one, or a folder with Marian's source.spm, vocab.json and
  // tokenizer_config.json, read as Transformers' MarianTokenizer does. Throws bad_file, naming the place, also for
  // types and options that attend does not know: it never guesses.
  static Tokenizer load(const std::filesystem::path& path);
  // From the content of such a file.
  static Tokenizer parse(std::string_view json);

  // special: add the tokens that the model expects around a text. Throws bad_value, naming the byte, for text that is
  // not UTF-8, and for texts of 4 GiB or more.
  Encoding encode(std::string_view text, bool special = true) const;
  Encoding encode_pair(std::string_view text, std::string_view second, bool special = true) const;

  // Bytes that form no character become U+FFFD. skip_special: leave out the file's special tokens. Throws bad_value for
  // an unknown id.
  std::string decode(std::span<const std::int64_t> ids, bool skip_special = true) const;
  // One token alone, special ones too, as decode() gives it; none for an unknown id, which models may have.
  std::optional<std::string> text(std::int64_t id) const;
  // Each token alone, as text() gives it. Tokens that only together form a character are shown as its numbered parts
  // instead of U+FFFD: "猫 1/2", "猫 2/2".
  std::vector<std::optional<std::string>> texts(std::span<const std::int64_t> ids) const;

  // The messages in the model's chat template, if that is exactly one of a list (docs/models.md). Special tokens are in
  // the text: use encode(text, false). add_generation_prompt: add the beginning of an answer. Throws bad_value for
  // roles or an order that the template refuses; bad_file for a missing or unknown template.
  std::string chat(std::span<const Message> messages, bool add_generation_prompt = true) const;

  // How many tokens there are, added ones included. Ids may have gaps.
  std::int64_t size() const;
  std::optional<std::int64_t> id(std::string_view token) const;
  // The token as in the vocabulary: "##ing", "Ġthe". Throws bad_value.
  const std::string& token(std::int64_t id) const;
  // The vocabulary's prefix of tokens that continue a word: "##". Empty: none.
  std::string_view continuation() const;
  // The token for unknown text; none: there is none.
  std::optional<std::int64_t> unknown() const;

 private:
  friend class Model;  // for load_tokenizer() of a GGUF file
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const Parts> parts_;
};

}  // namespace attend::inline v1
