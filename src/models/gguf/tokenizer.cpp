// The tokenizer of a GGUF file. Where its pre-tokeniser has a name, everything is as in the tokenizer.json of the model
// that the name stands for.
#include <algorithm>
#include <optional>
#include <set>

#include "core/utf8.h"
#include "models/gguf/file.h"
#include "models/gguf/own_keys.h"
#include "models/gguf/pre_tokenizers.h"
#include "models/gguf/read.h"

namespace attend::inline v1::models {

using namespace tokenizer;

namespace {

using nlohmann::json;

constexpr const char *tokens_key = "tokenizer.ggml.tokens", *merges_key = "tokenizer.ggml.merges";
constexpr std::int64_t greatest_id = (std::int64_t{1} << 31) - 1;

std::optional<std::int64_t> find_id(const GgufFile& file, const std::string& which, std::size_t tokens) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", which);
  if (!file.has(key)) return std::nullopt;
  const std::int64_t id = file.whole(key, 0, greatest_id);
  if (static_cast<std::size_t>(id) >= tokens) file.refuse(key, fmt::format("{} is not a token's id", id));
  return id;
}

bool read_truth(const GgufFile& file, const char* key, bool otherwise) {
  return file.has(key) ? file.truth(key) : otherwise;
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int64_t> types;
  TokenMap ids;
};

std::vector<std::int64_t> read_types(const GgufFile& file, std::size_t tokens) {
  constexpr const char* key = "tokenizer.ggml.token_type";
  if (!file.has(key)) return std::vector<std::int64_t>(tokens, gguf_token::normal);
  std::vector<std::int64_t> types = file.wholes(key);
  if (types.size() != tokens) file.refuse(key, fmt::format("{} types for {} tokens", types.size(), tokens));
  for (std::size_t id = 0; id < tokens; ++id) {
    if (types[id] < gguf_token::normal || types[id] > gguf_token::byte) {
      file.refuse(key, fmt::format("{}: the type {} is not known", id, types[id]));
    }
  }
  return types;
}

// In the file a space stands before what begins a word, and in the folder ## before what does not.
void set_prefixes(Vocabulary& of) {
  constexpr std::string_view space = "▁";
  for (std::size_t id = 0; id < of.tokens.size(); ++id) {
    std::string& token = of.tokens[id];
    if (of.types[id] == gguf_token::control) continue;
    token = token.starts_with(space) ? token.substr(space.size()) : "##" + token;
  }
}

Vocabulary read_vocabulary(const GgufFile& file, bool wordpiece) {
  Vocabulary out{file.texts(tokens_key), {}, {}};
  const std::size_t count = out.tokens.size();
  if (count == 0 || count > static_cast<std::size_t>(greatest_id)) {
    file.refuse(tokens_key, fmt::format("{} tokens, expected 1 to 2^31 - 1", count));
  }
  out.types = read_types(file, count);
  if (wordpiece) set_prefixes(out);
  out.ids.reserve(count);
  for (std::size_t id = 0; id < count; ++id) {
    out.ids.add(out.tokens[id], static_cast<TokenId>(id));
    if (out.ids.size() == id) file.refuse(tokens_key, fmt::format("{} comes twice", quote(out.tokens[id])));
  }
  return out;
}

// What is sought in a text before it is split. What begins or ends a text, or stands for an unknown one, is special
// whatever its type says.
void add_tokens(const GgufFile& file, const Vocabulary& vocabulary, TokenizerFile& to) {
  std::set<std::int64_t> special;
  for (const char* which : {"bos", "eos", "unknown", "padding", "seperator", "mask"}) {
    if (const auto id = find_id(file, which, vocabulary.tokens.size())) special.insert(*id);
  }
  std::vector<AddedToken> added;
  std::vector<std::string> texts;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::int64_t type = vocabulary.types[id];
    const bool is_special = type == gguf_token::control || special.contains(static_cast<std::int64_t>(id));
    const std::string& text = vocabulary.tokens[id];
    if ((!is_special && type != gguf_token::user_defined) || text.empty()) continue;
    added.push_back({.text = text, .id = static_cast<TokenId>(id), .normalized = false, .special = is_special});
    texts.push_back(text);
    to.added.add(text, added.back().id);
    if (is_special) to.special.insert(text);
  }
  to.before = {std::move(added), texts};
}

