// Small models and what the native library makes of them, for page/tests/models.test.mjs, which holds the page's module
// against it. Usage: native_models GOLDEN OUT: GOLDEN is tests/golden. ATTEND_TARGET=baseline has the module's kernels.
#include <attend/attend.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace attend;
using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int64_t>;
namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  write_file(path, text);
}

// ---- Models ----

// Of bytes, as BPE's files write them.
Json byte_tokenizer() {
  const auto is_plain = [](int byte) { return (byte > 32 && byte < 127) || (byte > 160 && byte < 173) || byte > 173; };
  const auto utf8 = [](int point) {
    if (point < 0x80) return std::string(1, static_cast<char>(point));
    return std::string{static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 0x3f))};
  };
  Json vocabulary;
  int others = 256;
  for (int byte = 0; byte < 256; ++byte) vocabulary[utf8(is_plain(byte) ? byte : others++)] = byte;
  const Json steps = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"pre_tokenizer", steps},
          {"decoder", steps},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
}

Json word_tokenizer(int size) {
  Json vocabulary;
  const std::array words{"?", "the", "cat", "sat", "on", "a", "mat", "and", "slept"};
  for (int n = 0; n < size; ++n)
    vocabulary[n < std::ssize(words) ? words[static_cast<std::size_t>(n)] : "word" + std::to_string(n)] = n;
  return {{"version", "1.0"},
          {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
          {"model", {{"type", "WordLevel"}, {"unk_token", "?"}, {"vocab", vocabulary}}}};
}

// Rows of 64 and 96 numbers, so that all of its matrices can be in blocks of 32.
void make_decoder(const fs::path& folder, std::int64_t V) {
  constexpr std::int64_t E = 64, I = 96, H = 4, Hkv = 2, D = 16;
  const Json config = {{"model_type", "llama"},   {"hidden_size", E},         {"intermediate_size", I},
                       {"num_hidden_layers", 2},  {"num_attention_heads", H}, {"num_key_value_heads", Hkv},
                       {"head_dim", D},           {"vocab_size", V},          {"max_position_embeddings", 64},
                       {"rms_norm_eps", 1e-6},    {"rope_theta", 10000.0},    {"hidden_act", "silu"},
                       {"bos_token_id", nullptr}, {"eos_token_id", nullptr},  {"tie_word_embeddings", false}};
  Generator generator(7);
  TensorMap tensors;
  const auto add = [&](const std::string& name, const Dims& shape) {
    Tensor drawn = generator.randn(shape);
    const float scale = shape.rank() == 1 ? 0.1f : 0.3f, middle = shape.rank() == 1 ? 1.f : 0.f;
    for (std::int64_t n = 0; n < drawn.count(); ++n) drawn.data<float>()[n] = drawn.data<float>()[n] * scale + middle;
    tensors.emplace(name + ".weight", std::move(drawn));
  };
  add("model.embed_tokens", {V, E}), add("lm_head", {V, E}), add("model.norm", {E});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    add(at + "self_attn.q_proj", {H * D, E}), add(at + "self_attn.k_proj", {Hkv * D, E});
    add(at + "self_attn.v_proj", {Hkv * D, E}), add(at + "self_attn.o_proj", {E, H * D});
    add(at + "mlp.gate_proj", {I, E}), add(at + "mlp.up_proj", {I, E}), add(at + "mlp.down_proj", {E, I});
    add(at + "input_layernorm", {E}), add(at + "post_attention_layernorm", {E});
  }
  fs::create_directories(folder);
  write(folder / "config.json", config.dump());
  write(folder / "tokenizer.json", byte_tokenizer().dump());
  write_safetensors(folder / "model.safetensors", views_of(tensors));
}

void take_golden(const fs::path& golden, const fs::path& folder) {
  fs::create_directories(folder);
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(golden / name, folder / name, fs::copy_options::overwrite_existing);
  write(folder / "tokenizer.json", word_tokenizer(23).dump());
}

// ---- What the library makes of them ----

Json json_of(const View& view) {
  const Tensor tensor = view.clone();
  Json values = Json::array();
  for (std::int64_t n = 0; n < tensor.count(); ++n) {
    if (tensor.dtype() == DType::i64)
      values.push_back(tensor.data<std::int64_t>()[n]);
    else
      values.push_back(tensor.data<float>()[n]);
  }
  return {{"shape", std::vector<std::int64_t>(view.shape().begin(), view.shape().end())}, {"values", values}};
}

Json json_of(const Attribution& x) {
  Json json = {{"token", x.token},         {"position", x.position},
               {"logit", x.logit},         {"capped_logit", x.capped_logit},
               {"embedding", x.embedding}, {"bias", x.bias},
               {"rounding", x.rounding},   {"heads", json_of(x.heads)},
               {"mlps", json_of(x.mlps)},  {"by_token", json_of(sums_by_token(x))}};
  if (x.cross.count() > 0) json["cross"] = json_of(x.cross);
  return json;
}

