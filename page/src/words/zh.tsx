// 中文的课文。
import { Word, termOf } from "../term";
import type { Lesson, Words } from "./en";

const glossary: Words["glossary"] = {
  embedding: { name: "嵌入（embedding）", meaning: "代表一个词的一行数字。这里是随机抽取的；训练会把它学出来。" },
  query: { name: "查询（query）", meaning: "一个词在找什么：它的嵌入乘以 w_query。" },
  key: { name: "键（key）", meaning: "一个词拿什么让别人找到：它的嵌入乘以 w_key。" },
  value: { name: "值（value）", meaning: "一个词被关注时交出什么：它的嵌入乘以 w_value。" },
  "dot product": { name: "点积（dot product）", meaning: "两行数字逐个相乘，再全部相加。方向越一致，点积越大。" },
  score: { name: "得分（score）", meaning: "一个查询与一个键的点积：两者有多匹配。" },
  softmax: { name: "softmax", meaning: "把任意的数变成和为 1 的正数：每个数取 exp，再除以全部 exp 的和。" },
  logit: { name: "logit", meaning: "送进 softmax 的数：缩放后的得分；被遮住的键则是 -inf。" },
  weight: { name: "权重（weight）", meaning: "一个查询分给一个键的注意力份额。一个查询的所有权重之和为 1。" },
  entropy: {
    name: "熵（entropy）",
    meaning: "一个查询的权重有多分散：-Σ w ln w，单位是奈特（nat）。0：全部集中在一个键上。ln n：平均分给 n 个键。exp(熵) 就是相当于多少个键。",
  },
  "context vector": { name: "上下文向量（context vector）", meaning: "注意力为一个词给出的结果：所有词的值，按各自的份额相加。" },
  head: { name: "注意力头（head）", meaning: "一套拥有自己矩阵的注意力。多个头并排看同样的词，各找各的。" },
  sink: { name: "汇（sink）", meaning: "这种头的查询大多盯着同一个几乎不含内容的键，例如第一个词元：这时它什么也不做。" },
  besides: { name: "除此之外（besides）", meaning: "一个头不看它的汇时做什么：只就其余的权重而言。" },
  previous: { name: "前一个（previous）", meaning: "看前一个词元的头。" },
  duplicate: { name: "重复（duplicate）", meaning: "看同一个词元先前出现之处的头。" },
  induction: { name: "归纳（induction）", meaning: "看同一个词元上次出现之后是什么的头：因此它能复述读过的内容。" },
  local: { name: "局部（local）", meaning: "看周围几个词元的头。" },
  broad: { name: "分散（broad）", meaning: "把权重分散到许多键上的头；集中（focused）的头则几乎全给少数几个键。" },
  lift: { name: "提升度（lift）", meaning: "一个词元实际得到的，与每一行都平均分配时它会得到的之比：大于 1 表示它更常被看到。" },
  norm: { name: "范数（norm）", meaning: "权重乘以键所携带内容的大小，再与该头一行平均取走的量相比（Kobayashi 等，2020）。" },
  "residual stream": { name: "残差流（residual stream）", meaning: "一个词的那一行在 Transformer 中一路向前：每个注意力和每个 MLP 都往上加，什么也不会被替换。" },
  MLP: { name: "MLP（多层感知机）", meaning: "几个矩阵，中间有非线性变换；每个词的行各自通过它，不看别的词。" },
  "layer norm": { name: "归一化（norm）", meaning: "一行在被读取之前先调到惯常的大小：LayerNorm 或 RMSNorm。它与权重的范数是两回事。" },
  causal: { name: "因果（causal）", meaning: "一个词只看自己和它前面的词，就像从左到右写作的模型那样。" },
  "cross-attention": { name: "交叉注意力（cross-attention）", meaning: "查询来自一个句子，键和值来自另一个句子：翻译模型就是这样读它要翻译的内容。" },
};
const Term = termOf(glossary);

