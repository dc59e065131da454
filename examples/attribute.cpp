// Why a model answers so: the parts of the likeliest next word's logit, and what came from each word of the text.
//
//     attribute FOLDER "The capital of France is"
#include <attend/analysis.h>
#include <attend/error.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) return std::cerr << "usage: attribute FOLDER TEXT\n", 2;
  try {
    const attend::Model model = attend::Model::load(argv[1]);
    const attend::Tokenizer& tokenizer = model.tokenizer();
    const std::vector<std::int64_t> ids = tokenizer.encode(argv[2]).ids;

    const attend::Attribution why = attend::attribute(model, ids);
    std::cout << tokenizer.token(why.token) << "  " << why.logit << '\n';
    for (const attend::AttributionPart& part : attend::strongest_parts(why, 5)) {
      if (part.kind == attend::AttributionPart::Kind::head)
        std::cout << "head " << part.layer << '.' << part.head << " from "
                  << tokenizer.token(ids.at(std::size_t(part.key)));
      else if (part.kind == attend::AttributionPart::Kind::mlp)
        std::cout << "MLP of layer " << part.layer;
      else
        std::cout << "embedding, biases or rounding";
      std::cout << "  " << part.value << '\n';
    }

    const attend::Tensor by_token = attend::sums_by_token(why);
    std::cout << "through all heads:";
    for (const float value : by_token.row<float>()) std::cout << ' ' << value;
    std::cout << '\n';
  } catch (const attend::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
