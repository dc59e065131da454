// attend.Model: what it is, what it keeps of a sequence, and its calls.
#include "attend/models.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "attend/analysis.h"
#include "bindings.h"
#include "call.h"
#include "dtypes.h"
#include "model.h"
#include "pickle.h"
#include "text.h"
#include "tokenizer.h"

namespace attend::python {

namespace {

// As text. Models may have ids that the tokenizer does not know.
std::string token_text(const Tokenizer& tokenizer, std::int64_t id) {
  try {
    return tokenizer.decode(std::array{id}, false);
  } catch (const Error&) {
    return "";
  }
}

nb::object array(std::span<const std::int64_t> numbers) {
  Tensor out({std::ssize(numbers)}, DType::i64);
  std::ranges::copy(numbers, out.data<std::int64_t>());
  return to_python({}, out);
}

// ---- Info ----

void bind_info(nb::module_& m) {
  nb::class_<ModelInfo> info(m, "ModelInfo", "What a model is, as its config.json has it: Model.info.");
  copies_are_itself(info);
  refuses_pickle(info, "it is of a model: pickle that, and ask it for info");
  info.def_ro("type", &ModelInfo::type, "its model_type: 'bert', 'qwen2', ...")
      .def_prop_ro(
          "family", [](const ModelInfo& self) { return std::string(name_of(self.family)); },
          "how it computes: 'bert', 'gpt2', 'llama', ...: docs/models.md has them all")
      .def_prop_ro("decoder", &ModelInfo::decoder, "whether it writes: it answers with a next token")
      .def_prop_ro("encoder_decoder", &ModelInfo::encoder_decoder,
                   "whether its decoder reads what an encoder made of another text")
      .def_ro("encoder_layers", &ModelInfo::encoder_layers, "of an encoder-decoder's encoder; else 0, and so the next")
      .def_ro("encoder_heads", &ModelInfo::encoder_heads, "of a layer of its encoder")
      .def_ro("encoder_head_size", &ModelInfo::encoder_head_size, "D of its encoder")
      .def_ro("encoder_vocabulary", &ModelInfo::encoder_vocabulary, "how many ids its encoder knows")
      .def_prop_ro(
          "start",
          [](const ModelInfo& self) {
            return self.start < 0 ? nb::object(nb::none()) : nb::object(nb::int_(self.start));
          },
          nb::sig("def start(self) -> int | None"), "the id that its decoder's text begins with, or None")
      .def_ro("layers", &ModelInfo::layers, "how many")
      .def_ro("heads", &ModelInfo::heads, "query heads of a layer")
      .def_ro("kv_heads", &ModelInfo::kv_heads, "key and value heads of a layer")
      .def_ro("head_size", &ModelInfo::head_size, "D")
      .def_ro("embedding_size", &ModelInfo::embedding_size, "E")
      .def_ro("vocabulary", &ModelInfo::vocabulary, "how many ids there are")
      .def_ro("longest", &ModelInfo::longest, "tokens of a sequence, at most")
      .def_ro("parameters", &ModelInfo::parameters,
              "how many numbers its weights are; embeddings that are the output's weights too count once")
      .def_prop_ro(
          "dtype", [](const ModelInfo& self) { return python_name(self.dtype); },
          "that it computes in: 'float32' or 'bfloat16'")
      .def_ro("formats", &ModelInfo::formats,
              "what its file has the weights in, that of the most bytes first: 'f32', 'Q4_1', ...")
      .def_ro("weight_bytes", &ModelInfo::weight_bytes,
              "of its matrices as they are computed with: of quantized ones, unless load() was given a dtype, those of "
              "the file")
      .def_ro("end", &ModelInfo::end, "the ids that end a text; none for encoders")
      .def_ro(
          "first", &ModelInfo::first,
          "the id that a text of one token, as an encoder-decoder's start, goes on with (forced_bos_token_id), or None")
      .def_ro("last", &ModelInfo::last,
              "the id that comes last where max_new_tokens are reached (forced_eos_token_id), or None")
      .def_ro("never", &ModelInfo::never, "ids that generate() never gives (suppress_tokens, bad_words_ids)")
      .def_ro("not_followed", &ModelInfo::not_followed,
              "what of generation_config.json generate() does not follow, such as 'num_beams 4'")
      .def_prop_ro(
          "head",
          [](const ModelInfo& self) {
            return self.head.empty() ? nb::object(nb::none())
                                     : nb::object(nb::str(self.head.c_str(), self.head.size()));
          },
          nb::sig("def head(self) -> str | None"),
          "a task's layers behind the model, which are left out: 'SequenceClassification', ...; or None")
      .def_ro("embeds", &ModelInfo::embeds, "whether embed() can make what the folder says its embeddings are")
      .def_ro("vector_size", &ModelInfo::vector_size, "V, of embed()'s vectors; 0: it makes none")
      .def_ro("max_seq_length", &ModelInfo::max_seq_length, "tokens of a sentence that embed() takes, at most")
      .def_ro("prompts", &ModelInfo::prompts, "what may stand before each sentence, by names that embed() takes")
      .def("__repr__", [](const ModelInfo& self) {
        return "ModelInfo(type='" + self.type + "', layers=" + std::to_string(self.layers) +
               ", heads=" + std::to_string(self.heads) + ", embedding_size=" + std::to_string(self.embedding_size) +
               ", parameters=" + std::to_string(self.parameters) + ", dtype='" + python_name(self.dtype) + "')";
      });
}

// ---- Cache ----

// The cache, where no call computes with it. Throws ValueError.
ModelCache& idle(const char* function, SequenceCache& self) {
  if (self.busy) throw Error(ErrorCode::bad_value, function, "another call computes with this cache");
  return self.cache;
}

constexpr const char* cache_doc =
    R"(The keys and values of one sequence in every layer of a decoder: Model.cache() makes it.

len() says of how many tokens. It holds copies of none: fork() shares what is full.)";

void bind_cache(nb::module_& m) {
  const auto fork = [](SequenceCache& self) {
    ModelCache& cache = idle("ModelCache.fork", self);
    return call("ModelCache.fork", [&] { return SequenceCache{cache}; });
  };
  constexpr const char* fork_doc = "A cache of the same tokens; neither sees what comes to the other later.";
  nb::class_<SequenceCache> of_model(m, "ModelCache", cache_doc);
  refuses_pickle(of_model, "it is of a model in this process: forward() of its ids fills another");
  of_model.def("__len__", [](const SequenceCache& self) { return self.cache.length(); })
      .def(
          "truncate",
          [](SequenceCache& self, std::int64_t length) {
            ModelCache& cache = idle("ModelCache.truncate", self);
            call("ModelCache.truncate", [&] { cache.truncate(length); });
          },
          nb::arg("length"), "Forget the tokens from length on.")
      .def("fork", fork, fork_doc)
      .def("__copy__", fork)
      .def(
          "__deepcopy__", [fork](SequenceCache& self, nb::handle) { return fork(self); }, nb::arg("memo"))
      .def("__repr__",
           [](const SequenceCache& self) { return "ModelCache(" + std::to_string(self.cache.length()) + " tokens)"; });
}

// ---- Calls ----

// ids, or a text that has them, and what ModelCall says of them, read from Python.
class Arguments {
 public:
  Arguments(const Loaded& loaded, const char* function, nb::handle ids, nb::handle starts, nb::handle types,
            nb::handle caches, nb::handle edits, nb::handle decoder_ids = nb::none(),
            nb::handle decoder_starts = nb::none())
      : ids_(loaded.read_ids(function, "ids", ids,
                             "a text, or whole numbers [N]; of several sequences all ids, and starts says where each "
                             "begins")),
        caches_(function, caches),
        edits_(function, edits),
        decoder_ids_(Loaded::read_decoder_ids(function, decoder_ids)) {
    // For the library, nothing and none are one.
    const auto refuse_empty = [&](const char* name, bool empty) {
      if (empty) throw Error(ErrorCode::bad_value, function, std::string(name) + " is empty: expected None, or some");
    };
    if (!starts.is_none()) starts_ = read_integers(function, "starts", starts);
    if (!types.is_none()) types_ = read_integers(function, "types", types);
    refuse_empty("starts", starts_ && starts_->count() == 0);
    refuse_empty("types", types_ && types_->count() == 0);
    if (!decoder_starts.is_none()) decoder_starts_ = list_of(read_integers(function, "decoder_starts", decoder_starts));
    refuse_empty("decoder_starts", !decoder_starts.is_none() && decoder_starts_.empty());
    refuse_empty("caches", !caches.is_none() && caches_.get().empty());
  }