// The tokens around a text, and around each of a pair.
Template make_template(const GgufFile& file, const Vocabulary& vocabulary, bool adds_bos) {
  Template out{.single = {}, .pair = {}};
  const auto add = [&](const TemplatePiece& piece, int text) {
    if (text == 0) out.single.push_back(piece);
    out.pair.push_back(piece);
  };
  const auto add_token = [&](bool wanted, const char* which, int text) {
    if (!wanted) return;
    const auto id = find_id(file, which, vocabulary.tokens.size());
    if (!id) fail_at(file.place(), "'tokenizer.ggml.{}_token_id' is missing, although it is to be added", which);
    add({.ids = {*id}, .type = text}, text);
  };
  const bool adds_eos = read_truth(file, "tokenizer.ggml.add_eos_token", false);
  for (const int text : {0, 1}) {
    add_token(adds_bos, "bos", text);
    add({.text = text, .type = text}, text);
    add_token(adds_eos, "eos", text);
  }
  return out;
}

std::int64_t needed_id(const GgufFile& file, const char* which, const char* older, std::size_t tokens) {
  if (const auto id = find_id(file, which, tokens)) return *id;
  if (const auto id = find_id(file, older, tokens)) return *id;
  fail_at(file.place(), "'tokenizer.ggml.{}_token_id' is missing, although it is to be added", which);
}

// [CLS] first [SEP] second [SEP]
Template bert_template(const GgufFile& file, std::size_t tokens) {
  const TemplatePiece cls{.ids = {needed_id(file, "bos", "cls", tokens)}};
  const std::int64_t sep = needed_id(file, "seperator", "eos", tokens);
  Template out{.single = {cls, {.text = 0}, {.ids = {sep}}}, .pair = {}};
  out.pair = out.single;
  out.pair.push_back({.text = 1, .type = 1});
  out.pair.push_back({.ids = {sep}, .type = 1});
  return out;
}

std::vector<Merge> read_merges(const GgufFile& file, const Vocabulary& vocabulary) {
  const Place place = file.place().in(quote(merges_key));
  MergeReader merges(place, vocabulary.ids, 0);
  for (const std::string& each : file.texts(merges_key)) merges.read(each);
  return merges.take();
}

// From text to words, and from tokens to text. Those that the format knows by name are made once.
struct Steps {
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  std::optional<std::vector<Decoder>> decoders;
};

// As a tokenizer.json has them.
Steps make_steps(const json& normalizer, const json& pre_tokenizer, const json& decoder) {
  const Place place{"Model.load_tokenizer"};
  return {read_normalizers({place, normalizer}), read_pre_tokenizers({place, pre_tokenizer}, "BPE"),
          read_decoders({place, decoder})};
}

TokenizerFile put_together(const GgufFile& file, const Vocabulary& vocabulary, const Steps& steps,
                           TokenizerFile::Model model, Template around) {
  TokenizerFile out{.normalizers = steps.normalizers,
                    .pre_tokenizers = steps.pre_tokenizers,
                    .model = std::move(model),
                    .added = {},
                    .special = {},
                    .before = {},
                    .after = {},
                    .around = std::move(around),
                    .decoders = steps.decoders};
  add_tokens(file, vocabulary, out);
  return out;
}

// ---- Byte-level ----

struct ReadByteLevelKind {
  const ByteLevelKind& kind;
  Steps steps;
};

const ReadByteLevelKind& byte_level_kind(const GgufFile& file) {
  static const std::vector<ReadByteLevelKind> all = [] {
    std::vector<ReadByteLevelKind> read;
    for (const ByteLevelKind& each : byte_level_kinds())
      read.push_back({each, make_steps(each.normalizer, each.pre_tokenizer, byte_level(true))});
    return read;
  }();
  constexpr const char* key = "tokenizer.ggml.pre";
  const std::string name = file.text(key);
  const auto found = std::ranges::find(all, name, [](const ReadByteLevelKind& each) { return each.kind.name; });
  if (found != all.end()) return *found;
  file.refuse(key, fmt::format("the pre-tokeniser {} is not known; gpt-2, smollm, llama-bpe, qwen2 and modern-bert are",
                               quote(name)));
}

