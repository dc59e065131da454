// translate: learns to translate short messages from English to Italian, and does it.
// Results go to standard output, all else to standard error. Exit status: 0 fine, 1 failed, 2 the command line is
// wrong, 3 a file that can't be read or is not what it should be.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "attend/error.h"
#include "attend/picture.h"
#include "decoding.h"
#include "loss_curve.h"
#include "mix.h"
#include "progress.h"
#include "scores.h"
#include "training.h"

namespace translate {
namespace {

struct Command {
  CLI::App* app;
  std::function<void()> run;
};

struct TrainArguments {
  std::string data, checkpoint;
  Settings settings;
  std::int64_t save_every = 100;
  // Throws where an option was given that contradicts a checkpoint's settings.
  std::vector<std::function<void(const Settings&)>> compare;
};

template <class Field>
CLI::Option* add_setting(CLI::App& app, TrainArguments& arguments, const std::string& name, Field field,
                         const std::string& what) {
  CLI::Option* option = app.add_option(name, field(arguments.settings), what)->capture_default_str()->group("Settings");
  arguments.compare.push_back([option, name, field, &arguments](const Settings& stored) {
    if (option->count() == 0 || field(arguments.settings) == field(stored)) return;
    throw CLI::ValidationError(name, fmt::format("{} has {}, got {}; a training goes on as it began",
                                                 arguments.checkpoint, field(stored), field(arguments.settings)));
  });
  return option;
}

// A whole number from 1. Without its range in the help.
CLI::Option* positive(CLI::Option* option) {
  return option->type_name("N")->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30).description(""));
}

void add_settings(CLI::App& app, TrainArguments& arguments) {
  const auto add = [&](const char* name, auto field, const char* what) {
    return add_setting(app, arguments, name, field, what);
  };
  positive(add(
      "--steps", [](auto& s) -> auto& { return s.steps; }, "Batches to learn from"));
  positive(add(
      "--batch", [](auto& s) -> auto& { return s.batch; }, "Pairs of messages in a batch"));
  add(
      "--seed", [](auto& s) -> auto& { return s.seed; }, "Of parameters, order and dropout")
      ->type_name("N");
  add(
      "--learning-rate", [](auto& s) -> auto& { return s.learning_rate; }, "Adam's, at its highest")
      ->type_name("X")
      ->check(CLI::Range(1e-9, 1.0).description(""));
  add(
      "--warmup", [](auto& s) -> auto& { return s.warmup; }, "Steps until it is highest")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30).description(""));
  add(
      "--dropout", [](auto& s) -> auto& { return s.dropout; }, "Probability")
      ->type_name("X")
      ->check(CLI::Range(0.0, 0.99).description(""));
  positive(add(
      "--vocabulary", [](auto& s) -> auto& { return s.vocabulary; }, "Subwords, at the most"));
  positive(add(
      "--embedding", [](auto& s) -> auto& { return s.sizes.embedding; }, "Size of an embedding; even"));
  positive(add(
      "--heads", [](auto& s) -> auto& { return s.sizes.heads; }, "They part the embedding evenly"));
  positive(add(
      "--layers", [](auto& s) -> auto& { return s.sizes.layers; }, "Of the encoder, and of the decoder"));
  positive(add(
      "--hidden", [](auto& s) -> auto& { return s.sizes.hidden; }, "Size of the feed-forward layers"));
  positive(add(
      "--validate-every", [](auto& s) -> auto& { return s.validate_every; },
      "Steps between losses on messages of valid"));
}

Training begin_or_resume(const TrainArguments& arguments, const Corpus& corpus) {
  if (!std::filesystem::exists(arguments.checkpoint)) {
    if (arguments.settings.sizes.embedding % 2 != 0 ||
        arguments.settings.sizes.embedding % arguments.settings.sizes.heads != 0)
      throw CLI::ValidationError("--embedding", "expected an even number that --heads divides");
    return Training::start(arguments.settings, corpus);
  }
  Training training = read_checkpoint(arguments.checkpoint);
  for (const auto& compare : arguments.compare) compare(training.settings);
  if (training.data_hash != corpus.hash)
    throw CLI::ValidationError("--data", fmt::format("{} learned from another file", arguments.checkpoint));
  fmt::print(stderr, "{} is at step {}\n", arguments.checkpoint, training.step);
  return training;
}

