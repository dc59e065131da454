// attend.Model.record() and show().
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attend/session.h"
#include "call.h"
#include "model.h"
#include "text.h"

namespace attend::python {

namespace {

bool keeps_qk(nb::handle keep) {
  if (keep.is_none()) return false;
  if (text_of(keep) != "qk")
    throw nb::value_error(("record: keep: expected 'qk' or None, got " + repr_of(keep)).c_str());
  return true;
}

nb::object record(const Loaded& self, nb::handle ids, nb::handle types, std::int64_t max_new_tokens, std::int64_t top,
                  nb::handle map, nb::handle keep, bool key_sizes, std::int64_t budget, nb::handle edits,
                  nb::handle decoder_ids) {
  constexpr const char* function = "Model.record";
  const CallArguments given(self, function, ids, nb::none(), types, nb::none(), edits, decoder_ids);
  const ModelInfo& info = self.model.info();
  if (max_new_tokens > 0 && !given.decoder_ids().empty())
    throw Error(ErrorCode::bad_value, function, "decoder_ids and max_new_tokens can't stand together");
  const auto [rows, columns] = read_two(function, "map", "(rows, columns), two whole numbers", map);
  const RecordOptions options = {.top = top,
                                 .map = {rows, columns},
                                 .keep_qk = keeps_qk(keep),
                                 .key_sizes = key_sizes,
                                 .budget = budget,
                                 .grows = max_new_tokens > 0};
  const bool named = nb::isinstance<nb::str>(ids);
  Recording made = call(function, [&] {
    Recorder recorder(options);
    ModelText text{.ids = {given.ids().begin(), given.ids().end()}, .decoder_ids = given.decoder_ids()};
    if (max_new_tokens > 0) {
      text.decoder_ids = first_decoder_ids(info);
      const auto written = self.model.generate(text.ids, {.max_new_tokens = max_new_tokens,
                                                          .recorder = &recorder,
                                                          .edits = given.edits(),
                                                          .knockouts = given.knockouts()});
      std::vector<std::int64_t>& grown = info.encoder_decoder() ? text.decoder_ids : text.ids;
      grown.insert(grown.end(), written.begin(), written.end());
    } else if (info.encoder_decoder() && text.decoder_ids.empty()) {
      self.model.encoder_states(text.ids, given.call(&recorder));
    } else {
      self.model.forward(text.ids, given.call(&recorder));
    }
    Recording recording = finish_recording(recorder, self.model, std::move(text), named);
    recording.model = self.name;
    return recording;
  });
  return nb::module_::import_("attend._recording").attr("Recording")(std::move(made));
}

Page show(const Loaded& self, nb::handle text, bool live, nb::handle second, nb::handle why, nb::handle against,
          bool chat, std::optional<std::int64_t> budget, bool strict) {
  constexpr const char* function = "Model.show";
  const ModelInfo& info = self.model.info();
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
  LivePageOptions options{.name = self.name,
                          .second = read_optional("second", second),
                          .why = read_optional("why", why),
                          .against = read_optional("against", against),
                          .chat = chat};
  if (budget) options.budget = *budget;
  const auto refuse = [&](const std::string& what) { throw Error(ErrorCode::bad_value, function, what); };
  if (!live && (options.second || options.why || options.against))
    refuse("second, why and against need the model in the page: pass live=True");
  if (live && strict) refuse("strict: a page with live=True leaves nothing out");
  if (options.against && !options.why) refuse("against: nothing uses it without why");
  if (options.second && info.decoder()) refuse("second: only an encoder compares sentences");
  if ((options.why || chat) && !info.decoder()) refuse("why and chat need a decoder, and this is an encoder");
  (void)self.tokenizer(function);
  if (options.why) (void)self.read_token(function, "why", why);
  if (options.against) (void)self.read_token(function, "against", against);
  return call(function, [&] {
    if (live && !pages_note().empty()) throw Error(ErrorCode::bad_value, function, pages_note());
    check_tokenizer(self.model, self.name);
    Recorder recorder({.keep_qk = !live});
    const ModelText given{.ids = encode(self.model, words, {.chat = chat}).ids, .decoder_ids = first_decoder_ids(info)};
    Recording recording = std::move(*run(self.model, given, {.recorder = &recorder}).recording);
    recording.model = self.name;
    if (live) return live_page(self.path, recording, words, options);
    RecordingPageOptions of_recording{.file = self.name + ".attend", .strict = strict};
    if (budget) of_recording.budget = *budget;
    return recording_page(recording, of_recording);
  });
}

constexpr const char* show_doc =
    R"(A page that shows every head of the model on a text: an attend.Page, which a notebook shows in a frame.

live: put the model itself into the page, in 8 bits a number (a .gguf file as it is). The page then computes whatever is typed,
offline. Without live, the page has a recording of the text, with queries and keys.
second, why, against: with live. second is a sentence that an encoder compares the text with. why is a decoder's next token, such as
" Paris", and against another token to tell it from.
chat: the text is a message to the model, put into its chat template.
budget: bytes that the page may take; None: 64 MB, and 150 MB live. Beyond it, a recording's page leaves out queries and keys of the
layers with the broadest heads (Page.left_out).
strict: raise ValueError instead of leaving out. A live model that is too large always does.

>>> import attend
>>> page = attend.Model.load("tiny").show("the cat sat")
>>> page.left_out
''
>>> page.save("cat.html"))";

constexpr const char* record_doc =
    R"(What every head attends to while the model computes ids [N], or a text: an attend.Recording.

A text's recording has its tokens; after ids, recording.tokens = model.tokenizer names them.

max_new_tokens: record a generation: the likeliest tokens that follow are recorded too.
decoder_ids: for an encoder-decoder, as for forward(). Without decoder_ids and max_new_tokens, only its encoder is recorded.
top, map: how many keys of each row are kept, and how many blocks of rows and columns.
keep: "qk" keeps queries and keys, from which any part of the weights can be made exactly.
key_sizes: True keeps what each key carries, abs(W_O v), so that everything is known by norm too: heads(by="norm").
budget: in bytes; a recording that would be larger raises ValueError.)";

}  // namespace

void bind_model_record(nb::class_<Loaded>& model) {
  model
      .def("record", &record, nb::arg("ids"), nb::arg("types") = nb::none(), nb::arg("max_new_tokens") = 0,
           nb::arg("top") = 8, nb::arg("map") = nb::make_tuple(256, 256), nb::arg("keep") = nb::none(),
           nb::arg("key_sizes") = false, nb::arg("budget") = std::int64_t{2} << 30, nb::arg("edits") = nb::none(),
           nb::arg("decoder_ids") = nb::none(),
           nb::sig(
               "def record(self, ids: str | Ids, types: Ids | None = None, max_new_tokens: int = 0, top: int = 8, "
               "map: tuple[int, int] = (256, 256), keep: Literal['qk'] | None = None, key_sizes: bool = False, budget: "
               "int = 2147483648, edits: Sequence[Edit | Knockout] | None = None, decoder_ids: Ids | None = None) -> "
               "Recording"),
           record_doc)
      .def(
          "show", &show, nb::arg("text"), nb::arg("live") = false, nb::arg("second") = nb::none(),
          nb::arg("why") = nb::none(), nb::arg("against") = nb::none(), nb::arg("chat") = false,
          nb::arg("budget") = nb::none(), nb::arg("strict") = false,
          nb::sig("def show(self, text: str, live: bool = False, second: str | None = None, why: str | None = None, "
                  "against: str | None = None, chat: bool = False, budget: int | None = None, strict: bool = False) -> "
                  "Page"),
          show_doc);
}

}  // namespace attend::python
