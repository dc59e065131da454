#include "models/sentences/modules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attend/threads.h"
#include "layers/rows.h"
#include "models/config.h"
#include "models/sentences/keys.h"
#include "models/sentences/module_files.h"

namespace attend::inline v1::models {

namespace {

namespace fs = std::filesystem;

constexpr const char* modules_function = "Model.embed";

constexpr std::int64_t model2vec_tokens = 512;  // of a sentence, unless StaticModel.encode() is told otherwise

// ---- Pooling ----

// Older files have a key for each, and put them side by side in this order.
constexpr std::pair<const char*, PoolingMode> mode_keys[] = {
    {"pooling_mode_cls_token", PoolingMode::cls},
    {"pooling_mode_max_tokens", PoolingMode::max},
    {"pooling_mode_mean_tokens", PoolingMode::mean},
    {"pooling_mode_mean_sqrt_len_tokens", PoolingMode::mean_sqrt_len},
    {"pooling_mode_weightedmean_tokens", PoolingMode::weighted_mean},
    {"pooling_mode_lasttoken", PoolingMode::last_token},
};

PoolingMode read_mode(const Member& of) {
  const auto found = std::ranges::find(pooling_modes, of.text(), [](const auto& each) { return each.first; });
  if (found == std::end(pooling_modes))
    refuse_value(of, "cls, max, mean, mean_sqrt_len_tokens, weightedmean and lasttoken are");
  return found->second;
}

Pooling read_pooling(const Member& config) {
  config.only({"word_embedding_dimension", "embedding_dimension", "pooling_mode", "pooling_mode_cls_token",
               "pooling_mode_max_tokens", "pooling_mode_mean_tokens", "pooling_mode_mean_sqrt_len_tokens",
               "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken", "include_prompt"});
  Pooling pooling;
  pooling.includes_prompt = truth_or(config, "include_prompt", true);
  std::vector<PoolingMode> modes;
  if (config.has("pooling_mode")) {
    const Member named = config["pooling_mode"];
    if (!named.value().is_array()) modes.push_back(read_mode(named));
    if (named.value().is_array())
      for (const Member& each : named.list()) modes.push_back(read_mode(each));
    if (modes.empty() || modes.size() > most_pooling_modes)
      named.refuse(fmt::format("one to {} modes", most_pooling_modes));
  } else {
    for (const auto& [key, mode] : mode_keys)
      if (truth_or(config, key, false)) modes.push_back(mode);
  }
  if (!modes.empty()) pooling.modes = std::move(modes);
  return pooling;
}

// Of a tokenizer.json beside a static table. Padding of model2vec's that depends on what else is embedded is left out:
// a sentence alone has none.
void read_static_tokenizer(const fs::path& inside, bool model2vec, SentenceModules& to) {
  read_if_there(modules_function, inside / "tokenizer.json", [&](const Member& file) {
    if (file.given("truncation")) {
      const Member truncation = file["truncation"];
      to.of_table->cut_before = truncation["max_length"].whole(0);
      to.texts.cuts_begin = text_or(truncation, "direction", "Right") == "Left";
    }
    if (!model2vec) return;
    to.of_table->model2vec = true;
    if (file["model"].given("unk_token")) to.of_table->unknown = file["model"]["unk_token"].text();
    if (!file.given("padding")) return;
    const Member strategy = file["padding"]["strategy"];
    if (strategy.value() != "BatchLongest") refuse_value(strategy, "padding to the longest of a batch is");
  });
}

void read_modules(const fs::path& folder, const Member& list, std::int64_t E, SentenceModules& to) {
  const std::vector<ModuleEntry> modules = followed_entries(list);
  for (std::size_t n = 0; n < modules.size(); ++n) {
    const std::string name = modules[n].name(), path = modules[n].path();
    if (n == 0) {
      if (!to.of_table && name != "Transformer") modules[n].refuse("a Transformer comes first");
      if (!path.empty() && is_there(folder / "config.json"))
        fail_at(modules[n].said["path"].place(), "is {}, and config.json stands beside modules.json", quote(path));
    } else if (n == 1 && !to.of_table) {
      if (name != "Pooling") modules[n].refuse("a Pooling follows the Transformer");
      if (!read_if_there(modules_function, folder / path / "config.json",
                         [&](const Member& c) { to.pooling = read_pooling(c); }))
        fail_at({modules_function, quote((folder / path / "config.json").string())}, "is missing");
      to.vector_size = std::ssize(to.pooling.modes) * E;
    } else if (name == "Dense") {
      to.after.emplace_back(read_dense(folder / path, of_sentences, to.vector_size));
    } else if (name == "LayerNorm") {
      to.after.emplace_back(read_layer_norm(folder / path, to.vector_size));
    } else if (name == "Normalize") {
      read_if_there(modules_function, folder / path / "config.json",
                    [](const Member& config) { check_rows(config, of_sentences, of_sentences); });
      to.after.emplace_back(NormalizeModule{});
    } else if (name != "Dropout") {
      modules[n].refuse("after the vectors Dense, LayerNorm, Normalize and Dropout are");
    }
  }
  if (modules.size() < 2 && !to.of_table) fail_at(list.place(), "no module is a Pooling");
}

void read_own_config(const fs::path& folder, SentenceModules& to) {
  read_if_there(modules_function, folder / "config_sentence_transformers.json", [&](const Member& config) {
    read_prompts(config, "SentenceTransformer", to.texts);
    if (config.given("truncate_dim")) to.dimensions = config["truncate_dim"].whole(1);
  });
}

// ---- The numbers ----

void scale_to_1(float* row, std::int64_t size) {
  double squares = 0;
  for (std::int64_t e = 0; e < size; ++e) squares += double(row[e]) * double(row[e]);
  const double length = std::max(std::sqrt(squares), 1e-12);  // PyTorch's F.normalize
  for (std::int64_t e = 0; e < size; ++e) row[e] = static_cast<float>(double(row[e]) / length);
}

void scale_rows_to_1(Tensor& x) {
  for (std::int64_t n = 0; n < x.size(0); ++n) scale_to_1(x.data<float>() + n * x.size(1), x.size(1));
}

Tensor after(const DenseModule& dense, const Tensor& x) {
  Tensor y = dense.linear.forward(x);
  activate(dense.function, y.view());
  if (dense.residual) {
    add_to(y, dense.residual->forward(x));
  } else if (dense.adds_input) {
    add_to(y, x);
  }
  return y;
}
Tensor after(const LayerNorm& norm, const Tensor& x) {
  return norm.forward(x);
}
Tensor after(NormalizeModule, Tensor x) {
  scale_rows_to_1(x);
  return x;
}

}  // namespace

void Pooling::pool(const float* rows, std::int64_t count, std::int64_t prompt, std::int64_t E, float* out) const {
  const std::int64_t first = std::min(prompt, count);
  for (const PoolingMode mode : modes) {
    if (mode == PoolingMode::cls) {
      std::copy_n(rows + (first < count ? first : 0) * E, E, out);
    } else if (mode == PoolingMode::last_token) {
      if (first == count) std::fill_n(out, E, 0.0F);
      if (first < count) std::copy_n(rows + (count - 1) * E, E, out);
    } else if (mode == PoolingMode::max) {
      std::fill_n(out, E, -std::numeric_limits<float>::infinity());
      for (std::int64_t n = first; n < count; ++n)
        std::transform(out, out + E, rows + n * E, out, [](float a, float b) { return std::max(a, b); });
    } else {
      std::vector<double> sums(static_cast<std::size_t>(E));
      double all = 0;
      for (std::int64_t n = first; n < count; ++n) {
        const double weight = mode == PoolingMode::weighted_mean ? static_cast<double>(n + 1) : 1;
        all += weight;
        for (std::int64_t e = 0; e < E; ++e) sums[static_cast<std::size_t>(e)] += weight * double(rows[n * E + e]);
      }
      all = std::max(all, 1e-9);
      if (mode == PoolingMode::mean_sqrt_len) all = std::sqrt(all);
      std::ranges::transform(sums, out, [&](double sum) { return static_cast<float>(sum / all); });
    }
    out += E;
  }
}

Tensor passed(const SentenceModule& module, Tensor x) {
  return std::visit([&](const auto& of) { return after(of, std::move(x)); }, module);
}

Tensor Pooling::pooled(const Tensor& hidden, std::span<const std::int64_t> starts, std::int64_t prompt) const {
  const std::int64_t E = hidden.size(1), sequences = std::ssize(starts) - 1, size = std::ssize(modes) * E;
  Tensor x({sequences, size});
  parallel_for(sequences, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t at = starts[static_cast<std::size_t>(n)];
      pool(hidden.data<float>() + at * E, starts[static_cast<std::size_t>(n) + 1] - at, prompt, E,
           x.data<float>() + n * size);
    }
  });
  return x;
}

