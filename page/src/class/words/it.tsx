import { counted } from "../../counted";
import { given, meanOf, sinkOptions, stripeOf, tiredOptions, twoHeadsOptions } from "../experiments";
import { fixed, percent, rounded, shown, sum } from "../numbers";
import type { Words } from "./en";
import { added, divided, odds } from "./en";

// What "it" refers to, with its article.
const noun = (word: string): string => (word === "animal" ? "all’animale" : "alla strada");

export const it: Words = {
  name: "Un laboratorio sull’attenzione",
  lead: "Otto esperimenti: sei su modelli addestrati, due su numeri casuali. In ognuno ti chiediamo che cosa ti aspetti; poi trovi che cosa è stato calcolato, perché, e come verificarlo a mano.",
  offline: "Tutto è in questa cartella. Nulla viene caricato dalla rete, e nulla di ciò che scrivi lascia il computer.",
  cannotRun: (error) => `Questo browser non può eseguire la pagina (${error}); seguono i suoi link.`,
  of: (number, count) => `Esperimento ${number} di ${count}`,
  terms: {
    title: "Parole che ti servono",
    list: [
      ["token", "Un pezzo di testo che il modello legge come unità: una parola, una sua parte, o un segno come [CLS]."],
      ["strato (layer)", "Un passo del modello. Ogni strato cambia i numeri che rappresentano ogni token."],
      ["testa (head)", "Un’attenzione di uno strato. «Testa 23.4» è la testa 4 dello strato 23; entrambi sono contati da 0."],
      ["query, chiave (key), valore (value)", "Righe di numeri che una testa ricava da ogni token: che cosa il token cerca, con che cosa si fa trovare, e che cosa consegna."],
      ["punteggio (score)", "Quanto una query e una chiave vanno d’accordo: la somma dei loro prodotti."],
      ["softmax", "Trasforma i punteggi in quote: e elevato a ciascuno, diviso per la somma di tutti."],
      ["peso (weight)", "La quota della sua attenzione che un token dà a un altro. I pesi di una riga hanno somma 1."],
      ["logit", "Il numero da cui il modello ricava, con la softmax, la probabilità del token successivo."],
    ],
  },
  prediction: { title: "Fai una previsione", yes: "Sì.", no: (right) => `La risposta è: ${right}.`, again: "Fai un’altra previsione" },
  computed: "Che cosa è stato calcolato",
  why: "Perché",
  hand: "Verificalo a mano",
  further: "Per approfondire",
  here: "Apri qui",
  alone: "Apri in una pagina a parte",
  recorded: "Questa pagina (in inglese) mostra un calcolo registrato quando il laboratorio è stato creato. Non calcola altri testi.",
  live: "Questa pagina calcola qualunque testo tu scriva.",
  eightBits: "Questa pagina (in inglese) calcola qualunque testo tu scriva. Tiene i numeri di MiniLM in 8 bit, perciò le sue cifre sono un po’ diverse da quelle qui sopra.",
  all: "Tutti gli esperimenti",
  previous: "Precedente",
  next: "Successivo",
  languages: "Lingua",
  pages: {
    "lesson.html": "La lezione: l’attenzione passo per passo, con tutti i calcoli svolti",
    "minilm.html": "L’esploratore (in inglese): ogni testa di MiniLM, con qualsiasi frase",
    "smollm2.html": "L’esploratore con SmolLM2 (in inglese): qualsiasi testo, che cosa segue, e perché",
  },
  figure: {
    nextOf: (text, how) => `“${text}”: che cosa segue${how ? `, ${how}` : ""}`,
    without: (head) => `senza la testa ${head}`,
    withAll: "con tutte le teste",
    row: (word, head, how) => `Quanto “${word}” dà a ogni token${head ? ` nella testa ${head}` : ""}${how ? `, ${how}` : ""}`,
    meanRow: (word) => `Quanto “${word}” dà a ogni token del terzo testo, in media su tutte le teste`,
    map: (head) => `Testa ${head}: ogni riga è un token che guarda, ogni colonna uno che è guardato`,
    given: (meant, most) => `“it” si riferisce ${noun(meant)}; la testa dà più attenzione a ${most}`,
    country: "paese",
    capital: "capitale",
    text: "testo",
    alone: "da solo",
    after: "dopo la frase",
    token: "token",
    size: "numeri in una query",
    spread: "deviazione standard dei punteggi",
    divided: "peso maggiore, punteggi divisi per √d",
    undivided: "peso maggiore, punteggi non divisi",
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
          modello ha {heads} teste. Ne togliamo una: la testa {head}, cioè la testa 4 dello strato 23. Ciò che quella testa aggiungerebbe a ogni token è messo a 0. Tutto il resto non
          cambia.
        </p>
      ),
      question: () => "Che cosa succede a Paris?",
      options: ({ answer: [before] }) => [
        `Sale sopra il ${percent(before)}`, `Resta vicino al ${percent(before)}`, `Scende a circa il ${percent(before / 2)}`, `Scende sotto il ${percent(before / 4)}`,
      ],
      why: ({ head, tokens, weights, halving, heads, capitals }) => (
        <>
          <p>
            Nella riga di “is” la testa {head} dà il {percent(weights[tokens.length - 2]!)} a “France”. Senza la testa salgono altre città, come Londra e Tokyo. Dunque non si è perso che
            segue una città. Si è perso quale.
          </p>
          <p>
            Una sola frase non dimostra nulla. Senza la testa {capitals.filter(({ before, after }) => after < before).length} di queste {capitals.length} capitali diventano meno
            probabili. Abbiamo tolto anche ciascuna delle {heads} teste da sola: senza {halving} di esse la probabilità di Paris scende a meno della metà, ed è questa a farla scendere di
            più. Dunque la testa conta. Ma le capitali non stanno solo in questa testa: anche senza di essa Paris resta il token più probabile.
          </p>
        </>
      ),
      hand: ({ answer: [before, after] }) => {
        const [one, two] = [odds(before, 2), odds(after, 3)];
        return (
          <p>
            Il {percent(before)} è {fixed(before)}, il {percent(after)} è {fixed(after)}. Le quote (odds) sono p / (1 − p). Prima: {fixed(before)} / {fixed(1 - before)} = {fixed(one, 2)}.
            Dopo: {fixed(after)} / {fixed(1 - after)} = {fixed(two)}. Prendi il logaritmo naturale del loro rapporto: ln({fixed(one, 2)} / {fixed(two)}) ={" "}
            {fixed(Math.log(one / two), 2)}. Di tanto è sceso il logit di Paris rispetto a tutti gli altri token insieme.
          </p>
        );
      },
      further: ({ head }, live) =>
        live
          ? <p>Premi “Take it out” per la testa {head}, e guarda che cosa segue. Rimettila, e togline un’altra, per esempio 16.0. Poi scrivi un altro paese.</p>
          : <p>È mostrata la testa {head}, nella riga di “is”. Scorri fino ai quadratini e clicca su altre teste, fra cui 16.0 e 1.2. Quali guardano anch’esse “France”?</p>,
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
      options: () => ["Meno dell’1 %", "Circa il 10 %", "Circa la metà", "Più del 75 %"],
      why: (numbers) => (
        <>
          <p>
            Da soli, il modello dava a questi token al massimo lo {percent(Math.max(...numbers.names.map(({ probabilities }) => probabilities[0])))}: non conosceva i nomi. Dopo la frase
            può copiare: cercare che cosa seguiva quel token la volta precedente, e scriverlo. Le teste che guardano lì si chiamano teste di induzione (Olsson et al. 2022).
          </p>
          <p>
            La mappa mostra la testa {numbers.head} su una frase che compare due volte. In {stripeOf(numbers).filter((share) => share > 0.5).length} delle {stripeOf(numbers).length} righe
            della seconda frase più della metà va a ciò che seguiva lo stesso token: una striscia sotto la diagonale, in media il {percent(meanOf(stripeOf(numbers)))} dell’attenzione.
            Nella prima frase, dove non c’è nulla da copiare, quasi tutto va al primo token. Una mappa mostra dove una testa guarda; non dimostra che sia questa testa da sola a copiare.
          </p>
        </>
      ),
      hand: ({ tokens }) => (
        <p>
          La frase della mappa, “{tokens.slice(0, tokens.length / 2).join("").trim()}”, ha {tokens.length / 2} token e compare due volte. Il token in posizione t era già in posizione t −{" "}
          {tokens.length / 2}, e quello che lo seguiva è in posizione t − {tokens.length / 2 - 1}. Dunque la striscia sta {tokens.length / 2 - 1} colonne a sinistra della diagonale.
          Conta le colonne.
        </p>
      ),
      further: ({ head }, live) =>
        live
          ? <p>Scrivi un nome inventato da te, una frase su di lui, e l’inizio del nome. Il modello continua? Togli la testa {head}: continua ancora?</p>
          : <p>Trova la striscia nella mappa della testa {head}. Poi scorri i quadratini di tutte le teste: quali altre ce l’hanno?</p>,
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
      question: () => "Quanto riceve davvero il primo token, in media su tutte le righe, le teste e i testi?",
      options: (numbers) => sinkOptions(numbers).map((share) => `Circa il ${percent(share)}`),
      why: ({ share, lengths, heads, heads_of_half, texts }) => (
        <>
          <p>
            Su tutte le righe, le teste e i testi riceve il {percent(share)}; la riga qui sopra è una di esse. I pesi di una testa devono avere somma 1, anche dove non trova nulla da
            leggere. Una spiegazione è che allora guardi un token che non fa danni: un pozzo di attenzione (attention sink, Xiao et al. 2023). I vettori dei valori del primo token sono
            corti: da {fixed(Math.min(...lengths), 2)} a {fixed(Math.max(...lengths), 2)} della lunghezza media degli altri. Perciò trasmette poco.
          </p>
          <p>
            Le teste sono diverse. {texts.length} testi per {heads / texts.length} teste sono {heads} mappe, e in {heads_of_half} di esse il primo token riceve più della metà.
          </p>
        </>
      ),
      hand: ({ weights, lengths }) => {
        const [first, length] = [rounded(weights[0]!, 2), rounded(lengths[2]!, 2)];
        const carried = rounded(first * length, 2);
        return (
          <p>
            Somma la riga: {added(weights, 2)}. È 1, a meno degli arrotondamenti. Ora conta ciò che viene trasmesso. Il primo token: {fixed(first, 2)} × {fixed(length, 2)} ={" "}
            {fixed(carried, 2)}. Gli altri insieme, la cui lunghezza media è 1: {fixed(1 - first, 2)} × 1 = {fixed(1 - first, 2)}. Dunque il primo token trasmette {fixed(carried, 2)} /{" "}
            {fixed(carried + 1 - first, 2)} = {percent(carried / (carried + 1 - first))}, e non il {percent(first)}.
          </p>
        );
      },
      further: () => (
        <p>
          Nel menu “by” scegli “norm” al posto di “weight”: conta ciò che viene trasmesso. Che cosa resta della prima colonna in questa testa? Poi prova la testa 18.6. Perché lì non cambia
          nulla?
        </p>
      ),
    },
    tired: {
      title: "“Stanco” e “larga”",
      teaser: "Una testa sembra sapere a che cosa si riferisce “it”. Prova a smentirla.",
      setting: ({ head, sentences: [first] }) => (
        <p>
          In “{first!.text}” (l’animale non attraversò la strada perché era troppo stanco) la parola “it” si riferisce all’animale. Nella testa {head} di MiniLM “it” dà a “animal” il{" "}
          {percent(given(first!, "animal"))} della sua attenzione. Sembra che la testa abbia capito. Ora al posto di “tired” (stanco) mettiamo “wide” (larga), e “it” si riferisce alla
          strada. [CLS] e [SEP] sono segni che il modello mette attorno a un testo.
        </p>
      ),
      question: () => "A quale parola “it” dà più attenzione adesso?",
      options: (numbers) => tiredOptions(numbers),
      why: ({ head, sentences: [first, second, third], cosine }) => (
        <>
          <p>
            La parola “wide” ha spostato qualcosa: “animal” è passato dal {percent(given(first!, "animal"))} al {percent(given(second!, "animal"))}, “street” dal{" "}
            {percent(given(first!, "street"))} al {percent(given(second!, "street"))}. Non è bastato: “animal” riceve ancora più di “street”. La quota maggiore è andata a [CLS], dove molte
            teste guardano quando non trovano nulla.
          </p>
          <p>
            La testa {head} preferisce il nome che viene per primo. Rovescia la frase, e “it” dà a “street” il {percent(given(third!, "street"))}, benché lì si riferisca all’animale.
            Abbiamo contato su {counted.sentences} frasi simili, a coppie con risposte opposte. Una testa che sceglie sempre il primo nome ne azzecca la metà, e questa ne azzecca{" "}
            {counted.right}. La migliore delle 72 teste ne azzecca {counted.best}; se tutte tirassero a indovinare, la migliore ne azzeccherebbe circa {counted.guessed}.
          </p>
          <p>
            La testa conta qualcosa? Senza di essa, il coseno fra il vettore che MiniLM ricava dalla prima frase e quello originale è {fixed(cosine, 4)}, dove 1 è la stessa direzione.
          </p>
        </>
      ),
      hand: ({ sentences }) => (
        <p>
          Per ognuna delle quattro frasi confronta quanto ricevono “animal” e “street”, e metti una crocetta se il numero maggiore è della parola a cui “it” si riferisce:{" "}
          {sentences.map((each) => `${fixed(given(each, "animal"), 2)} e ${fixed(given(each, "street"), 2)}`).join("; ")}. Quante crocette hai?
        </p>
      ),
      further: () => (
        <p>
          Clicca sulla frase in alto, e scrivine una tua in inglese con “it” e due nomi. Prima indovina, poi guarda. Premi “Take it out”: la “similarity” mostrata è il coseno di cui sopra.
          Riesci a trovare una testa che abbia ragione in tutte le tue frasi?
        </p>
      ),
    },
    mask: {
      title: "Che cosa fa una maschera causale",
      teaser: "Alcune parole vengono nascoste. Che cosa succede ai pesi delle altre?",
      setting: ({ text, tokens, query, weights }) => (
        <p>
          La lezione calcola l’attenzione per “{text}” con numeri casuali nelle matrici. La parola “{tokens[query]}” dà a “{tokens[1]}” {fixed(weights[1]!)}. Una maschera causale nasconde
          tutte le parole dopo “{tokens[query]}”, come in un modello che scrive da sinistra a destra.
        </p>
      ),
      question: ({ tokens, query }) => <>Che cosa succede a ciò che “{tokens[query]}” dà alle parole che vede ancora?</>,
      options: ({ query }) => ["Non cambia nulla", "Crescono tutti dello stesso fattore", `Ognuno diventa 1/${query + 1}`, "Cambiano senza una regola semplice"],
      why: () => (
        <p>
          La softmax divide e<sup>punteggio</sup> di ogni parola per la somma di tutti. La maschera toglie da quella somma le parole nascoste, e lascia gli altri punteggi come sono. Gli
          altri e<sup>punteggio</sup> restano uguali, ma sono divisi per una somma più piccola: crescono tutti dello stesso fattore.
        </p>
      ),
      hand: ({ weights, causal, query, tokens }) => {
        const seen = weights.slice(0, query + 1);
        const all = sum(seen.map((weight) => rounded(weight, 4)));
        return (
          <p>
            Somma ciò che avevano le parole viste: {added(seen, 4)}. Il fattore è 1 / {fixed(all, 4)} = {fixed(1 / all, 3)}. Moltiplica: {fixed(seen[1]!, 4)} × {fixed(1 / all, 3)} ={" "}
            {fixed(rounded(seen[1]!, 4) * rounded(1 / all, 3))}. Con la maschera “{tokens[1]}” riceve {fixed(causal[1]!)}. Prova le altre due.
          </p>
        );
      },
      further: () => <p>Attiva e disattiva “causale”, e osserva le righe della figura. Quale riga non cambia affatto?</p>,
    },
    "two-heads": {
      title: "A che cosa serve una seconda testa",
      teaser: "Una riga di pesi ha somma 1. Che cosa dà in più una seconda?",
      setting: ({ text, heads: [one, two] }) => (
        <p>
          In “{text}” la parola “it” dà a “{one!.word}” {fixed(one!.weights[one!.key]!)} nella testa {one!.head} di MiniLM. Supponi che a “it” serva anche la parola “{two!.word}”.
        </p>
      ),
      question: ({ heads: [one] }) => <>Quanto resta alla testa {one!.head} in questa riga, per tutte le altre parole insieme?</>,
      options: () => twoHeadsOptions.map((share) => fixed(share)),
      why: ({ heads: [one, two], head_size }) => (
        <p>
          I pesi di una riga hanno somma 1, e la testa {one!.head} ha dato quasi tutto. La testa {two!.head} ha una riga propria per “it”, con query e chiavi proprie: dà a “{two!.word}”{" "}
          {fixed(two!.weights[two!.key]!)}. Ciò che le due teste prendono prosegue fianco a fianco, {head_size} numeri da ognuna. Una testa sola potrebbe soltanto mescolare le due parole.
        </p>
      ),
      hand: ({ heads: [one, two] }) => (
        <p>
          Con tre cifre, nella testa {one!.head} resta 1 − {fixed(one!.weights[one!.key]!)} = {fixed(1 - one!.weights[one!.key]!)}. Insieme le due teste danno{" "}
          {fixed(one!.weights[one!.key]!)} + {fixed(two!.weights[two!.key]!)} = {fixed(rounded(one!.weights[one!.key]!) + rounded(two!.weights[two!.key]!))}: più di quanto possa una riga.
          Una testa sola che volesse dare alle due parole lo stesso peso potrebbe dare a ognuna al massimo 0.500.
        </p>
      ),
      further: ({ heads: [one, two] }) => (
        <p>
          La testa {one!.head} guardava la parola prima di “it”, la testa {two!.head} quella dopo. Clicca sulla frase in alto, scrivine un’altra in inglese, e scegli le due teste fra i
          quadratini. Vale anche per altre parole?
        </p>
      ),
    },
    translation: {
      title: "Che cosa legge un traduttore automatico",
      teaser: "Quale parola inglese viene letta quando se ne scrive una italiana?",
      setting: ({ source, written, query }) => (
        <p>
          Un piccolo traduttore automatico, addestrato con attend, legge “{source}” e scrive in italiano, un token alla volta. Ha appena scritto “{shown(written[query]!)}”. Nella
          cross-attention la sua query viene dall’italiano, le chiavi e i valori vengono dall’inglese. Guardiamo la testa 3 della prima cross-attention del decoder.
        </p>
      ),
      question: ({ next }) => <>Poi scrive “{shown(next)}”. A quale token inglese la testa dà più attenzione?</>,
      options: ({ tokens }) => tokens.map(shown),
      why: ({ next, tokens, weights }) => (
        <p>
          Nessuno ha detto al modello quali parole si corrispondono. Da coppie di frasi ha imparato che “{shown(next)}” corrisponde a “
          {shown(tokens[weights.indexOf(Math.max(...weights))]!)}”. La riga di un token è quella in cui viene scritto il successivo. L’italiano mette l’aggettivo dopo il nome, quindi due
          righe si incrociano. È una sola frase: l’esempio “translate” del repository di attend ne registra altre.
        </p>
      ),
      hand: ({ weights, written, tokens }) => (
        <p>
          Somma la riga: {added(weights, 2)}. Poi conta. La mappa ha una riga per {shown(written[0]!)} e una per ognuno dei {written.length - 1} token italiani, una colonna per ognuno dei{" "}
          {tokens.length - 1} token inglesi e una per {shown(tokens.at(-1)!)}. Qui per caso i due numeri coincidono: {tokens.length}.
        </p>
      ),
      further: ({ written }) => (
        <p>
          Scegli le righe di “{shown(written[3]!)}” e “{shown(written[4]!)}”: i loro quadrati più marcati stanno in ordine inverso. Sotto “Cross-attention” la riga 0 ha quattro quadratini.
          Che cosa fanno le altre tre teste?
        </p>
      ),
    },
    root: {
      title: "Perché dividere per √d",
      teaser: "Query più lunghe danno punteggi più grandi. Che cosa ne fa la softmax?",
      setting: ({ sizes, seeds }) => (
        <p>
          Un punteggio è una somma di d prodotti, uno per ogni numero di una query. Nella frase della lezione d è {sizes[0]!.size}, e le matrici contengono numeri casuali. Facciamo la media
          del peso maggiore su tutte le righe, per {seeds} estrazioni casuali, e prendiamo il valore centrale degli {seeds} risultati. Senza divisione è {fixed(sizes[0]!.without, 2)}. Ora
          allunghiamo le query: d è {sizes.at(-1)!.size}.
        </p>
      ),
      question: () => "Che cosa succede al peso maggiore, sempre senza divisione?",
      options: ({ sizes: [short] }) => [
        "Scende, perché l’attenzione si disperde", `Resta vicino a ${fixed(short!.without, 2)}`, `Cresce oltre ${fixed(1.3 * short!.without, 2)}`, "Diventa 1.00",
      ],
      why: ({ sizes }) => {
        const [short, long] = [sizes[0]!, sizes.at(-1)!];
        return (
          <p>
            Più sono i prodotti, più i punteggi sono lontani fra loro: la deviazione standard è {fixed(short.spread, 2)} per {short.size} numeri, {fixed(long.spread, 2)} per {long.size}. La
            softmax di punteggi lontani dà la maggior parte a una sola chiave: qui {fixed(long.without, 2)}. Divisi per √d i punteggi conservano la loro distanza, e il peso maggiore resta:{" "}
            {fixed(short.with, 2)} e {fixed(long.with, 2)}. Vale se i prodotti sono indipendenti e di media 0, come quelli della lezione.
          </p>
        );
      },
      hand: ({ sizes }) => {
        const [short, long] = [sizes[0]!, sizes.at(-1)!];
        return (
          <p>
            √({long.size} / {short.size}) = {fixed(Math.sqrt(long.size / short.size), 2)}. Il rapporto fra le deviazioni standard è {fixed(long.spread, 2)} / {fixed(short.spread, 2)} ={" "}
            {divided(long.spread, short.spread, 2)}, che gli è vicino. Divise: {fixed(short.spread, 2)} / √{short.size} = {fixed(rounded(short.spread, 2) / Math.sqrt(short.size), 2)}, e{" "}
            {fixed(long.spread, 2)} / √{long.size} = {fixed(rounded(long.spread, 2) / Math.sqrt(long.size), 2)}.
          </p>
        );
      },
      further: () => <p>Attiva e disattiva “scala”, e osserva a destra su quante chiavi è come se la riga fosse distribuita. Poi apri “altro” e cambia d_k.</p>,
    },
  },
};
