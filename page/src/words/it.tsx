// Le parole della lezione in italiano.
import { Word, termOf } from "../term";
import type { Lesson, Words } from "./en";

const glossary: Words["glossary"] = {
  embedding: { name: "embedding", meaning: "Una riga di numeri che rappresenta una parola. Qui è estratta a caso; l'addestramento la imparerebbe." },
  query: { name: "query", meaning: "Che cosa cerca una parola: il suo embedding per w_query." },
  key: { name: "chiave (key)", meaning: "Che cosa offre una parola per farsi trovare: il suo embedding per w_key." },
  value: { name: "valore (value)", meaning: "Che cosa cede una parola a chi le presta attenzione: il suo embedding per w_value." },
  "dot product": { name: "prodotto scalare (dot product)", meaning: "Due righe moltiplicate numero per numero e sommate. È grande quando puntano nella stessa direzione." },
  score: { name: "punteggio (score)", meaning: "Il prodotto scalare di una query con una chiave: quanto vanno d'accordo." },
  softmax: { name: "softmax", meaning: "Trasforma numeri qualsiasi in numeri positivi che sommano a 1: exp di ciascuno, diviso per la somma di tutti." },
  logit: { name: "logit", meaning: "Ciò che vede la softmax: il punteggio scalato, oppure -inf per una chiave nascosta." },
  weight: { name: "peso (weight)", meaning: "La quota di attenzione che una query dà a una chiave. I pesi di una query sommano a 1." },
  entropy: {
    name: "entropia (entropy)",
    meaning: "Quanto sono distribuiti i pesi di una query, -Σ w ln w, in nat. 0: tutto su una chiave sola. ln n: n chiavi alla pari. exp(entropia) è il numero di chiavi a cui equivale.",
  },
  "context vector": { name: "vettore di contesto (context vector)", meaning: "Ciò che l'attenzione dà per una parola: i valori di tutte le parole, ciascuno secondo la sua quota." },
  head: { name: "testa (head)", meaning: "Un'attenzione con matrici proprie. Più teste guardano le stesse parole fianco a fianco, ognuna in cerca d'altro." },
  sink: { name: "pozzo (sink)", meaning: "Una testa le cui query guardano per lo più una sola chiave che non porta quasi nulla, come il primo token: in quei casi non fa niente." },
  besides: { name: "per il resto (besides)", meaning: "Che cosa fa una testa quando non guarda il suo pozzo: si riferisce ai pesi che restano." },
  previous: { name: "precedente (previous)", meaning: "Una testa che guarda il token precedente." },
  duplicate: { name: "duplicato (duplicate)", meaning: "Una testa che guarda dove lo stesso token era già comparso." },
  induction: { name: "induzione (induction)", meaning: "Una testa che guarda ciò che seguiva lo stesso token la volta prima: così può ripetere ciò che ha letto." },
  local: { name: "locale (local)", meaning: "Una testa che guarda i pochi token intorno." },
  broad: { name: "diffusa (broad)", meaning: "Una testa che distribuisce i pesi su molte chiavi; una concentrata (focused) ne dà quasi tutto a poche." },
  lift: { name: "lift", meaning: "Quanto riceve un token, rispetto a quanto riceverebbe se ogni riga fosse distribuita in parti uguali su ciò che vede: sopra 1 viene guardato più spesso." },
  norm: { name: "norma (norm)", meaning: "Un peso per la grandezza di ciò che porta la chiave, rispetto a quanto prende in media una riga della testa (Kobayashi et al. 2020)." },
  "residual stream": { name: "flusso residuo (residual stream)", meaning: "La riga di una parola lungo un Transformer: ogni attenzione e ogni MLP vi aggiunge qualcosa, e nulla viene sostituito." },
  MLP: { name: "MLP", meaning: "Matrici con una piega in mezzo, attraverso cui ogni riga passa da sola: non guarda nessun'altra parola." },
  "layer norm": { name: "normalizzazione di una riga (norm)", meaning: "Una riga riportata a una grandezza consueta prima di essere letta: LayerNorm o RMSNorm. Non è la norma di un peso." },
  causal: { name: "causale (causal)", meaning: "Una parola vede sé stessa e le parole che la precedono, come in un modello che scrive da sinistra a destra." },
  "cross-attention": { name: "attenzione incrociata (cross-attention)", meaning: "Le query vengono da una frase, le chiavi e i valori da un'altra: così un traduttore legge ciò che traduce." },
};
const Term = termOf(glossary);