  std::span<const std::int64_t> ids() const { return ids_; }
  ModelCall call(Recorder* recorder = nullptr) const {
    return {.starts = starts_ ? numbers_of(*starts_) : std::span<const std::int64_t>(),
            .types = types_ ? numbers_of(*types_) : std::span<const std::int64_t>(),
            .caches = caches_.get(),
            .decoder_ids = decoder_ids_,
            .decoder_starts = decoder_starts_,
            .recorder = recorder,
            .edits = edits_.get(),
            .observe = {}};
  }
  std::span<const Edit> edits() const { return edits_.get(); }
  const std::vector<std::int64_t>& decoder_ids() const { return decoder_ids_; }

 private:
  std::vector<std::int64_t> ids_;
  Caches caches_;
  Edits edits_;
  std::optional<Tensor> starts_, types_;
  std::vector<std::int64_t> decoder_ids_, decoder_starts_;
};

constexpr const char* generate_function = "Model.generate";

// on_token with what it is called with; its result counts where it is False.
template <class... Told>
std::function<bool(Told...)> teller(nb::handle on_token) {
  if (on_token.is_none()) return {};
  if (!PyCallable_Check(on_token.ptr())) {
    throw nb::type_error(
        (std::string(generate_function) + ": on_token: expected a function, got " + repr_of(on_token)).c_str());
  }
  return [on_token](Told... told) {
    const WithGil gil;
    return !on_token(told...).is(nb::bool_(false));
  };
}

// Whether it has elements: a text, a list, an array of a dimension or more.
bool has_length(nb::handle of) {
  if (PyObject_Size(of.ptr()) >= 0) return true;
  PyErr_Clear();
  return false;
}

// generate()'s prompts, where they are several: a list of texts, or of lists of ids.
std::optional<nb::list> read_prompts(nb::handle given) {
  if (nb::isinstance<nb::str>(given) || nb::isinstance<nb::bytes>(given) || PyAnySet_Check(given.ptr()) ||
      nb::isinstance<nb::dict>(given) || !nb::hasattr(given, "__iter__") || !has_length(given))
    return std::nullopt;
  nb::list all(given);
  if (nb::len(all) == 0 || !has_length(all[0])) return std::nullopt;
  return all;
}

// ---- Model ----

bool keeps_qk(nb::handle keep) {
  if (keep.is_none()) return false;
  if (text_of(keep) != "qk")
    throw nb::value_error(("record: keep: expected 'qk' or None, got " + repr_of(keep)).c_str());
  return true;
}

}  // namespace

