// Models for the page, compiled to WebAssembly. The page writes a model's files into the module's memory, where they
// are used as they lie; requests and answers are JSON in UTF-8, and an answer says at which byte of that memory each
// tensor begins. docs/page.md lists what can be asked.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "attend/models.h"
#include "io/file_in_memory.h"
#include "page/engine/models.h"

namespace attend::page {

State state;
Answer answer;

namespace {

const Model& model() {
  if (!state.model) fail(ErrorCode::bad_value, function, "no model is open");
  return *state.model;
}

void close() {
  state = {};
  drop_files_in_memory();
}

// ---- Texts ----

// A token as text. Models may have ids that the tokenizer does not know.
std::string token_text(std::int64_t id) {
  try {
    return model().tokenizer().decode(std::array{id}, false);
  } catch (const Error&) {
    return "";
  }
}

std::vector<std::string> token_texts(std::span<const std::int64_t> ids) {
  std::vector<std::string> texts;
  texts.reserve(ids.size());
  for (const std::int64_t id : ids) texts.push_back(token_text(id));
  return texts;
}

// text, or one message to the model (chat), or a pair of texts.
Encoding encoded(Request& request) {
  const Tokenizer& tokenizer = model().tokenizer();
  const auto text = request.need<std::string>("text");
  std::optional<std::string> second;
  bool special = true, chat = false;
  request.take("second", second), request.take("special", special), request.take("chat", chat);
  if (chat) return tokenizer.encode(tokenizer.chat(std::array{Message{"user", text}}), false);
  return second ? tokenizer.encode_pair(text, *second, special) : tokenizer.encode(text, special);
}

// A text's ids, with those of an encoder-decoder's decoder so far, which becomes what is looked at.
void take_text(Request& request) {
  Ids ids, decoder_ids;
  if (!request.take("ids", ids)) ids = encoded(request).ids;
  if (!request.take("decoder_ids", decoder_ids) && model().info().encoder_decoder())
    decoder_ids.push_back(model().info().start);
  state.recording.reset(), state.growth.reset(), state.values.clear();
  state.ids = std::move(ids), state.decoder_ids = std::move(decoder_ids);
}

// A token's id, or its text.
std::optional<std::int64_t> take_token(Request& request, const char* name) {
  Json value;
  if (!request.take(name, value) || value.is_null()) return std::nullopt;
  if (value.is_string()) return single_token(model().tokenizer(), value.get<std::string>());
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX))
    request.refuse(name, "an id or a text", value);
  return value.get<std::int64_t>();
}

void add_tokens(std::span<const std::int64_t> ids, std::span<const std::int64_t> decoder_ids) {
  answer.json["ids"] = ids, answer.json["tokens"] = token_texts(ids);
  if (!decoder_ids.empty())
    answer.json["decoder_ids"] = decoder_ids, answer.json["decoder_tokens"] = token_texts(decoder_ids);
}

