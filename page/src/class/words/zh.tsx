import { counted } from "../../counted";
import { given, meanOf, sinkOptions, stripeOf, tiredOptions, twoHeadsOptions } from "../experiments";
import { fixed, percent, rounded, shown, sum } from "../numbers";
import type { Words } from "./en";
import { added, divided, odds } from "./en";

export const zh: Words = {
  name: "注意力实验课",
  lead: "八个实验：六个用训练好的模型，两个用随机数。每个实验先请你预测，再给出计算结果，说明原因，并告诉你怎样用手算来检验。",
  offline: "所有内容都在这个文件夹里。页面不从网络加载任何东西，你输入的内容也不会离开这台机器。",
  cannotRun: (error) => `这个浏览器无法运行本页（${error}）；下面是它的链接。`,
  of: (number, count) => `实验 ${number}，共 ${count} 个`,
  terms: {
    title: "需要知道的词",
    list: [
      ["词元（token）", "模型当作一个单位来读的一段文本：一个词、词的一部分，或 [CLS] 这样的标记。"],
      ["层（layer）", "模型的一步。每一层都会改变代表各个词元的那些数。"],
      ["头（head）", "一层中的一个注意力。“头 23.4”是第 23 层的 4 号头，层号和头号都从 0 开始。"],
      ["查询、键、值（query, key, value）", "头为每个词元算出的几行数：词元要找什么，凭什么被找到，以及交出什么。"],
      ["得分（score）", "一个查询和一个键有多匹配：对应的数相乘再相加。"],
      ["softmax", "把得分变成份额：e 的得分次方，除以所有这些之和。"],
      ["权重（weight）", "一个词元把自己的注意力分给另一个词元的份额。一行的权重之和是 1。"],
      ["logit", "模型用 softmax 把它变成下一个词元的概率的那个数。"],
    ],
  },
  prediction: { title: "预测", yes: "对。", no: (right) => `答案是：${right}。`, again: "重新预测" },
  computed: "计算结果",
  why: "为什么",
  hand: "用手算检验",
  further: "继续探索",
  here: "在这里打开",
  alone: "在单独的页面中打开",
  recorded: "这个页面（英文）显示的是制作本课时记录下来的一次计算，不能计算别的文本。",
  live: "你输入什么，这个页面就计算什么。",
  eightBits: "你输入什么，这个页面（英文）就计算什么。它用 8 位保存 MiniLM 的数，所以末位数字与上面略有不同。",
  all: "全部实验",
  previous: "上一个",
  next: "下一个",
  languages: "语言",
  pages: {
    "lesson.html": "课文：一步一步讲解注意力，每个数都算给你看",
    "minilm.html": "查看器（英文）：用任意句子查看 MiniLM 的每一个头",
    "smollm2.html": "带 SmolLM2 的查看器（英文）：任意文本，接下来是什么，为什么",
  },
  figure: {
    nextOf: (text, how) => `“${text}”：接下来的词元${how ? `，${how}` : ""}`,
    without: (head) => `去掉头 ${head}`,
    withAll: "保留所有的头",
    row: (word, head, how) => `${head ? `在头 ${head} 中，` : ""}“${word}”给每个词元的权重${how ? `，${how}` : ""}`,
    meanRow: (word) => `第三段文本中“${word}”给每个词元的权重，对所有的头取平均`,
    map: (head) => `头 ${head}：每一行是一个查询词元，每一列是一个被关注的词元`,
    given: (meant, most) => `“it”指的是 ${meant}；这个头给 ${most} 最多`,
    country: "国家",
    capital: "首都",
    text: "文本",
    alone: "单独",
    after: "在句子之后",
    token: "词元",
    size: "查询中的数的个数",
    spread: "得分的标准差",
    divided: "最大权重（得分除以 √d）",
    undivided: "最大权重（得分不除）",
    masked: "有掩码",
    unmasked: "没有掩码",
  },
  guides: {
    paris: {
      title: "去掉一个头，还答得出巴黎吗",
      teaser: "去掉 270 个头中的一个，模型还知道法国的首都吗？",
      setting: ({ heads, answer, head }) => (
        <p>
          SmolLM2 是一个小型英语语言模型。它读到“The capital of France is”（法国的首都是），给 Paris 的概率是 {percent(answer[0])}。模型有 {heads} 个头。我们去掉其中一个：头 {head}，即第 23
          层的 4 号头。把这个头要加给每个词元的数都置为 0，其他一切不变。
        </p>
      ),
      question: () => "Paris 的概率会怎样？",
      options: ({ answer: [before] }) => [
        `升到 ${percent(before)} 以上`, `仍在 ${percent(before)} 左右`, `降到大约 ${percent(before / 2)}`, `降到 ${percent(before / 4)} 以下`,
      ],
      why: ({ head, tokens, weights, halving, heads, capitals }) => (
        <>
          <p>
            在“is”这一行，头 {head} 把 {percent(weights[tokens.length - 2]!)} 分给了“France”。去掉它以后，伦敦、东京等别的城市升了上来。可见丢掉的不是“接下来是一个城市”，而是“是哪一个”。
          </p>
          <p>
            一个句子证明不了什么。去掉这个头以后，这 {capitals.length} 个首都中有 {capitals.filter(({ before, after }) => after < before).length} 个的概率下降。我们还把 {heads}{" "}
            个头逐个去掉：去掉其中 {halving} 个中的任何一个，Paris 的概率都会降到一半以下，其中这个头影响最大。所以这个头确实重要。但首都的知识不只在这一个头里：没有它，Paris 仍是概率最大的词元。
          </p>
        </>
      ),
      hand: ({ answer: [before, after] }) => {
        const [one, two] = [odds(before, 2), odds(after, 3)];
        return (
          <p>
            {percent(before)} 即 {fixed(before)}，{percent(after)} 即 {fixed(after)}。几率（odds）是 p / (1 − p)。之前：{fixed(before)} / {fixed(1 - before)} = {fixed(one, 2)}。之后：
            {fixed(after)} / {fixed(1 - after)} = {fixed(two)}。取两者之比的自然对数：ln({fixed(one, 2)} / {fixed(two)}) = {fixed(Math.log(one / two), 2)}。与其他所有词元合起来相比，Paris
            的 logit 就降低了这么多。
          </p>
        );
      },
      further: ({ head }, live) =>
        live
          ? <p>对头 {head} 按“Take it out”，看看接下来是什么。把它放回去，再去掉另一个头，例如 16.0。然后输入别的国家。</p>
          : <p>页面显示的是头 {head}，“is”这一行。向下滚动到那些小方格，点击别的头，例如 16.0 和 1.2。哪些头也关注“France”？</p>,
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
      options: () => ["不到 1 %", "大约 10 %", "大约一半", "75 % 以上"],
      why: (numbers) => (
        <>
          <p>
            单独读到名字的开头时，模型给这些词元的概率最多 {percent(Math.max(...numbers.names.map(({ probabilities }) => probabilities[0])))}：它不认识这些名字。读过句子以后它可以照抄：查找同一个词元上次出现时后面跟的是什么，然后写出来。关注那里的头叫作归纳头（induction
            head，Olsson 等，2022）。
          </p>
          <p>
            图中是头 {numbers.head} 对一个出现两遍的句子的注意力。第二句的 {stripeOf(numbers).length} 行中，有 {stripeOf(numbers).filter((share) => share > 0.5).length}{" "}
            行把一半以上给了同一词元上次之后的那个词元：对角线下方的一条斜带，平均占 {percent(meanOf(stripeOf(numbers)))}。在第一句里没有东西可抄，几乎全部给了第一个词元。图只说明一个头关注哪里，并不证明照抄是它独自完成的。
          </p>
        </>
      ),
      hand: ({ tokens }) => (
        <p>
          图中的句子“{tokens.slice(0, tokens.length / 2).join("").trim()}”有 {tokens.length / 2} 个词元，出现两遍。位置 t 上的词元先前在 t − {tokens.length / 2}，跟在它后面的在 t −{" "}
          {tokens.length / 2 - 1}。所以斜带在对角线左边 {tokens.length / 2 - 1} 列。请数一数列数。
        </p>
      ),
      further: ({ head }, live) =>
        live
          ? <p>自己编一个名字，写一个关于它的句子，再写出名字的开头。模型能接下去吗？去掉头 {head}，还能吗？</p>
          : <p>在头 {head} 的图中找到这条斜带。再浏览所有头的小方格：还有哪些头也有这样的斜带？</p>,
    },
    sink: {
      title: "第一个词元得到最多",
      teaser: "没有东西可读的时候，头在关注哪里？",
      setting: ({ texts, even }) => (
        <p>
          SmolLM2 读 {texts.length} 段短文。一个词元能看到它自己和它前面的一切。如果每个词元都把注意力平均分给它看到的词元，那么除第一行外，第一个词元平均会得到 {percent(even)}。
        </p>
      ),
      question: () => "对所有的行、头和文本取平均，第一个词元实际得到多少？",
      options: (numbers) => sinkOptions(numbers).map((share) => `大约 ${percent(share)}`),
      why: ({ share, lengths, heads, heads_of_half, texts }) => (
        <>
          <p>
            对所有的行、头和文本取平均，它得到 {percent(share)}；上面只是其中一行。一个头的权重之和必须是 1，哪怕它找不到可读的东西。一种解释是，这时它就关注一个没有害处的词元：注意力汇聚点（attention
            sink，Xiao 等，2023）。第一个词元的值向量很短，只有其他词元平均长度的 {fixed(Math.min(...lengths), 2)} 到 {fixed(Math.max(...lengths), 2)}，所以它传出去的很少。
          </p>
          <p>
            各个头并不一样。{texts.length} 段文本乘以 {heads / texts.length} 个头是 {heads} 张图，其中 {heads_of_half} 张里第一个词元得到一半以上。
          </p>
        </>
      ),
      hand: ({ weights, lengths }) => {
        const [first, length] = [rounded(weights[0]!, 2), rounded(lengths[2]!, 2)];
        const carried = rounded(first * length, 2);
        return (
          <p>
            把这一行加起来：{added(weights, 2)}。除舍入误差外等于 1。现在计算实际传递的内容。第一个词元：{fixed(first, 2)} × {fixed(length, 2)} = {fixed(carried, 2)}
            。其他词元合起来，平均长度为 1：{fixed(1 - first, 2)} × 1 = {fixed(1 - first, 2)}。所以第一个词元传递的是 {fixed(carried, 2)} / {fixed(carried + 1 - first, 2)} ={" "}
            {percent(carried / (carried + 1 - first))}，而不是 {percent(first)}。
          </p>
        );
      },
      further: () => <p>在菜单“by”中把“weight”换成“norm”，它计算的是实际传递的内容。这个头的第一列还剩下什么？再看头 18.6：为什么那里什么也不变？</p>,
    },
    tired: {
      title: "“累”与“宽”",
      teaser: "有一个头好像知道“it”指什么。试试证明它错了。",
      setting: ({ head, sentences: [first] }) => (
        <p>
          在“{first!.text}”（那只动物没有过马路，因为它太累了）中，“it”指动物。在 MiniLM 的头 {head} 中，“it”把 {percent(given(first!, "animal"))}{" "}
          的注意力分给了“animal”。看起来这个头懂了。现在我们把“tired”（累）换成“wide”（宽），“it”就指马路了。[CLS] 和 [SEP] 是模型加在文本前后的标记。
        </p>
      ),
      question: () => "现在“it”给哪个词元最多？",
      options: (numbers) => tiredOptions(numbers),
      why: ({ head, sentences: [first, second, third], cosine }) => (
        <>
          <p>
            “wide”这个词确实移动了一些权重：“animal”从 {percent(given(first!, "animal"))} 变为 {percent(given(second!, "animal"))}，“street”从 {percent(given(first!, "street"))} 变为{" "}
            {percent(given(second!, "street"))}。但还不够：“animal”仍比“street”多。最多的一份给了 [CLS]，许多头找不到可读的东西时就关注它。
          </p>
          <p>
            头 {head} 偏爱先出现的名词。改成被动句，“it”就把 {percent(given(third!, "street"))} 分给“street”，尽管那里它指的是动物。我们数了 {counted.sentences}{" "}
            个这样的句子，它们成对出现，答案相反。总是选第一个名词的头会对一半，而这个头对了 {counted.right} 个。72 个头中最好的一个对了 {counted.best}{" "}
            个；假如所有的头都在乱猜，其中最好的一个也会对大约 {counted.guessed} 个。
          </p>
          <p>这个头到底重要吗？去掉它以后，MiniLM 为第一个句子得出的向量与原向量的余弦相似度是 {fixed(cosine, 4)}，1 表示方向相同。</p>
        </>
      ),
      hand: ({ sentences }) => (
        <p>
          对四个句子逐一比较“animal”和“street”得到的份额，如果较大的那个正是“it”所指，就打一个勾：
          {sentences.map((each) => `${fixed(given(each, "animal"), 2)} 和 ${fixed(given(each, "street"), 2)}`).join("；")}。四个里有几个勾？
        </p>
      ),
      further: () => (
        <p>
          点击上方的句子，自己写一个含有“it”和两个名词的英语句子。先猜，再看。按“Take it out”：显示的“similarity”就是上面的余弦。你能找到一个在你所有的句子里都对的头吗？
        </p>
      ),
    },
    mask: {
      title: "因果掩码做了什么",
      teaser: "有些词被遮住了，其余的权重会怎样？",
      setting: ({ text, tokens, query, weights }) => (
        <p>
          课文为“{text}”计算注意力，矩阵里是随机数。“{tokens[query]}”给“{tokens[1]}”的权重是 {fixed(weights[1]!)}。因果掩码遮住“{tokens[query]}”之后的所有词，就像从左到右逐词生成的模型那样。
        </p>
      ),
      question: ({ tokens, query }) => <>“{tokens[query]}”给它仍能看到的词的权重会怎样？</>,
      options: ({ query }) => ["什么也不变", "都按同一个倍数增大", `每个都变成 1/${query + 1}`, "变化没有简单的规律"],
      why: () => (
        <p>
          softmax 把每个词的 e<sup>得分</sup> 除以所有这些之和。掩码把被遮住的词从和里去掉，其他得分保持原样。其余的 e<sup>得分</sup> 不变，只是除以一个较小的和：于是都按同一个倍数增大。
        </p>
      ),
      hand: ({ weights, causal, query, tokens }) => {
        const seen = weights.slice(0, query + 1);
        const all = sum(seen.map((weight) => rounded(weight, 4)));
        return (
          <p>
            把看得到的词原有的权重加起来：{added(seen, 4)}。倍数是 1 / {fixed(all, 4)} = {fixed(1 / all, 3)}。相乘：{fixed(seen[1]!, 4)} × {fixed(1 / all, 3)} ={" "}
            {fixed(rounded(seen[1]!, 4) * rounded(1 / all, 3))}。有掩码时“{tokens[1]}”得到 {fixed(causal[1]!)}。再试试另外两个。
          </p>
        );
      },
      further: () => <p>把“因果”打开再关上，观察图中的每一行。哪一行完全不变？</p>,
    },
    "two-heads": {
      title: "第二个头有什么用",
      teaser: "一行权重之和是 1，再加一行有什么用？",
      setting: ({ text, heads: [one, two] }) => (
        <p>
          在“{text}”中，MiniLM 的头 {one!.head} 里“it”给“{one!.word}”的权重是 {fixed(one!.weights[one!.key]!)}。假设“it”还需要“{two!.word}”这个词。
        </p>
      ),
      question: ({ heads: [one] }) => <>在这一行，头 {one!.head} 还剩多少可以分给其他所有的词？</>,
      options: () => twoHeadsOptions.map((share) => fixed(share)),
      why: ({ heads: [one, two], head_size }) => (
        <p>
          一行的权重之和是 1，头 {one!.head} 几乎已全部分完。头 {two!.head} 为“it”另有一行，用的是它自己的查询和键：它给“{two!.word}”{fixed(two!.weights[two!.key]!)}
          。两个头取来的内容并排传下去，每个头 {head_size} 个数。只有一个头的话，只能把两个词混在一起。
        </p>
      ),
      hand: ({ heads: [one, two] }) => (
        <p>
          取三位小数，头 {one!.head} 还剩 1 − {fixed(one!.weights[one!.key]!)} = {fixed(1 - one!.weights[one!.key]!)}。两个头合起来给出 {fixed(one!.weights[one!.key]!)} +{" "}
          {fixed(two!.weights[two!.key]!)} = {fixed(rounded(one!.weights[one!.key]!) + rounded(two!.weights[two!.key]!))}，比一行能给的多。只用一个头又要同等关注这两个词时，每个词最多分到
          0.500。
        </p>
      ),
      further: ({ heads: [one, two] }) => (
        <p>
          头 {one!.head} 关注“it”的前一个词，头 {two!.head} 关注后一个词。点击上方的句子，输入另一个英语句子，再在小方格中选择这两个头。对别的词也是这样吗？
        </p>
      ),
    },
    translation: {
      title: "翻译模型在读什么",
      teaser: "写出一个意大利语词的时候，读的是哪个英语词？",
      setting: ({ source, written, query }) => (
        <p>
          一个用 attend 训练的小型翻译模型读到“{source}”（无法打开所选文件），逐个词元地写出意大利语。它刚刚写下“{shown(written[query]!)}”。在交叉注意力中，查询来自意大利语，键和值来自英语。我们看的是解码器第一层交叉注意力的
          3 号头。
        </p>
      ),
      question: ({ next }) => <>它接着写“{shown(next)}”（所选的）。这个头给哪个英语词元最多？</>,
      options: ({ tokens }) => tokens.map(shown),
      why: ({ next, tokens, weights }) => (
        <p>
          没有人告诉模型哪些词相互对应。它从成对的句子中学到“{shown(next)}”对应“{shown(tokens[weights.indexOf(Math.max(...weights))]!)}
          ”。每个词元那一行，对应的是接下来要写的词元。意大利语把形容词放在名词后面，所以有两行交叉。这只是一个句子：attend 代码库中的 translate 示例可以记录别的句子。
        </p>
      ),
      hand: ({ weights, written, tokens }) => (
        <p>
          把这一行加起来：{added(weights, 2)}。再数一数：图中有 {shown(written[0]!)} 一行和 {written.length - 1} 个意大利语词元各一行，{tokens.length - 1} 个英语词元各一列和{" "}
          {shown(tokens.at(-1)!)} 一列。这里碰巧都是 {tokens.length}。
        </p>
      ),
      further: ({ written }) => (
        <p>
          选择“{shown(written[3]!)}”和“{shown(written[4]!)}”这两行：它们颜色最突出的格子顺序相反。在“Cross-attention”下面，第 0 行有四个小方格。另外三个头在做什么？
        </p>
      ),
    },
    root: {
      title: "为什么要除以 √d",
      teaser: "查询越长，得分越大。softmax 会怎样？",
      setting: ({ sizes, seeds }) => (
        <p>
          得分是 d 个乘积之和，查询中的每个数贡献一个乘积。在课文的句子里 d 是 {sizes[0]!.size}，矩阵里是随机数。我们对各行的最大权重取平均，随机抽取 {seeds} 次，取中间的结果。不做除法时是{" "}
          {fixed(sizes[0]!.without, 2)}。现在我们把查询加长：d 是 {sizes.at(-1)!.size}。
        </p>
      ),
      question: () => "仍然不做除法，最大的权重会怎样？",
      options: ({ sizes: [short] }) => [
        "变小，因为注意力分散了", `仍在 ${fixed(short!.without, 2)} 左右`, `增大到 ${fixed(1.3 * short!.without, 2)} 以上`, "变成 1.00",
      ],
      why: ({ sizes }) => {
        const [short, long] = [sizes[0]!, sizes.at(-1)!];
        return (
          <p>
            相加的乘积越多，得分的分布越宽：{short.size} 个数时标准差是 {fixed(short.spread, 2)}，{long.size} 个数时是 {fixed(long.spread, 2)}。得分的分布一宽，softmax
            就把大部分权重给一个键：这里是 {fixed(long.without, 2)}。除以 √d 以后，得分的分布不再变宽，最大的权重也就不变：{fixed(short.with, 2)} 和 {fixed(long.with, 2)}
            。这在乘积相互独立、均值为 0 时成立，课文里正是如此。
          </p>
        );
      },
      hand: ({ sizes }) => {
        const [short, long] = [sizes[0]!, sizes.at(-1)!];
        return (
          <p>
            √({long.size} / {short.size}) = {fixed(Math.sqrt(long.size / short.size), 2)}。标准差之比是 {fixed(long.spread, 2)} / {fixed(short.spread, 2)} ={" "}
            {divided(long.spread, short.spread, 2)}，与它相近。除以 √d 之后：{fixed(short.spread, 2)} / √{short.size} = {fixed(rounded(short.spread, 2) / Math.sqrt(short.size), 2)}，
            {fixed(long.spread, 2)} / √{long.size} = {fixed(rounded(long.spread, 2) / Math.sqrt(long.size), 2)}。
          </p>
        );
      },
      further: () => <p>把“缩放”打开再关上，观察右边“相当于平均分给多少个键”。然后打开“更多”，改变 d_k。</p>,
    },
  },
};
