"""Which heads of SmolLM2 know a capital, over eight countries: what each brings back, with its standard error, and from which words.

    attend model --get smollm2
    python examples/capitals.py
"""

import numpy as np

import attend

CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Russia": "Moscow", "Egypt": "Cairo",
            "Greece": "Athens", "Cuba": "Havana"}


def main():
    model = attend.Model.load("smollm2")
    texts, answers = [f"The capital of {country} is" for country in CAPITALS], [f" {capital}" for capital in CAPITALS.values()]
    # Each country beside the next one of the list.
    others, wrong = texts[1:] + texts[:1], answers[1:] + answers[:1]

    found = model.patch(texts, others, answers, wrong)
    mean, error, _ = found.average()
    heads = mean.recovered.shape[1]
    for place in np.argsort(-mean.recovered, axis=None)[:4]:
        layer, head = divmod(int(place), heads)
        each = [round(float(one.recovered[layer, head]), 2) for one in found]
        print(f"{layer}.{head} brings back {mean.recovered[layer, head]:.2f} ± {error.recovered[layer, head]:.2f}; of each country {each}")

    mean, error, _ = model.attribute(texts, answers, wrong).average(spans={"The capital of": (0, 3), "country": 3, "is": 4})
    for part in mean.top(4):
        print(f"{part.name} wrote {part.value:.2f}" + (f", reading {part.token!r}" if part.token else ""))


if __name__ == "__main__":
    main()
