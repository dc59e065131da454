// Models of every family beside Transformers (make_models_golden.py), batches, caches, generation, recordings, errors.
#include "attend/models.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>

#include "kernels/targets.h"
#include "models/gguf/read.h"
#include "models/sampling.h"
#include "tests/allocations.h"
#include "tests/expect.h"
#include "tests/io/files.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using namespace test;

const TensorMap& numbers() {
  static const TensorMap tensors = read_safetensors(data("golden/models.safetensors")).tensors;
  return tensors;
}

std::vector<std::int64_t> whole(const std::string& name) {
  const View x = numbers().at(name);
  return {x.data<std::int64_t>(), x.data<std::int64_t>() + x.count()};
}

std::filesystem::path folder(const std::string& name) {
  return data("golden/models/" + name);
}

const std::vector<std::string> encoders{"bert", "roberta", "distilbert", "mpnet", "albert", "modernbert"};
const std::vector<std::string> decoders{"gpt2",     "llama", "mistral", "qwen2", "qwen3",
                                        "gpt_neox", "opt",   "phi3",    "olmo2", "gemma3"};

TEST(Model, HiddenStatesAreThoseOfTransformers) {
  const std::vector<std::int64_t> ids = whole("ids"), types = whole("types");
  for (const auto& names : {encoders, decoders}) {
    for (const std::string& name : names) {
      const Model model = Model::load(folder(name));
      ModelCall call;
      if (name == "bert") call.types = types;
      expect_close(model.forward(ids, call), numbers().at(name + ".hidden"), 2e-6, name);
      const Model narrow = Model::load(folder(name), {.dtype = DType::bf16});
      EXPECT_EQ(name_of(narrow.info().dtype), "bf16");
      expect_close(narrow.forward(ids, call), numbers().at(name + ".hidden"), 5e-2, name);
    }
  }
}

TEST(Model, LogitsAndTheTokensThatFollowAreThoseOfTransformers) {
  const std::vector<std::int64_t> ids = whole("ids");
  for (const std::string& name : decoders) {
    const Model model = Model::load(folder(name));
    expect_close(model.logits(model.forward(ids)), numbers().at(name + ".logits"), 5e-6, name);
    EXPECT_EQ(model.generate(ids, {.max_new_tokens = 12}), whole(name + ".tokens")) << name;
  }
}

TEST(Model, SaysWhatItIs) {
  const ModelInfo llama = Model::load(folder("llama")).info();
  EXPECT_EQ(llama.type, "llama");
  EXPECT_EQ(name_of(llama.family), "llama");
  EXPECT_EQ((Dims{llama.layers, llama.heads, llama.kv_heads, llama.head_size, llama.embedding_size}),
            (Dims{2, 4, 2, 4, 16}));
  EXPECT_EQ((Dims{llama.vocabulary, llama.longest}), (Dims{23, 40}));
  EXPECT_TRUE(llama.decoder() && !Model::load(folder("bert")).info().decoder());
  std::int64_t count = 0;
  for (const auto& [name, tensor] : read_safetensors(folder("llama") / "model.safetensors").tensors)
    count += tensor.count();
  EXPECT_EQ(llama.parameters, count);
  EXPECT_EQ(Model::load(folder("roberta")).info().longest, 38);
}

// Packed, each sequence has the bits that it has alone; so has a cache that is filled in pieces.
TEST(Model, SequencesKeepToThemselves) {
  const std::vector<std::int64_t> ids = whole("ids"), starts{0, 3, 4, 11};
  for (const auto& names : {encoders, decoders}) {
    for (const std::string& name : names) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const Model model = Model::load(folder(name), {.dtype = dtype});
        const Tensor all = model.forward(ids, {.starts = starts}), mean = model.embed(ids, {.starts = starts});
        for (std::size_t s = 0; s + 1 < starts.size(); ++s) {
          const std::vector<std::int64_t> own(ids.begin() + starts[s], ids.begin() + starts[s + 1]);
          expect_same(all.view().slice(0, starts[s], starts[s + 1]), model.forward(own), name);
          expect_same(mean.view().slice(0, std::int64_t(s), std::int64_t(s) + 1), model.embed(own), name);
        }
      }
    }
  }
}

TEST(Model, CachesContinueASequence) {
  const std::vector<std::int64_t> ids = whole("ids");
  const std::span<const std::int64_t> all = ids;
  for (const std::string& name : decoders) {
    const Model model = Model::load(folder(name));
    const Tensor whole_pass = model.forward(ids);
    ModelCache a = model.cache(), b = model.cache();
    ModelCache* one[] = {&a};
    for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, 4}, {4, 5}, {5, 11}}) {
      const Tensor part = model.forward(all.subspan(begin, end - begin), {.caches = one});
      expect_close(part, whole_pass.view().slice(0, std::int64_t(begin), std::int64_t(end)), 1e-6, name);
    }
    EXPECT_EQ(a.length(), 11);
    // Two sequences a token each: what they have alone.
    a.truncate(6);
    ModelCache* second[] = {&b};
    model.forward(all.first(3), {.caches = second});
    ModelCache copy_a = a, copy_b = b;
    ModelCache *both[] = {&a, &b}, *only_a[] = {&copy_a}, *only_b[] = {&copy_b};
    const std::vector<std::int64_t> next{7, 9}, two{0, 1, 2};
    const Tensor together = model.forward(next, {.starts = two, .caches = both});
    expect_same(together.view().slice(0, 0, 1), model.forward({next.data(), 1}, {.caches = only_a}), name);
    expect_same(together.view().slice(0, 1, 2), model.forward({next.data() + 1, 1}, {.caches = only_b}), name);
    ModelCache quantized = model.cache(DType::i8);
    ModelCache* narrow[] = {&quantized};
    expect_close(model.forward(ids, {.caches = narrow}), whole_pass, 5e-2, name);
  }
}

