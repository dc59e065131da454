// Models for the page, compiled to WebAssembly. The page writes a model's files into the module's memory, where they
// are used as they lie; requests and answers are JSON in UTF-8, and an answer says at which byte of that memory each
// tensor begins. docs/page.md lists what can be asked.
#include <algorithm>
#include <stdexcept>

#include "io/file_in_memory.h"
#include "page/engine/models.h"

namespace attend::page {

State state;
Answer answer;

const Model& model() {
  if (!state.model) fail(ErrorCode::bad_value, function, "no model is open");
  return *state.model;
}

std::optional<std::int64_t> take_token(Request& request, const char* name) {
  Json value;
  if (!request.take(name, value) || value.is_null()) return std::nullopt;
  if (value.is_string()) return single_token(model().tokenizer(), value.get<std::string>());
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX))
    request.refuse(name, "an id or a text", value);
  return value.get<std::int64_t>();
}

void add_tokens(const std::string& name, const Ids& ids) {
  Json& tokens = answer.json[name + "tokens"] = Json::array();
  for (const std::optional<std::string>& text : model().tokenizer().texts(ids)) tokens.push_back(text.value_or(""));
  answer.json[name + "ids"] = ids;
}

namespace {

void close() {
  state = {};
  drop_files_in_memory();
}

// ---- Texts ----

// text, or one message to the model (chat), or a pair of texts.
Encoding encoded(Request& request) {
  const auto text = request.need<std::string>("text");
  TextOptions options;
  request.take("second", options.second), request.take("special", options.special), request.take("chat", options.chat);
  return encode(model(), text, options);
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

// A text's ids, with those of an encoder-decoder's decoder so far, which becomes what is looked at.
void take_text(Request& request) {
  ModelText text;
  if (!request.take("ids", text.ids)) {
    Encoding own = encoded(request);
    text.ids = std::move(own.ids);
    if (std::ranges::count(own.types, 0) < std::ssize(own.types)) text.types = std::move(own.types);
  }
  if (!request.take("decoder_ids", text.decoder_ids)) text.decoder_ids = first_decoder_ids(model().info());
  state.recording.reset(), state.growth.reset(), state.values.clear(), state.edges.reset();
  state.text = std::move(text), state.edits = edits_of(request);
}

void add_text() {
  add_tokens("", state.text.ids);
  if (!state.text.decoder_ids.empty()) add_tokens("decoder_", state.text.decoder_ids);
}

Json next_json(const std::vector<NextToken>& next) {
  return Json::parse(to_json(next));
}

// ---- What is asked ----

void open(Request& request) {
  const auto path = request.need<std::string>("path");
  request.end();
  state = {};
  state.model = Model::load(path);
  const ModelInfo& x = model().info();
  check_tokenizer(model(), path);
  answer.json = Json::parse(to_json(x));
  answer.json.update({{"decoder", x.decoder()},
                      {"encoder_decoder", x.encoder_decoder()},
                      {"end", x.end},
                      {"vector_size", x.vector_size},
                      {"prompts", x.prompts}});
}

void tokens(Request& request) {
  const Encoding encoding = encoded(request);
  request.end();
  add_tokens("", encoding.ids);
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

// What the text's vector is near to: that of a second text, and where heads are out, before, its own with all heads.
void add_similarity(const Tensor& embedding, const std::optional<std::string>& second, bool before) {
  const auto vector_of = [&](const Ids& ids, std::span<const Edit> edits) {
    return model().embed(ids, {.edits = edits});
  };
  const Tensor all = before ? vector_of(state.text.ids, {}) : Tensor();
  if (before) answer.json["before"] = {{"own", cosine(all, embedding)}};
  if (!second) return;
  const Ids ids = encode(model(), *second).ids;
  answer.json["similarity"] = cosine(embedding, vector_of(ids, state.edits));
  if (before) answer.json["before"]["similarity"] = cosine(all, vector_of(ids, {}));
}

// One pass: hidden states, and of a decoder the next token's logits and likeliest ones, of an encoder the embedding;
// unless it is told not to, with a recording of all heads; if it is asked for, with a view of them.
void run(Request& request) {
  take_text(request);
  bool records = true, by_norm = false, viewed = false, before = false;
  std::int64_t top = 10;
  std::optional<std::string> beside;
  request.take("record", records), request.take("norm", by_norm), request.take("top", top);
  request.take("beside", beside), request.take("before", before), request.take("view", viewed);
  const ViewOptions view = take_view(request);
  request.end();
  const ModelInfo& info = model().info();
  Recorder recorder({.keep_qk = true, .key_sizes = by_norm});
  Pass pass = attend::run(model(), state.text,
                          {.edits = state.edits,
                           .recorder = records ? &recorder : nullptr,
                           .next = info.decoder() ? std::max<std::int64_t>(1, top) : 0,
                           .vector = !info.decoder() && info.embeds});
  add_text();
  if (info.decoder()) {
    answer.json["next"] = next_json(pass.next);
    if (before) answer.json["before"] = {{"next", next_json(attend::run(model(), state.text, {.next = top}).next)}};
    answer.add("logits", std::move(pass.logits));
  } else if (pass.vector) {
    add_similarity(*pass.vector, beside, before);
    answer.add("embedding", std::move(*pass.vector));
  }
  answer.add("hidden", std::move(pass.hidden));
  state.recording = std::move(pass.recording);
  if (viewed) add_view(view);
}

// ---- Texts that grow ----

// The text is read, and what may follow is known.
void grow(Request& request) {
  if (!model().info().decoder())
    fail(ErrorCode::bad_value, function, "an encoder can't tell what comes next; the model is of type {}",
         model().info().type);
  take_text(request);
  GenerateOptions options{.max_new_tokens = INT64_MAX};
  GenerationSettings& settings = options.settings;
  request.take("temperature", settings.temperature), request.take("top_k", settings.top_k);
  request.take("top_p", settings.top_p), request.take("seed", options.seed);
  std::int64_t top = 10;
  request.take("top", top);
  request.end();
  options.edits = state.edits;
  state.growth.emplace(model(), state.text, options);
  add_text();
  answer.json["next"] = next_json(likeliest(model(), state.growth->logits(), top));
}

// One token more: the one that is given, else that which generate() takes.
void step(Request& request) {
  const std::optional<std::int64_t> given = take_token(request, "token");
  std::int64_t top = 10;
  request.take("top", top);
  request.end();
  if (!state.growth) fail(ErrorCode::bad_value, function, "no text grows");
  Growth& growth = *state.growth;
  const Growth::Step step = growth.step(given);
  answer.json = {{"id", step.id},
                 {"token", model().tokenizer().text(step.id).value_or("")},
                 {"written", step.written},
                 {"ended", step.ended}};
  if (step.written) state.text = growth.text(), state.recording.reset(), state.edges.reset();  // of a shorter text
  if (!step.ended) answer.json["next"] = next_json(likeliest(model(), growth.logits(), top));
  answer.json["text"] = model().tokenizer().decode(growth.written());
}

// ---- Vectors ----

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

constexpr Asked all_asked[] = {{"open", open}, {"close", close}, {"tokens", tokens}, {"decode", decode},
                               {"run", run},   {"grow", grow},   {"step", step},     {"embed", embed}};

void answer_to(const char* text) {
  Request request(function, Json::parse(text));
  const auto name = request.need<std::string>("do");
  const Asked* asked = nullptr;
  for (const std::span<const Asked> all :
       {std::span<const Asked>(all_asked), asked_of_analyses(), asked_of_circuits(), asked_of_recordings()})
    if (const auto found = std::ranges::find(all, name, &Asked::name); found != all.end()) asked = &*found;
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

// The same of a file beside the model that is open, for a request that names it.
void* attend_more(const char* name, double size) {
  try {
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
