// The tokenizer.json of a GGUF file. Where its pre-tokeniser has a name, everything is as in the tokenizer.json of the
// model that the name stands for.
#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>

#include "core/utf8.h"
#include "models/gguf.h"
#include "models/gguf_file.h"

namespace attend::models {

namespace {

using nlohmann::json;

constexpr const char* tokens_key = "tokenizer.ggml.tokens";
constexpr std::int64_t greatest_id = (std::int64_t{1} << 31) - 1;

// What the format knows of a token.
enum : std::int64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

std::optional<std::int64_t> find_id(const GgufFile& file, const std::string& which, std::size_t tokens) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", which);
  if (!file.has(key)) return std::nullopt;
  const std::int64_t id = file.whole(key, 0, greatest_id);
  if (static_cast<std::size_t>(id) >= tokens) file.refuse(key, fmt::format("{} is no token's id", id));
  return id;
}

bool read_truth(const GgufFile& file, const char* key, bool otherwise) {
  return file.has(key) ? file.truth(key) : otherwise;
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int64_t> types;
  std::vector<std::size_t> in_order;  // the ids, by their tokens' text
};

std::vector<std::size_t> in_order(const std::vector<std::string>& tokens) {
  std::vector<std::size_t> ids(tokens.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  std::ranges::sort(ids, {}, [&](std::size_t id) -> const std::string& { return tokens[id]; });
  return ids;
}

Vocabulary read_vocabulary(const GgufFile& file) {
  Vocabulary out{file.texts(tokens_key), {}, {}};
  if (out.tokens.empty() || out.tokens.size() > static_cast<std::size_t>(greatest_id)) {
    file.refuse(tokens_key, fmt::format("{} tokens, expected 1 to 2^31 - 1", out.tokens.size()));
  }
  constexpr const char* key = "tokenizer.ggml.token_type";
  out.types = file.has(key) ? file.wholes(key) : std::vector<std::int64_t>(out.tokens.size(), normal);
  if (out.types.size() != out.tokens.size()) {
    file.refuse(key, fmt::format("{} types for {} tokens", out.types.size(), out.tokens.size()));
  }
  for (std::size_t id = 0; id < out.tokens.size(); ++id) {
    if (out.types[id] < normal || out.types[id] > byte) {
      file.refuse(key, fmt::format("{}: the type {} is not known", id, out.types[id]));
    }
  }
  out.in_order = in_order(out.tokens);
  const auto text = [&](std::size_t id) -> const std::string& { return out.tokens[id]; };
  const auto twice = std::ranges::adjacent_find(out.in_order, {}, text);
  if (twice != out.in_order.end()) file.refuse(tokens_key, fmt::format("{} comes twice", quote(text(*twice))));
  return out;
}

json vocabulary_ids(const Vocabulary& vocabulary) {
  json::object_t ids;
  for (const std::size_t id : vocabulary.in_order) ids.emplace_hint(ids.end(), vocabulary.tokens[id], id);
  return ids;
}

// What is sought in a text before it is split. What begins or ends a text, or stands for an unknown one, is special
// whatever its type says.
json added_tokens(const GgufFile& file, const Vocabulary& vocabulary) {
  std::set<std::int64_t> special;
  for (const char* which : {"bos", "eos", "unknown", "padding"}) {
    if (const auto id = find_id(file, which, vocabulary.tokens.size())) special.insert(*id);
  }
  json added = json::array();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::int64_t type = vocabulary.types[id];
    const bool is_special = type == control || special.contains(static_cast<std::int64_t>(id));
    if ((!is_special && type != user_defined) || vocabulary.tokens[id].empty()) continue;
    added.push_back({{"id", id},
                     {"content", vocabulary.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", is_special}});
  }
  return added;
}

// The tokens around a text, and around each of a pair.
json make_template(const GgufFile& file, const Vocabulary& vocabulary, bool adds_bos) {
  json single = json::array(), pair = json::array(), special = json::object();
  const auto add = [&](bool wanted, const char* which, int text) {
    if (!wanted) return;
    const auto id = find_id(file, which, vocabulary.tokens.size());
    if (!id) fail_at(file.place(), "'tokenizer.ggml.{}_token_id' is missing, which is to be added", which);
    const std::string& token = vocabulary.tokens[static_cast<std::size_t>(*id)];
    const json piece = {{"SpecialToken", {{"id", token}, {"type_id", text}}}};
    if (text == 0) single.push_back(piece);
    pair.push_back(piece);
    special[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
  };
  const bool adds_eos = read_truth(file, "tokenizer.ggml.add_eos_token", false);
  for (const int text : {0, 1}) {
    add(adds_bos, "bos", text);
    const json piece = {{"Sequence", {{"id", text == 0 ? "A" : "B"}, {"type_id", text}}}};
    if (text == 0) single.push_back(piece);
    pair.push_back(piece);
    add(adds_eos, "eos", text);
  }
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

json make_bpe(const Vocabulary& vocabulary, json merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", vocabulary_ids(vocabulary)},
          {"merges", std::move(merges)}};
}

// ---- Byte-level ----

json byte_level(bool splits) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", splits}};
}

json sequence(const char* list, std::initializer_list<json> steps) {
  return {{"type", "Sequence"}, {list, json::array_t(steps)}};
}

json split_before_bytes(const char* pattern) {
  return sequence("pretokenizers",
                  {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
                   byte_level(false)});
}

// How a text is cut into words.
struct ByteLevelKind {
  json normalizer = nullptr;
  json pre_tokenizer;
  bool ignore_merges = false;  // a word that is a token stays whole
  bool adds_bos = false;       // where the file does not say
};

ByteLevelKind byte_level_kind(const GgufFile& file) {
  constexpr const char* key = "tokenizer.ggml.pre";
  const std::string name = file.text(key);
  if (name == "gpt-2") return {nullptr, byte_level(true)};
  if (name == "smollm") {
    const json digits = {{"type", "Digits"}, {"individual_digits", true}};
    return {nullptr, sequence("pretokenizers", {digits, byte_level(true)})};
  }
  if (name == "llama-bpe") {
    return {.pre_tokenizer = split_before_bytes(
                R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"),
            .ignore_merges = true,
            .adds_bos = true};
  }
  if (name == "qwen2") {
    return {.normalizer = {{"type", "NFC"}},
            .pre_tokenizer = split_before_bytes(
                R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                R"(|\s*[\r\n]+|\s+(?!\S)|\s+)")};
  }
  file.refuse(key,
              fmt::format("the pre-tokeniser {} is not known; gpt-2, smollm, llama-bpe and qwen2 are", quote(name)));
}

json byte_level_tokenizer(const GgufFile& file, const Vocabulary& vocabulary) {
  const ByteLevelKind kind = byte_level_kind(file);
  json model = make_bpe(vocabulary, file.texts("tokenizer.ggml.merges"));
  model["ignore_merges"] = kind.ignore_merges;
  const bool adds_bos = read_truth(file, "tokenizer.ggml.add_bos_token", kind.adds_bos);
  return {{"normalizer", kind.normalizer},
          {"pre_tokenizer", kind.pre_tokenizer},
          {"post_processor", make_template(file, vocabulary, adds_bos)},
          {"decoder", byte_level(true)},
          {"model", std::move(model)}};
}

// ---- As SentencePiece has it ----

constexpr std::size_t longest_token = 1024;  // all ways to cut one are looked at

using Ids = std::unordered_map<std::string_view, std::size_t>;

struct Derived {
  std::string_view first, second;
  double score;
  std::size_t first_size, second_size;  // in characters
};

// The ways to make the token of two others, in the order of their ids.
void derive(std::string_view token, double score, const Ids& ids, std::vector<Derived>& to) {
  const std::size_t start = to.size();
  const auto size = static_cast<std::size_t>(std::ranges::count_if(token, begins_character));
  std::size_t characters = 1;
  for (std::size_t at = 1; at < token.size(); ++at) {
    if (!begins_character(token[at])) continue;
    const std::string_view first = token.substr(0, at), second = token.substr(at);
    if (ids.contains(first) && ids.contains(second)) {
      to.push_back({first, second, score, characters, size - characters});
    }
    ++characters;
  }
  const auto ids_of = [&](const Derived& each) { return std::pair(ids.at(each.first), ids.at(each.second)); };
  std::sort(to.begin() + static_cast<std::ptrdiff_t>(start), to.end(),
            [&](const Derived& a, const Derived& b) { return ids_of(a) < ids_of(b); });
}

// The file has scores instead of merges: the best token is made first, and of its ways that with the longest parts.
json derive_merges(const GgufFile& file, const Vocabulary& vocabulary) {
  constexpr const char* key = "tokenizer.ggml.scores";
  const std::vector<double> scores = file.numbers(key);
  if (scores.size() != vocabulary.tokens.size()) {
    file.refuse(key, fmt::format("{} scores for {} tokens", scores.size(), vocabulary.tokens.size()));
  }
  Ids ids;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) ids.emplace(vocabulary.tokens[id], id);
  std::vector<Derived> merges;
  for (std::size_t id = 0; id < scores.size(); ++id) {
    if (vocabulary.tokens[id].size() > longest_token) {
      file.refuse(tokens_key,
                  fmt::format("{}: {} bytes, at most {} are read", id, vocabulary.tokens[id].size(), longest_token));
    }
    if (scores[id] != scores[id]) file.refuse(key, fmt::format("{}: is no number", id));
    derive(vocabulary.tokens[id], scores[id], ids, merges);
  }
  std::ranges::stable_sort(merges, [](const Derived& a, const Derived& b) {
    return std::tuple(a.score, a.first_size, a.second_size) > std::tuple(b.score, b.first_size, b.second_size);
  });
  json out = json::array();
  for (const Derived& each : merges) out.push_back({each.first, each.second});
  return out;
}

json sentencepiece_tokenizer(const GgufFile& file, const Vocabulary& vocabulary) {
  constexpr const char* merges_key = "tokenizer.ggml.merges";
  json merges = file.has(merges_key) ? json(file.texts(merges_key)) : derive_merges(file, vocabulary);
  json model = make_bpe(vocabulary, std::move(merges));
  if (const auto id = find_id(file, "unknown", vocabulary.tokens.size())) {
    model["unk_token"] = vocabulary.tokens[static_cast<std::size_t>(*id)];
  }
  model["fuse_unk"] = true, model["byte_fallback"] = true;
  const bool prefix = read_truth(file, "tokenizer.ggml.add_space_prefix", true);
  json::array_t decoders = {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                            {{"type", "ByteFallback"}},
                            {{"type", "Fuse"}}};
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", prefix ? "first" : "never"}, {"split", false}}},
      {"post_processor", make_template(file, vocabulary, read_truth(file, "tokenizer.ggml.add_bos_token", true))},
      {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
      {"model", std::move(model)}};
}

}  // namespace

std::string gguf_tokenizer(std::string_view function, const std::filesystem::path& path) {
  const GgufFile file(function, path);
  constexpr const char* key = "tokenizer.ggml.model";
  const std::string model = file.text(key);
  if (model != "gpt2" && model != "llama") {
    file.refuse(key, fmt::format("the tokenizer {} is not known; gpt2 and llama are", quote(model)));
  }
  const Vocabulary vocabulary = read_vocabulary(file);
  json out = model == "gpt2" ? byte_level_tokenizer(file, vocabulary) : sentencepiece_tokenizer(file, vocabulary);
  out["version"] = "1.0";
  out["added_tokens"] = added_tokens(file, vocabulary);
  return out.dump();
}

}  // namespace attend::models