TEST(Model, WhatFailsLeavesTheCacheAsItWas) {
  const Model model = Model::load(folder("llama"));
  const std::vector<std::int64_t> ids = whole("ids"), many(35, 3);
  ModelCache cache = model.cache(), twin = model.cache();
  ModelCache *caches[] = {&cache}, *twins[] = {&twin};
  model.forward(ids, {.caches = caches}), model.forward(ids, {.caches = twins});
  expect_error(
      ErrorCode::bad_value, [&] { model.forward(many, {.caches = caches}); }, "46 tokens", "at most 40");
  Recorder small({.budget = 1});
  expect_error(ErrorCode::bad_value, [&] { model.forward(ids, {.caches = caches, .recorder = &small}); });
  EXPECT_EQ(cache.length(), 11);
  const std::vector<std::int64_t> next{5};
  expect_same(model.forward(next, {.caches = caches}), model.forward(next, {.caches = twins}));
}

// The text ends where the model's places do; nothing is lost.
TEST(Model, GeneratesToTheEndOfItsPlaces) {
  const Model model = Model::load(folder("gpt2"));
  EXPECT_EQ(model.generate(whole("ids"), {.max_new_tokens = 100}).size(), 40 - 11 + 1);
  EXPECT_EQ(model.generate(std::vector<std::int64_t>(40, 3), {.max_new_tokens = 100}).size(), 1);
  expect_error(
      ErrorCode::bad_value, [&] { model.generate(std::vector<std::int64_t>(41, 3)); }, "41 tokens");
}

TEST(Model, Draws) {
  const Model model = Model::load(folder("gpt2"));
  const std::vector<std::int64_t> ids = whole("ids"), likeliest = whole("gpt2.tokens");
  const auto drawn = [&](GenerateOptions options) {
    options.max_new_tokens = 12;
    return model.generate(ids, options);
  };
  EXPECT_EQ(drawn({.settings = {.temperature = 1, .top_k = 1}}), likeliest);
  EXPECT_EQ(drawn({.settings = {.temperature = 1, .top_p = 1e-9}}), likeliest);
  EXPECT_EQ(drawn({.settings = {.temperature = 1e-4}}), likeliest);
  EXPECT_EQ(drawn({.settings = {.temperature = 2}, .seed = 5}), drawn({.settings = {.temperature = 2}, .seed = 5}));
  EXPECT_NE(drawn({.settings = {.temperature = 2}, .seed = 5}), drawn({.settings = {.temperature = 2}, .seed = 6}));
  const std::vector<std::int64_t> end{likeliest[4]};
  EXPECT_EQ(drawn({.end = end}).size(), std::ranges::find(likeliest, end[0]) - likeliest.begin());
  std::vector<std::int64_t> seen;
  EXPECT_EQ(drawn({.on_token = [&](std::int64_t id) { return seen.push_back(id), seen.size() < 3; }}), seen);
  EXPECT_EQ(seen.size(), 3);
  // First tokens come as often as softmax(logits / temperature) of the three likeliest says.
  const Tensor hidden = model.forward(ids), logits = model.logits(hidden.view().select(0, 10));
  std::vector<std::pair<double, std::int64_t>> order;
  for (std::int64_t id = 0; id < logits.count(); ++id) order.emplace_back(-logits.item({id}), id);
  std::ranges::sort(order);
  std::map<std::int64_t, int> counts;
  constexpr int draws = 2000;
  for (std::uint64_t seed = 0; seed < draws; ++seed)
    ++counts[model.generate(ids, {.max_new_tokens = 1, .settings = {.temperature = 2, .top_k = 3}, .seed = seed})[0]];
  EXPECT_EQ(counts.size(), 3);
  double sum = 0;
  for (int n = 0; n < 3; ++n) sum += std::exp(-order[std::size_t(n)].first / 2);
  for (int n = 0; n < 3; ++n) {
    const double share = std::exp(-order[std::size_t(n)].first / 2) / sum;
    EXPECT_NEAR(counts[order[std::size_t(n)].second], share * draws, 5 * std::sqrt(share * draws) + 1);
  }
}

