"""attend's vectors where LlamaIndex wants embeddings. Usage: llama_index_embeddings.py FOLDER (pip install llama-index-core)"""
import sys

from llama_index.core.base.embeddings.base import BaseEmbedding

import attend


class AttendEmbedding(BaseEmbedding):
    def __init__(self, folder, **options):
        super().__init__(**options)
        self._model = attend.Model.load(folder)

    def _get_text_embeddings(self, texts):
        return self._model.embed(texts, prompt="document").tolist()

    def _get_text_embedding(self, text):
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query):
        return self._model.embed([query], prompt="query")[0].tolist()

    async def _aget_query_embedding(self, query):
        return self._get_query_embedding(query)


if __name__ == "__main__":
    sentences = ["a cat lay on the rug", "stocks fell on Monday", "the dog barked at a kitten", "rates were raised by the bank"]
    embedding = AttendEmbedding(sys.argv[1])
    query = embedding.get_query_embedding("shares lost their value")
    cosines = [embedding.similarity(query, each) for each in embedding.get_text_embedding_batch(sentences)]
    for cosine, sentence in sorted(zip(cosines, sentences), reverse=True)[:2]:
        print(f"{cosine:.4f} {sentence}")
