#include "models/gguf/own_keys.h"

#include <algorithm>

#include "io/json_file.h"
#include "models/generation_config.h"
#include "models/gguf/config.h"

namespace attend::inline v1::models {

namespace {

using nlohmann::json;
using tokenizer::Chat;

constexpr const char *of_sentences = "attend.sentences", *of_chat = "attend.chat", *of_folder = "attend.folder";
constexpr const char *config_name = "config.json", *generation_name = "generation_config.json";

std::string module_key(std::size_t n, std::string_view name) {
  return fmt::format("modules.{}.{}", n, name);
}

template <class Table>
std::string_view name_in(const Table& table, auto value) {
  return std::ranges::find(table, value, [](const auto& each) { return each.second; })->first;
}

// ---- Written ----

class Writer {
 public:
  Writer(std::string_view group, GgufValues& to) : group_(group), to_(to) {}

  template <class T>
  void setting(std::string_view key, const T& value, const T& plain) {
    if (value != plain) add(key, value);
  }
  // Beside `count` modes of pooling.
  void modules(const std::vector<SentenceModule>& modules, std::size_t /*count*/) {
    std::vector<std::string> names;
    for (std::size_t n = 0; n < modules.size(); ++n)
      names.push_back(std::visit([&](const auto& module) { return add_module(n, module); }, modules[n]));
    if (!names.empty()) to_.add_texts(key("modules"), names);
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", group_, name); }

  void add(std::string_view name, bool truth) { to_.add_truth(key(name), truth); }
  void add(std::string_view name, std::int64_t size) { to_.add_whole(key(name), size); }
  void add(std::string_view name, const std::optional<std::int64_t>& size) { to_.add_whole(key(name), *size); }
  void add(std::string_view name, const std::string& text) { to_.add_text(key(name), text); }
  void add(std::string_view name, const std::optional<std::string>& text) {
    to_.add_texts(key(name), text ? std::vector{*text} : std::vector<std::string>());
  }
  void add(std::string_view name, const std::vector<PoolingMode>& modes) {
    std::vector<std::string> names;
    names.reserve(modes.size());
    for (const PoolingMode mode : modes) names.emplace_back(name_in(pooling_modes, mode));
    to_.add_texts(key(name), names);
  }
  void add(std::string_view name, const std::map<std::string, std::string>& texts) {
    std::vector<std::string> both;
    for (const auto& [first, second] : texts) both.insert(both.end(), {first, second});
    to_.add_texts(key(name), both);
  }

  void add_numbers(std::size_t module, std::string_view name, const Tensor& numbers) {
    const float* data = numbers.data<float>();
    to_.add_numbers(key(module_key(module, name)), {data, data + numbers.count()});
  }
  std::string add_module(std::size_t n, const DenseModule& dense) {
    const auto& [linear, function, adds_input, residual] = dense;
    add_numbers(n, "weight", linear.weight_rows(0, linear.out_size()));
    if (linear.bias()) add_numbers(n, "bias", *linear.bias());
    to_.add_text(key(module_key(n, "activation_function")), name_in(dense_functions, function));
    to_.add_truth(key(module_key(n, "use_residual")), adds_input);
    if (residual) add_numbers(n, "residual", residual->weight_rows(0, residual->out_size()));
    return "Dense";
  }
  std::string add_module(std::size_t n, const LayerNorm& norm) {
    add_numbers(n, "weight", norm.weight());
    add_numbers(n, "bias", *norm.bias());
    return "LayerNorm";
  }
  static std::string add_module(std::size_t, NormalizeModule) { return "Normalize"; }

  std::string_view group_;
  GgufValues& to_;
};

// ---- Read ----

class Reader {
 public:
  // E: a hidden state's numbers.
  Reader(const GgufKeys& keys, std::int64_t E) : keys_(keys), E_(E) {}

  template <class T>
  void setting(std::string_view key, T& value, const T& /*plain*/) {
    if (keys_.has(key)) read(key, value);
  }
  void modules(std::vector<SentenceModule>& modules, std::size_t count) {
    if (!keys_.has("modules")) return;
    std::int64_t size = static_cast<std::int64_t>(count) * E_;
    const std::vector<std::string> names = keys_.texts("modules");
    for (std::size_t n = 0; n < names.size(); ++n) modules.push_back(module(n, names[n], size));
    size_ = size;
  }
  // Of a vector after the modules, if there are any.
  std::optional<std::int64_t> size() const { return size_; }