export const zh: Words = {
  glossary,
  Term,
  glossaryTitle: "术语解释",
  head: (head) => `头 ${head}`,
  hidden: "遮住",
  sum: "合计",
  query: "查询",
  key: "键",
  value: "值",
  weight: "权重",
  weights: "权重",
  entropy: "熵",
  nats: "奈特",
  tooLong: (words, most) =>
    `${words} 个词太多，一页最多能清楚显示 ${most} 个。长文本请用：attend explain TEXT -o FILE.attend，` +
    "然后 attend show FILE.attend；或者 attend explain TEXT -o FILE.png。",
  number: (place) => `第 ${place} 个数`,
  moreKeys: (count) => `另有 ${count} 个权重更小的键`,
  entropyOf: (word, nats, keys) => <><Word>{word}</Word> 的<Term of="entropy">熵</Term>：{nats} 奈特，相当于平均分给 {keys} 个键。</>,

  options: {
    text: "句子", second_text: "第二个句子", seed: "随机种子", embedding_size: "嵌入维数", d_k: "d_k", d_v: "d_v", heads: "头数", weights: "权重", causal: "因果",
    positions: "位置", scale: "缩放", window: "窗口",
  },
  difference: { on: "开", off: "关", none: "无", nothing: "还没有改动" },

  matrix: {
    label: (name, rows, cols) => `${name}，${rows} 行 ${cols} 列`,
    painted: (label) => `${label}：用方向键选择要展开计算的数`,
    copyAs: (name) => `复制 ${name} 为`,
    copy: "复制",
    copied: (form) => `已复制为 ${form}`,
    closed: "这个浏览器不允许访问剪贴板",
    digits: "数字",
  },
  legend: {
    scales: { linear: "线性", sqrt: "平方根", log: "对数" },
    scale: "权重颜色的标度",
    range: "权重颜色的范围",
    upTo: (top) => `从 0 到 ${top}`,
    largest: (weight) => `所有头一致；这里最大的权重是 ${weight}`,
    below: "小于 0",
    above: "大于 0",
  },
  exercise: {
    title: "猜一猜",
    yes: "对。",
    no: (right) => `答案是“${right}”。`,
    again: "再来一次",
  },
  products: { number: "序号", product: "乘积", smaller: (count) => `其余 ${count} 个较小的` },
  hiddenKeys: (count, all) => `${all} 个键中有 ${count} 个对它是遮住的`,

  picture: {
    name: "全图",
    title: "谁关注谁",
    text: (cross) => (
      <p>
        每一行是一个<Term of="query">查询</Term>：一个词怎样把注意力分给各个<Term of="key">键</Term>，也就是各列。每一行的<Term of="weight">权重</Term>之和为 1。
        {cross && "行属于第一个序列，列属于第二个序列。"}点任何一个数；后面的步骤会说明它从哪里来。
      </p>
    ),
    looksAt: (word, head) => <>{head !== null && `在头 ${head} 里，`}<Word>{word}</Word> 看向</>,
    words: "各个词",
    trained: (
      <>
        这些权重来自训练好的模型：MiniLM 的 3.1 号头。任何句子都可以在探索页的 “Step by step” 中这样查看：{" "}
        <code>attend model minilm "…" --live -o minilm.html</code>
      </>
    ),
    random: "这些权重由随机数得来：没有经过任何训练。它们说明注意力怎样计算，而不是模型学到了什么。",
    given: "这些权重由文档自己的数得来：嵌入是文档里写明的，矩阵是随机抽取的。没有经过任何训练。",
    drawn: "这些权重由文档自己的数得来，都是随机抽取的：没有经过任何训练。",
    where: (word) => <><Word>{word}</Word> 看向哪里</>,
    entropy: (nats, keys) => <><Term of="entropy">熵</Term> {nats} 奈特：相当于平均分给 {keys} 个键。</>,
    saveAs: (form) => `保存为 ${form}`,
    noExplanation: "权重说明一个头从哪里读取。仅凭权重并不能解释模型在做什么。",
    question: "所有的头读的都是同样的词。为什么它们看的地方不同？",
    options: ["每个头有自己的矩阵", "每个头读不同的词", "每个头读前一个头的结果"],
    answer: (heads) => <>每个头都有自己的 w_query、w_key 和 w_value，所以一个词就是 {heads} 个不同的查询。逐个点开各个头：词不变，各行在变。</>,
    cross: (
      <p>翻译模型读“le chat est assis”，写“the cat sat”。它的查询是已经写出的词；它的键和值是读到的词。所以写每个词时都能看到读到的全部内容：这就是<Term of="cross-attention">交叉注意力</Term>的用处。</p>
    ),
    several: {
      title: "为什么要有多个头？",
      rule: "一行权重之和为 1。所以一个头不能给一个词 0.9，又给另一个词 0.9。两个头就可以：每个头有自己的一行。",
      one: "这里只有一个头。第二个头可以把同样多的注意力给另一个词。开头提到的 MiniLM 有 6 层，每层 12 个头。",
      alike: (word, key) => <>在 <Word>{word}</Word> 这一行，这里所有的头都给 <Word>{key}</Word> 最多。换一行也许能看出区别。</>,
      apart: (word, [first, key, weight], [second, other, more], sum) => (
        <>
          在 <Word>{word}</Word> 这一行，头 {first} 给 <Word>{key}</Word> {weight}，头 {second} 给 <Word>{other}</Word> {more}。合起来是 {sum}。
        </>
      ),
      over: "只有一行是做不到的：这超过了 1。",
    },
    before: (difference) => `先前的权重（${difference}）`,
    entropyBefore: (word, before, now) => <><Word>{word}</Word> 的<Term of="entropy">熵</Term>：先前 {before} 奈特，现在 {now}。</>,
  },

  scores: {
    name: "得分",
    title: "查询遇到键：得分",
    text: (
      <p>
        <Term of="score">得分</Term>是一个查询与一个键的<Term of="dot product">点积</Term>：方向越一致，得分越大。点其中一个，产生它的查询和键就会亮起来。
      </p>
    ),
    times: (query, key) => <><Word>{query}</Word> 的查询乘以 <Word>{key}</Word> 的键，逐个数相乘：</>,
    question: (word) => <>经过 softmax 之后，哪个键得到 <Word>{word}</Word> 最多的注意力？</>,
    answer: (weight) => `它得到 ${weight}。softmax 保持一行的大小顺序：可见得分里最大的，权重也最大。`,
  },
  scale: {
    name: "缩放",
    title: "得分要缩放",
    off: (
      <p>
        缩放已关闭：得分原样送进 <Term of="softmax" />。查询的数越多，得分相差越大，softmax 就几乎全给一个键。把缩放打开，看看<Term of="entropy">熵</Term>怎样变化。
      </p>
    ),
    on: (kind) => (
      <p>
        乘积越多，和越大。如果这些数相互独立、均值为 0{{ linear: "（这里抽取的正是这样）", uniform: "（这里并非如此）", trained: "（训练好的头未必如此）" }[kind]}，和就随个数的平方根增长。除以这个平方根，得分的大小就保持在
        <Term of="softmax" /> 能够分配的范围内。{kind !== "trained" && <>把缩放关掉，看看<Term of="entropy">熵</Term>怎样变化。</>}
      </p>
    ),
    before: (difference, nats) => `先前（${difference}）：${nats}。`,
    whyRoot: "为什么是平方根？",
    growth: (linear, uniform) => (
      <>
        均值为 0 的独立数，其乘积会部分抵消：从 24 个数到 384 个数，和的分散程度变为 {linear} 倍，而 √16 是 4。文档抽取的是均匀分布的权重，全都大于 0。那里什么也不会抵消：得分的分散程度变为 {uniform} 倍，接近 16，所以除以 √d_k 还不够。
      </>
    ),
    spread: (sizes, linear, uniform) => `${sizes} 个数时得分的分散程度：均值为 0：${linear}；均匀分布：${uniform}`,
    uniform: "均匀分布",
    mean0: "均值为 0",
    question: (size, word) => <>如果不除以 √{size}，<Word>{word}</Word> 的注意力会分给更多的词，还是更少的词？</>,
    options: ["更多", "更少", "一样多"],
    answer: (unscaled, divided) => <>不缩放时，它的熵是 {unscaled} 奈特；除过之后是 {divided}。得分越大，彼此相差越远，而 exp 把差变成比。</>,
  },
  mask: {
    name: "掩码",
    title: "有些键被遮住",
    text: (causal, window) => (
      <p>
        {causal && <><Term of="causal">因果</Term>：一个词只看自己和它前面的词。</>}
        {window !== null && `窗口为 ${window}：一个词${causal ? "向左" : "向左右每一边"}最多看这么多个词。`}
        查询看不到的键，得分变成 -inf，而 exp(-inf) 是 0：<Term of="softmax" /> 什么也不分给它。
      </p>
    ),
    formula: "logits = scaled_scores（查询看得到键时），否则 -inf",
    sees: ({ query, i, key, j, hidden, seen, keys }) => (
      <>
        第 {i} 个词 <Word>{query}</Word> {hidden ? "看不到" : "看得到"}第 {j} 个词 <Word>{key}</Word>。{keys} 个键中它看得到 {seen} 个。
      </>
    ),
    question: (word, place, words) => <><Word>{word}</Word> 是 {words} 个词中的第 {place} 个，它看得到几个键？</>,
    answer: (seen) => `它在掩码中的那一行有 ${seen} 个数不是 -inf。一个词总看得到自己。`,
  },
  softmax: {
    name: "Softmax",
    title: "softmax 把得分变成权重",
    text: (
      <p>
        <Term of="softmax">Softmax</Term>：每一行变成和为 1 的正数。先减去这一行的最大值，这不改变结果，但可以防止 exp 溢出。<Term of="entropy">熵</Term>说明一行有多分散。
      </p>
    ),
    why: {
      title: "为什么用 exp？",
      example: (word, [key, logit], [other, less], difference) => (
        <>
          在 <Word>{word}</Word> 这一行，<Word>{key}</Word> 是 {logit}，<Word>{other}</Word> 是 {less}。相差 {difference}。
        </>
      ),
      ratio: (difference, power, weight, other, ratio) => (
        <>
          exp({difference}) = <output>{power}</output>。两个权重是 {weight} 和 {other}，它们的比是 <output>{ratio}</output>：正好相同。
        </>
      ),
      vanished: (difference, power) => <>exp({difference}) = <output>{power}</output>。第二个权重就小这么多倍：小到 f32 已无法表示。</>,
      lone: (word) => <><Word>{word}</Word> 只看得到一个键，全部都给它。</>,
      rule: "exp 把每个数变成正数，并保持大小顺序。它把得分的差变成权重的比：一个键的得分高出 1，得到的权重就是另一个键的 2.718 倍，与其他的键无关，因为两者除以同一个和。",
    },
    weightIs: (sum) => `权重 = e / ${sum}`,
    logit: "logit",
    scaledScore: "缩放后的得分",
    asIfOver: "相当于",
    keys: (count) => `${count} 个键`,
  },
  context: {
    name: "上下文",
    title: "权重混合各个值：上下文向量",
    text: (
      <p>
        每个词的<Term of="context vector">上下文向量</Term>是它看得到的<Term of="value">值</Term>的平均，各按自己的份额。这就是注意力交出的结果。
      </p>
    ),
    block: {
      title: "它在 Transformer 中的位置",
      first: (
        <>
          例如：在 GPT-2 或 Llama 的一个块里，一个词的行 x 先由注意力读取，再由 <Term of="MLP">MLP</Term> 读取。两者的结果都加到 x 上。大家都往上加的这一行就是<Term of="residual stream">残差流</Term>。每次读取之前都先做<Term of="layer norm">归一化</Term>。
        </>
      ),
      second: "最初的 Transformer（Vaswani 等，2017）和 BERT（MiniLM 属于这一类）在每次相加之后才做归一化：norm(x + attention(x))。这样的块一层层叠起来：小号的 GPT-2 有 12 块。这里的步骤只展示注意力。",
      norm: "norm",
      attention: "注意力",
      drawing: "x 一直向前，被读取两次：归一化、注意力、加上 x；再归一化、MLP、加上 x",
    },
    share: (place, word) => <>每个值的第 {place} 个数，按 <Word>{word}</Word> 分给该词的份额相加：</>,
  },
  heads: {
    name: "多头",
    title: "把各个头拼接起来",
    text: (heads) => <p>{heads} 个<Term of="head">头</Term>的上下文向量并排放在一起：每个词有长长的一行，每个头占其中一段。</p>,
    formula: "concat_heads = [头 0 的上下文, 头 1 的上下文, …]",
    part: ({ place, head, heads, size }) => `这是头 ${head} 的上下文向量的第 ${place} 个数：${heads} 个头，每个 ${size} 个数，共 ${heads * size} 个。`,
    goTo: (head) => `去头 ${head}`,
  },
  output: {
    name: "输出",
    title: "再用一个矩阵混合各个头",
    text: "w_output 把拼接好的头变回嵌入的大小，让一个头找到的与另一个头找到的汇合在一起。",
    joined: "拼接后",
  },
};

