// lens fit: texts to a Jacobian lens, a file that attend model --lens reads.
#include <fmt/format.h>

#include <memory>
#include <sstream>

#include "attend/error.h"
#include "attend/jacobian_lens.h"
#include "cli/command.h"
#include "cli/model.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

struct LensArguments {
  std::string action, model, corpus, output;
  LoadArguments load;
  std::int64_t prompts = 100, tokens = 64;
};

// So many pieces of the text, each of so many tokens; fewer where it ends before.
std::vector<std::vector<std::int64_t>> read_prompts(const LensArguments& x, const Model& model) {
  std::istringstream lines(x.corpus == "-" ? read_stdin() : read_text(x.corpus));
  std::vector<std::vector<std::int64_t>> prompts;
  std::vector<std::int64_t> ids;
  for (std::string line; std::ssize(prompts) < x.prompts && std::getline(lines, line);) {
    const std::vector<std::int64_t> own = model.tokenizer().encode(line + "\n", false).ids;
    ids.insert(ids.end(), own.begin(), own.end());
    while (std::ssize(ids) >= x.tokens && std::ssize(prompts) < x.prompts) {
      prompts.emplace_back(ids.begin(), ids.begin() + x.tokens);
      ids.erase(ids.begin(), ids.begin() + x.tokens);
    }
  }
  if (prompts.empty())
    throw Failure(
        fmt::format("{} has {} tokens, expected at least {}, the size of one prompt", x.corpus, ids.size(), x.tokens));
  return prompts;
}

// What an earlier run has kept.
JacobianLens read_so_far(const std::string& output) {
  std::error_code ignored;
  return std::filesystem::exists(output, ignored) ? JacobianLens::load(output) : JacobianLens();
}

void run(const LensArguments& x) {
  const Model model = Model::load(find_model(x.model), model_options(x.load));
  const std::vector<std::vector<std::int64_t>> prompts = read_prompts(x, model);
  JacobianLens so_far = read_so_far(x.output);
  const std::int64_t before = so_far.prompts;
  if (before > 0) tell(fmt::format("attend: {} has {} prompts already; going on from there", x.output, before));
  Progress progress;
  const JacobianOptions options{.progress = progress.stage(),
                                .keep = [&](const JacobianLens& lens) { writing([&] { lens.save(x.output); }); }};
  try {
    (void)jacobian_lens(model, prompts, options, std::move(so_far));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_value || before == 0) throw;
    throw Failure(fmt::format("{}: {}", x.output, error.detail()));
  }
  tell(fmt::format("attend: wrote {}: {} prompts of {} tokens", x.output, prompts.size(), x.tokens));
}

}  // namespace

Command add_lens(App& root) {
  App* app = root.add_subcommand(
      "lens",
      "Fit a Jacobian lens for a decoder: what each layer already means for the last one. It is the mean, over many "
      "texts, of the derivatives of the last layer by each earlier one. attend model --lens --with FILE uses it.");
  app->examples(
      "attend lens fit smollm2 corpus.txt --prompts 100 -o lens.safetensors\n"
      "attend model smollm2 \"The capital of France is\" --lens --with lens.safetensors");
  auto arguments = std::make_shared<LensArguments>();
  choose_one(app->add_option("ACTION", arguments->action, "fit: find the lens from the texts"), "fit")->required();
  app->add_option("MODEL", arguments->model, "A folder, a .gguf file, or a name from attend model --list")
      ->type_name("FILE")
      ->required();
  app->add_option("CORPUS", arguments->corpus, "A text file to cut the prompts from; - reads standard input")
      ->type_name("FILE")
      ->required();
  file_ending(
      app->add_option(
          "-o,--output", arguments->output,
          "The file to write, after each prompt. If it exists already, only the prompts that it lacks are added"),
      {".safetensors"})
      ->required();
  whole_number(app->add_option("--prompts", arguments->prompts, "How many prompts to use (default: 100)"), 1);
  whole_number(app->add_option("--tokens", arguments->tokens, "How many tokens each prompt has (default: 64)"), 18);
  add_dtype(*app, arguments->load);
  return {app, [arguments] { run(*arguments); }};
}

}  // namespace attend::cli