std::span<const std::int64_t> numbers_of(const Tensor& integers) {
  return {integers.data<std::int64_t>(), static_cast<std::size_t>(integers.count())};
}

std::vector<std::int64_t> list_of(const Tensor& integers) {
  const auto numbers = numbers_of(integers);
  return {numbers.begin(), numbers.end()};
}

std::function<void(double)> progress_of(const char* function, nb::handle progress) {
  if (progress.is_none()) return {};
  if (!PyCallable_Check(progress.ptr())) {
    throw nb::type_error((std::string(function) + ": progress: expected a function, got " + repr_of(progress)).c_str());
  }
  return [progress](double share) {
    const WithGil gil;
    progress(share);
  };
}

Caches::Caches(const char* function, nb::handle caches) {
  if (caches.is_none()) return;
  held_ = read_list(function, "caches", "a list of ModelCache", caches);
  for (const nb::handle each : held_) {
    const std::string place = "caches[" + std::to_string(caches_.size()) + "]";
    caches_.push_back(&read_instance<SequenceCache>(function, place, "a ModelCache", each));
  }
  for (SequenceCache* cache : caches_) {
    if (cache->busy) {
      release();
      throw Error(ErrorCode::bad_value, function, "caches: one is given twice, or another call computes with it");
    }
    cache->busy = true;
    taken_.push_back(&cache->cache);
  }
}

void Caches::release() {
  for (std::size_t i = 0; i < taken_.size(); ++i) caches_[i]->busy = false;
  taken_.clear();
}

const Tokenizer& Loaded::tokenizer(const char* function) const {
  if (!known_tokenizer)
    known_tokenizer = call(function, [&] { return std::make_shared<const Tokenizer>(model.tokenizer()); });
  return *known_tokenizer;
}

std::vector<std::int64_t> Loaded::read_ids(const char* function, const char* argument, nb::handle ids,
                                           const char* expected) const {
  if (!nb::isinstance<nb::str>(ids)) return list_of(read_integers(function, argument, ids, expected));
  const Tokenizer& own = tokenizer(function);
  const std::string text = text_of(ids);
  return call(function, [&] { return own.encode(text).ids; });
}

std::vector<std::int64_t> Loaded::read_decoder_ids(const char* function, nb::handle ids) {
  if (ids.is_none()) return {};
  std::vector<std::int64_t> read = list_of(read_integers(function, "decoder_ids", ids));
  if (read.empty()) throw Error(ErrorCode::bad_value, function, "decoder_ids is empty: expected None, or some");
  return read;
}

std::optional<std::int64_t> Loaded::read_token(const char* function, const char* argument, nb::handle token) const {
  if (token.is_none()) return std::nullopt;
  if (nb::isinstance<nb::str>(token)) {
    const Tokenizer& own = tokenizer(function);
    const std::string text = text_of(token);
    return call(function, [&] { return single_token(own, text); });
  }
  std::int64_t id = 0;
  if (!nb::try_cast(token, id)) {
    throw nb::type_error(
        (std::string(function) + ": " + argument + ": expected a token's id or text, got " + repr_of(token)).c_str());
  }
  return id;
}

nb::object Loaded::forward(nb::handle ids, nb::handle starts, nb::handle types, nb::handle caches, nb::handle edits,
                           nb::handle decoder_ids, nb::handle decoder_starts) const {
  constexpr const char* function = "Model.forward";
  const Arguments given(*this, function, ids, starts, types, caches, edits, decoder_ids, decoder_starts);
  return to_python({}, call(function, [&] { return model.forward(given.ids(), given.call()); }));
}

nb::object Loaded::encoder_states(nb::handle ids, nb::handle starts, nb::handle edits) const {
  constexpr const char* function = "Model.encoder_states";
  const Arguments given(*this, function, ids, starts, nb::none(), nb::none(), edits);
  return to_python({}, call(function, [&] { return model.encoder_states(given.ids(), given.call()); }));
}

nb::object Loaded::logits(nb::handle hidden) const {
  constexpr const char* function = "Model.logits";
  const Array states(function, "hidden", hidden);
  return to_python(states.kind(), call(function, [&] { return model.logits(states.view()); }));
}

