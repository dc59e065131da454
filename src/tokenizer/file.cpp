#include "tokenizer/file.h"

#include <algorithm>
#include <map>
#include "io/json_file.h"

#include "core/utf8.h"
#include "tokenizer/read.h"

namespace attend::inline v1::tokenizer {

namespace {

constexpr std::int64_t greatest_id = UINT32_MAX - 1;

const nlohmann::json nothing;

// The member, or null where it is not there.
Member member_or_null(const Member& from, const char* name) {
  return from.has(name) ? from[name] : Member(from.place().in(name), nothing);
}

// ---- Models ----

[[noreturn]] void fail_no_token(const Place& place, std::string_view token) {
  fail_at(place, "the token {} is not in the vocabulary", quote(token));
}

void check_token(const Place& place, const TokenMap& vocabulary, std::string_view token) {
  if (!vocabulary.id(token)) fail_no_token(place, token);
}

WordPiece read_wordpiece(const Member& from) {
  from.only({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  TokenMap vocabulary = read_vocabulary(from["vocab"]);
  WordPieceOptions options{from["unk_token"].text(), from["continuing_subword_prefix"].text(),
                           static_cast<std::size_t>(from["max_input_chars_per_word"].whole(0))};
  check_token(from.place().in("unk_token"), vocabulary, options.unknown);
  return {std::move(vocabulary), std::move(options)};
}

// "a b", or ["a", "b"]
std::vector<Merge> read_merges(const Member& from, const TokenMap& vocabulary, std::size_t prefix) {
  if (!from.value().is_array()) from.refuse("a list");
  MergeReader merges(from.place(), vocabulary, prefix);
  const auto text_of = [](const nlohmann::json& of) { return std::string_view(of.get_ref<const std::string&>()); };
  for (const nlohmann::json& each : from.value()) {
    if (each.is_string()) {
      merges.read(text_of(each));
    } else if (each.is_array() && each.size() == 2 && each[0].is_string() && each[1].is_string()) {
      merges.read(text_of(each[0]), text_of(each[1]));
    } else {
      merges.refuse();
    }
  }
  return merges.take();
}

bool read_flag(const Member& from, const char* name) {
  return from.given(name) && from[name].truth();
}

// It is put to each character of a word.
std::string read_affix(const Member& from, const char* name) {
  std::string affix = from.given(name) ? from[name].text() : "";
  if (affix.size() > longest_affix) from[name].refuse(fmt::format("{} bytes at most", longest_affix));
  return affix;
}

Bpe read_bpe(const Member& from) {
  from.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
             "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (from.given("dropout") && from["dropout"].number() != 0)
    fail_at(from.place(), "dropout is for training: not known");
  TokenMap vocabulary = read_vocabulary(from["vocab"]);
  BpeOptions options{.unknown = {},
                     .prefix = read_affix(from, "continuing_subword_prefix"),
                     .suffix = read_affix(from, "end_of_word_suffix"),
                     .fuse_unknown = read_flag(from, "fuse_unk"),
                     .byte_fallback = read_flag(from, "byte_fallback"),
                     .ignore_merges = read_flag(from, "ignore_merges")};
  if (from.given("unk_token")) {
    options.unknown = from["unk_token"].text();
    check_token(from.place().in("unk_token"), vocabulary, *options.unknown);
  }
  // `tokenizers` counts an affix's bytes among the text's: offsets beyond its end.
  if (options.byte_fallback && !(options.prefix.empty() && options.suffix.empty()))
    fail_at(from.place(), "byte_fallback beside a prefix or a suffix is not known");
  const std::vector<Merge> merges = read_merges(from["merges"], vocabulary, options.prefix.size());
  return {std::move(vocabulary), merges, std::move(options)};
}

// [["a", -1.5], ...]: a token's id is its place.
Unigram read_unigram(const Member& from) {
  from.only({"type", "unk_id", "vocab", "byte_fallback"});
  TokenMap vocabulary;
  std::vector<double> scores;
  std::size_t bytes = 0;
  const Member list = from["vocab"];
  if (!list.value().is_array()) list.refuse("a list");
  vocabulary.reserve(list.value().size());
  for (const nlohmann::json& each : list.value()) {
    const Place place = list.place().in(fmt::format("{}", scores.size()));
    if (!each.is_array() || each.size() != 2 || !each[0].is_string() || !each[1].is_number())
      fail_at(place, "expected a token and its score");
    const auto& token = each[0].get_ref<const std::string&>();
    bytes += token.size();
    if (bytes >= UINT32_MAX) fail_at(place, "4 GiB of tokens, expected less");
    if (vocabulary.id(token)) fail_at(place, "{} comes twice", quote(token));
    vocabulary.add(token, static_cast<TokenId>(scores.size()));
    scores.push_back(each[1].get<double>());
  }
  UnigramOptions options{.byte_fallback = read_flag(from, "byte_fallback")};
  if (from.given("unk_id")) {
    if (scores.empty()) list.refuse("tokens");
    options.unknown = static_cast<TokenId>(from["unk_id"].whole(0, std::ssize(scores) - 1));
  }
  return {std::move(vocabulary), std::move(scores), options};
}

WordLevel read_wordlevel(const Member& from) {
  from.only({"type", "vocab", "unk_token"});
  return {read_vocabulary(from["vocab"]), from["unk_token"].text()};
}

TokenizerFile::Model read_model(const Member& from) {
  const std::string type = from["type"].text();
  if (type == "WordPiece") return read_wordpiece(from);
  if (type == "BPE") return read_bpe(from);
  if (type == "Unigram") return read_unigram(from);
  if (type == "WordLevel") return read_wordlevel(from);
  fail_at(from.place(), "the model {} is not known", quote(type));
}

// ---- Added tokens ----

AddedToken read_added(const Member& from) {
  from.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token{.text = from["content"].text(),
                   .id = static_cast<TokenId>(from["id"].whole(0, greatest_id)),
                   .single_word = from["single_word"].truth(),
                   .left = from["lstrip"].truth(),
                   .right = from["rstrip"].truth(),
                   .normalized = from["normalized"].truth(),
                   .special = from["special"].truth()};
  if (token.text.empty()) from["content"].refuse("text");
  return token;
}

// `tokenizers` gives a token the id that the model has for it, or the next one, whatever the file says.
void check_id(const Member& from, const AddedToken& token, const TokenizerFile& file, TokenId& next) {
  const auto of_model = file.vocabulary().id(token.text);
  const TokenId id = of_model ? *of_model : next;
  if (id != token.id) fail_at(from.place(), "{} has the id {}, expected {}", quote(token.text), token.id, id);
  if (!of_model || id == next) ++next;
  if (file.added.id(token.text)) fail_at(from.place(), "{} comes twice", quote(token.text));
}

// What the normalisers refuse of a text is here the file's own.
std::string normalized_text(const Place& place, const AddedToken& token, const std::vector<Normalizer>& normalizers,
                            Growth& growth) {
  Characters text(token.text, 0, growth);
  try {
    for (const Normalizer& step : normalizers) step(text);
    growth.keep(text.points().size());
  } catch (const Error& error) {
    fail_at(place, "{}, which is normalised: {}", quote(token.text), error.detail());
  }
  if (text.points().empty()) fail_at(place, "{} is empty once it is normalised", quote(token.text));
  return encode_utf8(text.points());
}

// Sorts the tokens into those that are sought before normalisation and after it.
void seek(const Place& place, const std::vector<AddedToken>& tokens, TokenizerFile& to) {
  std::vector<AddedToken> before, after;
  std::vector<std::string> texts_before, texts_after;
  std::map<std::string, std::string> of_text;
  std::uint64_t bytes = 0;
  for (const AddedToken& token : tokens) bytes += token.text.size();
  Growth growth("Tokenizer::encode", bytes);
  for (const AddedToken& token : tokens) {
    if (!token.normalized) {
      before.push_back(token), texts_before.push_back(token.text);
    } else {
      std::string text = normalized_text(place, token, to.normalizers, growth);
      if (!of_text.emplace(text, token.text).second)  // which of them is found is chance in `tokenizers`
        fail_at(place, "{} and {} are one text once they are normalised", quote(of_text[text]), quote(token.text));
      after.push_back(token), texts_after.push_back(std::move(text));
      to.added.call(token.id, texts_after.back());  // so does `tokenizers` decode it
    }
  }
  to.before = {std::move(before), texts_before}, to.after = {std::move(after), texts_after};
}

void read_added_tokens(const Member& from, TokenizerFile& to) {
  if (from.value().is_null()) return;
  std::vector<AddedToken> tokens;
  auto next = static_cast<TokenId>(to.vocabulary().size());
  for (const Member& each : from.list()) {
    tokens.push_back(read_added(each));
    check_id(each, tokens.back(), to, next);
    to.added.add(tokens.back().text, tokens.back().id);
    if (tokens.back().special) to.special.insert(tokens.back().text);
  }
  seek(from.place(), tokens, to);
}

void check_template(const Place& place, const TokenizerFile& file) {
  for (const auto* pieces : {&file.around.single, &file.around.pair}) {
    for (const TemplatePiece& piece : *pieces) {
      for (const std::int64_t id : piece.ids) {
        const auto of = static_cast<TokenId>(id);
        if (!file.added.token(of) && !file.vocabulary().token(of)) fail_at(place, "{} is not a token's id", id);
      }
    }
  }
}

}  // namespace

TokenMap read_vocabulary(const Member& from) {
  if (!from.value().is_object()) from.refuse("an object");
  TokenMap vocabulary;
  vocabulary.reserve(from.value().size());
  for (const auto& [token, id] : from.value().items()) {
    vocabulary.add(token, static_cast<TokenId>(Member(from.place(), id).whole(0, greatest_id)));
  }
  if (vocabulary.size() == 0) from.refuse("tokens");
  return vocabulary;
}

Place MergeReader::place() const {
  return place_.in(fmt::format("{}", merges_.size()));
}

void MergeReader::refuse() const {
  fail_at(place(), "expected two tokens");
}

TokenId MergeReader::id(std::string_view token) const {
  const auto found = vocabulary_.id(token);
  if (!found) fail_no_token(place(), token);
  return *found;
}

void MergeReader::read(std::string_view first, std::string_view second) {
  if (second.size() < prefix_) fail_at(place(), "{} is shorter than the prefix", quote(second));
  merged_.assign(first).append(second.substr(prefix_));
  merges_.push_back({id(first), id(second), id(merged_)});
}

void MergeReader::read(std::string_view both) {
  const std::size_t space = both.find(' ');
  if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos) refuse();
  read(both.substr(0, space), both.substr(space + 1));
}

TokenizerFile read_tokenizer(const Place& place, std::string_view text) {
  const nlohmann::json json = parse_json(place, text);
  const Member root(place, json);
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  if (root["version"].text() != "1.0") fail_at(root["version"].place(), "expected 1.0");
  const Member around = member_or_null(root, "post_processor");
  TokenizerFile file{
      .normalizers = read_normalizers(member_or_null(root, "normalizer")),
      .pre_tokenizers = read_pre_tokenizers(member_or_null(root, "pre_tokenizer"), root["model"]["type"].text()),
      .model = read_model(root["model"]),
      .added = {},
      .special = {},
      .before = {},
      .after = {},
      .around = read_template(around),
      .decoders = read_decoders(member_or_null(root, "decoder"))};
  read_added_tokens(member_or_null(root, "added_tokens"), file);
  check_template(around.place(), file);
  return file;
}

namespace {

// tokenizer_config.json as Transformers reads it: older files stand beside it.
JsonFile read_config(std::string_view function, const std::filesystem::path& folder) {
  const auto has = [&](const char* name) { return is_there(folder / name); };
  JsonFile config{{std::string(function), quote(folder.string())}, nlohmann::json::object()};
  if (has("tokenizer_config.json")) config = read_json(function, folder / "tokenizer_config.json");
  if (!config.value.is_object() || config.value.contains("added_tokens_decoder")) return config;
  if (has("special_tokens_map.json")) {
    config.value.update(read_json(function, folder / "special_tokens_map.json").object().value());
  }
  if (has("added_tokens.json")) {
    const JsonFile added = read_json(function, folder / "added_tokens.json");
    const TokenMap tokens = read_vocabulary(added.root());
    for (const auto& [token, id] : tokens.ids()) config.value["added_tokens_decoder"][std::to_string(id)] = token;
  }
  return config;
}

}  // namespace

TokenizerFile read_folder(std::string_view function, const std::filesystem::path& path) {
  const auto has = [&](const char* name) { return is_there(path / name); };
  if (!has("tokenizer.json") && has("source.spm") && has("vocab.json")) {
    const JsonFile vocabulary = read_json(function, path / "vocab.json"), config = read_config(function, path);
    const InputFile file(function, path / "source.spm");
    return marian_tokenizer(vocabulary.root(), config.root(), {file.place(), file.read(0, file.size())});
  }
  for (const char* name : {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.txt", "vocab.json"}) {
    if (!has("tokenizer.json") && has(name))
      fail_at({std::string(function), quote((path / name).string())},
              "is not read without a tokenizer.json beside it. Transformers writes one: "
              "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)");
  }
  const InputFile file(function, path / "tokenizer.json");
  TokenizerFile tokenizer = read_tokenizer(file.place(), file.read(0, file.size()));
  tokenizer.chat = read_chat(path);
  return tokenizer;
}

}  // namespace attend::inline v1::tokenizer
