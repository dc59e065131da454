// attend.Model.generate().
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "call.h"
#include "generation.h"
#include "model.h"
#include "text.h"

namespace attend::python {

namespace {

constexpr const char* generate_function = "Model.generate";

void check_function(const char* function, const char* name, nb::handle given) {
  if (!PyCallable_Check(given.ptr())) refuse(function, name, "a function", given);
}

// Whether it has elements: a text, a list, an array of a dimension or more.
bool has_length(nb::handle of) {
  if (PyObject_Size(of.ptr()) >= 0) return true;
  PyErr_Clear();
  return false;
}

// Of texts, texts.
nb::object generate_several(const Loaded& self, const nb::list& prompts, const GenerateOptions& options) {
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
    (void)self.tokenizer(function);
    for (const auto& text :
         call(function, [&] { return self.model.generate(std::span<const std::string>(texts), options); }))
      made.append(nb::cast(text));
  } else {
    const std::span<const std::vector<std::int64_t>> all(ids);
    for (const auto& each : call(function, [&] { return self.model.generate(all, options); }))
      made.append(id_array(each));
  }
  return made;
}

// num_return_sequences of one prompt: a list of texts, or of ids.
nb::object generate_sequences(const Loaded& self, nb::handle ids, const GenerateOptions& options) {
  constexpr const char* function = generate_function;
  const bool of_text = nb::isinstance<nb::str>(ids);
  std::vector<GeneratedSequence> sequences;
  if (of_text) {
    const std::string text = text_of(ids);
    (void)self.tokenizer(function);
    sequences = call(function, [&] { return self.model.generate_sequences(text, options); });
  } else {
    const std::vector<std::int64_t> prompt = list_of(read_integers(function, "ids", ids));
    sequences =
        call(function, [&] { return self.model.generate_sequences(std::span<const std::int64_t>(prompt), options); });
  }
  nb::list made;
  for (const GeneratedSequence& each : sequences) made.append(of_text ? nb::cast(each.text) : id_array(each.ids));
  return made;
}

nb::object generate(const Loaded& self, nb::handle ids, std::int64_t max_new_tokens, std::uint64_t seed, nb::handle end,
                    nb::handle on_token, nb::handle on_text, nb::handle cache, nb::handle edits, nb::handle keep,
                    nb::handle observe, const nb::kwargs& settings) {
  constexpr const char* function = generate_function;
  const Edits changed(function, edits);
  Watching watching(function, self.model.info(), keep, observe);
  const Caches caches(function, in_list(function, cache));
  GenerateOptions options = {.max_new_tokens = max_new_tokens,
                             .settings = read_settings(function, settings),
                             .seed = seed,
                             .on_text = text_teller(function, on_text),
                             .cache = caches.get().empty() ? nullptr : caches.get()[0],
                             .edits = changed.get(),
                             .knockouts = changed.knockouts(),
                             .observe = watching.observer()};
  if (!end.is_none()) options.end = list_of(read_integers(function, "end", end));
  if (const auto prompts = read_several(ids)) {
    if (!on_token.is_none()) {
      check_function(function, "on_token", on_token);
      options.on_token_of = [on_token](std::int64_t prompt, std::int64_t id) {
        const WithGil gil;
        return !on_token(prompt, id).is(nb::bool_(false));
      };
    }
    return generate_several(self, *prompts, options);
  }
  options.on_token = token_teller(function, on_token);
  if (options.settings.num_return_sequences.value_or(1) > 1) return generate_sequences(self, ids, options);
  if (!nb::isinstance<nb::str>(ids)) {
    const std::vector<std::int64_t> prompt = list_of(read_integers(function, "ids", ids));
    return watching.with_kept(
        id_array(call(function, [&] { return self.model.generate(std::span<const std::int64_t>(prompt), options); })));
  }
  const std::string text = text_of(ids);
  (void)self.tokenizer(function);
  return watching.with_kept(nb::cast(call(function, [&] { return self.model.generate(text, options); })));
}

constexpr const char* generate_doc =
    R"(Go on with a text. For ids [N] it gives the ids that follow, without the one that ends them: [n] int64. For a text it gives the text
that follows, without the stop string that ended it. For a list of texts or of ids it gives the list of what follows each. These grow
together, up to 32 in one pass, each to its own end. For an encoder-decoder, ids are its encoder's, and it gives the decoder's ids
after info.start.

The settings have the names and meanings of Transformers' GenerationConfig. By default they are what the folder's
generation_config.json says (info.generation). Without either, the likeliest token is taken each time.
- temperature: 0 takes the likeliest token. Above 0 a token is drawn by seed from softmax(logits / temperature), of which top_k,
  top_p and min_p keep a part, in this order
- sequence_bias {(id, ...): number}, repetition_penalty, no_repeat_ngram_size, bad_words_ids, min_length, min_new_tokens,
  suppress_tokens, begin_suppress_tokens, forced_bos_token_id and forced_eos_token_id change the logits before that
- stop_strings: the text ends with the token that completes one of these
- num_beams above 1 keeps that many texts, those with the largest sums of log probabilities; length_penalty and early_stopping
  (True, False or 'never') are for beams
- num_return_sequences above 1 gives a list of texts or of ids: the best beams, or as many draws, by seed, seed + 1, ...

end: the ids that end the text; None: info.end.
on_token, on_text: on_token is called with each new id, and on_text with what each id adds to the text, once that can't change. If one
returns False, the text ends there.
cache: a ModelCache. What it has read of the prompt's beginning is not computed again. Afterwards it has read all but the last token,
so a conversation can go on with the whole text and the same cache.
edits: an edit without rows applies to every token. Rows are rows of the prompt, and need a single prompt.
keep, observe: as for forward(), for one prompt: it gives (text, kept), with the rows of the prompt and one row for each new token
except the last.

In a list, prompt n gets what generate() gives it alone with seed + n. on_token is called with n and the id; on_text and cache are
refused.

>>> import attend
>>> model = attend.Model.load("tiny")
>>> more = model.generate([[1, 2, 3], [4]], max_new_tokens=5)
>>> bool((more[1] == model.generate([4], max_new_tokens=5)).all())
True
>>> drawn = model.generate([1, 2, 3], max_new_tokens=5, temperature=0.8, top_p=0.9, seed=1)
>>> bool((drawn == model.generate([1, 2, 3], max_new_tokens=5, temperature=0.8, top_p=0.9, seed=1)).all())
True)";