namespace {

constexpr const char* embed_function = "Model.embed";

// What embed() was given: texts, or, where it is neither a text nor a list that begins with one, ids.
std::optional<std::vector<std::string>> read_sentences(nb::handle given) {
  const auto text = [](nb::handle of, const std::string& place) {
    std::string read;
    if (nb::isinstance<nb::str>(of) && nb::try_cast(of, read)) return read;
    throw nb::type_error((std::string(embed_function) + ": " + place +
                          ": expected a sentence as the others are (str, of " + "Unicode), got " + repr_of(of))
                             .c_str());
  };
  if (nb::isinstance<nb::str>(given)) return std::vector{text(given, "sentences")};
  if (nb::isinstance<nb::bytes>(given) || PyAnySet_Check(given.ptr()) || nb::isinstance<nb::dict>(given) ||
      !nb::hasattr(given, "__iter__")) {
    throw nb::type_error((std::string(embed_function) +
                          ": sentences: expected a list of texts (str), or a text's ids " + "(whole numbers), got " +
                          repr_of(given))
                             .c_str());
  }
  const nb::list all(given);
  if (nb::len(all) > 0 && !nb::isinstance<nb::str>(all[0])) {
    for (std::size_t n = 1; n < nb::len(all); ++n)
      if (nb::isinstance<nb::str>(all[n]))
        throw nb::type_error((std::string(embed_function) + ": ids[" + std::to_string(n) +
                              "] is a text, and what stands before it is none: " + repr_of(all[n]))
                                 .c_str());
    return std::nullopt;
  }
  std::vector<std::string> sentences;
  for (const nb::handle each : all)
    sentences.push_back(text(each, "sentences[" + std::to_string(sentences.size()) + "]"));
  return sentences;
}

std::optional<bool> read_switch(const char* name, nb::handle given) {
  if (given.is_none()) return std::nullopt;
  if (nb::isinstance<nb::bool_>(given)) return nb::cast<bool>(given);
  throw nb::type_error(
      (std::string(embed_function) + ": " + name + ": expected True, False or None, got " + repr_of(given)).c_str());
}

// progress of embed(): True is a bar of attend's own.
class Shown {
 public:
  Shown(nb::handle progress, std::size_t count) {
    if (progress.is(nb::bool_(false))) return;
    if (progress.is(nb::bool_(true))) bar_ = nb::module_::import_("attend._progress").attr("Bar")(count);
    tell_ = progress_of(embed_function, bar_.is_valid() ? nb::handle(bar_) : progress);
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;
  ~Shown() {
    if (!bar_.is_valid()) return;
    const nb::error_scope raised;  // what ends the call, if anything does
    try {
      bar_.attr("close")();
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("attend: a progress bar");
    }
  }
  const std::function<void(double)>& tell() const { return tell_; }

 private:
  nb::object bar_;
  std::function<void(double)> tell_;
};

}  // namespace

nb::object Loaded::embed(nb::handle sentences, nb::handle prompt, nb::handle normalize, bool truncate, bool return_cut,
                         nb::handle progress, nb::handle starts, nb::handle types, nb::handle edits) const {
  constexpr const char* function = embed_function;
  const auto refuse = [&](const char* names, const char* of) {
    throw Error(ErrorCode::bad_value, function, std::string(names) + " are of " + of);
  };
  const std::optional<bool> to_1 = read_switch("normalize", normalize);
  // A generator's texts come once.
  const bool listed = nb::isinstance<nb::str>(sentences) || nb::isinstance<nb::sequence>(sentences) ||
                      !nb::hasattr(sentences, "__next__");
  const nb::object given = listed ? nb::borrow(sentences) : nb::object(nb::list(sentences));
  const auto texts = read_sentences(given);
  if (!texts) {
    if (!prompt.is_none() || !truncate || return_cut || !progress.is_none())
      refuse("prompt, truncate, return_cut and progress", "sentences, and these are ids");
    const Arguments call_of(*this, function, given, starts, types, nb::none(), edits);
    return to_python({}, call(function, [&] { return model.embed(call_of.ids(), call_of.call(), to_1); }));
  }
  if (!starts.is_none() || !types.is_none() || !edits.is_none())
    refuse("starts, types and edits", "ids, and these are sentences");
  EmbedOptions options{.prompt = {}, .normalize = to_1, .truncate = truncate, .progress = {}};
  if (!prompt.is_none()) {
    if (!nb::isinstance<nb::str>(prompt))
      throw nb::type_error(
          (std::string(function) + ": prompt: expected a text or a name, got " + repr_of(prompt)).c_str());
    options.prompt = text_of(prompt);
  }
  const Shown shown(progress, texts->size());
  options.progress = shown.tell();
  const Embeddings made = call(function, [&] { return model.embed(std::span<const std::string>(*texts), options); });
  const nb::object vectors = to_python({}, made.vectors);
  return return_cut ? nb::object(nb::make_tuple(vectors, made.cut)) : vectors;
}

SequenceCache Loaded::cache(nb::handle dtype) const {
  constexpr const char* function = "Model.cache";
  std::optional<DType> wanted;
  if (!dtype.is_none()) wanted = read_dtype(function, dtype, {DType::f32, DType::bf16, DType::i8});
  return call(function, [&] { return SequenceCache{model.cache(wanted)}; });
}

nb::object Loaded::generate(nb::handle ids, std::int64_t max_new_tokens, double temperature, std::int64_t top_k,
                            double top_p, std::uint64_t seed, nb::handle end, nb::handle on_token,
                            nb::handle edits) const {
  constexpr const char* function = generate_function;
  const Edits changed(function, edits);
  GenerateOptions options = {.max_new_tokens = max_new_tokens,
                             .temperature = temperature,
                             .top_k = top_k,
                             .top_p = top_p,
                             .seed = seed,
                             .edits = changed.get()};
  if (!end.is_none()) options.end = list_of(read_integers(function, "end", end));
  if (const auto prompts = read_prompts(ids)) {
    options.on_token_of = teller<std::int64_t, std::int64_t>(on_token);
    return generate_several(*prompts, options);
  }
  options.on_token = teller<std::int64_t>(on_token);
  if (!nb::isinstance<nb::str>(ids)) {
    const std::vector<std::int64_t> prompt = list_of(read_integers(function, "ids", ids));
    return array(call(function, [&] { return model.generate(std::span<const std::int64_t>(prompt), options); }));
  }
  const std::string text = text_of(ids);
  (void)tokenizer(function);
  return nb::cast(call(function, [&] { return model.generate(text, options); }));
}

// Of texts, texts.
nb::object Loaded::generate_several(const nb::list& prompts, const GenerateOptions& options) const {
  constexpr const char* function = generate_function;
  const auto place = [](std::size_t n) { return "prompts[" + std::to_string(n) + "]"; };
  const bool of_texts = nb::isinstance<nb::str>(prompts[0]);
  std::vector<std::string> texts;
  std::vector<std::vector<std::int64_t>> ids;
  for (std::size_t n = 0; n < nb::len(prompts); ++n) {
    const nb::handle each = prompts[n];
    if (nb::isinstance<nb::str>(each) != of_texts)
      throw nb::type_error((std::string(function) + ": " + place(n) + ": expected " +
                            (of_texts ? "a text" : "a list of ids") + ", as the first is, got " + repr_of(each))
                               .c_str());
    if (of_texts)
      texts.push_back(text_of(each));
    else
      ids.push_back(list_of(read_integers(function, place(n).c_str(), each)));
  }
  nb::list made;
  if (of_texts) {
    (void)tokenizer(function);
    for (const auto& text :
         call(function, [&] { return model.generate(std::span<const std::string>(texts), options); }))
      made.append(nb::cast(text));
  } else {
    const std::span<const std::vector<std::int64_t>> all(ids);
    for (const auto& each : call(function, [&] { return model.generate(all, options); })) made.append(array(each));
  }
  return made;
}

nb::object Loaded::record(nb::handle ids, nb::handle types, std::int64_t max_new_tokens, std::int64_t top,
                          nb::handle map, nb::handle keep, bool key_sizes, std::int64_t budget, nb::handle edits,
                          nb::handle decoder_ids) const {
  constexpr const char* function = "Model.record";
  const Arguments given(*this, function, ids, nb::none(), types, nb::none(), edits, decoder_ids);
  const bool both = model.info().encoder_decoder();
  if (max_new_tokens > 0 && !given.decoder_ids().empty())
    throw Error(ErrorCode::bad_value, function, "decoder_ids and max_new_tokens can't stand together");
  const auto [rows, columns] = read_two(function, "map", "(rows, columns), two whole numbers", map);
  const RecordOptions options = {.top = top,
                                 .map = {rows, columns},
                                 .keep_qk = keeps_qk(keep),
                                 .key_sizes = key_sizes,
                                 .budget = budget,
                                 .grows = max_new_tokens > 0};
  const Tokenizer* named = nb::isinstance<nb::str>(ids) ? &tokenizer(function) : nullptr;
  const auto texts_of = [&](const std::vector<std::int64_t>& of) {
    std::vector<std::string> texts;
    texts.reserve(of.size());
    for (const std::int64_t id : of) texts.push_back(token_text(*named, id));
    return texts;
  };
  Recording made = call(function, [&] {
    Recorder recorder(options);
    const std::vector<std::int64_t> text(given.ids().begin(), given.ids().end());
    // Of the stack that writes.
    std::vector<std::int64_t> all = both ? given.decoder_ids() : text;
    if (max_new_tokens > 0) {
      if (both) all = {model.info().start};
      const auto written =
          model.generate(text, {.max_new_tokens = max_new_tokens, .recorder = &recorder, .edits = given.edits()});
      all.insert(all.end(), written.begin(), written.end());
    } else if (both && all.empty()) {
      model.encoder_states(text, given.call(&recorder));
    } else {
      model.forward(text, given.call(&recorder));
    }
    Recording recording = recorder.finish();
    recording.model = name;
    const auto row = [](const std::vector<std::int64_t>& of) {
      return View(of.data(), DType::i64, {1, std::ssize(of)});
    };
    // The last one that was written was not read again.
    if (!all.empty()) all.resize(static_cast<std::size_t>(recording.layers().back().queries));
    if (!both)
      recording.set_ids(row(all));
    else
      recording.set_ids(row(text), all.empty() ? std::nullopt : std::optional(row(all)));
    if (named != nullptr) recording.tokens.push_back(texts_of(both ? text : all));
    if (named != nullptr && both && !all.empty()) recording.decoder_tokens.push_back(texts_of(all));
    return recording;
  });
  return nb::module_::import_("attend._recording").attr("Recording")(std::move(made));
}

Page Loaded::show(nb::handle text, bool live, nb::handle second, nb::handle why, nb::handle against, bool chat,
                  std::optional<std::int64_t> budget, bool strict) const {
  constexpr const char* function = "Model.show";
  const auto read = [](const char* argument, nb::handle given) {
    if (!nb::isinstance<nb::str>(given))
      throw nb::type_error(
          (std::string(function) + ": " + argument + ": expected a text, got " + repr_of(given)).c_str());
    return text_of(given);
  };
  const auto read_optional = [&](const char* argument, nb::handle given) {
    return given.is_none() ? std::nullopt : std::optional(read(argument, given));
  };
  const std::string words = read("text", text);
  LivePageOptions options{.name = name,
                          .second = read_optional("second", second),
                          .why = read_optional("why", why),
                          .against = read_optional("against", against),
                          .chat = chat};
  if (budget) options.budget = *budget;
  const auto refuse = [&](const std::string& what) { throw Error(ErrorCode::bad_value, function, what); };
  if (!live && (options.second || options.why || options.against))
    refuse("second, why and against are asked of the model: live=True puts it into the page");
  if (live && strict) refuse("strict: a page with live=True leaves nothing out");
  if (options.against && !options.why) refuse("against: nothing uses it without why");
  if (options.second && model.info().decoder()) refuse("second: sentences are compared by an encoder");
  if ((options.why || chat) && !model.info().decoder()) refuse("why and chat are of decoders, and this is an encoder");
  const Tokenizer& own = tokenizer(function);
  if (options.why) (void)read_token(function, "why", why);
  if (options.against) (void)read_token(function, "against", against);
  return call(function, [&] {
    if (live && !pages_note().empty()) throw Error(ErrorCode::bad_value, function, pages_note());
    const std::vector<Message> said = {{"user", words}};
    const std::vector<std::int64_t> ids = chat ? own.encode(own.chat(said), false).ids : own.encode(words).ids;
    Recorder recorder({.keep_qk = !live});
    const ModelCall recorded{.recorder = &recorder};
    (void)(model.info().encoder_decoder() ? model.encoder_states(ids, recorded) : model.forward(ids, recorded));
    Recording recording = recorder.finish();
    recording.model = name;
    recording.set_ids(View(ids.data(), DType::i64, {1, std::ssize(ids)}));
    recording.tokens.emplace_back();
    for (const std::int64_t id : ids) recording.tokens.back().push_back(token_text(own, id));
    if (live) return live_page(path, recording, words, options);
    RecordingPageOptions of_recording{.file = name + ".attend", .strict = strict};
    if (budget) of_recording.budget = *budget;
    return recording_page(recording, of_recording);
  });
}

namespace {

std::string describe(const Loaded& self) {
  const ModelInfo& info = self.model.info();
  return "Model('" + self.name + "': " + info.type + ", " + std::to_string(info.layers) + " layers, " +
         std::to_string(info.parameters) + " parameters, " + python_name(info.dtype) + ")";
}

Loaded load(nb::handle path, nb::handle dtype) {
  constexpr const char* function = "Model.load";
  const std::string name = path_of(path);
  ModelOptions options;
  if (!dtype.is_none()) options.dtype = read_dtype(function, dtype, {DType::f32, DType::bf16});
  nb::str from = lasting_path(name);
  Loaded loaded = call(function, [&] {
    Model model = Model::load(name, options);  // first: where that is no name, it says so
    std::filesystem::path place = std::filesystem::absolute(name).lexically_normal();
    if (!place.has_filename()) place = place.parent_path();
    return Loaded{std::move(model), place.filename().string(), find_model(name).string(), options.dtype, nb::object()};
  });
  loaded.from = std::move(from);  // whose count of references is the GIL's
  return loaded;
}

GivenTokenizer with_path(const Tokenizer& tokenizer, const std::string& path) {
  return {tokenizer, nb::type<Loaded>().attr("load_tokenizer"), lasting_path(path)};
}

GivenTokenizer load_tokenizer(nb::handle path) {
  const std::string name = path_of(path);
  return with_path(call("Model.load_tokenizer", [&] { return Model::load_tokenizer(name); }), name);
}

nb::tuple reduced(const Loaded& self) {
  const nb::object dtype = self.given_dtype ? nb::object(nb::str(python_name(*self.given_dtype))) : nb::none();
  return nb::make_tuple(nb::type<Loaded>().attr("load"), nb::make_tuple(self.from, dtype));
}

constexpr const char* class_doc =
    R"(A pretrained Transformer: of BERT's, GPT-2's, Llama's and other families (docs/models.md lists them).

Model.load() opens a Hugging Face folder, or a GGUF file. It computes forward only, in float32 or bfloat16, as eager
Transformers does; what is not known of a model is an OSError that names it, never a guess. Any number of threads may call
one. Results are NumPy arrays of float32, the same bits for any number of threads, and for a sequence alone or among others.

>>> import attend
>>> model = attend.Model.load("tiny")  # a folder with config.json and model.safetensors
>>> model.info.type, model.info.layers, model.info.embedding_size
('llama', 2, 16)
>>> hidden = model.forward([1, 2, 3, 4, 5], starts=[0, 2, 5])  # two sequences, of 2 and 3 tokens
>>> hidden.shape, model.logits(hidden[[1, 4]]).shape
((5, 16), (2, 1000))
>>> model.generate([1, 2, 3], max_new_tokens=5).shape
(5,)
>>> cache = model.cache()
>>> for id in [1, 2, 3]:
...     last = model.forward([id], caches=[cache])  # what forward([1, 2, 3]) has of them
>>> len(cache), last.shape
(3, (1, 16)))";

constexpr const char* load_doc =
    R"(A folder with config.json and model.safetensors or its shards, a .gguf file, or the name of one in
attend's cache or Hugging Face's, "sentence-transformers/all-MiniLM-L6-v2" (attend model --list); no network is asked.

dtype: float32 or bfloat16, that it computes in; None: that of config.json, float16 as float32; quantized weights stay as they
are. Weights of that dtype stay in the file, which must not change meanwhile. Raises OSError, which lists all that is missing, unexpected or of
another shape, and names what is not known here.)";