 private:
  auto value_in(const auto& table, std::string_view key, const std::string& name) const {
    const auto found = std::ranges::find(table, name, [](const auto& each) { return each.first; });
    if (found == std::end(table)) keys_.refuse(key, fmt::format("{} is not known", quote(name)));
    return found->second;
  }

  void read(std::string_view key, bool& truth) const { truth = keys_.truth(key); }
  void read(std::string_view key, std::int64_t& size) const { size = keys_.size(key); }
  void read(std::string_view key, std::optional<std::int64_t>& size) const { size = keys_.size(key); }
  void read(std::string_view key, std::string& text) const { text = keys_.text(key); }
  void read(std::string_view key, std::optional<std::string>& text) const {
    const std::vector<std::string> texts = keys_.texts(key);
    if (texts.size() > 1) keys_.refuse(key, "expected one text, or none");
    text = texts.empty() ? std::nullopt : std::optional(texts.front());
  }
  void read(std::string_view key, std::vector<PoolingMode>& modes) const {
    modes.clear();
    for (const std::string& name : keys_.texts(key)) modes.push_back(value_in(pooling_modes, key, name));
    if (modes.empty() || modes.size() > most_pooling_modes)
      keys_.refuse(key, fmt::format("{} modes, expected 1 to {}", modes.size(), most_pooling_modes));
  }
  void read(std::string_view key, std::map<std::string, std::string>& texts) const {
    const std::vector<std::string> both = keys_.texts(key);
    if (both.size() % 2 != 0) keys_.refuse(key, "expected names and texts in turn");
    texts.clear();
    for (std::size_t n = 0; n < both.size(); n += 2) texts[both[n]] = both[n + 1];
  }

  // As many numbers as are expected; rows of them where it is of two sizes.
  Tensor numbers(std::size_t n, std::string_view name, const Dims& shape) const {
    const std::string key = module_key(n, name);
    const std::vector<float> found = keys_.numbers(key);
    if (std::ssize(found) != element_count(shape))
      keys_.refuse(key, fmt::format("{} numbers, expected the shape {}", found.size(), shape));
    Tensor made = Tensor::uninitialized(shape);
    std::ranges::copy(found, made.data<float>());
    return made;
  }
  std::int64_t count(std::size_t n, std::string_view name) const {
    return std::ssize(keys_.numbers(module_key(n, name)));
  }
  SentenceModule module(std::size_t n, const std::string& name, std::int64_t& size) const {
    if (name == "Normalize") return NormalizeModule{};
    if (name == "LayerNorm") return layer_norm(n, size);
    if (name == "Dense") return dense(n, size);
    keys_.refuse("modules", fmt::format("{} is not known; Dense, LayerNorm and Normalize are", quote(name)));
  }
  LayerNorm layer_norm(std::size_t n, std::int64_t size) const {
    const Tensor weight = numbers(n, "weight", {size});
    return LayerNorm(weight, numbers(n, "bias", {size}));
  }
  DenseModule dense(std::size_t n, std::int64_t& size) const {
    const std::int64_t in = size, out = std::max<std::int64_t>(1, count(n, "weight") / in);
    const std::string function = module_key(n, "activation_function");
    const Tensor weight = numbers(n, "weight", {out, in});
    DenseModule made{
        .linear = keys_.has(module_key(n, "bias")) ? Linear(weight, numbers(n, "bias", {out})) : Linear(weight),
        .function = value_in(dense_functions, function, keys_.text(function)),
        .adds_input = keys_.truth(module_key(n, "use_residual"))};
    if (made.adds_input && in != out) made.residual.emplace(numbers(n, "residual", {out, in}));
    size = out;
    return made;
  }

