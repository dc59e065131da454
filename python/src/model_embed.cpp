// attend.Model.embed().
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "model.h"
#include "progress.h"
#include "text.h"

namespace attend::python {

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
                              "] is a text, but the entries before it are not: " + repr_of(all[n]))
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

nb::object embed(const Loaded& self, nb::handle sentences, nb::handle prompt, nb::handle normalize, bool truncate,
                 bool return_cut, nb::handle progress, nb::handle starts, nb::handle types, nb::handle edits) {
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
    const CallArguments call_of(self, function, given, starts, types, nb::none(), edits);
    return to_python({}, call(function, [&] { return self.model.embed(call_of.ids(), call_of.call(), to_1); }));
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
  const Shown shown(function, progress, texts->size());
  options.progress = shown.tell();
  const Embeddings made =
      call(function, [&] { return self.model.embed(std::span<const std::string>(*texts), options); });
  const nb::object vectors = to_python({}, made.vectors);
  return return_cut ? nb::object(nb::make_tuple(vectors, made.cut)) : vectors;
}

constexpr const char* embed_doc =
    R"(Turn sentences into vectors [N,V], float32, in the order given. They are those of sentence-transformers for the folder.

sentences: a list of texts, or one text. Or ids, with starts, types and edits as for forward(): a vector for each sequence.
prompt: what to put before each sentence, as a text or by the name of one of info.prompts; None: the folder's default.
normalize: True for vectors of length 1; False to leave out the folder's last Normalize; None: as the folder says.
truncate: cut longer sentences at info.max_seq_length tokens; False: they raise ValueError.
return_cut: return (vectors, how many were cut).
progress: True shows a bar (tqdm's if it is installed); a function is called with the share done.

Raises OSError where modules.json, or a file that it names, says something that is not known here, and where the model has a task's
head (info.head) and no modules.json. info.embeds is False then.)";

// What goes in says what comes out; the last of each has all arguments, for help() and inspect.
std::string embed_signature() {
  const std::string name = "@overload\ndef embed(self, sentences: str | Iterable[str]",
                    how = ", prompt: str | None = None, normalize: bool | None = None, truncate: bool = True, ",
                    progress = "progress: bool | Callable[[float], object] | None = None";
  return name + how + "*, return_cut: Literal[True], " + progress + ") -> tuple[numpy.ndarray, int]: ...\n" + name +
         " | Ids" + how + "return_cut: Literal[False] = False, " + progress +
         ", *, starts: Ids | None = None, types: Ids | None = None" + given_edits + ") -> numpy.ndarray";
}

}  // namespace

void bind_model_embed(nb::class_<Loaded>& model) {
  model.def("embed", &embed, nb::arg("sentences"), nb::arg("prompt") = nb::none(), nb::arg("normalize") = nb::none(),
            nb::arg("truncate") = true, nb::arg("return_cut") = false, nb::arg("progress") = nb::none(), nb::kw_only(),
            nb::arg("starts") = nb::none(), nb::arg("types") = nb::none(), nb::arg("edits") = nb::none(),
            nb::sig(embed_signature().c_str()), embed_doc);
}

}  // namespace attend::python