TokenizerFile byte_level_tokenizer(const GgufFile& file, Vocabulary vocabulary) {
  const auto& [kind, steps] = byte_level_kind(file);
  const std::vector<Merge> merges = read_merges(file, vocabulary);
  const bool adds_bos = read_truth(file, "tokenizer.ggml.add_bos_token", kind.adds_bos);
  Bpe model(std::move(vocabulary.ids), merges, {.ignore_merges = kind.ignore_merges});
  return put_together(
      file, vocabulary, steps, std::move(model),
      kind.as_bert ? bert_template(file, vocabulary.tokens.size()) : make_template(file, vocabulary, adds_bos));
}

// ---- As SentencePiece has it ----

constexpr std::size_t longest_token = 1024;  // all ways to cut one are looked at

struct Derived {
  Merge merge;
  double score;
  std::size_t first_size, second_size;  // in characters
};

// The ways to make the token of two others, in the order of their ids.
void derive(std::string_view token, TokenId id, double score, const TokenMap& ids, std::vector<Derived>& to) {
  const std::size_t start = to.size();
  const auto size = static_cast<std::size_t>(std::ranges::count_if(token, begins_character));
  std::size_t characters = 1;
  for (std::size_t at = 1; at < token.size(); ++at) {
    if (!begins_character(token[at])) continue;
    const auto first = ids.id(token.substr(0, at)), second = ids.id(token.substr(at));
    if (first && second) to.push_back({{*first, *second, id}, score, characters, size - characters});
    ++characters;
  }
  std::sort(to.begin() + static_cast<std::ptrdiff_t>(start), to.end(), [](const Derived& a, const Derived& b) {
    return std::pair(a.merge.first, a.merge.second) < std::pair(b.merge.first, b.merge.second);
  });
}

std::vector<double> read_scores(const GgufFile& file, const std::vector<std::string>& tokens) {
  constexpr const char* key = "tokenizer.ggml.scores";
  std::vector<double> scores = file.numbers(key);
  if (scores.size() != tokens.size()) {
    file.refuse(key, fmt::format("{} scores for {} tokens", scores.size(), tokens.size()));
  }
  for (std::size_t id = 0; id < scores.size(); ++id) {
    if (tokens[id].size() > longest_token) {
      file.refuse(tokens_key, fmt::format("{}: {} bytes, at most {} are read", id, tokens[id].size(), longest_token));
    }
    if (scores[id] != scores[id]) file.refuse(key, fmt::format("{}: is not a number", id));
  }
  return scores;
}

const Steps& sentencepiece_steps(bool prefix) {
  const auto make = [](bool prefixed) {
    const char* scheme = prefixed ? "first" : "never";
    return make_steps(nullptr,
                      {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", false}},
                      sentencepiece_decoder(prefixed));
  };
  static const Steps with = make(true), without = make(false);
  return prefix ? with : without;
}

TokenizerFile sentencepiece_tokenizer(const GgufFile& file, Vocabulary vocabulary) {
  const std::vector<Merge> merges =
      file.has(merges_key) ? read_merges(file, vocabulary)
                           : derive_merges(vocabulary.tokens, read_scores(file, vocabulary.tokens), vocabulary.ids);
  BpeOptions options{.fuse_unknown = true, .byte_fallback = true};
  if (const auto id = find_id(file, "unknown", vocabulary.tokens.size())) {
    options.unknown = vocabulary.tokens[static_cast<std::size_t>(*id)];
  }
  const Steps& steps = sentencepiece_steps(read_truth(file, "tokenizer.ggml.add_space_prefix", true));
  const bool adds_bos = read_truth(file, "tokenizer.ggml.add_bos_token", true);
  Bpe model(std::move(vocabulary.ids), merges, std::move(options));
  return put_together(file, vocabulary, steps, std::move(model), make_template(file, vocabulary, adds_bos));
}

// ---- WordPiece ----

// Files of llama.cpp's older versions do not say it, and are read by it as lower-case. A vocabulary with capitals is
// another, which that would never find.
bool lower_case(const GgufFile& file, const Vocabulary& vocabulary) {
  constexpr const char* key = "tokenizer.ggml.normalizer.lowercase";
  if (file.has(key)) return file.truth(key);
  const auto is_capital = [](char c) { return c >= 'A' && c <= 'Z'; };
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& token = vocabulary.tokens[id];
    if (vocabulary.types[id] == gguf_token::normal && !token.starts_with('[') && std::ranges::any_of(token, is_capital))
      fail_at(file.place(), "'{}' is missing, and the token {} has a capital", key, quote(token));
  }
  return true;
}

