import { counted } from "../../counted";
import { given, sinkOptions, stripeOf, tiredOptions, twoHeadsOptions } from "../experiments";
import { fixed, percent, rounded, shown, sum } from "../numbers";
import type { Words } from "./en";
import { added, odds } from "./en";

export const zh: Words = {
  name: "一堂注意力课",
  lead: "八个用真实模型做的实验。每个实验先请你预测，再给出计算结果，说明原因，并告诉你怎样用手算来检验。",
  offline: "一切都在这个文件夹里。页面不从网络加载任何东西，你输入的内容也不会离开这台机器。",
  cannotRun: (error) => `这个浏览器无法运行本页（${error}）；下面是它的链接。`,
  of: (number, count) => `实验 ${number}，共 ${count} 个`,
  predict: "预测",
  yes: "对。",
  no: (right) => `答案是：${right}。`,
  again: "重新预测",
  computed: "计算结果",
  why: "为什么",
  hand: "用手算检验",
  further: "继续探索",
  here: "在这里打开",
  alone: "在单独的页面中打开",
  recorded: "这个页面显示的是制作本课时录下的一次计算，不能计算别的文本。",
  live: "你输入什么，这个页面就计算什么。",
  all: "全部实验",
  previous: "上一个",
  next: "下一个",
  languages: "语言",
  pages: {
    "lesson.html": "课文：一步一步讲解注意力，每个数都算给你看",
    "minilm.html": "探索器：用任意句子查看 MiniLM 的每一个头",
    "smollm2.html": "带 SmolLM2 的探索器：任意文本，接下来是什么，为什么",
  },
  figure: {
    next: "接下来的词元",
    without: (head) => `去掉头 ${head}`,
    withAll: "保留所有的头",
    row: (word, head) => `${head ? `在头 ${head} 中，` : ""}“${word}”分给每个词的份额`,
    meanRow: (word) => `“${word}”分给每个词元的份额，对所有的头取平均`,
    map: (head) => `头 ${head}：每一行是一个在看的词元，每一列是一个被看的词元`,
    country: "国家",
    capital: "首都",
    text: "文本",
    alone: "单独",
    after: "在句子之后",
    token: "词元",
    meant: "“it”指的是",
    most: "这个头分给最多的是",
    size: "查询中的数的个数",
    spread: "得分的标准差",
    divided: "最大权重（除以 √d）",
    undivided: "最大权重（不除）",
    masked: "有掩码",
    unmasked: "没有掩码",
  },
  guides: {
    paris: {
      title: "少了一个头的巴黎",
      teaser: "去掉 270 个头中的一个，模型还知道法国的首都吗？",
      setting: ({ heads, answer, head }) => (
        <p>
          SmolLM2 是一个小型英语语言模型。它读到“The capital of France is”（法国的首都是），给 Paris 的概率是 {percent(answer[0])}。模型有 {heads} 个头。我们去掉其中一个：头 {head}，即第 23
          层的第 4 个头（都从 0 数起）。这个头于是只写出零，其他一切不变。
        </p>
      ),
      question: () => "Paris 的概率会怎样？",
      options: ({ answer: [before] }) => [
        `升到 ${percent(before)} 以上`, `仍在 ${percent(before)} 左右`, `降到大约一半，${percent(before / 2)}`, `降到四分之一以下，即 ${percent(before / 4)} 以下`,
      ],
      why: ({ head, tokens, weights, halving, heads, capitals }) => (
        <>
          <p>
            在“is”这一行，头 {head} 把 {percent(weights[tokens.length - 2]!)} 分给了“France”。它读取前面各层写在那里的内容，再加到给出答案的那一行上。
          </p>
          <p>
            一个句子证明不了什么。去掉这个头以后，这 {capitals.length} 个首都中有 {capitals.filter(({ before, after }) => after < before).length} 个的概率下降。我们还把 {heads}{" "}
            个头逐个去掉：其中 {halving} 个会使 Paris 的概率降到一半以下，以这个头为最。所以这个头确实重要。但它并不是独自知道首都：没有它，Paris 仍是概率最大的词元。
          </p>
        </>
      ),
      hand: ({ answer: [before, after] }) => {
        const [one, two] = [odds(before, 2), odds(after, 3)];
        return (
          <p>
            几率（odds）是 p / (1 − p)。之前：{fixed(before)} / {fixed(1 - before)} = {fixed(one, 2)}。之后：{fixed(after)} / {fixed(1 - after)} = {fixed(two)}。取两者之比的自然对数：ln(
            {fixed(one, 2)} / {fixed(two)}) = {fixed(Math.log(one / two), 2)}。与其他所有词元合起来相比，Paris 的 logit 就降低了这么多。
          </p>
        );
      },
      further: ({ head }) => <p>在“is”这一行选择别的头。哪些头像头 {head} 一样看着“France”？</p>,
    },
    induction: {
      title: "谁也不认识的名字",
      teaser: "一个编造的名字在中间被截断，模型能怎样接下去？",
      setting: ({ names: [name] }) => (
        <p>
          “Zorvak”是我们编造的名字。只读到“{name!.alone}”时，SmolLM2 认为最可能的词元是“{shown(name!.likeliest[0]!.token)}”（{percent(name!.likeliest[0]!.probability)}），词元“
          {name!.token}”只有 {percent(name!.probabilities[0])}。现在模型读到“{name!.after}”。
        </p>
      ),
      question: ({ names: [name] }) => <>现在“{name!.token}”的概率有多大？</>,
      options: () => ["不到 1\u00a0%", "大约 10\u00a0%", "大约一半", "75\u00a0% 以上"],
      why: (numbers) => (
        <>
          <p>
            模型寻找同一个词元先前出现时后面跟着什么，并把它抄下来。这样做的头叫作归纳头（induction head，Olsson 等，2022）。在头 {numbers.head}{" "}
            的图中，第二句的词元看着第一句中同一词元之后的那个词元：对角线下方的一条斜带。
          </p>
          <p>
            平均起来，这条斜带得到第二句所分出的 {percent(stripeOf(numbers))}。没有东西可抄时，这个头就看第一个词元：下一个实验讲的就是它。三个名字都是如此，可见模型不是事先背熟了它们。
          </p>
        </>
      ),
      hand: ({ tokens }) => (
        <p>
          这个句子有 {tokens.length / 2} 个词元，出现两遍。位置 t 上的词元先前在 t − {tokens.length / 2}，跟在它后面的在 t − {tokens.length / 2 - 1}。所以斜带在对角线左边{" "}
          {tokens.length / 2 - 1} 格。请在图中数一数。
        </p>
      ),
      further: ({ head }) => <p>在头 {head} 的图中找到这条斜带。再浏览所有头的小图：还有哪些头也有？</p>,
    },
    sink: {
      title: "第一个词元得到最多",
      teaser: "没有东西可读的时候，头在看哪里？",
      setting: ({ texts, even }) => (
        <p>
          SmolLM2 读 {texts.length} 段短文。一个词元能看到它自己和它前面的一切。如果每个词元都把注意力平均分给它看到的词元，那么除第一行外，第一个词元平均会得到 {percent(even)}。
        </p>
      ),
      question: () => "对所有的头取平均，第一个词元实际得到多少？",
      options: (numbers) => sinkOptions(numbers).map((share) => `大约 ${percent(share)}`),
      why: ({ share, lengths, heads, heads_of_half }) => (
        <>
          <p>
            它得到 {percent(share)}。一个头的权重之和必须是 1，哪怕它找不到可读的东西。这时它就看一个没有害处的词元：注意力汇（attention sink，Xiao 等，2023）。第一个词元的值很短，只有其他词元平均长度的{" "}
            {fixed(Math.min(...lengths), 2)} 到 {fixed(Math.max(...lengths), 2)}，所以它交出去的很少。
          </p>
          <p>各个头并不一样：在 {heads} 张图中，有 {heads_of_half} 张里第一个词元得到一半以上。</p>
        </>
      ),
      hand: ({ weights, lengths }) => (
        <p>
          把这一行加起来：{added(weights, 2)}。除舍入误差外等于 1。再把第一个份额乘以它的值的长度：{fixed(weights[0]!, 2)} × {fixed(lengths[2]!, 2)} ={" "}
          {fixed(rounded(weights[0]!, 2) * rounded(lengths[2]!, 2), 2)}。按实际传递的内容来算，第一个词元就没有那么大了。
        </p>
      ),
      further: () => <p>从“by weight”切换到“by norm”，后者计算的是实际传递的内容。第一列还剩下什么？</p>,
    },
    tired: {
      title: "累和宽",
      teaser: "有一个头好像知道“it”指什么。试试证明它错了。",
      setting: ({ head, sentences: [first] }) => (
        <p>
          在“{first!.text}”（那只动物没有过马路，因为它太累了）中，“it”指动物。MiniLM 的头 {head} 把“it”的注意力的 {percent(given(first!, "animal"))} 分给了“animal”。看起来这个头懂了。现在我们把“tired”（累）换成“wide”（宽），“it”就指马路了。
        </p>
      ),
      question: () => "现在这个头分给什么最多？",
      options: (numbers) => tiredOptions(numbers),
      why: ({ head, sentences, cosine }) => (
        <>
          <p>
            头 {head} 偏爱先出现的名词。把句子倒过来，它就把 {percent(given(sentences[2]!, "street"))} 分给“street”，尽管那里的“it”是动物。在 {counted.sentences} 个这样的句子中，它有{" "}
            {counted.right} 个是对的，和抛硬币一样。72 个头中最好的一个对了 {counted.best} 个；假如所有的头都在乱猜，其中最好的一个也会对大约 {counted.guessed} 个。
          </p>
          <p>这个头到底重要吗？去掉它以后，MiniLM 为第一个句子得出的向量与原来的余弦是 {fixed(cosine, 4)}，几乎没有变化。</p>
        </>
      ),
      hand: ({ sentences }) => (
        <p>
          对四个句子逐一比较“animal”和“street”得到的份额，如果较大的那个正是“it”所指，就打一个勾：
          {sentences.map((each) => `${fixed(given(each, "animal"), 2)} 和 ${fixed(given(each, "street"), 2)}`).join("；")}。四个里有几个勾？
        </p>
      ),
      further: () => <p>自己写一个含有“it”和两个名词的英语句子。先猜，再看。你能找到一个在你所有的句子里都对的头吗？</p>,
    },
    mask: {
      title: "因果掩码做了什么",
      teaser: "有些词被遮住了，其余的权重会怎样？",
      setting: ({ text, tokens, query, weights }) => (
        <p>
          课文用随机的权重矩阵计算“{text}”。“{tokens[query]}”分给“{tokens[1]}”{fixed(weights[1]!)}。因果掩码遮住“{tokens[query]}”之后的所有词，就像从左到右写作的模型那样。
        </p>
      ),
      question: ({ tokens, query }) => <>“{tokens[query]}”分给它仍能看到的词的份额会怎样？</>,
      options: ({ query }) => ["什么也不变", "都按同一个倍数增大", `每个都变成 1/${query + 1}`, "变化没有简单的规律"],
      why: () => (
        <p>softmax 把每个指数除以所有指数之和。掩码把被遮住的那些从和里去掉，得分则保持原样。剩下的指数不变，只是除以一个较小的和：于是都按同一个倍数增大。</p>
      ),
      hand: ({ weights, causal, query, tokens }) => {
        const seen = weights.slice(0, query + 1);
        return (
          <p>
            把看得到的词原有的份额加起来：{added(seen, 3)}。相除：{fixed(seen[1]!)} / {fixed(sum(seen))} = {fixed(seen[1]! / sum(seen))}。有掩码时“{tokens[1]}”得到 {fixed(causal[1]!)}。
          </p>
        );
      },
      further: () => <p>把掩码打开再关上，观察每一行。哪一行完全不变？</p>,
    },
    "two-heads": {
      title: "第二个头有什么用",
      teaser: "一行权重之和是 1，第二行能带来什么？",
      setting: ({ text, heads: [one, two] }) => (
        <p>
          在“{text}”中，MiniLM 的头 {one!.head} 把“it”的注意力的 {fixed(one!.weights[one!.key]!)} 分给了“{one!.word}”。假设“it”还需要“{two!.word}”这个词。
        </p>
      ),
      question: ({ heads: [one, two] }) => <>在这一行，头 {one!.head} 最多还能分给“{two!.word}”多少？</>,
      options: () => twoHeadsOptions.map((share) => fixed(share)),
      why: ({ heads: [one, two], head_size }) => (
        <p>
          一行的权重之和是 1，头 {one!.head} 几乎已全部分完。头 {two!.head} 为同一个词另有一行，用的是它自己的查询和键：它分给“{two!.word}”{fixed(two!.weights[two!.key]!)}
          。两个上下文向量并排传下去，每个头 {head_size} 个数。只有一个头的话，只能把两个词混在一起。
        </p>
      ),
      hand: ({ heads: [one, two] }) => (
        <p>
          头 {one!.head} 还剩 1 − {fixed(one!.weights[one!.key]!)} = {fixed(1 - one!.weights[one!.key]!)}。一个头若想同等地要这两个词，每个最多只能给 0.500。这两个头给出的是{" "}
          {fixed(one!.weights[one!.key]!)} 和 {fixed(two!.weights[two!.key]!)}。
        </p>
      ),
      further: () => <p>输入另一个英语句子。这两个头是否仍然看着前一个词和后一个词？</p>,
    },
    translation: {
      title: "翻译者在读什么",
      teaser: "写出一个意大利语词的时候，读的是哪个英语词？",
      setting: ({ source, written, query }) => (
        <p>
          一个用本库训练的小型翻译模型读到“{source}”（无法打开所选文件），逐个词元地写出意大利语。它刚刚写下“{shown(written[query]!)}”。在交叉注意力中，查询来自意大利语，键和值来自英语。
        </p>
      ),
      question: ({ next, head }) => <>它接着写“{shown(next)}”（所选的）。头 {head} 分给哪个英语词元最多？</>,
      options: ({ tokens }) => tokens.map(shown),
      why: ({ next, tokens, weights }) => (
        <p>
          没有人告诉模型哪些词相互对应。它学到“{shown(next)}”来自“{shown(tokens[weights.indexOf(Math.max(...weights))]!)}”，因为看那里使它的预测更好。一个词元所在的行，写出的是下一个词元。意大利语把形容词放在名词后面，所以有两行交叉。这只是一个句子：attend
          代码库中的 translate 示例可以录下别的句子。
        </p>
      ),
      hand: ({ weights, written, tokens }) => (
        <p>
          把这一行加起来：{added(weights, 2)}。再数一数：图中每个意大利语词元一行，共 {written.length} 行；每个英语词元一列，共 {tokens.length} 列。这里只是碰巧一样多。
        </p>
      ),
      further: () => <p>逐一选择其他各行。它们在哪里交叉？同一层的哪些头看着别处？</p>,
    },
    root: {
      title: "为什么要除以 √d",
      teaser: "查询越长，得分越大。softmax 会怎样？",
      setting: ({ sizes, seeds }) => (
        <p>
          得分是乘积之和，查询中的每个数贡献一个乘积。在课文的句子里，一个查询有 {sizes[0]!.size} 个数。不做除法时，一行中最大的权重平均是 {fixed(sizes[0]!.without, 2)}（{seeds}{" "}
          次随机抽取的中位数）。现在我们把查询加长到 {sizes.at(-1)!.size} 个数。
        </p>
      ),
      question: () => "仍然不做除法，最大的权重会怎样？",
      options: ({ sizes: [short] }) => [
        "变小，因为注意力分散了", `仍在 ${fixed(short!.without, 2)} 左右`, `增大到 1.3 倍以上，即超过 ${fixed(1.3 * short!.without, 2)}`, "变成 1.00",
      ],
      why: ({ sizes }) => {
        const [short, long] = [sizes[0]!, sizes.at(-1)!];
        return (
          <p>
            乘积越多，得分散得越开：{short.size} 个数时是 {fixed(short.spread, 2)}，{long.size} 个数时是 {fixed(long.spread, 2)}。得分散得开，softmax 就几乎全给一个键。除以 √d
            以后，得分的离散程度保持不变，最大的权重也就不变：{fixed(short.with, 2)} 和 {fixed(long.with, 2)}。这在乘积相互独立、均值为 0 时成立，课文里正是如此。
          </p>
        );
      },
      hand: ({ sizes }) => {
        const [short, long] = [sizes[0]!, sizes.at(-1)!];
        return (
          <p>
            √({long.size} / {short.size}) = {fixed(Math.sqrt(long.size / short.size), 2)}，而标准差之比是 {fixed(long.spread, 2)} / {fixed(short.spread, 2)} ={" "}
            {fixed(long.spread / short.spread, 2)}。相除以后：{fixed(short.spread, 2)} / √{short.size} = {fixed(short.spread / Math.sqrt(short.size), 2)}，{fixed(long.spread, 2)} / √
            {long.size} = {fixed(long.spread / Math.sqrt(long.size), 2)}。
          </p>
        );
      },
      further: () => <p>把“scale”打开再关上，观察一行的熵。然后换一个大小。</p>,
    },
  },
};