std::int64_t parameter_count(const TensorMap& parameters) {
  return std::accumulate(parameters.begin(), parameters.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& entry) { return sum + entry.second.count(); });
}

void train(const TrainArguments& arguments) {
  const Corpus corpus = read_corpus(arguments.data);
  Training training = begin_or_resume(arguments, corpus);
  const Settings& settings = training.settings;
  const std::vector<Example> learn = encode(training.tokenizer, corpus.train),
                             held = encode(training.tokenizer, corpus.valid);
  Batches batches(settings, learn);
  fmt::print(stderr, "{} messages to learn from, {} to check with; {} ids, {} parameters\n", learn.size(), held.size(),
             training.tokenizer.size(), parameter_count(training.parameters));
  Progress progress(training.step, settings.steps, settings.validate_every);
  while (training.step < settings.steps) {
    const std::int64_t step = training.step + 1;
    const Batch batch = batches.at(step);
    const Dropping dropping{settings.dropout, mix(settings.seed, static_cast<std::uint64_t>(step))};
    training.train_losses.push_back(train_step(training.parameters, training.adam, settings.sizes, batch,
                                               training.learning_rate(step), step, dropping));
    std::optional<double> valid;
    if (step % settings.validate_every == 0 && !held.empty()) {
      valid = mean_loss(training.parameters, settings.sizes, held);
      training.valid_losses.push_back(*valid);
    }
    training.step = step;
    if (step % arguments.save_every == 0 || step == settings.steps) write_checkpoint(arguments.checkpoint, training);
    progress.show(step, training.train_losses.back(), valid, batch.source.tokens() + batch.target.tokens());
  }
}

Command add_train(CLI::App& root, TrainArguments& arguments) {
  CLI::App* app = root.add_subcommand("train", "Learn from pairs of messages, or go on learning");
  app->footer(
      "Examples:\n"
      "  translate train --data pairs.tsv --checkpoint model.safetensors\n"
      "  translate train --data pairs.tsv --checkpoint small.safetensors --steps 500\n\n"
      "The checkpoint is replaced in one step, so that a training may be killed at any\n"
      "time; the same command goes on from it, with exactly the losses that it would\n"
      "have had.");
  app->add_option("--data", arguments.data, "Lines of a split, English, Italian; parted by tabs")
      ->required()
      ->type_name("FILE");
  app->add_option("--checkpoint", arguments.checkpoint, "To go on from, if it is there, and to write")
      ->required()
      ->type_name("FILE");
  positive(app->add_option("--save-every", arguments.save_every, "Steps between checkpoints")->capture_default_str());
  add_settings(*app, arguments);
  return {app, [&arguments] { train(arguments); }};
}

struct TextArguments {
  std::string checkpoint, picture, recording;
  std::vector<std::string> texts;
  bool show = false;
  std::optional<std::int64_t> layer;
};