Json json_of(const Ablation& x) {
  Json json;
  for (const auto& [name, tensor] : {std::pair("logit", &x.logit), std::pair("log_probability", &x.log_probability),
                                     std::pair("kl", &x.kl), std::pair("cosine_distance", &x.cosine_distance)})
    if (tensor->count() > 0) json[name] = json_of(*tensor);
  return json;
}

Json weights_of(const Recording& recording, WeighedBy by) {
  Json layers = Json::array();
  for (std::int64_t layer = 0; layer < std::ssize(recording.layers()); ++layer) {
    Json heads = Json::array();
    for (const std::int64_t head : recording.at(layer).heads)
      heads.push_back(json_of(recording.weights(layer, 0, head, {}, {}, by)));
    layers.push_back(heads);
  }
  return layers;
}

// Of each attention by its name, what its heads put out [N,H*Dv]: the "context" of the page's "steps".
Json contexts_of(const Model& model, const Ids& ids, const Ids& decoder_ids, std::span<const Edit> edits) {
  Json json;
  const std::string stack = model.info().encoder_decoder() ? "decoder." : "";
  model.forward(ids, {.decoder_ids = decoder_ids,
                      .edits = edits,
                      .observe = [&](ModelPlace place, std::int64_t layer, const View& values) {
                        if (place == ModelPlace::z) json[stack + std::to_string(layer) + ".self"] = json_of(values);
                        if (place == ModelPlace::cross_z)
                          json[stack + std::to_string(layer) + ".cross"] = json_of(values);
                      }});
  return json;
}

Json telling_of(const Recording& recording) {
  Json json = Json::array();
  for (const TellingHead& each : telling_heads(recording, heads_of(recording), 3)) {
    Json links = Json::array();
    for (const Link& link : each.links)
      links.push_back({{"query", link.query}, {"key", link.key}, {"weight", link.weight}});
    json.push_back({{"layer", each.head.layer}, {"head", each.head.scores.head}, {"links", links}});
  }
  return json;
}

// As Model::embed() and forward() have it for the page's "run". saved: where the recording is written, too.
Json run(const Model& model, const Ids& ids, const Ids& decoder_ids, std::span<const Edit> edits,
         const fs::path& saved = {}) {
  Recorder recorder({.keep_qk = true, .key_sizes = true});
  const ModelCall call{.decoder_ids = decoder_ids, .recorder = &recorder, .edits = edits};
  Json json;
  const Tensor hidden = model.forward(ids, call);
  json["hidden"] = json_of(hidden);
  if (model.info().decoder())
    json["logits"] = json_of(model.logits(hidden.view().select(0, hidden.size(0) - 1)));
  else
    json["embedding"] = json_of(model.embed(ids, {.edits = edits}));
  Recording recording = recorder.finish();
  const auto row = [](const Ids& of) { return View(of.data(), DType::i64, {1, std::ssize(of)}); };
  const auto texts = [&](const Ids& of) {
    std::vector<std::string> all;
    for (const std::optional<std::string>& text : model.tokenizer().texts(of)) all.push_back(text.value_or(""));
    return all;
  };
  recording.tokens.push_back(texts(ids));
  if (!decoder_ids.empty()) recording.decoder_tokens.push_back(texts(decoder_ids));
  recording.set_ids(row(ids), decoder_ids.empty() ? std::nullopt : std::optional(row(decoder_ids)));
  json["weights"] = weights_of(recording, WeighedBy::weight);
  json["carried"] = weights_of(recording, WeighedBy::norm);
  json["heads"] = Json::parse(heads_json(recording, 0, heads_of(recording)));
  json["telling"] = telling_of(recording);
  json["contexts"] = contexts_of(model, ids, decoder_ids, edits);
  if (!saved.empty()) recording.save(saved);
  return json;
}

// The trace of an answer, the score of one head, and a circuit beside a text of as many tokens.
void back_to_the_words(const Model& model, const std::string& text, const Ids& ids, const Ids& decoder_ids,
                       Json& json) {
  json["trace"] = Json::parse(to_json(trace_answer(model, ids, {.token = 5, .decoder_ids = decoder_ids})));
  const ScoreSplit score = explain_score(model, ids, {1, 1}, 2, 1, {.decoder_ids = decoder_ids});
  json["score"] = {{"score", score.score},
                   {"query", json_of(sums_of_query(score))},
                   {"key", json_of(sums_of_key(score))},
                   {"pairs", json_of(score.pairs)}};
  if (model.info().encoder_decoder()) return;
  std::string corrupt = text;
  std::ranges::replace(corrupt, 'a', 'e');
  const AnswerPair pair{
      .clean = ids, .corrupt = model.tokenizer().encode(corrupt).ids, .token = 5, .against = 6, .position = -1};
  const Edges found = edges(model, {&pair, 1}, {.method = EdgeOptions::Method::eap_ig});
  json["corrupt"] = corrupt;
  json["edges"] = {{"clean", found.clean}, {"corrupt", found.corrupt}, {"count", found.count()}};
  json["circuit"] = Json::parse(to_json(circuit(model, found, {.keep = 8}), found));
}

