// A text that a model writes on, as it comes.
//
//     generate FOLDER "The capital of France is"
#include <attend/error.h>
#include <attend/models.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) return std::cerr << "usage: generate FOLDER TEXT\n", 2;
  try {
    const attend::Model model = attend::Model::load(argv[1]);  // a folder, a .gguf file, or a cached model's name
    const auto print = [](std::string_view more) {
      std::cout << more << std::flush;
      return true;  // false would end the text here
    };
    // Drawn: {.settings = {.temperature = 0.8}, .seed = 1}.
    model.generate(argv[2], {.max_new_tokens = 20, .on_text = print});
    std::cout << '\n';
  } catch (const attend::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