// A panel for each head of a layer.
void show_attention(const TextArguments& arguments, const Training& training, const Model& model,
                    const std::string& text, const Ids& source, const Ids& target) {
  const CrossAttention attention = cross_attention(model, source, target);
  const std::int64_t last = std::ssize(attention.weights) - 1, layer = arguments.layer.value_or(last);
  if (layer > last)
    throw CLI::ValidationError("--layer", fmt::format("the decoder's last layer is {}, got {}", last, layer));
  const View weights = attention.weights[static_cast<std::size_t>(layer)];
  std::vector<std::string> rows, columns;
  for (const std::int64_t id : attention.target) rows.push_back(training.tokenizer.label(id));
  for (const std::int64_t id : attention.source) columns.push_back(training.tokenizer.label(id));
  std::vector<attend::HeatMap> maps;
  for (std::int64_t head = 0; head < weights.size(0); ++head) {
    maps.push_back({weights.select(0, head), rows, columns, fmt::format("head {}", head), "Italian, as it is written",
                    "English", 0, 1});
  }
  const std::string title =
      fmt::format("{} -> {} (cross-attention, layer {})", text, training.tokenizer.decode(target), layer);
  if (arguments.show)
    for (const attend::HeatMap& map : maps)
      fmt::print("{}", attend::terminal_heat_map(map, {80, isatty(STDOUT_FILENO) == 1}));
  if (arguments.picture.ends_with(".svg")) attend::write_file(arguments.picture, attend::svg_heat_map(maps, title));
  if (arguments.picture.ends_with(".png")) attend::write_file(arguments.picture, attend::png_heat_map(maps, title));
}

void translate_texts(const TextArguments& arguments) {
  const Training training = read_checkpoint(arguments.checkpoint);
  const Model model(training.parameters, training.settings.sizes);
  std::vector<std::string> texts = arguments.texts;
  if (texts.empty())
    for (std::string line; std::getline(std::cin, line);) texts.push_back(line);
  std::vector<Ids> sources;
  sources.reserve(texts.size());
  for (const std::string& text : texts) sources.push_back(training.tokenizer.encode(text));
  const std::vector<Ids> targets = translate(model, sources);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    fmt::print("{}\n", training.tokenizer.decode(targets[i]));
    if (i == 0 && (arguments.show || !arguments.picture.empty()))
      show_attention(arguments, training, model, texts[i], sources[i], targets[i]);
    if (i == 0 && !arguments.recording.empty())
      record(model, training.tokenizer, sources[i], targets[i]).save(arguments.recording);
  }
}

Command add_text(CLI::App& root, TextArguments& arguments) {
  CLI::App* app = root.add_subcommand("text", "Translate messages; without TEXT, the lines of input");
  app->footer(
      "Examples:\n"
      "  translate text --checkpoint model.safetensors \"Cannot open the file\"\n"
      "  translate text --checkpoint model.safetensors \"Open\" --attention attention.svg\n"
      "  translate text --checkpoint model.safetensors \"Open\" --record open.attend");
  app->add_option("TEXT", arguments.texts, "English messages, each in quotes")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app->add_option("--checkpoint", arguments.checkpoint, "What `translate train` wrote")->required()->type_name("FILE");
  const auto picture = [](const std::string& name) {
    return name.ends_with(".svg") || name.ends_with(".png") ? "" : fmt::format("'{}' should end in .svg or .png", name);
  };
  app->add_option("--attention", arguments.picture, "Draw what the first translation looked at: .svg, .png")
      ->type_name("FILE")
      ->check(picture);
  const auto recording = [](const std::string& name) {
    return name.ends_with(".attend") ? "" : fmt::format("'{}' should end in .attend", name);
  };
  app->add_option("--record", arguments.recording, "What all heads looked at there, for attend show: .attend")
      ->type_name("FILE")
      ->check(recording);
  app->add_flag("--show", arguments.show, "The same in the terminal");
  app->add_option("--layer", arguments.layer, "Of the decoder, from 0; default the last one")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30).description(""));
  return {app, [&arguments] { translate_texts(arguments); }};
}

struct ScoreArguments {
  std::string data, checkpoint, split = "test", output;
};

