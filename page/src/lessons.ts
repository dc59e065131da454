// What each preset is there to show: docs/lessons.md has it at length.
export const lessons: Record<string, string> = {
  journey:
    "The smallest case you can check by hand: six words with three given numbers each, queries, keys and values of two. Follow one pair with a pencil: journey's query times its own key is 1.8524, the largest of its row. The rows are even, as numbers between 0 and 1 give scores that hardly differ.",
  "journey-linear":
    "The same sentence through nn.Linear layers, as real models have them: the matrices stand the other way round, and are drawn around 0. The scores shrink, and the weights become nearly equal.",
  life:
    "A real size: 16 numbers a word, queries and keys of 24, values of 28. \"is\" meets the key of \"dessert\" best. Look at \"short\", \"eat\" and \"dessert\": they give everything to one word, since matrices between 0 and 1 make large scores, and softmax of large scores is all or nothing.",
  "life-multihead":
    "Three heads: three sets of matrices, three answers to who matters to whom. Head 0 of \"is\" looks at \"short\", head 1 at \"Life\" and \"first\", head 2 at itself. Within a head nothing is new.",
  "life-cross":
    "Cross-attention: the queries come from the sentence, the keys and values from a second sequence, here eight rows of random numbers. The weights are no longer square, and each row still sums to 1. This is how a decoder reads what an encoder wrote.",
  "life-continued":
    "The same code, but the generator is not seeded again between the embeddings and the matrices. The embeddings are the same to the last bit; every number after them differs. When a tutorial's numbers won't come out, look for a seed.",
  "life-continued-multihead": "Three heads, from a generator that is not seeded again: the same words, other numbers from the queries on.",
  "my-name": "Five words with ids that the document picks in a vocabulary of ten; queries, keys and values of 16.",
  "my-name-multihead":
    "The complete multi-head attention of a Transformer: four heads of 4 numbers, side by side as wide as the embeddings, and one more matrix that mixes them.",
};
