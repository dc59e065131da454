// quantize: a model to a GGUF file.
#include <fmt/format.h>

#include <cctype>
#include <memory>
#include <string>

#include "attend/models.h"
#include "cli/command.h"

namespace attend::cli {
namespace {

struct QuantizeArguments {
  std::string model, output, type = "q8_0";
};

// As llama.cpp writes the names, too.
std::string lower(std::string name) {
  for (char& each : name) each = static_cast<char>(std::tolower(static_cast<unsigned char>(each)));
  return name;
}

void run(const QuantizeArguments& x) {
  const std::filesystem::path model = find_model(x.model);
  const Quantized made = quantize(model, x.output, *file_type_named(lower(x.type)));
  tell(fmt::format("attend: wrote {}: {}, {:.2f} bits a number; {} of {} tensors are quantized", x.output,
                   bytes(made.bytes), 8 * static_cast<double>(made.bytes) / static_cast<double>(made.parameters),
                   made.quantized, made.tensors));
}

}  // namespace

Command add_quantize(App& root) {
  App* app = root.add_subcommand(
      "quantize",
      "Write a model to a GGUF file with 8 to 4 bits a number, which attend and llama.cpp open. The file has all that "
      "the model's folder says: tokenizer and chat template, what ends a text, how sentences become vectors.");
  app->examples(
      "attend quantize Qwen2.5-0.5B-Instruct -o qwen.gguf\n"
      "attend quantize Qwen2.5-0.5B-Instruct -o small.gguf --type q4_k_m\n"
      "attend quantize model-f16.gguf -o model-q8.gguf");
  auto arguments = std::make_shared<QuantizeArguments>();
  app->add_option("MODEL", arguments->model,
                  "A folder, a .gguf file in F32, F16 or BF16, or a name from attend model --list")
      ->type_name("FILE")
      ->required();
  file_ending(app->add_option("-o,--output", arguments->output, "The file to write"), {".gguf"})->required();
  app->add_option("--type", arguments->type,
                  "The type of the matrices, from the largest file with the least error to the smallest. As in "
                  "llama.cpp, some matrices have more bits: the table that the logits come from, and others in q5_k_m "
                  "and q4_k_m (default: q8_0)")
      ->type_name("q8_0|q6_k|q5_k_m|q4_k_m|q4_0")
      ->check([](const std::string& value) {
        return file_type_named(lower(value))
                   ? ""
                   : fmt::format("expected q8_0, q6_k, q5_k_m, q4_k_m or q4_0, got '{}'", value);
      });
  return {app, [arguments] { run(*arguments); }};
}

}  // namespace attend::cli