Tensor SentenceModules::vectors(const Tensor& hidden, std::span<const std::int64_t> starts, std::int64_t prompt,
                                std::optional<bool> normalize) const {
  Tensor x = pooling.pooled(hidden, starts, prompt);
  std::size_t last = after.size();  // what comes after it is left out
  if (normalize && !*normalize && last > 0 && std::holds_alternative<NormalizeModule>(after.back())) --last;
  for (std::size_t n = 0; n < last; ++n) x = passed(after[n], std::move(x));
  if (dimensions && *dimensions < x.size(1)) x = x.view().slice(1, 0, *dimensions).clone();
  if (normalize && *normalize) scale_rows_to_1(x);
  return x;
}

SentenceModules plain_sentences(const Member& config, std::int64_t E, std::int64_t longest) {
  SentenceModules made;
  made.vector_size = E;
  made.texts.max_tokens = longest;
  made.texts.prompts = {{"query", ""}, {"document", ""}};
  if (class_of_model(config).ends_with("ForCausalLM")) made.pooling.modes = {PoolingMode::last_token};
  return made;
}

SentenceModules read_sentences(const fs::path& folder, const Member& config, std::int64_t E, std::int64_t longest) {
  SentenceModules made = plain_sentences(config, E, longest);
  const fs::path list = folder / "modules.json";
  read_lengths(modules_function, transformer_folder(folder), is_there(list), Gives::hidden_states, longest, made.texts);
  if (is_there(list)) {
    const JsonFile modules = read_json(modules_function, list);
    read_modules(folder, modules.root(), E, made);
    read_own_config(folder, made);
  } else {
    // Nothing says that the chat template is not to be used, and sentence-transformers uses one that is there.
    read_if_there(modules_function, folder / "tokenizer_config.json",
                  [&](const Member& c) { made.texts.chats = c.given("chat_template"); });
    made.texts.chats |= is_there(folder / "chat_template.jinja");
  }
  if (made.dimensions) made.vector_size = std::min(made.vector_size, *made.dimensions);
  return made;
}

