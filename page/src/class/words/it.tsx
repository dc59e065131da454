import { counted } from "../../counted";
import { given, sinkOptions, stripeOf, tiredOptions, twoHeadsOptions } from "../experiments";
import { fixed, percent, rounded, shown, sum } from "../numbers";
import type { Words } from "./en";
import { added, odds } from "./en";

export const it: Words = {
  name: "Una lezione sull’attenzione",
  lead: "Otto esperimenti su modelli veri. Ognuno chiede che cosa ti aspetti, poi mostra che cosa è stato calcolato, dice perché, e come verificarlo a mano.",
  offline: "Tutto è in questa cartella. Nulla viene caricato dalla rete, e nulla di ciò che scrivi lascia il computer.",
  cannotRun: (error) => `Questo browser non può eseguire la pagina (${error}); seguono i suoi link.`,
  of: (number, count) => `Esperimento ${number} di ${count}`,
  predict: "Prevedi",
  yes: "Sì.",
  no: (right) => `La risposta è: ${right}.`,
  again: "Prevedi di nuovo",
  computed: "Che cosa è stato calcolato",
  why: "Perché",
  hand: "Verificalo a mano",
  further: "Guarda oltre",
  here: "Apri qui",
  alone: "Apri in una pagina a parte",
  recorded: "Questa pagina mostra un calcolo registrato quando la lezione è stata creata. Non calcola altri testi.",
  live: "Questa pagina calcola qualunque testo tu scriva.",
  all: "Tutti gli esperimenti",
  previous: "Precedente",
  next: "Successivo",
  languages: "Lingua",
  pages: {
    "lesson.html": "La lezione: l’attenzione passo per passo, con ogni numero svolto",
    "minilm.html": "L’esploratore: ogni testa di MiniLM, con qualsiasi frase",
    "smollm2.html": "L’esploratore con SmolLM2: qualsiasi testo, che cosa segue, e perché",
  },
  figure: {
    next: "che cosa segue",
    without: (head) => `senza la testa ${head}`,
    withAll: "con tutte le teste",
    row: (word, head) => `Quanto “${word}” dà a ogni parola${head ? ` nella testa ${head}` : ""}`,
    meanRow: (word) => `Quanto “${word}” dà a ogni token, in media su tutte le teste`,
    map: (head) => `Testa ${head}: ogni riga è un token che guarda, ogni colonna uno che è guardato`,
    country: "paese",
    capital: "capitale",
    text: "testo",
    alone: "da solo",
    after: "dopo la frase",
    token: "token",
    meant: "“it” è",
    most: "la testa dà di più a",
    size: "numeri in una query",
    spread: "dispersione dei punteggi",
    divided: "peso maggiore, diviso per √d",
    undivided: "peso maggiore, senza divisione",
    masked: "con la maschera",
    unmasked: "senza maschera",
  },
  guides: {
    paris: {
      title: "Parigi senza una testa",
      teaser: "Una delle 270 teste viene tolta. Il modello conosce ancora la capitale della Francia?",
      setting: ({ heads, answer, head }) => (
        <p>
          SmolLM2 è un piccolo modello linguistico inglese. Legge “The capital of France is” (la capitale della Francia è) e dà a Paris una probabilità del {percent(answer[0])}. Il
          modello ha {heads} teste. Ne togliamo una: la testa {head}, cioè la testa 4 dello strato 23 (contando da 0). Quella testa allora scrive zeri. Nient’altro cambia.
        </p>
      ),
      question: () => "Che cosa succede a Paris?",
      options: ({ answer: [before] }) => [
        `Sale sopra il ${percent(before)}`, `Resta vicino al ${percent(before)}`, `Scende a circa la metà, il ${percent(before / 2)}`, `Scende sotto un quarto, il ${percent(before / 4)}`,
      ],
      why: ({ head, tokens, weights, halving, heads, capitals }) => (
        <>
          <p>
            Nella riga di “is” la testa {head} dà il {percent(weights[tokens.length - 2]!)} a “France”. Legge ciò che gli strati precedenti hanno scritto lì, e lo aggiunge alla riga da
            cui si legge la risposta.
          </p>
          <p>
            Una sola frase non dimostra nulla. Senza la testa {capitals.filter(({ before, after }) => after < before).length} di queste {capitals.length} capitali diventano meno
            probabili. Abbiamo tolto anche ciascuna delle {heads} teste da sola: {halving} rendono Paris meno di metà probabile, questa più di tutte. Dunque la testa conta. Ma non
            conosce le capitali da sola: anche senza di essa Paris resta il token più probabile.
          </p>
        </>
      ),
      hand: ({ answer: [before, after] }) => {
        const [one, two] = [odds(before, 2), odds(after, 3)];
        return (
          <p>
            Le quote (odds) sono p / (1 − p). Prima: {fixed(before)} / {fixed(1 - before)} = {fixed(one, 2)}. Dopo: {fixed(after)} / {fixed(1 - after)} = {fixed(two)}. Prendi il
            logaritmo naturale del loro rapporto: ln({fixed(one, 2)} / {fixed(two)}) = {fixed(Math.log(one / two), 2)}. Di tanto è sceso il logit di Paris rispetto a tutti gli altri
            token insieme.
          </p>
        );
      },
      further: ({ head }) => <p>Scegli altre teste nella riga di “is”. Quali guardano “France” come la testa {head}?</p>,
    },
    induction: {
      title: "Un nome che nessuno conosce",
      teaser: "Un nome inventato è tagliato a metà. Come può continuare il modello?",
      setting: ({ names: [name] }) => (
        <p>
          Il nome “Zorvak” è inventato. Dopo il solo “{name!.alone}” per SmolLM2 il token più probabile è “{shown(name!.likeliest[0]!.token)}” ({percent(name!.likeliest[0]!.probability)}).
          Il token “{name!.token}” ha lo {percent(name!.probabilities[0])}. Ora il modello legge “{name!.after}”.
        </p>
      ),
      question: ({ names: [name] }) => <>Quanto è probabile “{name!.token}” adesso?</>,
      options: () => ["Meno dell’1\u00a0%", "Circa il 10\u00a0%", "Circa la metà", "Più del 75\u00a0%"],
      why: (numbers) => (
        <>
          <p>
            Il modello cerca che cosa seguiva lo stesso token in precedenza, e lo copia. Le teste che fanno questo si chiamano teste di induzione (Olsson et al. 2022). Nella mappa
            della testa {numbers.head} i token della seconda frase guardano ciò che seguiva lo stesso token nella prima: una striscia sotto la diagonale.
          </p>
          <p>
            La striscia riceve in media il {percent(stripeOf(numbers))} di ciò che dà la seconda frase. Dove non c’è nulla da copiare la testa guarda il primo token: di questo parla
            l’esperimento successivo. Tutti e tre i nomi funzionano, quindi il modello non li sapeva a memoria.
          </p>
        </>
      ),
      hand: ({ tokens }) => (
        <p>
          La frase ha {tokens.length / 2} token e compare due volte. Un token al posto t stava prima al posto t − {tokens.length / 2}, e ciò che lo seguiva a t −{" "}
          {tokens.length / 2 - 1}. Dunque la striscia sta {tokens.length / 2 - 1} posti a sinistra della diagonale. Contali nella mappa.
        </p>
      ),
      further: ({ head }) => <p>Trova la striscia nella mappa della testa {head}. Poi scorri le piccole mappe di tutte le teste: quali altre la hanno?</p>,
    },
    sink: {
      title: "Il primo token prende di più",
      teaser: "Dove guardano le teste quando non c’è nulla da leggere?",
      setting: ({ texts, even }) => (
        <p>
          SmolLM2 legge {texts.length} testi brevi. Un token vede se stesso e ciò che lo precede. Se ogni token dividesse la sua attenzione in parti uguali fra tutto ciò che vede, il
          primo riceverebbe il {percent(even)}, in media su tutte le righe tranne la prima.
        </p>
      ),
      question: () => "Quanto riceve davvero il primo token, in media su tutte le teste?",
      options: (numbers) => sinkOptions(numbers).map((share) => `Circa il ${percent(share)}`),
      why: ({ share, lengths, heads, heads_of_half }) => (
        <>
          <p>
            Riceve il {percent(share)}. I pesi di una testa devono avere somma 1, anche dove non trova nulla da leggere. Allora guarda un token che non fa danni: un pozzo di attenzione
            (attention sink, Xiao et al. 2023). I valori del primo token sono corti: da {fixed(Math.min(...lengths), 2)} a {fixed(Math.max(...lengths), 2)} della lunghezza media degli
            altri. Ciò che consegna è poco.
          </p>
          <p>Le teste sono diverse: in {heads_of_half} mappe su {heads} il primo token riceve più di metà.</p>
        </>
      ),
      hand: ({ weights, lengths }) => (
        <p>
          Somma la riga: {added(weights, 2)}. È 1, a meno degli arrotondamenti. Moltiplica la prima parte per la lunghezza dei suoi valori: {fixed(weights[0]!, 2)} ×{" "}
          {fixed(lengths[2]!, 2)} = {fixed(rounded(weights[0]!, 2) * rounded(lengths[2]!, 2), 2)}. Contando ciò che viene trasportato, il primo token non è più così grande.
        </p>
      ),
      further: () => <p>Passa da “by weight” a “by norm”, che conta ciò che viene trasportato. Che cosa resta della prima colonna?</p>,
    },
    tired: {
      title: "Stanco e largo",
      teaser: "Una testa sembra sapere che cosa significa “it”. Prova a smentirla.",
      setting: ({ head, sentences: [first] }) => (
        <p>
          In “{first!.text}” (l’animale non attraversò la strada perché era troppo stanco) la parola “it” è l’animale. La testa {head} di MiniLM dà a “animal” il{" "}
          {percent(given(first!, "animal"))} dell’attenzione di “it”. Sembra che la testa abbia capito. Ora al posto di “tired” (stanco) mettiamo “wide” (larga), e “it” è la strada.
        </p>
      ),
      question: () => "A che cosa dà di più la testa adesso?",
      options: (numbers) => tiredOptions(numbers),
      why: ({ head, sentences, cosine }) => (
        <>
          <p>
            La testa {head} preferisce il nome che viene per primo. Rovescia la frase, e dà a “street” il {percent(given(sentences[2]!, "street"))}, benché lì “it” sia l’animale. Su{" "}
            {counted.sentences} frasi simili ha ragione in {counted.right}, come una moneta. La migliore delle 72 teste ha ragione in {counted.best}; se tutte tirassero a indovinare, la
            migliore avrebbe ragione in circa {counted.guessed}.
          </p>
          <p>
            La testa conta qualcosa? Senza di essa il vettore che MiniLM ricava dalla prima frase ha con quello di prima un coseno di {fixed(cosine, 4)}. Quasi nulla è cambiato.
          </p>
        </>
      ),
      hand: ({ sentences }) => (
        <p>
          Per ognuna delle quattro frasi confronta quanto ricevono “animal” e “street”, e segna se il maggiore è ciò che “it” significa:{" "}
          {sentences.map((each) => `${fixed(given(each, "animal"), 2)} e ${fixed(given(each, "street"), 2)}`).join("; ")}. Quanti segni hai su quattro?
        </p>
      ),
      further: () => <p>Scrivi una tua frase inglese con “it” e due nomi. Prima indovina, poi guarda. Riesci a trovare una testa che ha ragione in tutte le tue frasi?</p>,
    },
    mask: {
      title: "Che cosa fa una maschera causale",
      teaser: "Alcune parole vengono nascoste. Che cosa succede ai pesi delle altre?",
      setting: ({ text, tokens, query, weights }) => (
        <p>
          La lezione calcola “{text}” con pesi casuali. La parola “{tokens[query]}” dà a “{tokens[1]}” {fixed(weights[1]!)}. Una maschera causale nasconde tutte le parole dopo “
          {tokens[query]}”, come in un modello che scrive da sinistra a destra.
        </p>
      ),
      question: ({ tokens, query }) => <>Che cosa succede a ciò che “{tokens[query]}” dà alle parole che vede ancora?</>,
      options: ({ query }) => ["Nulla cambia", "Crescono tutti dello stesso fattore", `Ognuno diventa 1/${query + 1}`, "Cambiano senza una regola semplice"],
      why: () => (
        <p>
          La softmax divide ogni esponenziale per la somma di tutti. La maschera toglie da quella somma quelli nascosti, e lascia i punteggi come sono. Gli esponenziali degli altri
          restano, e sono divisi per una somma minore: crescono tutti dello stesso fattore.
        </p>
      ),
      hand: ({ weights, causal, query, tokens }) => {
        const seen = weights.slice(0, query + 1);
        return (
          <p>
            Somma ciò che avevano le parole viste: {added(seen, 3)}. Dividi: {fixed(seen[1]!)} / {fixed(sum(seen))} = {fixed(seen[1]! / sum(seen))}. Con la maschera “{tokens[1]}” riceve{" "}
            {fixed(causal[1]!)}.
          </p>
        );
      },
      further: () => <p>Accendi e spegni la maschera, e osserva le righe. Quale riga non cambia affatto?</p>,
    },
    "two-heads": {
      title: "A che cosa serve una seconda testa",
      teaser: "Una riga di pesi ha somma 1. Che cosa dà in più una seconda?",
      setting: ({ text, heads: [one, two] }) => (
        <p>
          In “{text}” la testa {one!.head} di MiniLM dà a “{one!.word}” {fixed(one!.weights[one!.key]!)} dell’attenzione di “it”. Supponi che a “it” serva anche la parola “{two!.word}”.
        </p>
      ),
      question: ({ heads: [one, two] }) => <>Quanto può dare al massimo la testa {one!.head} a “{two!.word}” in questa riga?</>,
      options: () => twoHeadsOptions.map((share) => fixed(share)),
      why: ({ heads: [one, two], head_size }) => (
        <p>
          I pesi di una riga hanno somma 1. La testa {one!.head} ha dato quasi tutto. La testa {two!.head} ha una riga propria per la stessa parola, con query e chiavi proprie: dà a “
          {two!.word}” {fixed(two!.weights[two!.key]!)}. I due vettori di contesto proseguono fianco a fianco, {head_size} numeri da ogni testa. Una testa sola potrebbe soltanto mescolare
          le due parole.
        </p>
      ),
      hand: ({ heads: [one, two] }) => (
        <p>
          Nella testa {one!.head} resta 1 − {fixed(one!.weights[one!.key]!)} = {fixed(1 - one!.weights[one!.key]!)}. Una testa sola che volesse le due parole allo stesso modo potrebbe dare
          a ognuna al massimo 0.500. Le due teste danno {fixed(one!.weights[one!.key]!)} e {fixed(two!.weights[two!.key]!)}.
        </p>
      ),
      further: () => <p>Scrivi un’altra frase inglese. Le due teste guardano ancora la parola prima e la parola dopo?</p>,
    },
    translation: {
      title: "Che cosa legge un traduttore",
      teaser: "Quale parola inglese viene letta quando se ne scrive una italiana?",
      setting: ({ source, written, query }) => (
        <p>
          Un piccolo traduttore, addestrato con questa libreria, legge “{source}” e scrive in italiano, un token alla volta. Ha appena scritto “{shown(written[query]!)}”. Nella
          cross-attention la sua query viene dall’italiano, le chiavi e i valori vengono dall’inglese.
        </p>
      ),
      question: ({ next, head }) => <>Poi scrive “{shown(next)}”. A quale token inglese dà di più la testa {head}?</>,
      options: ({ tokens }) => tokens.map(shown),
      why: ({ next, tokens, weights }) => (
        <p>
          Nessuno ha detto al modello quali parole vanno insieme. Ha imparato che “{shown(next)}” viene da “{shown(tokens[weights.indexOf(Math.max(...weights))]!)}”, perché guardare lì
          migliorava le sue previsioni. Nella riga di un token si scrive il successivo. L’italiano mette l’aggettivo dopo il nome, quindi due righe si incrociano. È una sola frase:
          l’esempio translate del repository di attend ne registra altre.
        </p>
      ),
      hand: ({ weights, written, tokens }) => (
        <p>
          Somma la riga: {added(weights, 2)}. Poi conta: la mappa ha una riga per ogni token italiano, {written.length}, e una colonna per ogni token inglese, {tokens.length}. Qui per caso
          sono altrettanti.
        </p>
      ),
      further: () => <p>Scegli le altre righe una dopo l’altra. Dove si incrociano? Quali teste dello stesso strato guardano altrove?</p>,
    },
    root: {
      title: "Perché dividere per √d",
      teaser: "Query più lunghe danno punteggi più grandi. Che cosa ne fa la softmax?",
      setting: ({ sizes, seeds }) => (
        <p>
          Un punteggio è una somma di prodotti, uno per ogni numero di una query. Nella frase della lezione una query ha {sizes[0]!.size} numeri. Senza divisione il peso maggiore di una
          riga è {fixed(sizes[0]!.without, 2)}, in media sulle righe (la mediana di {seeds} estrazioni casuali). Ora allunghiamo le query: {sizes.at(-1)!.size} numeri.
        </p>
      ),
      question: () => "Che cosa succede al peso maggiore, sempre senza divisione?",
      options: ({ sizes: [short] }) => [
        "Scende, perché l’attenzione si distribuisce", `Resta vicino a ${fixed(short!.without, 2)}`, `Cresce a più di 1.3 volte tanto, ${fixed(1.3 * short!.without, 2)}`, "Diventa 1.00",
      ],
      why: ({ sizes }) => {
        const [short, long] = [sizes[0]!, sizes.at(-1)!];
        return (
          <p>
            Più sono i prodotti, più i punteggi si disperdono: {fixed(short.spread, 2)} con {short.size} numeri, {fixed(long.spread, 2)} con {long.size}. La softmax di punteggi dispersi dà
            quasi tutto a una sola chiave. Divisi per √d i punteggi conservano la loro dispersione, e il peso maggiore resta: {fixed(short.with, 2)} e {fixed(long.with, 2)}. Questo vale
            dove i prodotti sono indipendenti e di media 0, come quelli della lezione.
          </p>
        );
      },
      hand: ({ sizes }) => {
        const [short, long] = [sizes[0]!, sizes.at(-1)!];
        return (
          <p>
            √({long.size} / {short.size}) = {fixed(Math.sqrt(long.size / short.size), 2)}, e le dispersioni stanno nel rapporto {fixed(long.spread, 2)} / {fixed(short.spread, 2)} ={" "}
            {fixed(long.spread / short.spread, 2)}. Divise: {fixed(short.spread, 2)} / √{short.size} = {fixed(short.spread / Math.sqrt(short.size), 2)}, e {fixed(long.spread, 2)} / √
            {long.size} = {fixed(long.spread / Math.sqrt(long.size), 2)}.
          </p>
        );
      },
      further: () => <p>Accendi e spegni la scala, e osserva l’entropia di una riga. Poi scegli un’altra dimensione.</p>,
    },
  },
};
