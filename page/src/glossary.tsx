// Words of the field, explained together.
import { language } from "./language";
import { say } from "./words";
import type { GlossaryWord } from "./words/en";

export const Glossary = ({ of }: { of: readonly GlossaryWord[] }) => (
  <details class="glossary" lang={language}>
    <summary>{say.glossaryTitle}</summary>
    <dl>{of.map((word) => [<dt key={word}>{say.glossary[word].name}</dt>, <dd key={`${word}:`}>{say.glossary[word].meaning}</dd>])}</dl>
  </details>
);