export const it: Words = {
  glossary,
  Term,
  glossaryTitle: "Che cosa significano le parole",
  head: (head) => `testa ${head}`,
  hidden: "nascosta",
  sum: "somma",
  query: "query",
  key: "chiave",
  value: "valore",
  weight: "peso",
  weights: "pesi",
  entropy: "entropia",
  nats: "nat",
  tooLong: (words, most) =>
    `${words} parole sono più di quante una pagina ne mostri bene: il massimo è ${most}. Per testi lunghi: attend explain TESTO -o FILE.attend, ` +
    "poi attend show FILE.attend; oppure attend explain TESTO -o FILE.png.",
  number: (place) => `numero ${place}`,
  moreKeys: (count) => `e altre ${count} chiavi con pesi minori`,
  entropyOf: (word, nats, keys) => <><Term of="entropy">Entropia</Term> di <Word>{word}</Word>: {nats} nat, come se fosse distribuita su {keys} chiavi.</>,

  options: {
    text: "frase", second_text: "seconda frase", seed: "seme", embedding_size: "dimensione dell'embedding", d_k: "d_k", d_v: "d_v", heads: "teste", weights: "pesi", causal: "causale",
    positions: "posizioni", scale: "scala", window: "finestra",
  },
  difference: { on: "sì", off: "no", none: "nessuna", nothing: "ancora nessuna modifica" },

  matrix: {
    label: (name, rows, cols) => `${name}, ${rows} righe, ${cols} colonne`,
    painted: (label) => `${label}: le frecce scelgono il numero di cui si mostra il calcolo`,
    copyAs: (name) => `Copia ${name} come`,
    copy: "copia",
    copied: (form) => `copiato come ${form}`,
    closed: "questo browser tiene chiusi gli appunti",
    digits: "cifre",
  },
  legend: {
    scales: { linear: "lineare", sqrt: "radice quadrata", log: "logaritmo" },
    scale: "Scala dei colori dei pesi",
    range: "Intervallo dei colori dei pesi",
    upTo: (top) => `da 0 a ${top}`,
    largest: (weight) => `in ogni testa; qui il peso più grande è ${weight}`,
    below: "sotto 0",
    above: "sopra 0",
  },
  exercise: {
    title: "Prevedi",
    yes: "Sì.",
    no: (right) => `È «${right}».`,
    again: "di nuovo",
  },
  products: { number: "numero", product: "prodotto", smaller: (count) => `altri ${count} più piccoli` },
  hiddenKeys: (count, all) => `${count} chiavi su ${all} le sono nascoste`,

  picture: {
    name: "Quadro",
    title: "Chi presta attenzione a chi",
    text: (cross) => (
      <p>
        Ogni riga è una <Term of="query" />: come una parola distribuisce la sua attenzione tra le <Term of="key">chiavi</Term>, le colonne.
        I <Term of="weight">pesi</Term> di una riga sommano a 1.{cross && " Le righe sono della prima sequenza, le colonne della seconda."} Tocca un
        numero qualsiasi; i passi mostrano da dove viene.
      </p>
    ),
    looksAt: (word, head) => <><Word>{word}</Word> guarda{head !== null && `, nella testa ${head}`}</>,
    words: "Le parole",
    trained: (
      <>
        Questi pesi sono di un modello addestrato: la testa 3.1 di MiniLM. Qualsiasi frase si vede così nell'esploratore, sotto «Step by step»:{" "}
        <code>attend model minilm "…" --live -o minilm.html</code>
      </>
    ),
    random: "Questi pesi sono fatti di numeri casuali: nulla è stato addestrato. Mostrano come si calcola l'attenzione, non che cosa ha imparato un modello.",
    given: "Questi pesi sono fatti dei numeri del documento: gli embedding vi sono scritti, le matrici estratte a caso. Nulla è stato addestrato.",
    drawn: "Questi pesi sono fatti dei numeri del documento, che li estrae a caso: nulla è stato addestrato.",
    where: (word) => <>Dove guarda <Word>{word}</Word></>,
    entropy: (nats, keys) => <><Term of="entropy">entropia</Term> {nats} nat: come se fosse distribuita su {keys} chiavi.</>,
    saveAs: (form) => `Salva come ${form}`,
    noExplanation: "I pesi dicono da dove legge una testa. Da soli non spiegano che cosa fa un modello.",
    question: "Tutte le teste leggono le stesse parole. Perché guardano altrove?",
    options: ["ognuna ha matrici proprie", "ognuna legge altre parole", "ognuna legge quella prima"],
    answer: (heads) => (
      <>
        Ognuna ha le sue w_query, w_key e w_value, quindi una parola è {heads} query diverse. Passa da una testa all'altra: le parole
        restano, le righe cambiano.
      </>
    ),
    cross: (
      <p>
        Un traduttore legge «le chat est assis» e scrive «the cat sat». Le sue query sono le parole che ha scritto; le sue chiavi e i suoi valori sono le parole
        che ha letto. Così ogni parola che scrive può guardare tutto ciò che legge: a questo serve l'<Term of="cross-attention">attenzione incrociata</Term>.
      </p>
    ),
    several: {
      title: "Perché più teste?",
      rule: "Una riga di pesi somma a 1. Quindi una testa sola non può dare 0.9 a una parola e 0.9 a un'altra. Due teste sì: ognuna ha una riga sua.",
      one: "Qui c'è una testa sola. Una seconda potrebbe dare altrettanto a un'altra parola. MiniLM, il modello dell'apertura, ne ha 12 in ognuno dei suoi 6 strati.",
      alike: (word, key) => <>Nella riga di <Word>{word}</Word> tutte le teste danno di più a <Word>{key}</Word>. Un'altra riga può distinguerle.</>,
      apart: (word, [first, key, weight], [second, other, more], sum) => (
        <>
          Qui la testa {first} dà {weight} di <Word>{word}</Word> a <Word>{key}</Word>. La testa {second} ne dà {more} a <Word>{other}</Word>. Insieme fa {sum}.
        </>
      ),
      over: "Una riga sola non potrebbe: è più di 1.",
    },
    before: (difference) => `pesi di prima (${difference})`,
    entropyBefore: (word, before, now) => <><Term of="entropy">Entropia</Term> di <Word>{word}</Word>: {before} nat prima, {now} adesso.</>,
  },

  scores: {
    name: "Punteggi",
    title: "Le query incontrano le chiavi: i punteggi",
    text: (
      <p>
        Un <Term of="score">punteggio</Term> è il <Term of="dot product">prodotto scalare</Term> di una query con una chiave: grande quando puntano
        nella stessa direzione. Toccane uno: si accendono la query e la chiave da cui viene.
      </p>
    ),
    times: (query, key) => <>La query di <Word>{query}</Word> per la chiave di <Word>{key}</Word>, numero per numero:</>,
    question: (word) => <>Dopo la softmax, quale chiave riceve più attenzione da <Word>{word}</Word>?</>,
    answer: (weight) => `Riceve ${weight}. La softmax conserva l'ordine di una riga: il punteggio visibile più grande diventa il peso più grande.`,
  },
  scale: {
    name: "Scala",
    title: "I punteggi vengono scalati",
    off: (
      <p>
        La scala è spenta: i punteggi vanno alla <Term of="softmax" /> come sono. Più numeri ha una query, più i suoi punteggi sono distanti, e la
        softmax dà quasi tutto a una chiave sola. Accendila, e osserva l'<Term of="entropy">entropia</Term>.
      </p>
    ),
    on: (kind) => (
      <p>
        Più sono i prodotti, più grande è la somma. Se i numeri sono indipendenti e in media 0{{ linear: ", come quelli estratti qui", uniform: ", e questi non lo sono", trained: ", e quelli di una testa addestrata possono non esserlo" }[kind]}, cresce
        con la radice quadrata del loro numero. Divisi per quella, i punteggi restano di una grandezza con cui la <Term of="softmax" /> può
        distribuire.{kind !== "trained" && <> Spegni la scala, e osserva l'<Term of="entropy">entropia</Term>.</>}
      </p>
    ),
    before: (difference, nats) => ` Prima (${difference}): ${nats}.`,
    whyRoot: "Perché la radice quadrata?",
    growth: (linear, uniform) => (
      <>
        I prodotti di numeri indipendenti di media 0 in parte si annullano: da 24 a 384 numeri la loro somma si allarga di {linear} volte, e √16 è 4.
        I documenti estraggono pesi uniformi, tutti sopra 0. Lì nulla si annulla: i punteggi si allargano di {uniform} volte, quasi 16, e √d_k divide troppo poco.
      </>
    ),
    spread: (sizes, linear, uniform) => `Dispersione dei punteggi con ${sizes} numeri: media 0: ${linear}; uniformi: ${uniform}`,
    uniform: "uniformi",
    mean0: "media 0",
    question: (size, word) => <>Senza la divisione per √{size}, <Word>{word}</Word> distribuirebbe la sua attenzione su più parole, o su meno?</>,
    options: ["su più", "su meno", "su altrettante"],
    answer: (unscaled, divided) => <>Senza scala la sua entropia è {unscaled} nat; divisa, {divided}. Punteggi più grandi sono più distanti tra loro, ed exp trasforma le distanze in rapporti.</>,
  },
  mask: {
    name: "Maschera",
    title: "Alcune chiavi sono nascoste",
    text: (causal, window) => (
      <p>
        {causal && <><Term of="causal">Causale</Term>: una parola vede sé stessa e le parole che la precedono. </>}
        {window !== null && `Una finestra di ${window}: una parola vede al massimo altrettante parole ${causal ? "alla sua sinistra" : "per lato"}. `}
        Il punteggio di una chiave che una query non vede diventa -inf, ed exp(-inf) è 0: la <Term of="softmax" /> non le dà nulla.
      </p>
    ),
    formula: "logits = scaled_scores dove la query vede la chiave, altrimenti -inf",
    sees: ({ query, i, key, j, hidden, seen, keys }) => (
      <>
        <Word>{query}</Word>, posto {i}, {hidden ? "non vede" : "vede"} <Word>{key}</Word>, posto {j}. Vede {seen} chiavi su {keys}.
      </>
    ),
    question: (word, place, words) => <>Quante chiavi vede <Word>{word}</Word>, parola {place} di {words}?</>,
    answer: (seen) => `La sua riga della maschera ha ${seen} numeri diversi da -inf. Una parola vede sempre sé stessa.`,
  },
  softmax: {
    name: "Softmax",
    title: "La softmax trasforma i punteggi in pesi",
    text: (
      <p>
        <Term of="softmax">Softmax</Term>: ogni riga diventa una riga di numeri positivi che sommano a 1. Prima si toglie il massimo della riga: non cambia
        nulla, ma evita che exp trabocchi. L'<Term of="entropy">entropia</Term> dice quanto è distribuita una riga.
      </p>
    ),
    why: {
      title: "Perché exp?",
      example: (word, [key, logit], [other, less], difference) => (
        <>
          Nella riga di <Word>{word}</Word>, <Word>{key}</Word> ha {logit} e <Word>{other}</Word> ha {less}. La differenza è {difference}.
        </>
      ),
      ratio: (difference, power, weight, other, ratio) => (
        <>
          exp({difference}) = <output>{power}</output>. I pesi sono {weight} e {other}. Il loro rapporto è <output>{ratio}</output>: lo stesso.
        </>
      ),
      vanished: (difference, power) => <>exp({difference}) = <output>{power}</output>. Il secondo peso è altrettante volte più piccolo: troppo poco per un f32.</>,
      lone: (word) => <><Word>{word}</Word> vede una chiave sola, che riceve tutto.</>,
      rule: "exp rende positivo ogni numero. Ne conserva l'ordine. Trasforma una differenza di punteggi in un rapporto di pesi: una chiave con un punteggio più alto di 1 riceve 2.718 volte il peso dell'altra, qualunque cosa abbiano le altre chiavi. Entrambi si dividono per la stessa somma.",
    },
    weightIs: (sum) => `peso = e / ${sum}`,
    logit: "logit",
    scaledScore: "punteggio scalato",
    asIfOver: "come su",
    keys: (count) => `${count} chiavi`,
  },
  context: {
    name: "Contesto",
    title: "I pesi mescolano i valori: i vettori di contesto",
    text: (
      <p>
        Il <Term of="context vector">vettore di contesto</Term> di una parola è la media dei <Term of="value">valori</Term> che vede, ciascuno secondo
        la sua quota. È ciò che l'attenzione consegna.
      </p>
    ),
    block: {
      title: "Dove si trova in un Transformer",
      first: (
        <>
          Esempio: in un blocco di GPT-2 o di Llama la riga x di una parola è letta prima dall'attenzione, poi da un <Term of="MLP" />. Ciò che danno si somma a x. Questa riga, a
          cui tutti sommano, è il <Term of="residual stream">flusso residuo</Term>. Ciascuno la legge dopo una <Term of="layer norm">normalizzazione</Term>.
        </>
      ),
      second: "Il Transformer originale (Vaswani et al. 2017) e BERT, al cui tipo appartiene MiniLM, normalizzano dopo ogni somma: norm(x + attention(x)). Questi blocchi stanno uno sull'altro: 12 nel GPT-2 piccolo. Questi passi mostrano solo l'attenzione.",
      norm: "norm",
      attention: "attenzione",
      drawing: "x prosegue, e viene letta due volte: norm, attenzione, più x; poi norm, MLP, più x",
    },
    share: (place, word) => <>Il numero {place} di ogni valore, nella quota che <Word>{word}</Word> dà alla sua parola:</>,
  },
  heads: {
    name: "Teste",
    title: "Le teste si uniscono",
    text: (heads) => (
      <p>
        I vettori di contesto delle {heads} <Term of="head">teste</Term> stanno fianco a fianco: ogni parola ha una sola riga lunga, in cui ogni testa
        ha la sua parte.
      </p>
    ),
    formula: "concat_heads = [contesto della testa 0, contesto della testa 1, …]",
    part: ({ place, head, heads, size }) => `È il numero ${place} del vettore di contesto della testa ${head}: ${heads} teste di ${size} numeri fanno ${heads * size}.`,
    goTo: (head) => `Vai alla testa ${head}`,
  },
  output: {
    name: "Uscita",
    title: "Un'altra matrice mescola le teste",
    text: "w_output riporta le teste unite alla dimensione di un embedding, e fa incontrare ciò che ha trovato una testa con ciò che ha trovato un'altra.",
    joined: "unite",
  },
};

// Ciò che dice solo la lezione.
export const itLesson: Lesson = {
  page: {
    title: (text) => `${text} - l'attenzione, passo per passo`,
    subtitle: "l'attenzione, passo per passo",
    skip: "Vai al passo",
    why: "Perché l'attenzione?",
    copyLink: "Copia il link",
    language: "Lingua",
    document: (numbers) => `Documento ${numbers}.`,
    heads: "Teste",
    steps: "Passi",
    previous: "Passo precedente",
    next: "Passo successivo",
    fold: "Chiudi",
    workedOut: "Il calcolo",
    inFull: "apri la pagina intera",
    footer: (trained) =>
      `Spazio e frecce: passo successivo e precedente. Un numero: passaci sopra per guardarlo, fai clic per fissarlo, Esc per lasciarlo. ${trained ? "Ogni numero è stato calcolato dal codice stesso di attend" : "Ogni numero è calcolato qui, dal codice stesso di attend"}; nulla esce da questa pagina.`,
    cannotRun: (error) => `Questo browser non riesce a eseguire la pagina che calcola (${error}); ciò che segue è lo stesso, senza comandi.`,
  },
  why: {
    looksAt: "Che cosa guarda",
    caption: (word, meant, [first, much], [second, less], right) => (
      <>
        Qui <b>{word}</b> è «{meant}». La testa dà il {much} a «{first}», il {less} a «{second}»: {right ? "giusto." : "sbagliato."}
      </>
    ),
    close: "Salta",
    what: (
      <>
        La frase qui sotto dice: «l'animale non attraversò la strada perché era troppo stanco». Che cosa era troppo stanco? Tu sai subito che
        la parola inglese <b>it</b> è l'animale. Per un computer ogni parola è una riga di numeri, e la riga di <b>it</b> non parla di nessun
        animale. Con l'<b>attenzione</b> una parola guarda tutte le altre e da ognuna prende una quota di ciò che contiene. Queste sono le
        quote di <b>it</b> nella testa 3.1, una delle 72 teste di MiniLM, un modello che ha imparato da testi inglesi. [CLS] e [SEP] sono segni che il modello
        mette attorno a un testo.
      </>
    ),
    understanding: (
      <>
        <b>È comprensione?</b> Metti «wide» (larga) al posto di «tired» (stanco), e <b>it</b> è la strada. Gira la frase, e i nomi si scambiano di
        posto. Indovina a che cosa la testa dà di più, poi guarda:
      </>
    ),
    counted: ({ sentences, right, best, guessed, cosine }) => (
      <>
        No. Su {sentences} frasi come queste la testa 3.1 ha ragione in {right}: in metà, perché vanno a coppie con risposte opposte e preferisce il primo nome. La migliore delle 72 teste ha ragione
        in {best}; se tirassero tutte a indovinare, la migliore avrebbe ragione in circa {guessed}. E senza la testa 3.1 il vettore che MiniLM ricava
        dalla prima frase quasi non si sposta: il suo coseno con quello di prima è {cosine}. I pesi di una testa dicono dove guarda. Che cosa ne
        consegue lo devono mostrare altre frasi, e togliere la testa.
      </>
    ),
    from: "Da dove vengono queste quote? I passi lo mostrano numero per numero: prima con i numeri di questa testa, poi per qualsiasi frase tu scriva, con numeri casuali.",
    toSteps: "Ai passi",
  },
  controls: {
    section: "Frase e comandi",
    sentence: "La frase",
    second: "chiavi e valori da",
    example: "Un esempio dai documenti",
    own: "la tua frase",
    model: "Questi sono i numeri della testa 3.1 stessa, del modello addestrato MiniLM; una frase tua si calcola con pesi casuali.",
    back: "Torna alla frase della pagina",
    opening: "MiniLM, testa 3.1: la frase dell'apertura",
    preset: (name, summary, document) => `${name}: ${summaries[name] ?? summary} (documento ${document})`,
    all: "tutte",
    more: "altro",
    linear: "come nn.Linear, attorno a 0",
    uniform: "uniformi, da 0 a 1",
    keep: "Conserva questi pesi, per vedere accanto la prossima modifica",
    compare: "Confronta",
    stop: "Fine confronto",
    spaceless: "Questa frase non ha spazi: le parole si dividono lì; metti degli spazi tra le parole.",
    putSpaces: "Metti gli spazi tra le parole",
  },
  lessons: {
    journey:
      "Il caso più piccolo che si può verificare a mano: sei parole con tre numeri assegnati ciascuna; query, chiavi e valori ne hanno due. Segui una coppia con la matita: la query di journey per la sua stessa chiave fa 1.8524, il massimo della sua riga. Le righe sono uniformi, perché numeri tra 0 e 1 danno punteggi poco diversi.",
    "journey-linear":
      "La stessa frase attraverso strati nn.Linear, come nei modelli veri: le matrici sono disposte al contrario, ed estratte attorno a 0. I punteggi si riducono, e i pesi diventano quasi uguali.",
    life:
      "Una dimensione realistica: 16 numeri per parola, query e chiavi di 24, valori di 28. «is» va d'accordo soprattutto con la chiave di «dessert». Guarda «short», «eat» e «dessert»: danno tutto a una parola sola, perché matrici tra 0 e 1 producono punteggi grandi, e la softmax di punteggi grandi è tutto o niente.",
    "life-multihead":
      "Tre teste: tre gruppi di matrici, tre risposte alla domanda chi conta per chi. La testa 0 di «is» guarda «short», la testa 1 «Life» e «first», la testa 2 sé stessa. Dentro una testa non c'è nulla di nuovo.",
    "life-cross":
      "Attenzione incrociata: le query vengono dalla frase, le chiavi e i valori da una seconda sequenza, qui otto righe di numeri casuali. I pesi non sono più quadrati, e ogni riga somma ancora a 1. Così un decoder legge ciò che un encoder ha scritto.",
    "life-continued":
      "Lo stesso codice, ma il generatore non riceve un nuovo seme tra gli embedding e le matrici. Gli embedding sono uguali fino all'ultimo bit; ogni numero dopo di loro è diverso. Quando i numeri di un tutorial non tornano, cerca un seme.",
    "life-continued-multihead": "Tre teste, da un generatore che non riceve un nuovo seme: le stesse parole, altri numeri dalle query in poi.",
    "my-name": "Cinque parole con id che il documento sceglie in un vocabolario di dieci; query, chiavi e valori di 16.",
    "my-name-multihead":
      "L'attenzione multi-testa completa di un Transformer: quattro teste di 4 numeri, fianco a fianco larghe quanto gli embedding, e un'ultima matrice che le mescola.",
  },
  words: {
    name: "Parole",
    title: "Le parole diventano id",
    given: (size) => `Il documento dà a ogni parola un id in un vocabolario di ${size}.`,
    made: "Le virgole cadono e le parole si dividono agli spazi. L'id di una parola è il suo posto, da 0, tra le parole distinte e ordinate; le maiuscole vengono prima.",
    second: "La seconda frase ha un vocabolario suo.",
    numbers: (count) => `La seconda sequenza è fatta di numeri, senza parole: da x1 a x${count}.`,
    hasId: (word, id) => <><Word>{word}</Word> ha l'id {id}</>,
    same: (times) => `Compare ${times} volte, ogni volta con lo stesso id: nulla distingue i posti, se non si aggiungono le posizioni.`,
    id: "id",
    word: "parola",
  },
  embeddings: {
    name: "Embedding",
    title: "Gli id diventano embedding",
    given: <p>Il documento dà gli <Term of="embedding" />: una riga di numeri per ogni parola.</p>,
    drawn: (seed) => (
      <p>
        Ogni id prende una riga da una tabella di numeri casuali di N(0, 1), seme {seed}: è l'<Term of="embedding" /> della parola. L'addestramento
        imparerebbe la tabella, così che parole di significato simile abbiano righe simili.
      </p>
    ),
    row: (word, id, size) => (
      <><Word>{word}</Word> ha l'id {id}: il suo embedding è la riga {id} della tabella, contando da 0. D'ora in poi i suoi {size} numeri sono tutto ciò che si sa della parola.</>
    ),
  },
  positions: {
    name: "Posti",
    title: "I posti si sommano agli embedding",
    text: (
      <p>
        L'attenzione non sa in che ordine stanno le parole. Perciò ogni posto ha una riga sua, seni e coseni di onde sempre più lunghe (Vaswani
        et al. 2017, sezione 3.5), che si somma. Il posto t della prima parola è 0.
      </p>
    ),
    wave: (place, wave, over, value) => <>Il suo posto è {place}, e per quest'onda vale {wave}({place} / 10000<sup>{over}</sup>) = {value}.</>,
  },
  projections: {
    name: "q, k, v",
    title: "Gli embedding diventano query, chiavi e valori",
    text: ({ cross, linear, several }) => (
      <p>
        Tre matrici trasformano ogni embedding in una <Term of="query" /> (che cosa cerca), una <Term of="key">chiave</Term> (che cosa offre) e
        un <Term of="value">valore</Term> (che cosa cede). {cross && "Le query vengono dalla prima sequenza, le chiavi e i valori dalla seconda. "}
        {linear ? "Le matrici sono estratte come torch.nn.Linear estrae le sue, attorno a 0." : "Le matrici sono estratte tra 0 e 1."}
        {several && " Ogni testa ha matrici proprie."}
      </p>
    ),
    times: (word, column, place, matrix) => <>L'embedding di <Word>{word}</Word> per la {column ? "colonna" : "riga"} {place} di {matrix}, e poi la somma:</>,
  },
};

const summaries: Record<string, string> = {
  journey: "Your journey starts with one step: parametri nudi, x @ w",
  "journey-linear": "la stessa frase con strati Linear",
  life: "Life is short, eat dessert first: una testa",
  "life-multihead": "la stessa con tre teste",
  "life-cross": "attenzione incrociata con una seconda sequenza di otto",
  "life-continued": "una testa, i pesi estratti di seguito all'embedding",
  "life-continued-multihead": "la stessa con tre teste",
  "my-name": "my name is Marcello Politi: una testa",
  "my-name-multihead": "quattro teste, concatenate e proiettate",
};