Json report(const fs::path& path, const std::string& text) {
  const fs::path saved = path.parent_path() / (path.filename().string() + ".attend");
  const Model model = Model::load(path);
  const ModelInfo& info = model.info();
  const Encoding encoding = model.tokenizer().encode(text);
  const Ids& ids = encoding.ids;
  const Ids decoder_ids = info.encoder_decoder() ? Ids{info.start, 3, 2} : Ids{};
  const std::array edits{Edit{.layer = 0, .at = ModelPlace::z, .head = 1},
                         Edit{.layer = 1, .at = ModelPlace::z, .head = 0}};
  Json json = {{"text", text},
               {"ids", ids},
               {"decoder_ids", decoder_ids},
               {"info",
                {{"type", info.type},
                 {"layers", info.layers},
                 {"heads", info.heads},
                 {"parameters", info.parameters},
                 {"formats", info.formats},
                 {"weight_bytes", info.weight_bytes},
                 {"vocabulary", info.vocabulary}}},
               {"run", run(model, ids, decoder_ids, {}, saved)},
               {"without", run(model, ids, decoder_ids, edits)},
               {"ablation", json_of(ablate(model, ids, {.decoder_ids = decoder_ids}))}};
  json["ablation_of_two"] = json_of(ablate(model, ids, {.heads = {{0, 1}, {1, 0}}, .decoder_ids = decoder_ids}));
  if (!info.decoder()) {
    json["vectors"] = json_of(model.embed(std::array<std::string, 2>{text, "a cat slept"}).vectors);
    return json;
  }
  json["why"] = json_of(attribute(model, ids, {.token = 5, .position = 1, .decoder_ids = decoder_ids}));
  json["why_last"] = json_of(attribute(model, ids, {.decoder_ids = decoder_ids}));
  back_to_the_words(model, text, ids, decoder_ids, json);
  const Lens found = lens(model, ids, {}, 3, decoder_ids);
  json["lens"] = {{"ids", json_of(found.ids)},
                  {"log_probabilities", json_of(found.log_probabilities)},
                  {"rank", json_of(found.rank)}};
  if (!info.encoder_decoder()) {
    const std::vector<Ids> prompts{{3, 1, 4, 1, 5, 9, 2, 6}, {5, 3, 5, 8, 9, 7, 9}};
    const JacobianLens jacobian = jacobian_lens(model, prompts, {.skip = 2});
    jacobian.save(path.parent_path() / (path.filename().string() + ".jlens.safetensors"));
    const Lens by = lens(model, ids, {}, 3, {}, &jacobian);
    json["jacobian"] = {{"ids", json_of(by.ids)}, {"log_probabilities", json_of(by.log_probabilities)}};
  }
  json["generated"] = model.generate(ids, {.max_new_tokens = 12});
  json["drawn"] = model.generate(
      ids, {.max_new_tokens = 12, .settings = {.temperature = 1.5, .top_k = 50, .top_p = 0.9}, .seed = 3});
  json["generated_without"] = model.generate(ids, {.max_new_tokens = 12, .edits = edits});
  return json;
}

}  // namespace

int main(int, char** arguments) {
  const fs::path golden = arguments[1], out = arguments[2];
  make_decoder(out / "decoder", 256);
  make_decoder(out / "vocabulary", 700);  // for any tokenizer of golden/tokenizers.json
  quantize(out / "decoder", out / "q8_0.gguf", QuantizedType::q8_0);
  quantize(out / "decoder", out / "q4_0.gguf", QuantizedType::q4_0);
  take_golden(golden / "models/bert", out / "encoder");
  take_golden(golden / "models/gpt2", out / "gpt2");
  take_golden(golden / "models/bart", out / "encoder_decoder");
  for (const std::string family : {"gemma3", "gpt_neox", "mpnet", "opt", "t5"})
    take_golden(golden / "models" / family, out / "families" / family);
  const std::string words = "the cat sat on a mat and the cat slept";
  for (const auto& [name, text] :
       {std::pair<std::string, std::string>("decoder", "The cat — 猫 — sat; it's \"on\" 42."),
        {"q8_0.gguf", "The cat — 猫 — sat; it's \"on\" 42."},
        {"q4_0.gguf", "Whose mat is it? it is it?"},
        {"encoder", words},
        {"gpt2", words},
        {"encoder_decoder", words}})
    write(out / (name + ".json"), report(out / name, text).dump());
}
