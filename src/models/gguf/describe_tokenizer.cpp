// A folder's tokenizer in the keys of a GGUF file: the other way of tokenizer.cpp, and refused where that would
// not give the same ids.
#include <algorithm>
#include <optional>
#include <set>

#include "io/json_file.h"
#include "models/gguf/describe.h"
#include "models/gguf/own_keys.h"
#include "models/gguf/pre_tokenizers.h"
#include "models/gguf/read.h"
#include "tokenizer/charsmap.h"

namespace attend::inline v1::models {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using tokenizer::TemplatePiece;

constexpr std::string_view space = "▁";
// What the writers of all kinds have before them.
struct Source {
  Member file;                           // tokenizer.json
  Member model;                          // its model
  const tokenizer::TokenizerFile& read;  // the same, understood
  const ModelInfo& info;
  std::vector<std::string> tokens;  // by id
  std::vector<std::int32_t> types;
  bool all_said = true;                  // whether the keys say all; else tokenizer.json stands beside them
  std::set<std::int64_t> named;          // ids that are written as those of special tokens
  std::optional<std::int64_t> bos, eos;  // that the tokenizer adds, or that the files name

  bool has(std::int64_t id) const { return id >= 0 && id < std::ssize(tokens); }
  std::optional<std::int64_t> id(const std::string& token) const {
    if (const auto found = read.added.id(token)) return *found;
    if (const auto found = read.vocabulary().id(token)) return *found;
    return std::nullopt;
  }
};

[[noreturn]] void refuse(const Member& what) {
  fail_at(what.place(), "this can't be said in GGUF");
}

// ---- Tokens ----

// "bos_token": "<s>", or {"content": "<s>"}
std::optional<std::string> said_token(const Member& config, const char* key) {
  if (!config.given(key)) return std::nullopt;
  const Member said = config[key];
  return said.value().is_object() ? said["content"].text() : said.text();
}

// A mask that takes spaces away stands in no text but one that it is to be filled in: tokenizer.json says it, to
// attend.
void check_added(Source& to, const Member& added, bool normalizes, const std::optional<std::string>& mask) {
  const bool strips_as_mask = added["lstrip"].truth() && mask == added["content"].text();
  if (strips_as_mask) to.all_said = false;
  for (const char* key : {"single_word", "lstrip", "rstrip"})
    if (added[key].truth() && !(strips_as_mask && key == std::string_view("lstrip"))) refuse(added[key]);
  if (normalizes && added["normalized"].truth()) refuse(added["normalized"]);
}

void set_token(Source& to, std::int64_t id, const std::string& token, std::int32_t type) {
  if (id >= std::ssize(to.tokens))
    fail_at(to.file.place(), "the token {} has the id {}, of {} in the model", quote(token), id, to.tokens.size());
  to.tokens[static_cast<std::size_t>(id)] = token;
  to.types[static_cast<std::size_t>(id)] = type;
}

// Unigram's vocabulary is a list of tokens and scores, the others' have an id for each.
void set_vocabulary(Source& to) {
  const json& vocabulary = to.model["vocab"].value();
  for (std::size_t id = 0; vocabulary.is_array() && id < vocabulary.size(); ++id)
    set_token(to, static_cast<std::int64_t>(id), vocabulary[id][0].get<std::string>(), gguf_token::normal);
  if (vocabulary.is_array()) return;
  for (const auto& [token, id] : vocabulary.items()) set_token(to, id.get<std::int64_t>(), token, gguf_token::normal);
}

// Ids without a token are named as llama.cpp names them.
void set_tokens(Source& to, const std::optional<std::string>& mask) {
  for (std::int64_t id = 0; id < to.info.vocabulary; ++id) to.tokens.push_back(fmt::format("[PAD{}]", id));
  to.types.assign(to.tokens.size(), gguf_token::unused);
  set_vocabulary(to);
  if (!to.file.given("added_tokens")) return;
  const bool normalizes = to.file.given("normalizer") && to.file["normalizer"].value() != json{{"type", "NFC"}};
  for (const Member& each : to.file["added_tokens"].list()) {
    check_added(to, each, normalizes, mask);
    set_token(to, each["id"].whole(0), each["content"].text(),
              each["special"].truth() ? gguf_token::control : gguf_token::user_defined);
  }
}

std::optional<std::int64_t> said_id(const Source& from, const Member& config, const char* key) {
  const std::optional<std::string> said = said_token(config, key);
  return said ? from.id(*said) : std::nullopt;
}

void add_id(Source& from, const char* which, std::optional<std::int64_t> id, GgufValues& to) {
  if (!id) return;
  to.add_whole(fmt::format("tokenizer.ggml.{}_token_id", which), *id);
  from.named.insert(*id);
}

// The ids that end a text, as far as GGUF can say them: three, of which the first is the one that the tokenizer adds.
void add_ends(Source& from, GgufValues& to) {
  add_id(from, "eos", from.eos, to);
  const char* const keys[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
  std::size_t written = 0;
  for (const std::int64_t id : from.info.end)
    if (id != from.eos && from.has(id) && written < std::size(keys)) to.add_whole(keys[written++], id);
}

// A file's named tokens are found in a text whatever their type: not all of each folder's are.
bool are_special(const Source& from) {
  std::set<std::int64_t> special;
  for (const std::string& token : from.read.special) special.insert(*from.read.added.id(token));
  return std::ranges::includes(special, from.named);
}

bool is_same(const std::vector<TemplatePiece>& a, const std::vector<TemplatePiece>& b) {
  return std::ranges::equal(a, b, [](const TemplatePiece& x, const TemplatePiece& y) {
    return x.text == y.text && x.ids == y.ids && x.type == y.type;
  });
}

// ---- Kinds ----

// Decoders: a token before each text, and one after it.
void add_around(Source& from, GgufValues& to) {
  const std::vector<TemplatePiece>& single = from.read.around.single;
  const auto token = [](const TemplatePiece& piece) { return piece.text < 0 && piece.ids.size() == 1; };
  const bool begins = !single.empty() && token(single.front()), ends = single.size() > 1 && token(single.back());
  if (begins) from.bos = single.front().ids.front();
  if (ends) from.eos = single.back().ids.front();
  std::vector<TemplatePiece> expected, pair;
  for (const int text : {0, 1}) {
    if (begins) pair.push_back({.ids = {*from.bos}, .type = text});
    pair.push_back({.text = text, .type = text});
    if (ends) pair.push_back({.ids = {*from.eos}, .type = text});
    if (text == 0) expected = pair;
  }
  if (!is_same(single, expected) || !is_same(from.read.around.pair, pair)) refuse(from.file["post_processor"]);
  to.add_truth("tokenizer.ggml.add_bos_token", begins);
  to.add_truth("tokenizer.ggml.add_eos_token", ends);
}

// [CLS] first [SEP] second [SEP]. Where the second text has the first one's type, tokenizer.json alone says it.
void add_bert_around(Source& from, GgufValues& to) {
  const std::vector<TemplatePiece>& single = from.read.around.single;
  if (single.size() != 3 || single[0].ids.size() != 1 || single[2].ids.size() != 1) refuse(from.file["post_processor"]);
  const std::vector<std::int64_t>&cls = single[0].ids, &sep = single[2].ids;
  const std::int64_t second = from.read.around.pair.empty() ? 1 : from.read.around.pair.back().type;
  const std::vector<TemplatePiece> pair = {
      {.ids = cls}, {.text = 0}, {.ids = sep}, {.text = 1, .type = second}, {.ids = sep, .type = second}};
  from.all_said &= second == 1;
  if (!is_same(single, {pair.begin(), pair.begin() + 3}) || !is_same(from.read.around.pair, pair))
    refuse(from.file["post_processor"]);
  from.bos = cls.front(), from.eos = sep.front();
  add_id(from, "seperator", from.eos, to);
}

void only_defaults(const Member& of, const json& usual) {
  for (const auto& [key, values] : usual.items())
    if (of.given(key.c_str()) && std::ranges::find(values, of[key.c_str()].value()) == values.end())
      refuse(of[key.c_str()]);
}

std::vector<std::string> merges_of(const Member& model) {
  std::vector<std::string> merges;
  for (const json& each : model["merges"].value())
    merges.push_back(each.is_string() ? each.get<std::string>()
                                      : each[0].get<std::string>() + " " + each[1].get<std::string>());
  return merges;
}

// The steps of a Sequence, and one alone; what says nothing about ids is left out.
json steps_of(const json& from) {
  json steps = json::array();
  if (from.is_null()) return steps;
  for (const char* list : {"pretokenizers", "normalizers", "decoders"}) {
    if (!from.contains(list)) continue;
    for (const json& each : from[list])
      for (const json& step : steps_of(each)) steps.push_back(step);
    return steps;
  }
  json step = from;
  step.erase("trim_offsets");
  if (step["type"] == "ByteLevel" && !step.contains("use_regex")) step["use_regex"] = true;
  steps.push_back(step);
  return steps;
}

json steps_at(const Member& file, const char* key) {
  return file.given(key) ? steps_of(file[key].value()) : json::array();
}

// No key says how ids become text: it is read as `usual`.
void describe_decoder(Source& from, const json& usual) {
  from.all_said &= steps_at(from.file, "decoder") == steps_of(usual);
}

void describe_byte_level(Source& from, GgufValues& to) {
  only_defaults(from.model, {{"unk_token", json::array()},
                             {"continuing_subword_prefix", {""}},
                             {"end_of_word_suffix", {""}},
                             {"fuse_unk", {false}},
                             {"byte_fallback", {false}},
                             {"dropout", {0.0}}});
  const bool ignores = from.model.given("ignore_merges") && from.model["ignore_merges"].truth();
  const json normalizer = steps_at(from.file, "normalizer"), pre_tokenizer = steps_at(from.file, "pre_tokenizer");
  const auto found = std::ranges::find_if(byte_level_kinds(), [&](const ByteLevelKind& kind) {
    return steps_of(kind.normalizer) == normalizer && steps_of(kind.pre_tokenizer) == pre_tokenizer &&
           kind.ignore_merges == ignores;
  });
  if (found == byte_level_kinds().end())
    fail_at(from.file.place().in("pre_tokenizer"),
            "this way to split words has no name in GGUF files that is known here; gpt-2, smollm, llama-bpe, qwen2 and "
            "modern-bert are");
  to.add_text("tokenizer.ggml.model", "gpt2");
  to.add_text("tokenizer.ggml.pre", found->name);
  to.add_texts("tokenizer.ggml.merges", merges_of(from.model));
  if (found->as_bert) {
    add_bert_around(from, to);
    for (const char* each : {"bos", "eos", "sep"}) to.add_truth(fmt::format("tokenizer.ggml.add_{}_token", each), true);
  } else {
    add_around(from, to);
  }
  const json decoder = steps_at(from.file, "decoder");
  if (decoder.size() != 1 || decoder[0]["type"] != "ByteLevel") from.all_said = false;
}

// A score for each token, by which the file's merges come about again: the earlier it is made, the higher.
std::vector<float> scores_of(const Source& from) {
  const std::vector<std::string> merges = merges_of(from.model);
  std::vector<float> scores(from.tokens.size(), -static_cast<float>(merges.size() + 1));
  float next = 0;
  std::set<std::size_t> done;
  for (const std::string& each : merges) {
    const std::size_t at = each.find(' ', 1);
    const auto id = from.read.vocabulary().id(each.substr(0, at) + each.substr(at + 1));
    if (id && done.insert(static_cast<std::size_t>(*id)).second) scores[static_cast<std::size_t>(*id)] = next--;
  }
  return scores;
}

// Whether no text that is merged has the token in it: an added one is found before that, but one with a ▁, which stands
// for the text's space there.
bool is_found_before(const Source& from, tokenizer::TokenId id) {
  const std::string& token = from.tokens[id];
  return from.read.added.id(token) == id && token.find(space) == std::string::npos;
}

// What scores say of a token that is found before does not matter, nor what merges do.
void check_scores(const Source& from, const std::vector<float>& scores) {
  tokenizer::TokenMap ids;
  for (std::size_t id = 0; id < from.tokens.size(); ++id) ids.add(from.tokens[id], static_cast<tokenizer::TokenId>(id));
  const Place place = from.model.place().in("merges");
  tokenizer::MergeReader reader(place, ids, 0);
  for (const std::string& each : merges_of(from.model)) {
    const std::size_t at = each.find(' ', 1);
    reader.read(each.substr(0, at), each.substr(at + 1));
  }
  const auto that_matter = [&](std::vector<tokenizer::Merge> merges) {
    std::erase_if(merges, [&](const tokenizer::Merge& of) {
      return is_found_before(from, of.first) || is_found_before(from, of.second) || is_found_before(from, of.merged);
    });
    return merges;
  };
  const auto derived = that_matter(derive_merges(from.tokens, {scores.begin(), scores.end()}, ids));
  const auto is_same = [](const tokenizer::Merge& a, const tokenizer::Merge& b) {
    return a.first == b.first && a.second == b.second;
  };
  if (!std::ranges::equal(derived, that_matter(reader.take()), is_same))
    fail_at(place, "these are not SentencePiece's, and scores of tokens can't say them");
}

// Whether a space is set before a text. all_said: not in older files, which set it where there is one already, and
// after each special token too.
bool sets_space(const Member& file, bool& all_said) {
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space}};
  const json normalizers = steps_at(file, "normalizer"), pre_tokenizers = steps_at(file, "pre_tokenizer");
  const json split = {
      {"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}, {"invert", false}};
  if (normalizers == json::array({{{"type", "Prepend"}, {"prepend", space}}, replace}) && pre_tokenizers.empty()) {
    all_said = false;
    return true;
  }
  if (normalizers == json::array({replace}) && (pre_tokenizers.empty() || pre_tokenizers == json::array({split})))
    return false;
  if (normalizers.empty() && pre_tokenizers.size() == 1 && pre_tokenizers[0]["type"] == "Metaspace") {
    const Member step = file["pre_tokenizer"];
    if (step["replacement"].text() != space || step["split"].truth() || step["prepend_scheme"].text() == "always")
      refuse(step);
    return step["prepend_scheme"].text() == "first";
  }
  refuse(file["pre_tokenizer"]);
}

void describe_sentencepiece(Source& from, GgufValues& to) {
  only_defaults(from.model, {{"fuse_unk", {true}},
                             {"continuing_subword_prefix", {""}},
                             {"end_of_word_suffix", {""}},
                             {"dropout", {0.0}},
                             {"ignore_merges", {false}}});
  const bool spaced = sets_space(from.file, from.all_said);
  const std::vector<float> scores = scores_of(from);
  check_scores(from, scores);
  for (std::size_t id = 0; id < from.tokens.size(); ++id) {
    const std::string& token = from.tokens[id];
    if (from.types[id] == gguf_token::normal && token.size() == 6 && token.starts_with("<0x") && token.ends_with('>'))
      from.types[id] = gguf_token::byte;
  }
  std::optional<std::int64_t> unk;
  if (from.model.given("unk_token")) unk = from.id(from.model["unk_token"].text());
  if (unk) from.types[static_cast<std::size_t>(*unk)] = gguf_token::unknown;
  to.add_text("tokenizer.ggml.model", "llama");
  to.add_text("tokenizer.ggml.pre", "default");
  to.add_numbers("tokenizer.ggml.scores", scores);
  to.add_truth("tokenizer.ggml.add_space_prefix", spaced);
  add_id(from, "unknown", unk, to);
  describe_decoder(from, sentencepiece_decoder(spaced));
  add_around(from, to);
}

void describe_wordpiece(Source& from, GgufValues& to) {
  only_defaults(from.model, {{"continuing_subword_prefix", {"##"}}, {"max_input_chars_per_word", {100}}});
  const json normalizers = steps_at(from.file, "normalizer");
  if (normalizers.size() != 1 || normalizers[0]["type"] != "BertNormalizer") refuse(from.file["normalizer"]);
  const Member normalizer(from.file.place().in("normalizer"), normalizers[0]);
  for (const char* key : {"clean_text", "handle_chinese_chars"})
    if (!normalizer[key].truth()) refuse(normalizer[key]);
  if (steps_at(from.file, "pre_tokenizer") != json::array({{{"type", "BertPreTokenizer"}}}))
    refuse(from.file["pre_tokenizer"]);
  const bool lower = normalizer["lowercase"].truth();
  to.add_text("tokenizer.ggml.model", "bert");
  to.add_text("tokenizer.ggml.pre", "bert-bge");
  to.add_truth("tokenizer.ggml.normalizer.lowercase", lower);
  to.add_truth("tokenizer.ggml.normalizer.strip_accents",
               normalizer.given("strip_accents") ? normalizer["strip_accents"].truth() : lower);
  add_id(from, "unknown", from.id(from.model["unk_token"].text()), to);
  for (std::size_t id = 0; id < from.tokens.size(); ++id) {
    if (from.types[id] == gguf_token::control) continue;
    const std::string token = from.tokens[id];
    const bool inside = token.starts_with("##");
    if (inside && token.substr(2).starts_with(space))
      fail_at(from.file.place(), "the token {} can't be said in GGUF", quote(token));
    from.tokens[id] = inside ? token.substr(2) : std::string(space) + token;
  }
  describe_decoder(from, wordpiece_decoder());
  add_bert_around(from, to);
}

// <s> text </s>. What stands around a pair tokenizer.json alone says.
void add_unigram_around(Source& from, GgufValues& to) {
  const std::vector<TemplatePiece>& single = from.read.around.single;
  if (single.size() != 3 || single[0].ids.size() != 1 || single[1].text != 0 || single[2].ids.size() != 1)
    refuse(from.file["post_processor"]);
  from.bos = single[0].ids.front(), from.eos = single[2].ids.front();
  for (const char* key : {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"}) to.add_truth(key, true);
}

// As XLM-R has it. llama.cpp puts one space for several, and none at a text's ends.
void describe_unigram(Source& from, GgufValues& to) {
  only_defaults(from.model, {{"byte_fallback", {false}}});
  json normalizers = steps_at(from.file, "normalizer"), pre_tokenizers = steps_at(from.file, "pre_tokenizer");
  if (normalizers.empty() || normalizers[0]["type"] != "Precompiled") refuse(from.file["normalizer"]);
  const std::string charsmap = normalizers[0]["precompiled_charsmap"].get<std::string>();
  normalizers.erase(0);
  const auto one_space = [](std::string_view content) {
    return json::array({{{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", content}}});
  };
  if (!normalizers.empty() && normalizers != one_space(" ") && normalizers != one_space(space))
    refuse(from.file["normalizer"]);
  if (!pre_tokenizers.empty() && pre_tokenizers[0]["type"] == "WhitespaceSplit") pre_tokenizers.erase(0);
  if (pre_tokenizers.size() != 1 || pre_tokenizers[0]["type"] != "Metaspace" ||
      pre_tokenizers[0].value("replacement", space) != space ||
      pre_tokenizers[0].value("prepend_scheme", "always") == "never")
    refuse(from.file["pre_tokenizer"]);
  std::vector<float> scores(from.tokens.size());
  const json& vocabulary = from.model["vocab"].value();
  for (std::size_t id = 0; id < vocabulary.size(); ++id) scores[id] = vocabulary[id][1].get<float>();
  const std::int64_t unknown = from.model["unk_id"].whole(0);
  if (from.has(unknown)) from.types[static_cast<std::size_t>(unknown)] = gguf_token::unknown;
  from.all_said = false;
  to.add_text("tokenizer.ggml.model", "t5");
  to.add_text("tokenizer.ggml.pre", "default");
  to.add_numbers("tokenizer.ggml.scores", scores);
  to.add_truth("tokenizer.ggml.add_space_prefix", true);
  to.add_truth("tokenizer.ggml.remove_extra_whitespaces", true);
  to.add_array_of_bytes("tokenizer.ggml.precompiled_charsmap", tokenizer::decode_base64({from.file.place(), charsmap}));
  add_id(from, "unknown", unknown, to);
  add_unigram_around(from, to);
}

// ---- Beside it ----

// texts: the tokens as the folder has them.
void add_chat(const Source& from, const std::vector<std::string>& texts, GgufValues& to) {
  const tokenizer::Chat& chat = from.read.chat;
  if (!chat.text) return;
  to.add_text("tokenizer.chat_template", *chat.text);
  const auto text_of = [&](std::optional<std::int64_t> id) {
    return id ? std::optional(texts[static_cast<std::size_t>(*id)]) : std::nullopt;
  };
  describe_chat_tokens(chat, {.bos = text_of(from.bos), .eos = text_of(from.eos)}, to);
}

}  // namespace

void describe_tokenizer(std::string_view function, const fs::path& folder, const ModelInfo& info, bool whole,
                        GgufValues& to) {
  const tokenizer::TokenizerFile read = tokenizer::read_folder(function, folder);
  if (!is_there(folder / "tokenizer.json"))
    fail_at(Place{std::string(function), quote(folder.native())}, "has no tokenizer.json");
  const JsonFile json_file = read_json(function, folder / "tokenizer.json");
  const fs::path beside = folder / "tokenizer_config.json";
  const JsonFile config_file = is_there(beside) ? read_json(function, beside) : JsonFile{{}, json::object()};
  const Member file = json_file.root(), config = config_file.root();
  Source from{.file = file,
              .model = file["model"],
              .read = read,
              .info = info,
              .tokens = {},
              .types = {},
              .all_said = !whole,
              .named = {},
              .bos = {},
              .eos = {}};
  const std::string type = from.model["type"].text();
  if (type != "BPE" && type != "WordPiece" && type != "Unigram")
    fail_at(from.model["type"].place(), "{} is not written as GGUF; BPE, WordPiece and Unigram are", type);
  set_tokens(from, said_token(config, "mask_token"));
  const std::vector<std::string> texts = from.tokens;
  from.bos = said_id(from, config, "bos_token");
  from.eos = said_id(from, config, "eos_token");
  if (const auto end = std::ranges::find_if(info.end, [&](std::int64_t id) { return from.has(id); });
      end != info.end.end() && std::ranges::find(info.end, from.eos) == info.end.end())
    from.eos = *end;
  if (type == "WordPiece")
    describe_wordpiece(from, to);
  else if (type == "Unigram")
    describe_unigram(from, to);
  else if (from.model.given("byte_fallback") && from.model["byte_fallback"].truth())
    describe_sentencepiece(from, to);
  else
    describe_byte_level(from, to);
  to.add_texts("tokenizer.ggml.tokens", from.tokens);
  to.add_wholes("tokenizer.ggml.token_type", from.types);
  add_id(from, "bos", from.bos, to);
  add_ends(from, to);
  add_id(from, "padding", said_id(from, config, "pad_token"), to);
  add_id(from, "mask", said_id(from, config, "mask_token"), to);
  if (!from.all_said || !are_special(from)) to.add_text(gguf_whole_tokenizer, json_file.value.dump());
  add_chat(from, texts, to);
}

}  // namespace attend::inline v1::models
