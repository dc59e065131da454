// Pieces of which texts are made in any language: a word of the reader's, and a word of the field, explained where it stands.
import { useState } from "preact/hooks";

export const Word = ({ children }: { children: string }) => <bdi class="word">{children}</bdi>;

export interface Meaning {
  name: string;
  meaning: string;
}

export const termOf = <Key extends string>(glossary: Record<Key, Meaning>) =>
  function Term({ of, children }: { of: Key; children?: string }) {
    const [open, setOpen] = useState(false);
    const { name, meaning } = glossary[of];
    return (
      <>
        <button type="button" class="term" aria-expanded={open} onClick={() => setOpen(!open)}>{children ?? name}</button>
        {open && <span class="meaning" role="note"><b>{name}</b> {meaning}</span>}
      </>
    );
  };