// What goes in says what comes out; the last has all, for help() and inspect.
std::string generate_signature() {
  const std::string places = "Sequence[str | tuple[str, int]]", arrays = ", dict[Any, numpy.ndarray]]";
  const auto one = [&](const std::string& ids, const std::string& result, const std::string& keep = "None = None") {
    return "def generate(self, ids: " + ids +
           ", max_new_tokens: int = 64, *, seed: int = 0, end: Ids | None = None, "
           "on_token: Callable[..., object] | None = None, on_text: Callable[[str], object] | None = None, "
           "cache: ModelCache | None = None" +
           given_edits + ", keep: " + keep + ", observe: Callable[[str, int, numpy.ndarray], object] | None = None" +
           settings_signature() + ") -> " + result;
  };
  const std::string texts = "list[str] | tuple[str, ...]", several = "Sequence[Sequence[int] | numpy.ndarray]";
  const std::string of_ids = "tuple[numpy.ndarray" + arrays, of_text = "tuple[str" + arrays;
  std::string all;
  for (const std::string& each :
       {one("str", "str"), one(texts, "list[str]"), one("Ids", "numpy.ndarray"), one(several, "list[numpy.ndarray]"),
        one("str", of_text, places), one("Ids", of_ids, places)})
    all += "@overload\n" + each + ": ...\n";
  return all + one("str | " + texts + " | Ids | " + several,
                   "str | list[str] | numpy.ndarray | list[numpy.ndarray] | " + of_text + " | " + of_ids,
                   places + " | None = None");
}

}  // namespace

nb::object id_array(std::span<const std::int64_t> numbers) {
  Tensor out({std::ssize(numbers)}, DType::i64);
  std::ranges::copy(numbers, out.data<std::int64_t>());
  return to_python({}, out);
}

std::function<bool(std::int64_t)> token_teller(const char* function, nb::handle on_token) {
  if (on_token.is_none()) return {};
  check_function(function, "on_token", on_token);
  return [on_token](std::int64_t id) {
    const WithGil gil;
    return !on_token(id).is(nb::bool_(false));
  };
}
std::function<bool(std::string_view)> text_teller(const char* function, nb::handle on_text) {
  if (on_text.is_none()) return {};
  check_function(function, "on_text", on_text);
  return [on_text](std::string_view more) {
    const WithGil gil;
    return !on_text(nb::str(more.data(), more.size())).is(nb::bool_(false));
  };
}

std::optional<nb::list> read_several(nb::handle given) {
  if (nb::isinstance<nb::str>(given) || nb::isinstance<nb::bytes>(given) || PyAnySet_Check(given.ptr()) ||
      PyMemoryView_Check(given.ptr()) || nb::isinstance<nb::dict>(given) || !nb::hasattr(given, "__iter__") ||
      !has_length(given))
    return std::nullopt;
  nb::list all(given);
  if (nb::len(all) == 0 || !has_length(all[0])) return std::nullopt;
  return all;
}

void bind_model_generate(nb::class_<Loaded>& model) {
  model.def("generate", &generate, nb::arg("ids"), nb::arg("max_new_tokens") = 64, nb::kw_only(), nb::arg("seed") = 0,
            nb::arg("end") = nb::none(), nb::arg("on_token") = nb::none(), nb::arg("on_text") = nb::none(),
            nb::arg("cache") = nb::none(), nb::arg("edits") = nb::none(), nb::arg("keep") = nb::none(),
            nb::arg("observe") = nb::none(), nb::arg("settings"), nb::sig(generate_signature().c_str()), generate_doc);
}

}  // namespace attend::python
