// The folder of a class: its experiments, the pages that these open, and the page that lists them.
#include "attend/class_pages.h"

#include <array>
#include <vector>

#include "attend/explain.h"
#include "attend/pages.h"
#include "class/experiments.h"
#include "class/measures.h"
#include "core/message.h"
#include "html/page.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* class_pages_function = "class_pages";
constexpr std::array ids = {"paris", "induction", "sink", "tired", "mask", "two-heads", "translation", "root"};

// Its experiments name heads, which are others in another model.
Model load(const fs::path& path, const char* what, std::int64_t layers, std::int64_t heads, bool decoder) {
  Model model = Model::load(path);
  const ModelInfo& info = model.info();
  if (info.layers != layers || info.heads != heads || info.decoder() != decoder || info.encoder_decoder())
    fail(ErrorCode::bad_value, class_pages_function, "{} has {} layers of {} heads, expected {} with {} of {}",
         path.string(), info.layers, info.heads, what, layers, heads);
  return model;
}

// What a browser that runs no script shows.
std::string static_part(const std::string& id) {
  std::string links;
  for (const char* each : ids) links += fmt::format("<li><a href=\"{0}.html\">{0}</a></li>", each);
  return fmt::format(
      "<h1>A class on attention{}</h1>\n<p>These pages ask for a prediction and then show what was computed, which "
      "needs JavaScript. The experiments:</p>\n<ol>{}</ol>\n<p>And: <a href=\"lesson.html\">the lesson</a>, <a "
      "href=\"minilm.html\">every head of MiniLM</a>.</p>\n",
      id == "index" ? "" : ": " + id, links);
}

std::string page_of(const std::string& id, const ordered_json& request) {
  return fill_page(built_class(), {{"title", id == "index" ? "A class on attention" : id + " - a class on attention"},
                                   {"static", static_part(id)},
                                   {"request", script_json(request)}});
}

class Folder {
 public:
  Folder(const ClassOptions& options, const std::function<void(const std::string&, const std::string&)>& write)
      : options_(options), write_(write) {}

  void add(Experiment experiment) {
    std::string file = fmt::format("{}.html", experiment.opens);
    if (experiment.recording) {
      file = experiment.id + "-heads.html";
      write_(file, recording_page(*experiment.recording, {.file = experiment.id + ".attend"}).html);
    }
    ordered_json request = {{"id", experiment.id},
                            {"of", ids},
                            {"numbers", std::move(experiment.numbers)},
                            {"opens", {{"file", file}, {"place", experiment.place}}},
                            {"goes_on", nullptr}};
    if (experiment.decoder && options_.with_smollm2)
      request["goes_on"] = {{"file", "smollm2.html"}, {"place", experiment.place}};
    write_(experiment.id + ".html", page_of(experiment.id, request));
    tell();
  }

  void add_models(const Model& minilm, const Model& smollm2) {
    const std::string text = "the animal did not cross the street because it was too tired";
    write_("minilm.html", live_page(options_.minilm, recorded(minilm, text), text, {.name = "MiniLM"}).html);
    tell();
    if (options_.with_smollm2) {
      const std::string capital = "The capital of France is";
      write_(
          "smollm2.html",
          live_page(options_.smollm2, recorded(smollm2, capital), capital, {.name = "SmolLM2", .why = " Paris"}).html);
    }
    tell();
  }

  void add_index() {
    std::vector<std::string> pages = {"lesson.html", "minilm.html"};
    if (options_.with_smollm2) pages.emplace_back("smollm2.html");
    write_("lesson.html", to_html(explain({.text = "the cat sat on the mat"})));
    write_("index.html", page_of("index", {{"id", "index"}, {"of", ids}, {"pages", pages}}));
    tell();
  }

 private:
  void tell() {
    constexpr double steps = ids.size() + 3;
    if (options_.progress) options_.progress(++done_ / steps);
  }

  const ClassOptions& options_;
  const std::function<void(const std::string&, const std::string&)>& write_;
  double done_ = 0;
};

}  // namespace

void class_pages(const ClassOptions& options,
                 const std::function<void(const std::string& name, const std::string& bytes)>& write) {
  if (built_class().empty() || built_lesson().empty() || built_explorer().empty())
    fail(ErrorCode::bad_value, class_pages_function,
         "attend was built without the pages that compute, which `make page` makes");
  const Model minilm = load(options.minilm, "all-MiniLM-L6-v2", 6, 12, false);
  const Model smollm2 = load(options.smollm2, "SmolLM2-135M", 30, 9, true);
  Folder folder(options, write);
  folder.add(paris_experiment(smollm2));
  folder.add(induction_experiment(smollm2));
  folder.add(sink_experiment(smollm2));
  folder.add(tired_experiment(minilm));
  folder.add(mask_experiment());
  folder.add(two_heads_experiment(minilm));
  folder.add(translation_experiment());
  folder.add(root_experiment());
  folder.add_models(minilm, smollm2);
  folder.add_index();
}

}  // namespace attend::inline v1