  const GgufKeys& keys_;
  std::int64_t E_;
  std::optional<std::int64_t> size_;
};

// ---- What is written and read ----

// A binding has a name for each member: what is added to SentenceModules does not compile until it is here.
template <class Keys, class Modules>
void list_sentences(Keys& keys, Modules& of, const SentenceModules& plain) {
  // No GGUF file is a static table: of_table has no key.
  auto& [pooling, after, dimensions, vector_size, texts, of_table] = of;
  auto& [max_tokens, cuts_begin, lower_case, chats, prompts, default_prompt] = texts;
  auto& [modes, includes_prompt] = pooling;
  keys.setting("pooling", modes, plain.pooling.modes);
  keys.setting("include_prompt", includes_prompt, plain.pooling.includes_prompt);
  keys.modules(after, modes.size());
  keys.setting("truncate_dim", dimensions, plain.dimensions);
  keys.setting("max_seq_length", max_tokens, plain.texts.max_tokens);
  keys.setting("truncates_left", cuts_begin, plain.texts.cuts_begin);
  keys.setting("do_lower_case", lower_case, plain.texts.lower_case);
  keys.setting("chat", chats, plain.texts.chats);
  keys.setting("prompts", prompts, plain.texts.prompts);
  keys.setting("default_prompt", default_prompt, plain.texts.default_prompt);
}

template <class Keys, class Of>
void list_chat_tokens(Keys& keys, Of& of, const Chat& plain) {
  keys.setting("bos_token", of.bos, plain.bos);
  keys.setting("eos_token", of.eos, plain.eos);
}

JsonFile json_of(const GgufKeys& keys, const char* name) {
  const Place place = keys.file().place().in(quote(fmt::format("{}.{}", of_folder, name)));
  return {place, parse_json(place, keys.text(name))};
}

}  // namespace

void describe_sentences(const SentenceModules& of, const SentenceModules& plain, GgufValues& to) {
  Writer writer(of_sentences, to);
  list_sentences(writer, of, plain);
}

void read_own_sentences(const GgufFile& file, std::int64_t E, SentenceModules& to) {
  const GgufKeys keys(file, of_sentences);
  const std::int64_t longest = to.texts.max_tokens;
  Reader reader(keys, E);
  list_sentences(reader, to, to);
  keys.check_all_read();
  to.texts.max_tokens = std::min(to.texts.max_tokens, longest);
  to.vector_size = reader.size().value_or(std::ssize(to.pooling.modes) * E);
  if (to.dimensions) to.vector_size = std::min(to.vector_size, *to.dimensions);
}

void describe_chat_tokens(const Chat& of, const Chat& plain, GgufValues& to) {
  Writer writer(of_chat, to);
  list_chat_tokens(writer, of, plain);
}

void read_own_chat_tokens(const GgufFile& file, Chat& to) {
  const GgufKeys keys(file, of_chat);
  Reader reader(keys, 0);
  list_chat_tokens(reader, to, to);
  keys.check_all_read();
}

void describe_folder(const json& config, const json& generation, GgufValues& to) {
  const auto add = [&](const char* name, const json& value) {
    to.add_text(fmt::format("{}.{}", of_folder, name), value.dump());
  };
  add(config_name, config);
  if (!generation.is_null()) add(generation_name, generation);
}

void read_own_generation(const GgufFile& file, ModelInfo& to) {
  const GgufKeys keys(file, of_folder);
  if (keys.has(generation_name)) return read_generation(json_of(keys, generation_name).object(), false, to);
  if (keys.has(config_name)) read_generation(json_of(keys, config_name).object(), true, to);
}

void read_own_classes(const GgufFile& file, json& config) {
  const GgufKeys keys(file, of_folder);
  if (!keys.has(config_name)) return;
  const JsonFile said = json_of(keys, config_name);
  config.erase("architectures");
  if (said.object().has("architectures")) config["architectures"] = said.value["architectures"];
}

void check_own_keys(const GgufFile& file) {
  const auto is_known = [](std::string_view key) {
    const std::size_t end = key.find('.', std::string_view("attend.").size());
    const std::string_view group = key.substr(0, end), name = end < key.size() ? key.substr(end + 1) : "";
    return group == of_sentences || group == of_chat ||
           (group == of_folder && (name == config_name || name == generation_name));
  };
  for (const std::string_view key : file.keys())
    if (key.starts_with("attend.") && !is_known(key)) file.refuse(key, "is not known");
}

}  // namespace attend::inline v1::models