// Each grows as it does alone, whatever grows beside it: the ids of Transformers' tokens among prompts of other
// lengths.
// A file's output layer may have NaN: a draw from such logits looked for its token beyond the last one.
TEST(Model, DrawsFromNumbersAlone) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const models::Settings& settings :
       {models::Settings{}, {.temperature = 1}, {.temperature = 1, .top_k = 2}, {.temperature = 1, .top_p = 0.5}}) {
    models::Sampler sampler(settings, 1);
    expect_error(
        ErrorCode::bad_value,
        [&] {
          (void)sampler.choose(std::vector{0.f, nan, 1.f});
        },
        "token 1 is nan");
    expect_error(
        ErrorCode::bad_value,
        [&] {
          (void)sampler.choose(std::vector{0.f, 1.f, inf});
        },
        "token 2 is inf");
    expect_error(
        ErrorCode::bad_value,
        [&] {
          (void)sampler.choose(std::vector{-inf, -inf});
        },
        "no token may come");
    EXPECT_EQ(sampler.choose(std::vector{-inf, 0.f, -inf}), 1);
  }
}

TEST(Model, GeneratesSeveralAtOnce) {
  const std::vector<std::int64_t> ids = whole("ids");
  std::vector<std::vector<std::int64_t>> prompts{{7}, ids, std::vector<std::int64_t>(35, 3)};
  while (prompts.size() < 40) prompts.emplace_back(ids.begin(), ids.begin() + 1 + std::ssize(prompts) % 10);
  for (const std::string& name : decoders) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Model model = Model::load(folder(name), {.dtype = dtype});
      const std::vector<Edit> edits{{.layer = 1, .head = 0}};
      for (const GenerateOptions& options :
           {GenerateOptions{.max_new_tokens = 12},
            GenerateOptions{
                .max_new_tokens = 8, .settings = {.temperature = 2, .top_k = 20}, .seed = 5, .edits = edits}}) {
        const std::vector<std::vector<std::int64_t>> made = model.generate(prompts, options);
        ASSERT_EQ(made.size(), prompts.size());
        for (std::size_t n = 0; n < prompts.size(); ++n) {
          GenerateOptions alone = options;
          alone.seed += n;
          EXPECT_EQ(made[n], model.generate(prompts[n], alone)) << name << " " << n;
        }
        if (dtype == DType::f32 && !options.settings.temperature) {
          EXPECT_EQ(made[1], whole(name + ".tokens")) << name;
        }
      }
    }
  }
}

TEST(Model, OfSeveralPromptsEachEndsByItself) {
  const Model model = Model::load(folder("gpt2"));
  const std::vector<std::int64_t> ids = whole("ids"), likeliest = whole("gpt2.tokens");
  const std::vector<std::vector<std::int64_t>> prompts{ids, std::vector<std::int64_t>(39, 3), {5}};
  const std::vector<std::int64_t> end{likeliest[4]};
  const auto made = model.generate(prompts, {.max_new_tokens = 12, .end = end});
  EXPECT_EQ(made[0].size(), std::ranges::find(likeliest, end[0]) - likeliest.begin());
  EXPECT_EQ(made[1], model.generate(prompts[1], {.max_new_tokens = 12, .end = end}));
  EXPECT_LE(made[1].size(), 2);  // the model has 40 places
  std::vector<std::vector<std::int64_t>> seen(3);
  const auto told = [&](std::int64_t prompt, std::int64_t id) {
    std::vector<std::int64_t>& own = seen[static_cast<std::size_t>(prompt)];
    return own.push_back(id), prompt != 2 || own.size() < 3;
  };
  EXPECT_EQ(model.generate(prompts, {.max_new_tokens = 6, .on_token_of = told}), seen);
  EXPECT_EQ((std::vector<std::size_t>{seen[0].size(), seen[2].size()}), (std::vector<std::size_t>{6, 3}));

  EXPECT_TRUE(model.generate(std::vector<std::vector<std::int64_t>>()).empty());
  EXPECT_EQ(model.generate(prompts, {.max_new_tokens = 0}), std::vector<std::vector<std::int64_t>>(3));
  const auto refused = [&](const std::vector<std::vector<std::int64_t>>& of, const GenerateOptions& options,
                           const char* text) {
    expect_error(
        ErrorCode::bad_value, [&] { model.generate(of, options); }, text);
  };
  refused({ids, {}}, {}, "no prompts[1]");
  refused({ids, {5, -1}}, {}, "prompts[1][1] is -1");
  refused({ids, std::vector<std::int64_t>(41, 3)}, {}, "prompts[1] has 41 tokens");
  Recorder recorder({.grows = true});
  refused(prompts, {.recorder = &recorder}, "recorder");
  refused(prompts, {.on_token = [](std::int64_t) { return true; }}, "on_token_of");
  const std::vector<Edit> edits{{.layer = 1, .rows = std::vector<std::int64_t>{0}}};
  refused(prompts, {.edits = edits}, "edit with rows");
}