// softmax(logits) of the likeliest.
Json likeliest(const Tensor& logits, std::int64_t most) {
  const float* row = logits.data<float>();
  Ids ids(static_cast<std::size_t>(logits.count()));
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + static_cast<std::ptrdiff_t>(std::clamp<std::int64_t>(most, 1, logits.count()));
  std::partial_sort(ids.begin(), end, ids.end(),
                    [&](std::int64_t a, std::int64_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
  double sum = 0;
  for (const std::int64_t id : ids) sum += std::exp(double(row[id]) - double(row[ids[0]]));
  Json list = Json::array();
  for (auto id = ids.begin(); id != end; ++id)
    list.push_back({{"id", *id},
                    {"token", token_text(*id)},
                    {"probability", std::exp(double(row[*id]) - double(row[ids[0]])) / sum}});
  return list;
}

// ---- What is asked ----

void open(Request& request) {
  const auto path = request.need<std::string>("path");
  request.end();
  state = {};
  state.model = Model::load(path);
  const ModelInfo& x = model().info();
  const Tokenizer& tokenizer = model().tokenizer();
  if (tokenizer.size() > x.vocabulary)
    fail(ErrorCode::bad_file, function,
         "the tokenizer has {} tokens, and the model embeds {}: they don't belong together", tokenizer.size(),
         x.vocabulary);
  answer.json = {{"type", x.type},
                 {"family", name_of(x.family)},
                 {"decoder", x.decoder()},
                 {"encoder_decoder", x.encoder_decoder()},
                 {"layers", x.layers},
                 {"heads", x.heads},
                 {"kv_heads", x.kv_heads},
                 {"head_size", x.head_size},
                 {"embedding_size", x.embedding_size},
                 {"vocabulary", x.vocabulary},
                 {"longest", x.longest == std::numeric_limits<std::int64_t>::max() ? Json() : Json(x.longest)},
                 {"encoder_layers", x.encoder_layers},
                 {"encoder_heads", x.encoder_heads},
                 {"parameters", x.parameters},
                 {"dtype", name_of(x.dtype)},
                 {"formats", x.formats},
                 {"weight_bytes", x.weight_bytes},
                 {"end", x.end},
                 {"vector_size", x.vector_size},
                 {"prompts", x.prompts}};
}

void tokens(Request& request) {
  const Encoding encoding = encoded(request);
  request.end();
  add_tokens(encoding.ids, {});
  answer.json["offsets"] = Json::array();
  for (const Range& range : encoding.offsets) answer.json["offsets"].push_back({range.begin, range.end});
  answer.json["special"] = encoding.special;
  answer.json["texts"] = encoding.texts;
}

void decode(Request& request) {
  const Ids ids = request.need<Ids>("ids");
  request.end();
  answer.json["text"] = model().tokenizer().decode(ids);
}

// Heads that put out zeros: [[layer, head], ...]. Of an encoder-decoder its decoder's, in its own text or in the
// encoder's, and its encoder's.
std::vector<Edit> edits_of(Request& request) {
  std::vector<Edit> edits;
  for (const auto& [name, place] :
       {std::pair("without", ModelPlace::z), std::pair("without_cross", ModelPlace::cross_z),
        std::pair("without_encoder", ModelPlace::encoder_z)}) {
    std::vector<Head> heads;
    request.take(name, heads);
    for (const auto& [layer, head] : heads) edits.push_back({.layer = layer, .at = place, .head = head});
  }
  return edits;
}

void record(Recorder& recorder) {
  const auto row = [](const Ids& of) { return View(of.data(), DType::i64, {1, std::ssize(of)}); };
  Recording made = recorder.finish();
  made.tokens.push_back(token_texts(state.ids));
  if (!state.decoder_ids.empty()) made.decoder_tokens.push_back(token_texts(state.decoder_ids));
  made.set_ids(row(state.ids), state.decoder_ids.empty() ? std::nullopt : std::optional(row(state.decoder_ids)));
  state.recording = std::move(made);
}

// What the model says to a text: of a decoder the logits of what comes next, of an encoder the vector.
Tensor said(std::span<const std::int64_t> ids, std::span<const Edit> edits) {
  const ModelCall call{.decoder_ids = state.decoder_ids, .edits = edits};
  if (!model().info().decoder()) return model().embed(ids, call);
  const Tensor hidden = model().forward(ids, call);
  return model().logits(hidden.view().select(0, hidden.size(0) - 1));
}

double cosine(const Tensor& a, const Tensor& b) {
  const auto dot = [](const Tensor& x, const Tensor& y) {
    return std::inner_product(x.data<float>(), x.data<float>() + x.count(), y.data<float>(), 0.0);
  };
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

// What the text's vector is near to: that of a second text, and where heads are out, before, its own with all heads.
void add_similarity(const Tensor& embedding, const std::optional<std::string>& second, bool before) {
  const Tensor all = before ? said(state.ids, {}) : Tensor();
  if (before) answer.json["before"] = {{"own", cosine(all, embedding)}};
  if (!second) return;
  const Ids ids = model().tokenizer().encode(*second).ids;
  answer.json["similarity"] = cosine(embedding, said(ids, state.edits));
  if (before) answer.json["before"]["similarity"] = cosine(all, said(ids, {}));
}

// One pass: hidden states, and of a decoder the next token's logits and likeliest ones, of an encoder the embedding;
// unless it is told not to, with a recording of all heads; if it is asked for, with a view of them.
void run(Request& request) {
  take_text(request);
  state.edits = edits_of(request);
  const std::vector<Edit>& edits = state.edits;
  bool records = true, by_norm = false, viewed = false, before = false;
  std::int64_t top = 10;
  std::optional<std::string> beside;
  request.take("record", records), request.take("norm", by_norm), request.take("top", top);
  request.take("beside", beside), request.take("before", before), request.take("view", viewed);
  const ViewOptions view = take_view(request);
  request.end();
  Recorder recorder({.keep_qk = true, .key_sizes = by_norm});
  ModelCall call{.decoder_ids = state.decoder_ids, .edits = edits};
  if (records) call.recorder = &recorder;
  add_tokens(state.ids, state.decoder_ids);
  const ModelInfo& info = model().info();
  if (info.decoder()) {
    Tensor hidden = model().forward(state.ids, call);
    Tensor logits = model().logits(hidden.view().select(0, hidden.size(0) - 1));
    answer.json["next"] = likeliest(logits, top);
    if (before) answer.json["before"] = {{"next", likeliest(said(state.ids, {}), top)}};
    answer.add("hidden", std::move(hidden)), answer.add("logits", std::move(logits));
  } else {
    // embed() passes through the hidden states of BERT; those of ModernBERT come after one norm more.
    Tensor hidden;
    if (info.family == ModelFamily::bert)
      call.observe = [&](ModelPlace place, std::int64_t layer, const View& values) {
        if (place == ModelPlace::residual && layer == info.layers) hidden = values.clone();
      };
    if (info.embeds) {
      Tensor embedding = model().embed(state.ids, call);
      add_similarity(embedding, beside, before);
      answer.add("embedding", std::move(embedding));
      call.recorder = nullptr;
    }
    answer.add("hidden", hidden.count() > 0 ? std::move(hidden) : model().forward(state.ids, call));
  }
  if (records) record(recorder);
  if (viewed) add_view(view);
}

// ---- Texts that grow ----

// One pass over what the cache has not seen.
void advance(Growth& x, std::span<const std::int64_t> ids, std::span<const std::int64_t> decoder_ids, bool first) {
  std::array caches{&x.cache};
  std::vector<Edit> lasting;
  if (!first)
    std::ranges::copy_if(x.edits, std::back_inserter(lasting),
                         [](const Edit& edit) { return edit.at == ModelPlace::z || edit.at == ModelPlace::cross_z; });
  const Tensor hidden =
      model().forward(ids, {.caches = caches, .decoder_ids = decoder_ids, .edits = first ? x.edits : lasting});
  x.logits = model().logits(hidden.view().select(0, hidden.size(0) - 1));
  float* logits = x.logits.data<float>();
  for (const std::int64_t id : model().info().never)
    if (id >= 0 && id < x.logits.count()) logits[id] = -std::numeric_limits<float>::infinity();
}

// The text is read, and what may follow is known.
void grow(Request& request) {
  if (!model().info().decoder())
    fail(ErrorCode::bad_value, function, "an encoder says nothing of what comes next; the model is of type {}",
         model().info().type);
  take_text(request);
  GenerateOptions options;
  request.take("temperature", options.temperature), request.take("top_k", options.top_k);
  request.take("top_p", options.top_p), request.take("seed", options.seed);
  std::int64_t top = 10;
  request.take("top", top);
  std::vector<Edit> edits = edits_of(request);
  request.end();
  models::check_sampling(options);
  state.growth.emplace(Growth{.cache = model().cache(),
                              .ids = state.ids,
                              .decoder_ids = state.decoder_ids,
                              .made = {},
                              .edits = std::move(edits),
                              .options = options,
                              .sampler = models::Sampler(options, options.seed),
                              .logits = {}});
  add_tokens(state.ids, state.decoder_ids);
  try {
    advance(*state.growth, state.ids, state.decoder_ids, true);
  } catch (...) {
    state.growth.reset();
    throw;
  }
  answer.json["next"] = likeliest(state.growth->logits, top);
}

// One token more: the one that is given, else that which generate() takes.
void step(Request& request) {
  std::optional<std::int64_t> chosen = take_token(request, "token");
  std::int64_t top = 10;
  request.take("top", top);
  request.end();
  if (!state.growth) fail(ErrorCode::bad_value, function, "no text grows");
  Growth& x = *state.growth;
  const ModelInfo& info = model().info();
  const bool both = info.encoder_decoder();
  Ids& growing = both ? state.decoder_ids : state.ids;
  if (!chosen && growing.size() == 1) chosen = info.first;
  const std::int64_t id =
      chosen ? *chosen : x.sampler.choose({x.logits.data<float>(), static_cast<std::size_t>(x.logits.count())});
  const bool ended = std::ranges::find(info.end, id) != info.end.end() || std::ssize(growing) >= info.longest;
  answer.json = {{"id", id}, {"token", token_text(id)}, {"ended", ended}};
  if (!ended) {
    advance(x, both ? std::span<const std::int64_t>() : std::span(&id, 1),
            both ? std::span(&id, 1) : std::span<const std::int64_t>(), false);
    x.made.push_back(id), growing.push_back(id);
    state.recording.reset();  // which is of a shorter text
    answer.json["next"] = likeliest(x.logits, top);
  }
  answer.json["text"] = model().tokenizer().decode(x.made);
}

// ---- Why ----

void add_lens(const Ids& positions, std::int64_t top) {
  Lens x = attend::lens(model(), state.ids, positions, top, state.decoder_ids);
  answer.json["tokens"] = token_texts({x.ids.data<std::int64_t>(), static_cast<std::size_t>(x.ids.count())});
  answer.add("ids", std::move(x.ids)), answer.add("log_probabilities", std::move(x.log_probabilities));
  answer.add("rank", std::move(x.rank));
}

void lens(Request& request) {
  Ids positions;
  std::int64_t top = 5;
  request.take("positions", positions), request.take("top", top);
  request.end();
  add_lens(positions, top);
}

void why(Request& request) {
  AttributeOptions options{.token = take_token(request, "token"), .against = take_token(request, "against")};
  std::int64_t top = 0;
  request.take("position", options.position), request.take("lens", top);
  request.end();
  options.decoder_ids = state.decoder_ids;
  // What it has computed is not computed again; where heads are out, it is another model's.
  if (state.growth && state.growth->edits.empty()) options.cache = &state.growth->cache;
  Attribution x = attribute(model(), state.ids, options);
  answer.json = {{"token", x.token},
                 {"against", x.against ? Json(*x.against) : Json()},
                 {"position", x.position},
                 {"logit", x.logit},
                 {"capped_logit", x.capped_logit},
                 {"embedding", x.embedding},
                 {"bias", x.bias},
                 {"rounding", x.rounding}};
  answer.add("by_token", sums_by_token(x));
  answer.add("heads", std::move(x.heads)), answer.add("mlps", std::move(x.mlps));
  if (x.cross.count() > 0) answer.add("cross", std::move(x.cross));
  if (top > 0) add_lens({x.position}, top);
}

AttentionKind take_attention(Request& request) {
  std::string name = "self";
  if (!request.take("attention", name) || name == "self") return AttentionKind::self;
  if (name == "cross") return AttentionKind::cross;
  if (name == "encoder") return AttentionKind::encoder;
  request.refuse("attention", "\"self\", \"cross\" or \"encoder\"", name);
}

// Model.ablate(): each head by itself, or those of `heads` together.
void ablate(Request& request) {
  AblateOptions options{.token = take_token(request, "token"), .against = take_token(request, "against")};
  bool mean = false;
  request.take("heads", options.heads), request.take("rows", options.rows), request.take("mean", mean);
  options.attention = take_attention(request);
  request.end();
  if (mean) options.set = Edit::Set::mean;
  options.decoder_ids = state.decoder_ids;
  Ablation x = attend::ablate(model(), state.ids, options);
  answer.json = {{"token", x.token ? Json(*x.token) : Json()}, {"against", x.against ? Json(*x.against) : Json()}};
  for (auto& [name, tensor] : {std::pair("logit", &x.logit), std::pair("log_probability", &x.log_probability),
                               std::pair("kl", &x.kl), std::pair("cosine_distance", &x.cosine_distance)})
    if (tensor->count() > 0) answer.add(name, std::move(*tensor));
}

// Sentences as vectors.
void embed(Request& request) {
  const auto sentences = request.need<std::vector<std::string>>("sentences");
  EmbedOptions options;
  request.take("prompt", options.prompt);
  request.end();
  Embeddings x = model().embed(sentences, options);
  answer.json["cut"] = x.cut;
  answer.add("vectors", std::move(x.vectors));
}

void close(Request& request) {
  request.end();
  close();
}

constexpr Asked all_asked[] = {{"open", open}, {"close", close},   {"tokens", tokens}, {"decode", decode},
                               {"run", run},   {"grow", grow},     {"step", step},     {"why", why},
                               {"lens", lens}, {"ablate", ablate}, {"embed", embed}};

void answer_to(const char* text) {
  Request request(function, Json::parse(text));
  const auto name = request.need<std::string>("do");
  const auto find = [&](std::span<const Asked> all) {
    const auto found = std::ranges::find(all, name, &Asked::name);
    return found == all.end() ? nullptr : &*found;
  };
  const Asked* asked = find(all_asked);
  if (!asked) asked = find(asked_of_recordings());
  if (!asked) fail(ErrorCode::bad_value, function, "nothing is called '{}'", name);
  try {
    asked->answer(request);
  } catch (...) {
    if (asked->answer == open) close();  // with its bytes
    throw;
  }
}

const char* model_json(const char* request) {
  answer = {};  // the memory of the last one is free for this one
  try {
    answer_to(request);
    if (answer.text.empty()) answer.text = json_text(answer.json);
  } catch (const Error& error) {
    answer.text = error_json(error);
  } catch (const Json::exception& error) {
    answer.text = error_json("bad_value", fmt::format("{}: the request is no JSON: {}", function, error.what()));
  }
  return answer.text.c_str();
}

}  // namespace

}  // namespace attend::page

extern "C" {

// Room for a file of so many bytes, "/folder/name", of a model that is to be opened: the page writes them there, and
// asks then. null: there is no memory for it. The model that is open is closed, and its files are gone.
void* attend_file(const char* name, double size) {
  using namespace attend::page;
  try {
    if (state.model || state.recording) close();
    if (!(size >= 0 && size < 0x1p32)) return nullptr;
    return attend::make_file_in_memory(name, static_cast<std::uint64_t>(size));
  } catch (const std::exception&) {
    return nullptr;
  }
}

// {"do": one of all_asked, and its options}. The answer, and the tensors that it names, live until the next call. A
// failure is {"error": {"code", "message"}}.
const char* attend_model(const char* request) {
  try {
    return attend::page::model_json(request);
  } catch (const std::exception&) {  // no memory for a list or a text, or one longer than 32 bits can count
    attend::page::answer = {};
    return R"({"error":{"code":"out_of_memory","message":"model: no memory"}})";
  }
}
}