constexpr const char* forward_doc =
    R"(ids [N], or a text that the model's tokenizer takes, to the last hidden states [N,E], after
the last norm.

starts: [sequences + 1], where each of several sequences begins, and the end. types: [N], BERT's token_type_ids; None: 0.
caches: of a decoder, a ModelCache for each sequence: what came before it, and now it too. decoder_ids: of an
encoder-decoder, its decoder's text so far, which begins with info.start: the hidden states are this text's, and
encoder_states() has those of ids; decoder_starts as starts. A cache keeps what the encoder made of ids, which are [] from the second call on. edits: what is set to
something else on the way (attend.Edit). If it raises ValueError (ids
outside the vocabulary, sequences that are too long, NaN in a result, ...), caches are as they were.)";

constexpr const char* embed_doc =
    R"(Sentences to vectors, [N,V] float32 in the order given: those of sentence-transformers for the folder.

sentences: a list of texts, or one. Or ids, with starts, types and edits as in forward(): a vector for each sequence.
prompt: what stands before each sentence, by the name of one of info.prompts or as a text; None: the folder's default.
normalize: True, vectors of length 1; False, without the folder's last Normalize; None: as the folder says.
truncate: longer ones are cut at info.max_seq_length tokens; False: ValueError. return_cut: (vectors, how many were cut).
progress: True, a bar (tqdm's where it is installed); or a function, called with the share done.

Raises OSError where modules.json or what it names says what is not known here, and where the model has a task's head
(info.head) and no modules.json; info.embeds is False then.)";