// 只有课文才用到的话。
export const zhLesson: Lesson = {
  page: {
    title: (text) => `${text} - 注意力，一步一步来`,
    subtitle: "注意力，一步一步来",
    skip: "跳到这一步",
    why: "为什么要有注意力？",
    copyLink: "复制链接",
    language: "语言",
    document: (numbers) => `文档 ${numbers}。`,
    heads: "注意力头",
    steps: "步骤",
    previous: "上一步",
    next: "下一步",
    fold: "收起",
    workedOut: "计算过程",
    inFull: "打开完整页面",
    footer: (trained) => `空格键和方向键：下一步和上一步。对任何一个数：悬停可查看，点击可固定，按 Esc 取消。每个数都由 attend 自己的代码${trained ? "算出" : "在这里算出"}；没有任何内容离开本页。`,
    cannotRun: (error) => `这个浏览器无法运行可以计算的页面（${error}）；下面是同样的内容，只是没有开关。`,
  },
  why: {
    looksAt: "它在看什么",
    caption: (word, meant, [first, much], [second, less], right) => (
      <>
        这里 <b>{word}</b> 指 {meant}。这个头给 {first} {much}，给 {second} {less}：{right ? "对了。" : "错了。"}
      </>
    ),
    close: "跳过",
    what: (
      <>
        下面的英文句子意思是：“那只动物没有过马路，因为它太累了。”是什么太累了？你一看就知道 <b>it</b> 是动物。可是在计算机里，每个词都是一行数字，而 <b>it</b> 那一行里没有任何关于动物的信息。有了<b>注意力</b>，一个词会看所有其他的词，并从每个词那里按份额取一部分内容。下面就是
        MiniLM 的 3.1 号头里 <b>it</b> 的份额；MiniLM 是一个从英文文本中学习出来的模型，共有 72 个头。[CLS] 和 [SEP] 是模型加在文本两端的标记。
      </>
    ),
    understanding: (
      <>
        <b>这算理解吗？</b>把 “tired”（累）换成 “wide”（宽），<b>it</b> 就是马路了。把句子倒过来说，两个名词就换了位置。先猜猜这个头给谁最多，再看答案：
      </>
    ),
    counted: ({ sentences, right, best, guessed, cosine }) => (
      <>
        不算。在 {sentences} 个这样的句子里，3.1 号头答对 {right} 个，正好一半：这些句子成对出现，答案相反，而它偏爱第一个名词。72 个头里最好的答对 {best} 个；如果它们全都是瞎猜，最好的也会答对大约
        {" "}{guessed} 个。而且去掉 3.1 号头，MiniLM 为第一个句子算出的向量几乎不变：与原来的余弦相似度是 {cosine}。一个头的权重只说明它看向哪里。这有什么作用，要靠别的句子和去掉这个头才能看出来。
      </>
    ),
    from: "这些份额从哪里来？后面的步骤会把每个数一一算给你看：先用这个头自己的数，然后用你输入的任何句子和随机数。",
    toSteps: "去看步骤",
  },
  controls: {
    section: "句子和开关",
    sentence: "句子",
    second: "键和值来自",
    example: "文档中的例子",
    own: "你的句子",
    model: "这些是训练好的模型 MiniLM 的 3.1 号头自己的数；你输入的句子则用随机权重计算。",
    back: "回到本页的句子",
    opening: "MiniLM，3.1 号头：开头的句子",
    preset: (name, summary, document) => `${name}：${summaries[name] ?? summary}（文档 ${document}）`,
    all: "全部",
    more: "更多",
    linear: "同 nn.Linear，以 0 为中心",
    uniform: "均匀分布，0 到 1",
    keep: "保留这些权重，好与下一次改动并排比较",
    compare: "比较",
    stop: "停止比较",
    spaceless: "这个句子里没有空格：这里按空格分词；请在词与词之间加上空格。",
    putSpaces: "在词之间加空格",
  },
  lessons: {
    journey:
      "可以手算验证的最小例子：六个词，每个词给定三个数；查询、键和值各两个数。拿铅笔跟一对算算看：journey 的查询乘以它自己的键得 1.8524，是这一行最大的。各行都很平均，因为 0 到 1 之间的数给出的得分相差不大。",
    "journey-linear": "同一个句子经过 nn.Linear 层，真实的模型就是这样：矩阵的放法正好转置，并且以 0 为中心抽取。得分变小，权重变得几乎相等。",
    life:
      "接近真实的大小：每个词 16 个数，查询和键 24 个，值 28 个。“is” 与 “dessert” 的键最匹配。看看 “short”、“eat” 和 “dessert”：它们把全部注意力给了一个词，因为 0 到 1 之间的矩阵会产生很大的得分，而很大的得分经过 softmax 就是非全即零。",
    "life-multihead":
      "三个头：三组矩阵，对“谁在乎谁”有三种回答。“is” 的头 0 看 “short”，头 1 看 “Life” 和 “first”，头 2 看自己。在一个头的内部没有任何新东西。",
    "life-cross":
      "交叉注意力：查询来自这个句子，键和值来自第二个序列，这里是八行随机数。权重不再是方阵，但每一行之和仍为 1。解码器就是这样读编码器写下的内容。",
    "life-continued":
      "代码相同，只是在嵌入和矩阵之间没有重新设置随机种子。嵌入逐位相同；之后的每个数都不同。如果教程里的数复现不出来，先查随机种子。",
    "life-continued-multihead": "三个头，随机数生成器没有重新设置种子：词相同，从查询开始数都不同。",
    "my-name": "五个词，文档在一个十个词的词表中为它们选定编号；查询、键和值各 16 个数。",
    "my-name-multihead": "Transformer 完整的多头注意力：四个头，每个 4 个数，并排起来与嵌入同宽，再用一个矩阵把它们混合。",
  },
  words: {
    name: "词",
    title: "词变成编号",
    given: (size) => `文档在一个 ${size} 个词的词表中给每个词一个编号（id）。`,
    made: "去掉逗号，在空格处分词。把不同的词排好序，一个词的编号（id）就是它从 0 数起的位置；大写字母排在前面。",
    second: "第二个句子有自己的词表。",
    numbers: (count) => `第二个序列只有数，没有词：x1 到 x${count}。`,
    hasId: (word, id) => <><Word>{word}</Word> 的编号是 {id}</>,
    same: (times) => `它出现了 ${times} 次，每次编号都相同：除非加上位置，否则无法区分它们。`,
    id: "编号",
    word: "词",
  },
  embeddings: {
    name: "嵌入",
    title: "编号变成嵌入",
    given: <p>文档给出了<Term of="embedding">嵌入</Term>：每个词一行数。</p>,
    drawn: (seed) => (
      <p>
        每个编号从一张随机数表中取出一行，随机数服从 N(0, 1)，种子是 {seed}：这就是词的<Term of="embedding">嵌入</Term>。训练会把这张表学出来，使意思相近的词有相近的行。
      </p>
    ),
    row: (word, id, size) => <><Word>{word}</Word> 的编号是 {id}：它的嵌入是表中从 0 数起的第 {id} 行。从这里开始，关于这个词所知道的就只有这 {size} 个数。</>,
  },
  positions: {
    name: "位置",
    title: "把位置加到嵌入上",
    text: (
      <p>注意力不知道词的先后顺序。所以每个位置都有自己的一行，由越来越长的正弦波和余弦波组成（Vaswani 等，2017，3.5 节），再加到嵌入上。第一个词的位置 t 是 0。</p>
    ),
    wave: (place, wave, over, value) => <>它的位置是 {place}，这一列波的值是 {wave}({place} / 10000<sup>{over}</sup>) = {value}。</>,
  },
  projections: {
    name: "q, k, v",
    title: "嵌入变成查询、键和值",
    text: ({ cross, linear, several }) => (
      <p>
        三个矩阵把每个嵌入变成一个<Term of="query">查询</Term>（它在找什么）、一个<Term of="key">键</Term>（它提供什么）和一个<Term of="value">值</Term>（它交出什么）。
        {cross && "查询来自第一个序列，键和值来自第二个序列。"}
        {linear ? "矩阵的抽取方式与 torch.nn.Linear 相同，以 0 为中心。" : "矩阵在 0 与 1 之间抽取。"}
        {several && "每个头有自己的矩阵。"}
      </p>
    ),
    times: (word, column, place, matrix) => <><Word>{word}</Word> 的嵌入乘以 {matrix} 的第 {place} {column ? "列" : "行"}，再全部相加：</>,
  },
};

const summaries: Record<string, string> = {
  journey: "Your journey starts with one step：直接用参数，x @ w",
  "journey-linear": "同一个句子，用 Linear 层",
  life: "Life is short, eat dessert first：一个头",
  "life-multihead": "同上，三个头",
  "life-cross": "交叉注意力，第二个序列有八行",
  "life-continued": "一个头，权重接着嵌入往下抽取",
  "life-continued-multihead": "同上，三个头",
  "my-name": "my name is Marcello Politi：一个头",
  "my-name-multihead": "四个头，拼接后再投影",
};
