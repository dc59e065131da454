"""attend's vectors where LangChain wants embeddings. Usage: langchain_embeddings.py FOLDER (pip install langchain-core)"""
import sys

from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

import attend


class AttendEmbeddings(Embeddings):
    def __init__(self, folder):
        self.model = attend.Model.load(folder)

    def embed_documents(self, texts):
        return self.model.embed(texts, prompt="document").tolist()

    def embed_query(self, text):
        return self.model.embed([text], prompt="query")[0].tolist()


if __name__ == "__main__":
    store = InMemoryVectorStore(AttendEmbeddings(sys.argv[1]))
    store.add_texts(["a cat lay on the rug", "stocks fell on Monday", "the dog barked at a kitten", "rates were raised by the bank"])
    for document, cosine in store.similarity_search_with_score("shares lost their value", k=2):
        print(f"{cosine:.4f} {document.page_content}")
