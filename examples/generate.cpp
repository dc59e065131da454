// A text that a model writes on, word by word as they come.
//
//     generate FOLDER "The capital of France is"
#include <attend/error.h>
#include <attend/models.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) return std::cerr << "usage: generate FOLDER TEXT\n", 2;
  try {
    const attend::Model model = attend::Model::load(argv[1]);  // a folder, a .gguf file, or a cached model's name
    const attend::Tokenizer& tokenizer = model.tokenizer();

    // A letter may be several tokens: what is printed is what the text has more than it had before.
    std::vector<std::int64_t> made;
    std::string printed;
    const auto print = [&](std::int64_t id) {
      made.push_back(id);
      const std::string text = tokenizer.decode(made);
      if (text.ends_with("\uFFFD")) return true;
      std::cout << text.substr(printed.size()) << std::flush;
      printed = text;
      return true;  // false would end the text here
    };
    model.generate(argv[2], {.max_new_tokens = 20, .on_token = print});  // drawn: .temperature = 0.8, .seed = 1
    std::cout << '\n';
  } catch (const attend::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
