#include "attend/tokenizer.h"

#include <algorithm>
#include <array>

#include "core/utf8.h"
#include "io/file.h"
#include "tokenizer/file.h"

namespace attend::inline v1 {

using namespace tokenizer;

namespace {

constexpr const char* encoding = "Tokenizer::encode";

// A token of a text, and the white space at both ends of it, in characters.
struct Found {
  TokenId id;
  Span span;
  std::size_t leading = 0, trailing = 0;
};

// ---- From text to tokens ----

bool is_space(char32_t point) {
  return is_white_space(point) || point == 0x120;  // Ġ: a space, byte-level
}

void count_space(std::string_view token, Found& of) {
  const std::u32string points = decode_utf8(token, {encoding, "a token"});
  const auto first = std::ranges::find_if_not(points, is_space);
  of.leading = static_cast<std::size_t>(first - points.begin());
  const auto last = std::find_if_not(points.rbegin(), points.rend(), is_space);
  of.trailing = static_cast<std::size_t>(last - points.rbegin());
}

class Encoder {
 public:
  Encoder(const TokenizerFile& file, std::string_view text)
      : file_(file), text_(text), growth_(encoding, text.size()) {}

  std::vector<Found> run() {
    for (const Word& word : file_.before.find(text_)) {
      if (word.token >= 0) {
        add(static_cast<TokenId>(word.token), span(word), text_.substr(word.begin, word.end - word.begin));
      } else {
        encode(text_.substr(word.begin, word.end - word.begin), static_cast<std::uint32_t>(word.begin));
      }
    }
    if (file_.around.trims) trim();
    return std::move(found_);
  }

 private:
  static Span span(const Word& word) {
    return {static_cast<std::uint32_t>(word.begin), static_cast<std::uint32_t>(word.end)};
  }

  // `token`: what the token is, for white space; a token's own text, unless it was added.
  void add(TokenId id, Span span, std::string_view token) {
    found_.push_back({id, span});
    if (file_.around.trims) count_space(token, found_.back());
  }

  AlignedText normalized(std::string_view text, std::uint32_t begin) const {
    if (file_.normalizers.empty()) return {text, begin, growth_};
    Characters characters(text, begin, growth_);
    for (const Normalizer& step : file_.normalizers) step(characters);
    return AlignedText(characters);
  }

  void encode(std::string_view text, std::uint32_t begin) {
    Words words{.text = normalized(text, begin), .words = {}};
    words.words = file_.after.find(words.text.text());
    for (const PreTokenizer& step : file_.pre_tokenizers) step(words);
    growth_.keep(words.text.text().size());
    std::vector<WordToken> tokens;
    for (const Word& word : words.words) {
      const std::string_view of = words.text.text().substr(word.begin, word.end - word.begin);
      if (word.token >= 0) {
        add(static_cast<TokenId>(word.token), words.text.span(word.begin, word.end), of);
        continue;
      }
      tokens.clear();
      tokenize(of, words.byte_level, tokens);
      for (const WordToken& token : tokens) {
        add(token.id, words.text.span(word.begin + token.begin, word.begin + token.end),
            file_.around.trims ? token_text(of, token) : std::string_view());
      }
    }
  }

  void tokenize(std::string_view word, bool byte_level, std::vector<WordToken>& to) {
    std::visit(
        [&](const auto& model) {
          using Model = std::decay_t<decltype(model)>;
          if constexpr (std::is_same_v<Model, Bpe>) {
            model.tokenize(word, byte_level, to);
          } else if constexpr (std::is_same_v<Model, Marian>) {
            model.tokenize(word, growth_, to);
          } else {
            model.tokenize(word, to);
          }
        },
        file_.model);
  }

  // What a token is, for white space: Unigram's unknown one is the text itself.
  std::string_view token_text(std::string_view word, const WordToken& token) const {
    const auto* unigram = std::get_if<Unigram>(&file_.model);
    const std::string_view part = word.substr(token.begin, token.end - token.begin);
    if (unigram && unigram->is_text(token.id, part)) return part;
    return *file_.vocabulary().token(token.id);
  }