TEST(Model, IsRecorded) {
  const std::vector<std::int64_t> ids = whole("ids");
  for (const std::string& name : {std::string("bert"), std::string("qwen3")}) {
    const Model model = Model::load(folder(name));
    Recorder recorder({.keep_qk = true});
    expect_same(model.forward(ids, {.recorder = &recorder}), model.forward(ids), name);
    const Recording recording = recorder.finish();
    ASSERT_EQ(recording.layers().size(), 2);
    EXPECT_EQ(recording.layers()[1].name, "1.self");
    EXPECT_EQ((Dims{recording.layers()[0].queries, recording.layers()[0].keys, recording.layers()[0].kv_heads}),
              (Dims{11, 11, model.info().kv_heads}));
    const Tensor weights = recording.weights(1, 0, 0);
    for (std::int64_t i = 0; i < 11; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < 11; ++j) sum += weights.item({i, j});
      EXPECT_NEAR(sum, 1, 1e-6);
      if (model.info().decoder() && i < 10) {
        EXPECT_EQ(weights.item({i, 10}), 0);
      }
    }
  }
  const Model model = Model::load(folder("llama"));
  Recorder grows({.keep_qk = true, .grows = true});
  model.generate(ids, {.max_new_tokens = 4, .recorder = &grows});
  const Recording generation = grows.finish();
  EXPECT_EQ(generation.layers()[0].queries, 14);  // the last token was not given back
}

// Of a text that goes on in a cache, what was cut from the cache and forgotten by a failed call counts for no head.
TEST(Model, IsRecordedWithTheIdsOfItsCache) {
  const Model model = Model::load(folder("llama"));
  std::vector<std::int64_t> ids;
  for (std::int64_t n = 0; n < 24; ++n) ids.push_back(5 + n % 8);
  const std::span<const std::int64_t> all(ids), begin = all.first(12), rest = all.subspan(12);
  const auto recorded = [&](ModelCache& cache) {
    ModelCache* const caches[] = {&cache};
    Recorder recorder({.grows = true});
    model.forward(rest, {.caches = caches, .recorder = &recorder});
    return recorder.finish().scores(1);
  };
  ModelCache straight = model.cache(), cut = model.cache();
  ModelCache *const one[] = {&straight}, *const other[] = {&cut};
  model.forward(begin, {.caches = one});
  model.forward(all.first(20), {.caches = other});
  cut.truncate(15);
  Recorder small({.budget = 1, .grows = true});
  EXPECT_THROW(model.forward(rest, {.caches = other, .recorder = &small}), Error);
  cut.truncate(12);
  const std::vector<HeadScores> expected = recorded(straight), scores = recorded(cut);
  for (std::size_t n = 0; n < expected.size(); ++n) {
    ASSERT_TRUE(scores[n].induction && expected[n].induction);
    EXPECT_EQ(*scores[n].induction, *expected[n].induction);
    EXPECT_GT(*scores[n].induction, 0);
  }
}

// The same weights in a folder compute the same.
TEST(Model, OpensGguf) {
  const std::filesystem::path path = data("golden/gguf/llama.gguf");
  const Model model = Model::load(path);
  const models::Gguf file = models::read_gguf("test", path);
  const Folder twin;
  put(twin / "config.json", file.config.dump());
  std::deque<Tensor> made;
  NamedViews tensors;
  for (const auto& [name, matrix] : file.weights.all())
    tensors.emplace_back(name, made.emplace_back(models::numbers(matrix)));
  write_safetensors(twin / "model.safetensors", tensors);
  const std::vector<std::int64_t> ids{1, 5, 9, 2};
  const Tensor out = model.forward(ids),
               expected = Model::load(twin.path(), {.dtype = model.info().dtype}).forward(ids);
  if (kernels::target().linear.blocks(QuantizedType::q4_1, Activations::exact).prepare) {
    expect_close(out, expected, 1e-5);  // products of bytes round elsewhere
  } else {
    expect_same(out, expected);
  }
  EXPECT_EQ(Model::load_tokenizer(path).size(), model.info().vocabulary);
  EXPECT_EQ(model.info().type, "llama");
}

// ---- Errors ----

