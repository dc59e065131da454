// attend.Model.generate().
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "call.h"
#include "model.h"
#include "text.h"

namespace attend::python {

namespace {

constexpr const char* generate_function = "Model.generate";

nb::object id_array(std::span<const std::int64_t> numbers) {
  Tensor out({std::ssize(numbers)}, DType::i64);
  std::ranges::copy(numbers, out.data<std::int64_t>());
  return to_python({}, out);
}

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

nb::object generate(const Loaded& self, nb::handle ids, std::int64_t max_new_tokens, double temperature,
                    std::int64_t top_k, double top_p, std::uint64_t seed, nb::handle end, nb::handle on_token,
                    nb::handle edits, nb::handle keep, nb::handle observe) {
  constexpr const char* function = generate_function;
  const Edits changed(function, edits);
  Watching watching(function, self.model.info(), keep, observe);
  GenerateOptions options = {.max_new_tokens = max_new_tokens,
                             .temperature = temperature,
                             .top_k = top_k,
                             .top_p = top_p,
                             .seed = seed,
                             .edits = changed.get(),
                             .knockouts = changed.knockouts(),
                             .observe = watching.observer()};
  if (!end.is_none()) options.end = list_of(read_integers(function, "end", end));
  if (const auto prompts = read_several(ids)) {
    options.on_token_of = teller<std::int64_t, std::int64_t>(on_token);
    return generate_several(self, *prompts, options);
  }
  options.on_token = teller<std::int64_t>(on_token);
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
    R"(The ids that follow ids [N], without the one that ends them: [n] int64. Of a text, the text. Of a list
of texts or of ids, the list of what follows each: all grow in one pass a step, up to 32 at once, each to its own end.

Of an encoder-decoder ids are its encoder's, and those of its decoder, after info.start, are given.
The likeliest token each time, with temperature 0; or one that is drawn by seed from softmax(logits / temperature): of the
top_k likeliest (0: all), and of these of the fewest that have top_p of the probability together. end: the ids that end the
text; None: info.end. on_token is called with each new id, and where it gives False, the text ends there. Of a list,
prompt n has what generate() gives it alone, by seed + n, and on_token is called with n and the id. An edit without rows is of
every token, one with rows of the prompt, which is one then. keep and observe as in forward(), of one prompt: (text, kept), the
rows of the prompt and one of each new token but the last.

>>> import attend
>>> model = attend.Model.load("tiny")
>>> more = model.generate([[1, 2, 3], [4]], max_new_tokens=5)
>>> bool((more[1] == model.generate([4], max_new_tokens=5)).all())
True)";

// What goes in says what comes out; the last has all, for help() and inspect.
std::string generate_signature() {
  const std::string places = "Sequence[str | tuple[str, int]]", arrays = ", dict[Any, numpy.ndarray]]";
  const auto one = [&](const std::string& ids, const std::string& result, const std::string& keep = "None = None",
                       const std::string& star = "") {
    return "def generate(self, ids: " + ids +
           ", max_new_tokens: int = 64, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0, "
           "end: Ids | None = None, on_token: Callable[..., object] | None = None" +
           given_edits + star + ", keep: " + keep +
           ", observe: Callable[[str, int, numpy.ndarray], object] | None = None) -> " + result;
  };
  const std::string texts = "list[str] | tuple[str, ...]", several = "Sequence[Sequence[int] | numpy.ndarray]";
  const std::string of_ids = "tuple[numpy.ndarray" + arrays, of_text = "tuple[str" + arrays;
  std::string all;
  for (const std::string& each :
       {one("str", "str"), one(texts, "list[str]"), one("Ids", "numpy.ndarray"), one(several, "list[numpy.ndarray]"),
        one("str", of_text, places, ", *"), one("Ids", of_ids, places, ", *")})
    all += "@overload\n" + each + ": ...\n";
  return all + one("str | " + texts + " | Ids | " + several,
                   "str | list[str] | numpy.ndarray | list[numpy.ndarray] | " + of_text + " | " + of_ids,
                   places + " | None = None");
}

}  // namespace

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
  model.def("generate", &generate, nb::arg("ids"), nb::arg("max_new_tokens") = 64, nb::arg("temperature") = 0.0,
            nb::arg("top_k") = 0, nb::arg("top_p") = 1.0, nb::arg("seed") = 0, nb::arg("end") = nb::none(),
            nb::arg("on_token") = nb::none(), nb::arg("edits") = nb::none(), nb::arg("keep") = nb::none(),
            nb::arg("observe") = nb::none(), nb::sig(generate_signature().c_str()), generate_doc);
}

}  // namespace attend::python