  bool inside_character(std::uint32_t at) const { return at < text_.size() && !begins_character(text_[at]); }

  // White space is counted in characters of the text.
  void trim() {
    for (std::size_t n = 0; n < found_.size(); ++n) {
      Found& token = found_[n];
      auto& [begin, end] = token.span;
      const bool set_before = (n == 0 || begin == 0) && file_.around.keeps_space && token.leading == 1;
      for (std::size_t left = set_before ? 0 : token.leading; left > 0 && begin < end; --left) {
        do ++begin;
        while (inside_character(begin));
      }
      std::uint32_t trimmed = end;
      std::size_t left = token.trailing;
      for (; left > 0 && trimmed > 0; --left) {
        do --trimmed;
        while (inside_character(trimmed));
      }
      if (left == 0) end = std::max(trimmed, begin);
    }
  }

  const TokenizerFile& file_;
  std::string_view text_;
  Growth growth_;
  std::vector<Found> found_;
};

std::vector<Found> encode_text(const TokenizerFile& file, std::string_view text, const char* name) {
  if (text.size() >= UINT32_MAX)
    fail(ErrorCode::bad_value, encoding, "{} has {} bytes, expected less than 4 GiB", name, text.size());
  decode_utf8(text, {encoding, name});
  return Encoder(file, text).run();
}

// ---- From tokens to an encoding ----

void append(Encoding& to, std::int64_t id, Range offsets, bool special, std::int64_t type, std::int64_t text) {
  to.ids.push_back(id), to.offsets.push_back(offsets), to.special.push_back(special);
  to.types.push_back(type), to.texts.push_back(text);
}

Encoding put_together(const std::vector<TemplatePiece>& pieces, const std::vector<Found>* texts, bool special,
                      const Growth& growth) {
  std::uint64_t tokens = 0;
  for (const TemplatePiece& piece : pieces) tokens += piece.text < 0 ? piece.ids.size() : texts[piece.text].size();
  growth.check(tokens);
  Encoding out;
  for (const TemplatePiece& piece : pieces) {
    if (piece.text < 0) {
      for (const std::int64_t id : piece.ids) {
        if (special) append(out, id, {0, 0}, true, piece.type, -1);
      }
      continue;
    }
    for (const Found& token : texts[piece.text]) {
      append(out, token.id, {token.span.begin, token.span.end}, false, piece.type, piece.text);
    }
  }
  return out;
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  if (is_folder(path)) return Tokenizer(std::make_shared<const Parts>(Parts{read_folder("Tokenizer::load", path)}));
  const InputFile file("Tokenizer::load", path);
  return Tokenizer(std::make_shared<const Parts>(Parts{read_tokenizer(file.place(), file.read(0, file.size()))}));
}

Tokenizer Tokenizer::parse(std::string_view json) {
  return Tokenizer(std::make_shared<const Parts>(Parts{read_tokenizer({"Tokenizer::parse"}, json)}));
}

Encoding Tokenizer::encode(std::string_view text, bool special) const {
  const std::vector<Found> found = encode_text(*parts_, text, "text");
  return put_together(parts_->around.single, &found, special, {encoding, text.size()});
}

Encoding Tokenizer::encode_pair(std::string_view text, std::string_view second, bool special) const {
  const std::vector<Found> found[2] = {encode_text(*parts_, text, "text"), encode_text(*parts_, second, "second")};
  return put_together(parts_->around.pair, found, special, {encoding, text.size() + second.size()});
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids, bool skip_special) const {
  constexpr std::uint64_t bytes_of_a_token = 16;  // few have more
  const Growth growth("Tokenizer::decode", ids.size() * bytes_of_a_token);
  std::vector<std::string> tokens;
  std::uint64_t made = 0;
  for (const std::int64_t id : ids) {
    const std::string& of = token(id);
    if (skip_special && parts_->special.contains(of)) continue;
    growth.check(made += of.size());
    tokens.push_back(of);
  }
  if (parts_->decoders) {
    for (const Decoder& step : *parts_->decoders) {
      step(tokens, growth);
      made = 0;
      for (const std::string& part : tokens) growth.check(made += part.size());
    }
    std::string text;
    for (const std::string& part : tokens) text += part;
    return text;
  }
  return fmt::format("{}", fmt::join(tokens, " "));
}

std::string Tokenizer::chat(std::span<const Message> messages, bool add_generation_prompt) const {
  constexpr const char* function = "Tokenizer::chat";
  const Chat& chat = parts_->chat;
  if (messages.empty()) fail(ErrorCode::bad_value, function, "expected messages");
  for (std::size_t n = 0; n < messages.size(); ++n) {
    const auto& [role, content] = messages[n];
    const bool of_pair = (chat.of_pairs || chat.why_not) && (role == "query" || role == "document");
    if (role != "system" && role != "user" && role != "assistant" && !of_pair)
      fail(ErrorCode::bad_value, function, "message {} has the role {}, expected {}", n + 1, quote(role),
           chat.of_pairs ? "system, query or document" : "system, user or assistant");
    decode_utf8(content, {function, fmt::format("message {}", n + 1)});
  }
  if (chat.why_not) throw Error(*chat.why_not);
  if (!chat.render)
    fail(ErrorCode::bad_file, function, "the tokenizer came without the folder or the file that has a chat template");
  return chat.render({messages, add_generation_prompt, chat.bos, chat.eos});
}

std::int64_t Tokenizer::size() const {
  const TokenMap& model = parts_->vocabulary();
  const auto is_new = [&](const auto& added) { return !model.id(added.first); };
  return static_cast<std::int64_t>(model.size()) + std::ranges::count_if(parts_->added.ids(), is_new);
}

std::optional<std::int64_t> Tokenizer::id(std::string_view token) const {
  const auto added = parts_->added.id(token);
  const auto id = added ? added : parts_->vocabulary().id(token);
  return id ? std::optional<std::int64_t>(*id) : std::nullopt;
}

std::optional<std::string> Tokenizer::text(std::int64_t id) const {
  try {
    return decode(std::array{id}, false);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<std::optional<std::string>> Tokenizer::texts(std::span<const std::int64_t> ids) const {
  constexpr std::string_view incomplete = "\xef\xbf\xbd";
  constexpr std::size_t most = 8;  // tokens: a character has up to four bytes, and what stands beside it may have some
  const auto is_whole = [&](const std::optional<std::string>& text) {
    return !text || text->find(incomplete) == std::string::npos;
  };
  std::vector<std::optional<std::string>> texts(ids.size());
  for (std::size_t i = 0; i < ids.size();) {
    texts[i] = text(ids[i]);
    std::size_t count = 1;
    if (!is_whole(texts[i])) {
      for (std::size_t n = 2; n <= std::min(most, ids.size() - i) && count == 1 && text(ids[i + n - 1]); ++n)
        if (const std::string whole = decode(ids.subspan(i, n), false); is_whole(whole)) {
          count = n;
          for (std::size_t k = 0; k < n; ++k) texts[i + k] = fmt::format("{} {}/{}", whole, k + 1, n);
        }
    }
    i += count;
  }
  return texts;
}

const std::string& Tokenizer::token(std::int64_t id) const {
  const bool fits = id >= 0 && id <= UINT32_MAX;
  const std::string* found = fits ? parts_->added.token(static_cast<TokenId>(id)) : nullptr;
  if (fits && !found) found = parts_->vocabulary().token(static_cast<TokenId>(id));
  if (!found) fail(ErrorCode::bad_value, "Tokenizer::token", "{} is not a token's id", id);
  return *found;
}

std::string_view Tokenizer::continuation() const {
  return std::visit(
      [](const auto& of) -> std::string_view {
        if constexpr (requires { of.continuation(); }) return of.continuation();
        return {};
      },
      parts_->model);
}

std::optional<std::int64_t> Tokenizer::unknown() const {
  return std::visit(
      [](const auto& of) -> std::optional<std::int64_t> {
        if constexpr (requires { of.unknown(); }) return of.unknown();
        return {};
      },
      parts_->model);
}

}  // namespace attend::inline v1
