"""Which paragraph SmolLM2 took an answer from: estimated for all ten of a text, and measured by hiding each of them.

    attend model --get smollm2
    python examples/passages.py
"""

import numpy as np

import attend

# A paragraph, how its question begins to be answered, and the answer.
FACTS = [
    ("Marco keeps his keys in a blue box on the kitchen shelf.", "Marco keeps his keys in a", " blue"),
    ("Lina drives a green tractor to the market on Fridays.", "Lina drives to the market in a", " green"),
    ("The password of the old library computer is seventeen.", "The password of the old library computer is", " seventeen"),
    ("Aunt Rosa was born in Lisbon and moved north as a child.", "Aunt Rosa was born in", " Lisbon"),
    ("The museum shows a wooden clock made by Jonas.", "The wooden clock in the museum was made by", " Jonas"),
    ("The river behind the mill freezes in January.", "The river behind the mill freezes in", " January"),
    ("Tom's dog is called Biscuit and sleeps all day.", "Tom's dog is called", " Biscuit"),
    ("The bakery on Hill Street sells rye bread at noon.", "At noon the bakery on Hill Street sells", " rye"),
    ("Captain Ode sailed his ship to Iceland in the autumn.", "In the autumn Captain Ode sailed his ship to", " Iceland"),
    ("The teacher wrote the answer with purple chalk.", "The teacher wrote the answer with chalk that was", " purple"),
]


def main():
    model = attend.Model.load("smollm2")
    random = np.random.default_rng(0)
    first, correlations = np.zeros(2, int), []
    for fact, (_, question, answer) in enumerate(FACTS):
        for _ in range(3):
            order = list(random.permutation(len(FACTS)))
            text = "\n\n".join([*(FACTS[n][0] for n in order), question])
            found = model.passages(text, answer=answer, hide=len(FACTS) + 1)
            measured = np.empty(len(found.spans))
            measured[found.hidden] = found.measured
            estimated, measured = found.estimated[:-1], measured[:-1]  # the last one is the question
            first += [order[values.argmax()] == fact for values in (estimated, measured)]
            correlations.append(np.corrcoef(estimated, measured)[0, 1])
            print(f"{answer!r:13} is paragraph {order.index(fact)}; estimated first {estimated.argmax()}, "
                  f"measured first {measured.argmax()}, correlation {correlations[-1]:.2f}")
    print(f"of {len(correlations)} texts the answer's paragraph is first in {first[0]} estimated and {first[1]} measured; "
          f"median correlation {np.median(correlations):.2f}")


if __name__ == "__main__":
    main()