constexpr const char* cache_method_doc = R"(An empty ModelCache for one sequence; ValueError for encoders.

dtype: None, that of the model; or int8 (attend.KvCache has what that changes).)";

constexpr const char* generate_doc =
    R"(The ids that follow ids [N], without the one that ends them: [n] int64. Of a text, the text. Of a list
of texts or of ids, the list of what follows each: all grow in one pass a step, up to 32 at once, each to its own end.

Of an encoder-decoder ids are its encoder's, and those of its decoder, after info.start, are given.
The likeliest token each time, with temperature 0; or one that is drawn by seed from softmax(logits / temperature): of the
top_k likeliest (0: all), and of these of the fewest that have top_p of the probability together. end: the ids that end the
text; None: info.end. on_token is called with each new id, and where it gives False, the text ends there. Of a list,
prompt n has what generate() gives it alone, by seed + n, on_token is called with n and the id, and edits have neither rows
nor values.

>>> import attend
>>> model = attend.Model.load("tiny")
>>> more = model.generate([[1, 2, 3], [4]], max_new_tokens=5)
>>> bool((more[1] == model.generate([4], max_new_tokens=5)).all())
True)";

constexpr const char* show_doc =
    R"(A text on a page that shows every head of the model: an attend.Page, which a notebook shows in a frame.

