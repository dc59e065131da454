"""Nearest sentences by faiss: what embed() gives is what it takes. Usage: faiss_index.py FOLDER (pip install faiss-cpu)"""
import sys

import faiss

import attend

sentences = ["a cat lay on the rug", "stocks fell on Monday", "the dog barked at a kitten", "rates were raised by the bank"]
model = attend.Model.load(sys.argv[1])
vectors = model.embed(sentences, normalize=True)
index = faiss.IndexFlatIP(vectors.shape[1])  # of length 1: the inner product is the cosine
index.add(vectors)
cosines, rows = index.search(model.embed(["shares lost their value"], normalize=True), 2)
for cosine, row in zip(cosines[0], rows[0]):
    print(f"{cosine:.4f} {sentences[row]}")