SentenceModules read_static_sentences(const fs::path& folder, const fs::path& inside, bool model2vec, std::int64_t E) {
  SentenceModules made;
  made.vector_size = E;
  made.texts.prompts = {{"query", ""}, {"document", ""}};
  made.of_table.emplace();
  read_static_tokenizer(inside, model2vec, made);
  made.texts.max_tokens = model2vec ? model2vec_tokens : made.of_table->cut_before;
  if (model2vec) {
    read_if_there(modules_function, inside / "config.json", [&](const Member& config) {
      if (truth_or(config, "normalize", false)) made.after.emplace_back(NormalizeModule{});
    });
    return made;
  }
  const JsonFile modules = read_json(modules_function, folder / "modules.json");
  read_modules(folder, modules.root(), E, made);
  read_own_config(folder, made);
  if (made.dimensions) made.vector_size = std::min(made.vector_size, *made.dimensions);
  return made;
}

std::string first_module(const fs::path& folder) {
  if (!is_there(folder / "modules.json")) return "";
  try {
    const JsonFile file = read_json(modules_function, folder / "modules.json");
    const std::vector<ModuleEntry> modules = module_entries(file.root());
    return modules.empty() ? "" : modules.front().name();
  } catch (const Error&) {
    return "";  // whoever needs it says what is wrong
  }
}

fs::path transformer_folder(const fs::path& folder) {
  if (is_there(folder / "config.json") || !is_there(folder / "modules.json")) return folder;
  const JsonFile file = read_json("Model.load", folder / "modules.json");
  const std::vector<ModuleEntry> modules = module_entries(file.root());
  return modules.empty() ? folder : folder / modules.front().path();
}

}  // namespace attend::inline v1::models
