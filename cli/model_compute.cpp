// What `model` computes: the text, what it is compared with, and how it goes on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <sstream>

#include "attend/threads.h"
#include "cli/command.h"
#include "cli/model.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

void announce(const ModelInfo& info, std::int64_t tokens, const RecordOptions& options) {
  const std::int64_t size = recording_bytes(info, tokens, options);
  if (size < std::int64_t{64} << 20) return;
  tell(fmt::format("attend: {} tokens will take about {} of memory, besides the model's {}", tokens, bytes(size),
                   bytes(info.weight_bytes)));
}

// Shows how far a forward pass is: layers are all of one size, so what is recorded says it.
class PassProgress {
 public:
  PassProgress(const Recorder& recorder, std::int64_t layers)
      : told_(progress_.stage()), watch_([this, &recorder, layers] {
          if (layer_ == 0) layer_ = recorder.bytes();
          if (told_ && layer_ > 0) told_(static_cast<double>(recorder.bytes()) / static_cast<double>(layer_ * layers));
          return false;
        }) {}

 private:
  Progress progress_;
  std::int64_t layer_ = 0;
  std::function<void(double)> told_;
  InterruptCheck watch_;
};

std::vector<Neighbour> nearest(const Model& model, const Tensor& embedding, const ModelArguments& arguments) {
  std::vector<Neighbour> found;
  for (const std::string& text : sentences(arguments.near))
    found.push_back({text, cosine(embedding, model.embed(encoded(model, text, arguments.model).ids))});
  std::ranges::stable_sort(found, std::greater(), &Neighbour::similarity);
  return found;
}

// The decoder's text: what it is said to have said, or what it says.
std::vector<std::int64_t> decoder_text(const Computed& x, const ModelArguments& arguments) {
  std::vector<std::int64_t> ids = first_decoder_ids(x.info);
  if (x.generated) {
    ids.insert(ids.end(), x.generated->ids.begin(), x.generated->ids.end());
  } else if (!arguments.said.empty()) {
    const std::vector<std::int64_t> said = x.tokenizer.encode(arguments.said, false).ids;
    ids.insert(ids.end(), said.begin(), said.end());
  }
  return ids;
}

}  // namespace

bool writes(const ModelArguments& x, std::string_view ending) {
  return std::ranges::any_of(x.files, [&](const std::string& file) { return ending_of(file) == ending; });
}

bool keeps_recording(const ModelArguments& x) {
  return writes(x, ".attend") || (writes(x, ".html") && !x.live);
}

Encoding encoded(const Model& model, std::string_view text, const std::string& name, bool chat) {
  Encoding encoding = encode(model, text, {.chat = chat});
  const std::int64_t longest = model.info().longest, tokens = std::ssize(encoding.ids);
  if (std::ranges::count(encoding.special, false) == 0)
    throw Failure(fmt::format("the text has no tokens for {}", name));
  if (tokens > longest)
    throw Failure(fmt::format("the text is {} tokens long, and {} takes {} at most", tokens, name, longest));
  return encoding;
}

std::vector<std::string> sentences(const std::vector<std::string>& given) {
  std::vector<std::string> all;
  for (const std::string& near : given) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(near, error)) {
      all.push_back(near);
      continue;
    }
    std::istringstream lines(read_text(near));
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) all.push_back(line);
  }
  return all;
}

Steered::Steered(const std::vector<std::string>& given, const ModelInfo& info) {
  for (const std::string& each : given) {
    // A file may have a colon in its name.
    const std::size_t colon = each.rfind(':');
    double scale = 1;
    std::size_t end = 0;
    try {
      if (colon != std::string::npos) scale = std::stod(each.substr(colon + 1), &end);
    } catch (const std::exception&) {
      end = 0;
    }
    const bool scaled = end > 0 && colon + 1 + end == each.size();
    const std::string file = scaled ? each.substr(0, colon) : each;
    const Steering& read = read_.emplace_back(Steering::load(file).scaled(scaled ? scale : 1));
    const auto& [layer, direction] = *read.directions.rbegin();
    if (direction.count() != info.embedding_size || layer >= info.layers)
      throw UsageError(fmt::format(
          "--steer: {} has {} numbers in each layer up to layer {}, but the model has {} numbers and {} layers", file,
          direction.count(), layer, info.embedding_size, info.layers));
    const std::vector<Edit> edits = read.edits();
    edits_.insert(edits_.end(), edits.begin(), edits.end());
  }
}

Computed begun(const Model& model, const std::string& text, const ModelArguments& arguments, const Told& told) {
  Computed x{.info = model.info(),
             .text = text,
             .tokenizer = model.tokenizer(),
             .encoding = encoded(model, text, arguments.model, arguments.chat),
             .chat = arguments.chat,
             .steered = Steered(arguments.steer, model.info())};
  if (arguments.generate > 0) {
    announce_generation(x.info, arguments.model);
    GenerateOptions options = generate_options(arguments.writing, x.tokenizer);
    options.max_new_tokens = arguments.generate, options.edits = x.steered.edits();
    x.generated = write_text(model, x.encoding.ids, options, told);
  }
  if (x.info.encoder_decoder()) x.decoder_ids = decoder_text(x, arguments);
  return x;
}

void compute(const Model& model, Computed& x, const ModelArguments& arguments) {
  const RecordOptions options{.keep_qk = keeps_recording(arguments) && arguments.keep != "summary",
                              .key_sizes = arguments.what.by == "norm"};
  announce(x.info, std::ssize(x.encoding.ids), options);
  Recorder recorder(options);
  PassOptions asked{.edits = x.steered.edits(), .recorder = &recorder, .next = x.info.decoder() ? 10 : 0};
  const std::vector<Keep> keep = places_of(arguments);
  asked.keep = keep;
  asked.vector = !x.info.decoder() && (x.info.embeds || !arguments.near.empty());  // --near says why it can't
  const bool table =
      arguments.what.json || arguments.what.csv || writes(arguments, ".json") || writes(arguments, ".csv");
  const Question question = question_of(model, x, arguments.analysis);
  const std::vector<const Analysis*> analyses = arguments.analysis.asked();
  for (const Analysis* each : analyses)
    each->ask(question, table ? std::nullopt : std::optional(style_of(arguments.what.form).width), asked);
  Pass pass;
  {
    const PassProgress progress(recorder, x.info.layers);
    pass = attend::run(model, {.ids = x.encoding.ids, .decoder_ids = x.decoder_ids}, asked);
  }
  x.kept = std::move(pass.kept);
  x.recording = std::move(*pass.recording), x.next = std::move(pass.next), x.embedding = std::move(pass.vector);
  x.recording.model = arguments.model;
  if (x.embedding) x.nearest = nearest(model, *x.embedding, arguments);
  for (const Analysis* each : analyses) x.findings.push_back(each->find(question, asked, pass));
}

}  // namespace attend::cli
