// The same page in another language, at the same place.
import { addressIn, language, languages } from "./language";
import type { Language } from "./language";

// A notebook's frame has no address to go to.
const hasAddress = /^(file|https?):$/.test(location.protocol);

export const Languages = ({ label, hash }: { label: string; hash: string }) => hasAddress ? (
  <nav class="languages" aria-label={label}>
    {(Object.keys(languages) as Language[]).map((each) => (
      <a key={each} href={addressIn(each, hash)} lang={each} hreflang={each} aria-current={each === language ? "true" : undefined}>{languages[each]}</a>
    ))}
  </nav>
) : null;
