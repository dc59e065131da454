"""How often SmolLM2 writes glad and sad words after 40 prompts, with and without a direction, and with random ones as long.

    attend model --get smollm2
    python examples/steering/measure.py
"""

import pathlib
import re

import numpy as np

import attend

HERE = pathlib.Path(__file__).parent
GLAD = set("happy joy joyful wonderful great love loved lovely beautiful smile smiled excited glad grateful delighted thrilled proud "
           "amazing best good perfect fun enjoy enjoyed bright cheerful blessed".split())
SAD = set("sad sadness terrible miserable gloomy depressed angry anger bitter ashamed lonely hopeless pain tears cry crying cried death "
          "died grief sorry worse worst fear afraid hurt lost despair worried".split())


def prompts_with(texts, words):
    return sum(any(word in words for word in re.findall(r"[a-z]+", text.lower())) for text in texts)


def main():
    model = attend.Model.load("smollm2")
    pairs = [tuple(line.split("\t")) for line in (HERE / "pairs.tsv").read_text().splitlines()]
    prompts = (HERE / "prompts.txt").read_text().splitlines()
    glad = model.steering(pairs, layers=(8, 20))

    def tell(name, edits):
        texts = model.generate(prompts, max_new_tokens=30, edits=edits)
        distinct = np.mean([len(set(text.split())) / max(1, len(text.split())) for text in texts])
        print(f"{name:>10}  {prompts_with(texts, GLAD):2} glad  {prompts_with(texts, SAD):2} sad  {distinct:.2f} of the words new")

    for scale in (0, 0.1, 0.2, 0.3, 0.4, -0.1, -0.15, -0.2):
        tell(scale, glad.edits(scale))
    for seed in range(3):
        random, edits = np.random.default_rng(seed), []
        for layer, direction in glad.directions.items():
            other = random.normal(size=direction.shape)
            other *= 0.2 * np.linalg.norm(direction) / np.linalg.norm(other)
            edits.append(attend.Edit(layer + 1, at="residual", add=other.astype(np.float32)))
        tell("random", edits)


if __name__ == "__main__":
    main()