void score(const ScoreArguments& arguments) {
  const Corpus corpus = read_corpus(arguments.data);
  const Training training = read_checkpoint(arguments.checkpoint);
  const std::vector<Pair>& pairs = arguments.split == "test"    ? corpus.test
                                   : arguments.split == "valid" ? corpus.valid
                                                                : corpus.train;
  if (pairs.empty()) throw CLI::ValidationError("--split", fmt::format("there are no pairs of {}", arguments.split));
  const Model model(training.parameters, training.settings.sizes);
  std::vector<Ids> sources;
  std::vector<std::string> english, italian, translations;
  for (const Pair& pair : pairs) {
    english.push_back(pair.english);
    italian.push_back(pair.italian);
    sources.push_back(training.tokenizer.encode(pair.english));
  }
  for (const Ids& ids : translate(model, sources)) translations.push_back(training.tokenizer.decode(ids));
  const std::vector<Example> examples = encode(training.tokenizer, pairs);
  fmt::print("{} messages of {}, after {} steps\n", pairs.size(), arguments.split, training.step);
  fmt::print("loss         {:.3f} nats per token\n", mean_loss(training.parameters, training.settings.sizes, examples));
  fmt::print("exact match  {:.1f} %\n", exact_match(translations, italian));
  fmt::print("chrF         {:.1f} (the English itself as translation: {:.1f})\n", chrf(translations, italian),
             chrf(english, italian));
  if (arguments.output.empty()) return;
  std::string lines;
  for (std::size_t i = 0; i < pairs.size(); ++i)
    lines += fmt::format("{}\t{}\t{}\n", english[i], italian[i], translations[i]);
  attend::write_file(arguments.output, lines);
}

Command add_score(CLI::App& root, ScoreArguments& arguments) {
  CLI::App* app = root.add_subcommand("score", "How well does it translate what it has not seen?");
  app->footer("Example:\n  translate score --data pairs.tsv --checkpoint model.safetensors -o test.tsv");
  app->add_option("--data", arguments.data, "The file that it learned from")->required()->type_name("FILE");
  app->add_option("--checkpoint", arguments.checkpoint, "What `translate train` wrote")->required()->type_name("FILE");
  app->add_option("--split", arguments.split, "Which messages")
      ->capture_default_str()
      ->check(CLI::IsMember({"test", "valid", "train"}));
  app->add_option("-o,--output", arguments.output, "English, reference and translation, parted by tabs")
      ->type_name("FILE");
  return {app, [&arguments] { score(arguments); }};
}

struct PlotArguments {
  std::string checkpoint, output;
};

Command add_plot(CLI::App& root, PlotArguments& arguments) {
  CLI::App* app = root.add_subcommand("plot", "Draw the losses of a training");
  app->footer("Example:\n  translate plot --checkpoint model.safetensors -o loss.svg");
  app->add_option("--checkpoint", arguments.checkpoint, "What `translate train` wrote")->required()->type_name("FILE");
  app->add_option("-o,--output", arguments.output, "The .svg file to write")->required()->type_name("FILE");
  return {app, [&arguments] {
            const Training training = read_checkpoint(arguments.checkpoint);
            attend::write_file(arguments.output, svg_loss_curve(training.train_losses, training.valid_losses,
                                                                training.settings.validate_every));
          }};
}

}  // namespace
}  // namespace translate

// NOLINTNEXTLINE(bugprone-exception-escape): where there is no memory for the options, it ends
int main(int argc, char** argv) {
  using namespace translate;
  CLI::App root("A small Transformer that learns to translate messages, English to Italian.");
  root.name("translate");
  root.require_subcommand(1);
  root.get_formatter()->column_width(24);  // of 80
  root.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  TrainArguments train_arguments;
  TextArguments text_arguments;
  ScoreArguments score_arguments;
  PlotArguments plot_arguments;
  const Command commands[] = {add_train(root, train_arguments), add_text(root, text_arguments),
                              add_score(root, score_arguments), add_plot(root, plot_arguments)};
  try {
    root.parse(argc, argv);
    for (const Command& command : commands)
      if (command.app->parsed()) command.run();
    if (std::fflush(stdout) != 0) throw std::runtime_error(fmt::format("standard output: {}", std::strerror(errno)));
    return 0;
  } catch (const CLI::ParseError& error) {
    return root.exit(error) == 0 ? 0 : 2;
  } catch (const attend::Error& error) {
    fmt::print(stderr, "translate: {}\n", error.what());
    return error.code() == attend::ErrorCode::bad_file ? 3 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "translate: {}\n", error.what());
    return 1;
  }
}
