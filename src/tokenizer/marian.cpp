#include "tokenizer/marian.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "tokenizer/file.h"

namespace attend::inline v1::tokenizer {

void Marian::tokenize(std::string_view text, Growth& growth, std::vector<WordToken>& to) const {
  std::uint32_t code = 0;
  const std::size_t end = text.find("<<");
  if (text.starts_with(">>") && end != std::string_view::npos) {
    code = static_cast<std::uint32_t>(end) + 2;
    to.push_back({id_of(text.substr(0, code)), 0, code});
  }
  for (const SentencePiece::Piece& piece : pieces_.encode(text.substr(code), growth))
    to.push_back({id_of(piece.text), code + piece.begin, code + piece.end});
}

namespace {

// ---- What the folder's files say ----

constexpr const char* named[] = {"unk_token", "eos_token", "pad_token", "bos_token",
                                 "sep_token", "cls_token", "mask_token"};

struct Config {
  std::string unknown = "<unk>", end = "</s>", padding = "<pad>";
  std::vector<std::string> more;  // special tokens too
  std::vector<std::pair<std::string, TokenId>> added;
  bool cleans = false;
};

// A token, or an object with its text. One that takes white space along, or stands by itself alone, is another.
std::string read_token(const Member& from) {
  if (from.value().is_string()) return from.text();
  for (const char* key : {"lstrip", "rstrip", "single_word"}) {
    if (from.given(key) && from[key].truth()) fail_at(from[key].place(), "true is not known");
  }
  return from["content"].text();
}

void read_more(const Member& root, const char* key, Config& to) {
  if (!root.given(key)) return;
  for (const Member& each : root[key].list()) to.more.push_back(read_token(each));
}

// {"58100": {"content": "<pad>", ...}, ...}
void read_added(const Member& from, Config& to) {
  if (!from.value().is_object()) from.refuse("an object");
  for (const auto& [key, value] : from.value().items()) {
    const Member of(from.place().in(quote(key)), value);
    TokenId id = 0;
    const char* const end = key.data() + key.size();
    if (const auto read = std::from_chars(key.data(), end, id); read.ec != std::errc() || read.ptr != end)
      fail_at(of.place(), "is no id");
    to.added.emplace_back(read_token(of), id);
  }
}

Config read_config(const Member& root) {
  if (!root.value().is_object()) root.refuse("an object");
  Config to;
  std::string* const texts[] = {&to.unknown, &to.end, &to.padding};
  for (std::size_t n = 0; n < std::size(named); ++n) {
    if (!root.given(named[n])) continue;
    std::string text = read_token(root[named[n]]);
    if (n < std::size(texts)) {
      *texts[n] = std::move(text);
    } else {
      to.more.push_back(std::move(text));
    }
  }
  read_more(root, "additional_special_tokens", to), read_more(root, "extra_special_tokens", to);
  for (const char* key : {"separate_vocabs", "split_special_tokens"}) {
    if (root.given(key) && root[key].truth()) fail_at(root[key].place(), "true is not known");
  }
  if (root.given("sp_model_kwargs") && !root["sp_model_kwargs"].value().empty())
    root["sp_model_kwargs"].refuse("an empty object");
  if (root.given("added_tokens_decoder")) read_added(root["added_tokens_decoder"], to);
  to.cleans = root.given("clean_up_tokenization_spaces") && root["clean_up_tokenization_spaces"].truth();
  return to;
}

// ---- From tokens to text ----

// Special tokens stand between what SentencePiece joins.
Decoder make_decoder(SentencePiece pieces, std::set<std::string, std::less<>> special, bool cleans) {
  return [pieces = std::move(pieces), special = std::move(special), cleans](std::vector<std::string>& parts,
                                                                            const Growth&) {
    std::string text;
    std::vector<std::string> run;
    for (std::string& part : parts) {
      if (special.contains(part)) {
        text += pieces.decode(run) + part + ' ';
        run.clear();
      } else {
        run.push_back(std::move(part));
      }
    }
    text += pieces.decode(run);
    replace_all(text, space_mark, " ");
    text = strip_space(text);
    if (cleans) clean_up(text, false);
    parts.assign(1, text);
  };
}

// ---- All of it ----

TokenId id_of(const Member& vocabulary, const TokenMap& ids, std::string_view token) {
  const auto id = ids.id(token);
  if (!id) fail_at(vocabulary.place(), "the token {} is missing", quote(token));
  return *id;
}

void add_tokens(const Member& from, const TokenMap& vocabulary, const Config& config, TokenizerFile& to) {
  std::vector<AddedToken> tokens;
  std::vector<std::string> texts;
  const auto add = [&](const std::string& text, TokenId id) {
    if (text.empty() || to.added.id(text)) return;
    tokens.push_back({.text = text, .id = id, .normalized = false}), texts.push_back(text);
    to.added.add(text, id);
  };
  for (const auto& [text, id] : config.added) {
    const auto known = vocabulary.id(text);
    if (known ? *known != id : vocabulary.token(id) || to.added.token(id))
      fail_at(from.place(), "the added token {} has the id {}, which is another's", quote(text), id);
    add(text, id);
  }
  std::vector<std::string> special = {config.unknown, config.end, config.padding};
  special.insert(special.end(), config.more.begin(), config.more.end());
  for (const std::string& text : special) {
    if (!to.added.id(text)) add(text, id_of(from, vocabulary, text));
    to.special.insert(text);
  }
  to.before = {std::move(tokens), texts};
}

}  // namespace

TokenizerFile marian_tokenizer(const Member& vocabulary, const Member& config, const SentencePiece& pieces) {
  TokenMap ids = read_vocabulary(vocabulary);
  for (const auto& [token, id] : ids.ids()) {
    if (*ids.token(id) != token)
      fail_at(vocabulary.place(), "{} and {} have one id, {}", quote(token), quote(*ids.token(id)), id);
  }
  const Config said = read_config(config);
  const TokenId unknown = id_of(vocabulary, ids, said.unknown), end = id_of(vocabulary, ids, said.end);
  const TemplatePiece text{.text = 0}, second{.text = 1}, last{.ids = {end}};
  TokenizerFile out{.normalizers = {},
                    .pre_tokenizers = {},
                    .model = Marian(std::move(ids), pieces, unknown),
                    .added = {},
                    .special = {},
                    .before = {},
                    .after = {},
                    .around = {.single = {text, last}, .pair = {text, second, last}},
                    .decoders = {}};
  add_tokens(vocabulary, out.vocabulary(), said, out);
  out.decoders = {make_decoder(pieces, out.special, said.cleans)};
  return out;
}

}  // namespace attend::inline v1::tokenizer