TokenizerFile wordpiece_tokenizer(const GgufFile& file, Vocabulary vocabulary) {
  constexpr const char* accents = "tokenizer.ggml.normalizer.strip_accents";
  const json normalizer = {{"type", "BertNormalizer"},
                           {"clean_text", true},
                           {"handle_chinese_chars", true},
                           {"strip_accents", file.has(accents) ? json(file.truth(accents)) : json(nullptr)},
                           {"lowercase", lower_case(file, vocabulary)}};
  const Steps steps = make_steps(normalizer, {{"type", "BertPreTokenizer"}}, wordpiece_decoder());
  const std::size_t count = vocabulary.tokens.size();
  const std::int64_t unknown = needed_id(file, "unknown", "unk", count);
  WordPiece model(std::move(vocabulary.ids), {.unknown = vocabulary.tokens[static_cast<std::size_t>(unknown)]});
  return put_together(file, vocabulary, steps, std::move(model), bert_template(file, count));
}

}  // namespace

std::vector<Merge> derive_merges(const std::vector<std::string>& tokens, const std::vector<double>& scores,
                                 const TokenMap& ids) {
  std::vector<Derived> found;
  for (std::size_t id = 0; id < tokens.size(); ++id)
    derive(tokens[id], static_cast<TokenId>(id), scores[id], ids, found);
  std::ranges::stable_sort(found, [](const Derived& a, const Derived& b) {
    return std::tuple(a.score, a.first_size, a.second_size) > std::tuple(b.score, b.first_size, b.second_size);
  });
  std::vector<Merge> merges;
  merges.reserve(found.size());
  for (const Derived& each : found) merges.push_back(each.merge);
  return merges;
}

namespace {

tokenizer::Chat read_gguf_chat(const GgufFile& file, const std::vector<std::string>& tokens) {
  constexpr const char* key = "tokenizer.chat_template";
  const Place place{"Tokenizer::chat", file.place().part};
  if (!file.has(key))
    return {.why_not = Error(ErrorCode::bad_file, place.function, place.in("there is no chat template").part)};
  Chat chat = recognize_chat(place, file.text(key));
  const auto token = [&](const char* which) {
    const auto id = find_id(file, which, tokens.size());
    return id ? std::optional(tokens[static_cast<std::size_t>(*id)]) : std::nullopt;
  };
  chat.bos = token("bos"), chat.eos = token("eos");
  read_own_chat_tokens(file, chat);
  return chat;
}

}  // namespace

std::string gguf_tokenizer_json(std::string_view function, const std::filesystem::path& path) {
  return GgufFile(function, path).text(gguf_whole_tokenizer);
}

TokenizerFile gguf_tokenizer(std::string_view function, const std::filesystem::path& path) {
  const GgufFile file(function, path);
  constexpr const char* key = "tokenizer.ggml.model";
  const std::string model = file.text(key);
  using Make = TokenizerFile (*)(const GgufFile&, Vocabulary);
  const Make make = model == "gpt2"    ? byte_level_tokenizer
                    : model == "llama" ? sentencepiece_tokenizer
                    : model == "bert"  ? wordpiece_tokenizer
                                       : nullptr;
  const bool is_whole = file.has(gguf_whole_tokenizer);
  if (!make && model != "t5")
    file.refuse(key, fmt::format("the tokenizer {} is not known; gpt2, llama, bert and t5 are", quote(model)));
  if (!make && !is_whole)
    file.refuse(key, fmt::format("t5 is read from '{}' alone, which is missing", gguf_whole_tokenizer));
  Vocabulary vocabulary = read_vocabulary(file, model == "bert");
  tokenizer::Chat chat = read_gguf_chat(file, vocabulary.tokens);
  TokenizerFile out =
      is_whole ? read_tokenizer(file.place().in(quote(gguf_whole_tokenizer)), file.text(gguf_whole_tokenizer))
               : make(file, std::move(vocabulary));
  out.chat = std::move(chat);
  return out;
}

}  // namespace attend::inline v1::models
