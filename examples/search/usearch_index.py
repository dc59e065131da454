"""Nearest sentences by usearch, from a graph that grows. Usage: usearch_index.py FOLDER (pip install usearch)"""
import sys

from usearch.index import Index

import attend

sentences = ["a cat lay on the rug", "stocks fell on Monday", "the dog barked at a kitten", "rates were raised by the bank"]
model = attend.Model.load(sys.argv[1])
index = Index(ndim=model.info.vector_size, metric="cos", dtype="f32")
index.add(range(len(sentences)), model.embed(sentences))
for match in index.search(model.embed("shares lost their value")[0], 2):
    print(f"{1 - match.distance:.4f} {sentences[match.key]}")