// A copy of a golden folder, changed.
class Copy {
 public:
  explicit Copy(const std::string& name) {
    for (const char* file : {"config.json", "model.safetensors"})
      std::filesystem::copy(folder(name) / file, path() / file);
  }
  void replace(const std::string& from, const std::string& to) const {
    std::string text = get(path() / "config.json");
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    put(path() / "config.json", text.replace(at, from.size(), to));
  }
  template <class Change>
  void change(Change change) const {
    TensorMap tensors = read_safetensors(path() / "model.safetensors").tensors;
    change(tensors);
    write_safetensors(path() / "model.safetensors", views_of(tensors));
  }
  template <class... Texts>
  void refused(const Texts&... texts) const {
    expect_error(
        ErrorCode::bad_file, [&] { Model::load(path()); }, "Model.load", texts...);
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  Folder folder_;
};

TEST(Model, NamesAllThatIsWrongWithItsTensors) {
  const Copy copy("llama");
  copy.change([](TensorMap& tensors) {
    tensors.erase("model.layers.0.self_attn.q_proj.weight");
    tensors["model.norm.weight"] = Tensor({5});
    tensors["model.layers.1.surprise"] = Tensor({1});
    tensors["model.layers.0.mlp.up_proj.weight"] = Tensor({24, 16}, DType::i64);
  });
  copy.refused("'model.layers.0.self_attn.q_proj.weight' is missing",
               "'model.norm.weight' has shape [5], expected [16]", "'model.layers.1.surprise' is not known",
               "'model.layers.0.mlp.up_proj.weight' is i64");
}

TEST(Model, NeverGuesses) {
  const auto refused = [](const char* name, const char* from, const char* to, const char* text) {
    const Copy copy(name);
    copy.replace(from, to);
    copy.refused(text);
  };
  refused("llama", "\"model_type\": \"llama\"", "\"model_type\": \"mamba\"", "'mamba' is not known here");
  refused("llama", "\"rope_type\": \"llama3\"", "\"rope_type\": \"spiral\"", "rope_type: 'spiral' is not known here");
  refused("llama", "\"rope_type\": \"llama3\"", "\"rope_type\": \"longrope\"", "short_factor is missing");
  refused("llama", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"prelu\"", "'prelu' is not known here");
  refused("llama", "\"use_cache\": true", "\"quantization_config\": {\"bits\": 4}", "quantization_config");
  refused("llama", "\"use_cache\": true", "\"is_causal\": false", "is_causal: 'false' is not known here; true is");
  refused("llama", "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": null", "rms_norm_eps: is null");
  refused("llama", "\"factor\": 8.0", "\"factor\": 0", "rope_parameters: factor: expected a number above 0");
  refused("gpt2", "\"use_cache\": true", "\"num_attention_heads\": 4", "is another name for n_head");
  refused("llama", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", "not a multiple of 3");
  refused("bert", "\"is_decoder\": false", "\"is_decoder\": true", "is_decoder");
  refused("bert", "\"num_attention_heads\": 2", "\"num_attention_heads\": 3", "16 can't be shared by 3 heads");
  refused("gpt2", "\"add_cross_attention\": false", "\"add_cross_attention\": true", "add_cross_attention");
  refused("bert", "\"hidden_size\": 16", "\"hidden_size\": 1099511627776", "expected [23,1099511627776]");
  expect_error(
      ErrorCode::bad_file, [] { Model::load(folder("nothing")); }, "Model.load", "no file or folder");
}

// A variable of the environment, set as long as the object is.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() {
    if (before_) setenv(name_, before_->c_str(), 1);
    if (!before_) unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// Folders as huggingface_hub and attend model --get leave them: the main revision, a .gguf file, one of several.
TEST(Model, IsFoundByItsNameInTheCaches) {
  const Folder home;
  const Variable hub("HF_HUB_CACHE", home / "hub"), own("XDG_CACHE_HOME", home.path().string());
  const auto snapshot = [&](const std::string& model, const std::string& revision) {
    std::filesystem::path path = home / "hub" / ("models--" + model) / "snapshots" / revision;
    std::filesystem::create_directories(path.parent_path());
    return path;
  };
  std::filesystem::create_directories(home / "hub/models--org--two/refs");
  std::filesystem::create_directory_symlink(folder("bert"), snapshot("org--two", "a1"));
  std::filesystem::create_directory_symlink(folder("gpt2"), snapshot("org--two", "b2"));
  put(home / "hub/models--org--two/refs/main", "b2");
  std::filesystem::create_directory_symlink(folder("llama"), snapshot("small", "c3"));
  std::filesystem::create_directory_symlink(data("golden/gguf"), snapshot("org--files", "d4"));
  std::filesystem::create_directories(home / "attend/models/one");
  std::filesystem::copy(data("golden/gguf/llama.gguf"), home / "attend/models/one/x.gguf");

  EXPECT_EQ(Model::load("org/two").info().type, "gpt2");
  EXPECT_EQ(Model::load("small").info().type, "llama");
  EXPECT_EQ(Model::load("org/files/qwen2.gguf").info().type, "qwen2");
  EXPECT_EQ(Model::load("one").info().type, "llama");
  EXPECT_GT(Model::load_tokenizer("one").size(), 0);
  std::vector<std::string> names;
  for (const CachedModel& each : cached_models()) names.push_back(each.name + " " + each.type);
  EXPECT_EQ(names.front(), "one gguf");
  EXPECT_EQ(std::ranges::count(names, "org/two gpt2") + std::ranges::count(names, "small llama") +
                std::ranges::count(names, "org/files/llama.gguf gguf"),
            3);

  const auto refused = [](const char* name, const char* said) {
    expect_error(
        ErrorCode::bad_file, [&] { Model::load(name); }, "Model.load", said);
  };
  refused("org/files", "'org/files/qwen2.gguf'");
  for (const char* name : {"org/three", "org/two/config.json", "../two", "org/..", "models--org--two", "", "/"})
    EXPECT_ANY_THROW(Model::load(name)) << name;
  refused("org/three", "no model with that name in attend's cache or Hugging Face's");
  std::filesystem::remove(home / "hub/models--org--two/refs/main");
  refused("org/two", "no model with that name");
}

// A folder of sentence-transformers: what its embeddings are is asked when they are.
TEST(Model, EmbedsAsTheFolderSays) {
  const Copy copy("bert");
  std::filesystem::create_directory(copy.path() / "1_Pooling");
  put(copy.path() / "modules.json",
      R"([{"name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
          {"name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])");
  const std::filesystem::path pooling = copy.path() / "1_Pooling" / "config.json";
  const std::vector<std::int64_t> ids = whole("ids");
  put(pooling, R"({"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true})");
  expect_same(Model::load(copy.path()).embed(ids), Model::load(folder("bert")).embed(ids));
  put(pooling, R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})");
  const Model first = Model::load(copy.path());
  expect_same(first.embed(ids), first.forward(ids).view().slice(0, 0, 1));
  put(pooling, R"({"pooling_mode": "middle"})");
  const Model model = Model::load(copy.path());
  EXPECT_FALSE(model.info().embeds);
  EXPECT_EQ(model.forward(ids).size(0), 11);
  expect_error(
      ErrorCode::bad_file, [&] { model.embed(ids); }, "Model.embed", "1_Pooling/config.json", "'\"middle\"'");
}

// A tokenizer.json.
constexpr const char* words_a_to_d = R"({"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {
    "type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2, "c": 3, "d": 4}}})";

// "a", "b", ... are 0, 1, ...: whatever a model of so many tokens writes is text.
std::string words_of_every_id(int count) {
  std::string words;
  for (int id = 0; id < count; ++id)
    words += (id ? ", \"" : "\"") + std::string(1, static_cast<char>('a' + id)) + "\": " + std::to_string(id);
  return R"({"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {
    "type": "WordLevel", "unk_token": "a", "vocab": {)" +
         words + "}}}";
}

// Sentences of all lengths have the bits that each has alone, on any number of threads; what interrupts ends it.
TEST(Model, EmbedsSentences) {
  const Copy copy("bert");
  put(copy.path() / "tokenizer.json", words_a_to_d);
  const Model model = Model::load(copy.path());
  std::vector<std::string> sentences;
  for (std::size_t n = 0; n < 200; ++n) {
    std::string& sentence = sentences.emplace_back("a");
    for (std::size_t word = 0; word < n * 7 % 50; ++word) sentence += std::string(" ") + "abcd"[(n + word) % 4];
  }
  const Embeddings all = model.embed(sentences);
  EXPECT_EQ(all.vectors.shape(), (Dims{200, 16}));
  const std::int64_t longest = model.info().longest;
  EXPECT_EQ(model.info().max_seq_length, longest);
  EXPECT_EQ(all.cut, std::ranges::count_if(sentences, [&](const auto& s) { return std::ssize(s) / 2 + 1 > longest; }));
  for (const std::int64_t n : {0, 1, 50, 199})
    expect_same(all.vectors.view().slice(0, n, n + 1),
                model.embed(std::span(sentences).subspan(std::size_t(n), 1)).vectors);
  {
    const test::ThreadsAtMost limit(1);
    expect_same(model.embed(sentences).vectors, all.vectors);
  }
  EXPECT_EQ(model.embed(std::vector<std::string>{}).vectors.shape(), (Dims{0, 16}));
  expect_error(
      ErrorCode::bad_value,
      [&] {
        model.embed(std::vector<std::string>{"a", ""});
      },
      "Model.embed", "sentences[1]");
  expect_error(
      ErrorCode::bad_value, [&] { model.embed(sentences, {.prompt = "quarry"}); }, "'quarry'", "'document', 'query'");
  {
    const InterruptCheck at_once([] { return true; });
    // A second's work: the check is asked every 20 ms, in which a fast machine embeds 20,000.
    const std::vector<std::string_view> many(1'000'000, sentences[50]);
    expect_error(
        ErrorCode::interrupted, [&] { model.embed(many); }, "interrupted");
  }
  expect_same(model.forward("a b c"), model.forward(std::vector<std::int64_t>{1, 2, 3}));
}

// What programs have at hand: ids of either width or in braces, texts of any kind, one or several. In each of these the
// meaning is that of std::vector<std::int64_t> or std::vector<std::string>.
TEST(Model, TakesIdsAndTextsInManyForms) {
  const Copy copy("bert");
  put(copy.path() / "tokenizer.json", words_a_to_d);
  const Model bert = Model::load(copy.path());
  const std::vector<std::int64_t> ids{1, 0}, starts{0, 1, 2};
  const std::vector<int> narrow{1, 0};
  const std::int32_t array[] = {1, 0};
  const Tensor hidden = bert.forward(ids), vector = bert.embed(ids);
  expect_same(bert.forward(narrow), hidden);
  expect_same(bert.forward(array), hidden);
  expect_same(bert.forward({1, 0}), hidden);
  expect_same(bert.forward({0, 0}), bert.forward(std::vector<std::int64_t>{0, 0}));
  expect_same(bert.embed(narrow), vector);
  expect_same(bert.embed({1, 0}), vector);
  expect_same(bert.embed({1, 0}, {.starts = starts}, true), bert.embed(ids, {.starts = starts}, true));

  const std::vector<std::string> texts{"a b", "c"};
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const Tensor both = bert.embed(texts).vectors;
  expect_same(bert.embed(views).vectors, both);
  expect_same(bert.embed({"a b", "c"}).vectors, both);
  expect_same(bert.embed({texts[0], texts[1]}, {.truncate = false}).vectors, both);
  const Tensor first = both.view().slice(0, 0, 1).clone();
  expect_same(bert.embed("a b").vectors, first);
  expect_same(bert.embed({"a b"}).vectors, first);
  expect_same(bert.embed(texts[0]).vectors, first);
  expect_same(bert.embed(views[0]).vectors, first);

  const Copy other("llama");
  put(other.path() / "tokenizer.json", words_of_every_id(23));
  const Model llama = Model::load(other.path());
  const GenerateOptions options{.max_new_tokens = 3, .end = std::vector<std::int64_t>{}};
  const std::vector<std::int64_t> made = llama.generate(ids, options);
  EXPECT_EQ(llama.generate(narrow, options), made);
  EXPECT_EQ(llama.generate({1, 0}, options), made);
  const std::vector<std::string> written = llama.generate(texts, options);
  EXPECT_EQ(llama.generate(views, options), written);
  EXPECT_EQ(llama.generate({"a b", "c"}, options), written);
  EXPECT_EQ(llama.generate("a b", options), written[0]);
}

// The tokenizer of another model: its words are refused by name, but for those that no text has.
TEST(Model, ATokenizersIdsAreTheModels) {
  const Copy copy("llama");  // 23 tokens
  put(copy.path() / "tokenizer.json",
      R"({"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type": "WordLevel", "unk_token": "?",
          "vocab": {"?": 0, "a": 1, "b": 22, "c": 23, "d": 50000}}})");
  const Model model = Model::load(copy.path());
  EXPECT_EQ(model.forward("a b").size(0), 2);
  for (const auto& use : {std::function([&] { (void)model.forward("a c"); }),
                          std::function([&] { (void)model.generate("a c", {.max_new_tokens = 1}); }),
                          std::function([&] { (void)model.embed(std::vector<std::string>{"a c"}); })})
    expect_error(ErrorCode::bad_file, use, "its tokenizer has 'c' as 23, but its weights have embeddings 0 to 22");
}

// To open a pipe is to wait until somebody writes to it: what a folder holds is a file, or is refused.
TEST(Model, APipeInAFolderIsRefused) {
  const Folder folder;
  const auto refused = [&](const char* name, const auto& read) {
    SCOPED_TRACE(name);
    std::filesystem::create_directories((folder / name).parent_path());
    ASSERT_EQ(mkfifo((folder / name).c_str(), 0600), 0);
    expect_error(ErrorCode::bad_file, read, "is a pipe, expected a file");
    std::filesystem::remove(folder / name);
  };
  const auto load = [&] { (void)Model::load(folder.path()); };
  refused("config.json", load);
  refused("modules.json", load);
  put(folder / "config.json", R"({"model_type": "bert"})");
  refused("model.safetensors", load);
  refused("model.safetensors.index.json", load);
  put(folder / "model.safetensors.index.json", R"({"metadata": {}, "weight_map": {"x": "shard"}})");
  refused("shard", load);
  refused("tokenizer.json", [&] { (void)Tokenizer::load(folder.path()); });
  refused("x.gguf", [&] { (void)Model::load(folder / "x.gguf"); });
  refused("hub/models--a--b/refs/main", [&] {
    setenv("HF_HUB_CACHE", (folder / "hub").c_str(), 1);
    (void)Model::load("a/b");
  });
  unsetenv("HF_HUB_CACHE");
}

TEST(Model, NoNameIsNoModels) {
  for (const auto& use :
       {std::function([] { (void)Model::load(""); }), std::function([] { (void)Model::load_tokenizer(""); }),
        std::function([] { (void)Tokenizer::load(""); }), std::function([] { (void)find_model(""); })})
    expect_error(ErrorCode::bad_file, use, "''");
}

// Whatever size a configuration speaks of: the tensors are looked at before anything of that size is made or done.
TEST(Model, ASizeIsHeldAgainstTheTensorsFirst) {
  const auto load = [](const Copy& copy, const std::string& what) {
    SCOPED_TRACE(what);
    bool loaded = false;
    std::int64_t bytes = 0;
    {
      const CountAllocations count;
      try {
        Model::load(copy.path());
        loaded = true;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::bad_file) << error.what();
      }
      bytes = count.list_bytes() + count.tensor_bytes();
    }
    EXPECT_LT(bytes, 8 << 20);
    return loaded;
  };
  for (const auto& names : {encoders, decoders}) {
    for (const std::string& name : names) {
      const nlohmann::json config = nlohmann::json::parse(get(folder(name) / "config.json"));
      for (const auto& [key, value] : config.items()) {
        if (!value.is_number_integer()) continue;
        for (const std::int64_t huge : {100'000LL, 1LL << 31, (1LL << 40) - 2, 1LL << 62}) {
          nlohmann::json changed = config;
          changed[key] = huge;
          const Copy copy(name);
          put(copy.path() / "config.json", changed.dump());
          const bool loaded = load(copy, name + ": " + key + " is " + std::to_string(huge));
          const bool of_tensors = key.find("size") != std::string::npos || key.find("head") != std::string::npos ||
                                  key.find("layers") != std::string::npos || key.find("dim") != std::string::npos;
          const bool has_none_of_its_own =
              key == "max_window_layers" || (name == "albert" && key == "num_hidden_layers");
          EXPECT_FALSE(loaded && of_tensors && !has_none_of_its_own) << name << ": " << key;
        }
      }
    }
  }
  const Copy copy("llama");
  copy.replace("\"head_dim\": 4", "\"head_dim\": 2147483648");
  copy.refused("'model.layers.0.self_attn.q_proj.weight' has shape [16,16], expected [8589934592,16]");
  copy.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 0");
  copy.change([](TensorMap& tensors) { std::erase_if(tensors, [](auto& x) { return x.first.find("layers.") < 9; }); });
  EXPECT_TRUE(load(copy, "no layer needs heads"));
  EXPECT_EQ(Model::load(copy.path()).forward(std::vector<std::int64_t>{1, 2}).shape(), (Dims{2, 16}));
}

// 2^30 heads of 2^40 numbers.
TEST(Model, AProductOfSizesDoesNotWrap) {
  const Copy copy("llama");
  copy.replace("\"head_dim\": 4", "\"head_dim\": 1099511627776");
  copy.replace("\"hidden_size\": 16", "\"hidden_size\": 1073741824");
  copy.replace("\"num_attention_heads\": 4", "\"num_attention_heads\": 1073741824");
  copy.replace("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 1073741824");
  copy.refused("1073741824 heads of 1099511627776 numbers are more than a matrix can have");
}

TEST(Model, AConfigurationMayNotEndTheStack) {
  const Copy copy("bert");
  const std::string nested = std::string(200'000, '[') + std::string(200'000, ']');
  copy.replace("\"is_decoder\": false", "\"is_decoder\": " + nested);
  copy.refused("has more than 100 lists and objects in each other");
  const Copy text("bert");  // in a text they are none
  text.replace("\"transformers_version\": \"", R"("transformers_version": "\"\\\"\\)" + std::string(101, '['));
  EXPECT_NO_THROW(Model::load(text.path()));
}

TEST(Model, RefusesWhatItCannotCompute) {
  const Model model = Model::load(folder("llama")), encoder = Model::load(folder("bert"));
  const std::vector<std::int64_t> ids = whole("ids"), none, outside{1, 23}, types(11, 2), starts{0, 4, 4, 11};
  expect_error(
      ErrorCode::bad_value, [&] { model.forward(none); }, "no ids");
  expect_error(
      ErrorCode::bad_value, [&] { model.forward(outside); }, "ids[1] is 23, expected 0 to 22");
  expect_error(
      ErrorCode::bad_value, [&] { model.forward(std::vector<std::int64_t>(41, 1)); }, "41 tokens");
  expect_error(
      ErrorCode::bad_value, [&] { model.forward(ids, {.types = types}); }, "types are for BERT-like encoders");
  expect_error(
      ErrorCode::bad_value, [&] { encoder.forward(ids, {.types = types}); }, "types has 2, expected 0 to 1");
  expect_error(
      ErrorCode::bad_value, [&] { model.forward(ids, {.starts = starts}); }, "must rise");
  expect_error(
      ErrorCode::bad_value, [&] { encoder.logits(Tensor({16})); },
      "Model.logits: expected a decoder, and the model is an encoder of type bert");
  expect_error(
      ErrorCode::bad_value, [&] { encoder.generate(ids); },
      "Model.generate: expected a decoder, and the model is an encoder of type bert");
  expect_error(
      ErrorCode::bad_value, [&] { encoder.cache(); },
      "Model.cache: expected a decoder, and the model is an encoder of type bert");
  expect_error(
      ErrorCode::bad_dtype, [&] { model.cache(DType::f16); }, "expected f32 or i8");
  expect_error(
      ErrorCode::bad_value, [&] { model.generate(ids, {.settings = {.temperature = -1}}); }, "temperature is -1");
  expect_error(
      ErrorCode::bad_value, [&] { model.generate(ids, {.settings = {.top_p = 0}}); }, "top_p is 0");
  ModelCache cache = Model::load(folder("qwen3")).cache(), other;
  ModelCache *wrong[] = {&cache}, *empty[] = {&other};
  expect_error(
      ErrorCode::bad_value, [&] { model.forward(ids, {.caches = empty}); }, "a cache has 0 layers");
  expect_error(ErrorCode::bad_shape, [&] { model.forward(ids, {.caches = wrong}); });
  expect_error(
      ErrorCode::bad_dtype, [&] { Model::load(folder("bert"), {.dtype = DType::f16}); }, "expected f32 or bf16");
  const Copy copy("bert");
  copy.change([](TensorMap& tensors) { tensors["embeddings.LayerNorm.weight"].data<float>()[3] = NAN; });
  const Model broken = Model::load(copy.path());
  expect_error(
      ErrorCode::bad_value, [&] { broken.forward(ids); }, "NaN or infinity");
}

// A copy outlives the model that it was made of; the file may be removed while it is mapped.
TEST(Model, IsShared) {
  const std::vector<std::int64_t> ids = whole("ids");
  std::optional<Model> copied;
  {
    const Copy copy("gpt2");
    const Model model = Model::load(copy.path());
    copied = model;
  }
  expect_same(copied->forward(ids), Model::load(folder("gpt2")).forward(ids));
}

}  // namespace
}  // namespace attend