live: the page has the model itself, in 8 bits a number (a .gguf file as it is), and computes whatever is typed, offline; second
is then a sentence that an encoder compares the text with, why a decoder's next token such as " Paris", against another one that
it is told from. Else the page has a recording of the text, with queries and keys. chat: the text is what someone says to the
model. budget: bytes that the page may take; None: 64 MB, and 150 MB live. Past it, a recording's page leaves out queries and keys
of the layers with the broadest heads (Page.left_out); strict: ValueError in place of that, as for a live model that is too large.

>>> import attend
>>> page = attend.Model.load("tiny").show("the cat sat")
>>> page.left_out
''
>>> page.save("cat.html"))";

constexpr const char* record_doc =
    R"(What every head attends to while the model computes ids [N], or a text: an attend.Recording.

Of a text it has the tokens; of ids, recording.tokens = model.tokenizer names them.
With max_new_tokens, of a generation: of the likeliest tokens that follow, too. An encoder-decoder is given decoder_ids as
in forward(), or max_new_tokens; without either, its encoder alone is recorded. top, map: how many keys of each row, and how
many blocks of rows and columns, are kept; keep="qk" keeps queries and keys, from which any part of the weights is exact.
key_sizes=True keeps of each key what it carries, abs(W_O v), so that all of it is known by norm, too: heads(by="norm").
Raises ValueError where that would pass budget, in bytes.)";

// What goes in says what comes out; the last of each has all arguments, for help() and inspect.
std::string embed_signature(const std::string& edits) {
  const std::string name = "@overload\ndef embed(self, sentences: str | Iterable[str]",
                    how = ", prompt: str | None = None, normalize: bool | None = None, truncate: bool = True, ",
                    progress = "progress: bool | Callable[[float], object] | None = None";
  return name + how + "*, return_cut: Literal[True], " + progress + ") -> tuple[numpy.ndarray, int]: ...\n" + name +
         " | Ids" + how + "return_cut: Literal[False] = False, " + progress +
         ", *, starts: Ids | None = None, types: Ids | None = None" + edits + ") -> numpy.ndarray";
}

std::string generate_signature(const std::string& edits) {
  const auto one = [&](const std::string& ids, const std::string& result) {
    return "@overload\ndef generate(self, ids: " + ids +
           ", max_new_tokens: int = 64, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0, "
           "end: Ids | None = None, on_token: Callable[..., object] | None = None" +
           edits + ") -> " + result;
  };
  const std::string texts = "list[str] | tuple[str, ...]", several = "Sequence[Sequence[int] | numpy.ndarray]";
  return one("str", "str: ...\n") + one(texts, "list[str]: ...\n") + one("Ids", "numpy.ndarray: ...\n") +
         one(several, "list[numpy.ndarray]: ...\n") +
         one("str | " + texts + " | Ids | " + several, "str | list[str] | numpy.ndarray | list[numpy.ndarray]");
}

}  // namespace

void bind_model(nb::module_& m) {
  bind_info(m);
  bind_cache(m);
  bind_edit(m);
  const std::string ids = "ids: str | Ids, starts: Ids | None = None, types: Ids | None = None";
  const std::string edits = ", edits: Sequence[Edit] | None = None";
  nb::class_<Loaded> model(m, "Model", class_doc);
  copies_are_itself(model);
  pickles_as(model, &reduced);
  model
      .def_static("load", &load, nb::arg("path"), nb::arg("dtype") = nb::none(),
                  nb::sig("def load(path: str | os.PathLike[str] | bytes, dtype: object = None) -> Model"), load_doc)
      .def_static("load_tokenizer", &load_tokenizer, nb::arg("path"),
                  nb::sig("def load_tokenizer(path: str | os.PathLike[str] | bytes) -> Tokenizer"),
                  "The tokenizer beside the model: the folder's, as Tokenizer.load reads it, or the GGUF file's own.")
      .def_prop_ro(
          "info", [](const Loaded& self) { return self.model.info(); }, "What the model is.")
      .def_prop_ro(
          "tokenizer", [](const Loaded& self) { return with_path(self.tokenizer("Model.tokenizer"), self.path); },
          "The tokenizer beside the model.")
      .def("forward", &Loaded::forward, nb::arg("ids"), nb::arg("starts") = nb::none(), nb::arg("types") = nb::none(),
           nb::arg("caches") = nb::none(), nb::arg("edits") = nb::none(), nb::arg("decoder_ids") = nb::none(),
           nb::arg("decoder_starts") = nb::none(),
           nb::sig(("def forward(self, " + ids + ", caches: Sequence[ModelCache] | None = None" + edits +
                    ", decoder_ids: Ids | None = None, decoder_starts: Ids | None = None) -> numpy.ndarray")
                       .c_str()),
           forward_doc)
      .def("encoder_states", &Loaded::encoder_states, nb::arg("ids"), nb::arg("starts") = nb::none(),
           nb::arg("edits") = nb::none(),
           nb::sig("def encoder_states(self, ids: Any, starts: Any = None, edits: Sequence[Edit] | None = None) -> "
                   "numpy.ndarray"),
           "What an encoder-decoder's encoder makes of ids [N], or of a text: [N,E], which its decoder reads and "
           "logits() "
           "does not take. starts and edits as in forward(). ValueError for other models.")
      .def("logits", &Loaded::logits, nb::arg("hidden"), nb::sig("def logits(self, hidden: ArrayT) -> ArrayT"),
           "hidden [...,E] to logits [...,vocabulary], float32; ValueError for encoders and bare models.")
      .def("embed", &Loaded::embed, nb::arg("sentences"), nb::arg("prompt") = nb::none(),
           nb::arg("normalize") = nb::none(), nb::arg("truncate") = true, nb::arg("return_cut") = false,
           nb::arg("progress") = nb::none(), nb::kw_only(), nb::arg("starts") = nb::none(),
           nb::arg("types") = nb::none(), nb::arg("edits") = nb::none(), nb::sig(embed_signature(edits).c_str()),
           embed_doc)
      .def("cache", &Loaded::cache, nb::arg("dtype") = nb::none(),
           nb::sig("def cache(self, dtype: object = None) -> ModelCache"), cache_method_doc)
      .def("generate", &Loaded::generate, nb::arg("ids"), nb::arg("max_new_tokens") = 64, nb::arg("temperature") = 0.0,
           nb::arg("top_k") = 0, nb::arg("top_p") = 1.0, nb::arg("seed") = 0, nb::arg("end") = nb::none(),
           nb::arg("on_token") = nb::none(), nb::arg("edits") = nb::none(), nb::sig(generate_signature(edits).c_str()),
           generate_doc)
      .def("record", &Loaded::record, nb::arg("ids"), nb::arg("types") = nb::none(), nb::arg("max_new_tokens") = 0,
           nb::arg("top") = 8, nb::arg("map") = nb::make_tuple(256, 256), nb::arg("keep") = nb::none(),
           nb::arg("key_sizes") = false, nb::arg("budget") = std::int64_t{2} << 30, nb::arg("edits") = nb::none(),
           nb::arg("decoder_ids") = nb::none(),
           nb::sig(
               "def record(self, ids: str | Ids, types: Ids | None = None, max_new_tokens: int = 0, top: int = 8, "
               "map: tuple[int, int] = (256, 256), keep: Literal['qk'] | None = None, key_sizes: bool = False, budget: "
               "int = 2147483648, edits: Sequence[Edit] | None = None, decoder_ids: Ids | None = None) -> Recording"),
           record_doc)
      .def(
          "show", &Loaded::show, nb::arg("text"), nb::arg("live") = false, nb::arg("second") = nb::none(),
          nb::arg("why") = nb::none(), nb::arg("against") = nb::none(), nb::arg("chat") = false,
          nb::arg("budget") = nb::none(), nb::arg("strict") = false,
          nb::sig("def show(self, text: str, live: bool = False, second: str | None = None, why: str | None = None, "
                  "against: str | None = None, chat: bool = False, budget: int | None = None, strict: bool = False) -> "
                  "Page"),
          show_doc)
      .def("__repr__", &describe);
  bind_analysis(m, model);
}

}  // namespace attend::python
