// What a page's address asks for: the language of its words, ?lang=it, English without; and ?embed=1, without the frame around.
// Numbers, formulas and names of tensors are the same in all languages.
export const languages = { en: "English", it: "Italiano", zh: "中文" } as const;
export type Language = keyof typeof languages;

const asked = new URLSearchParams(location.search);
const lang = asked.get("lang") ?? "";
export const language: Language = Object.hasOwn(languages, lang) ? (lang as Language) : "en";

// For an iframe on a page of a course.
export const isEmbedded = asked.get("embed") === "1";

// The same page with one of these asked for otherwise, at the same place.
const addressWith = (name: string, value: string | null, hash: string): string => {
  const fields = new URLSearchParams(asked);
  if (value === null) fields.delete(name);
  else fields.set(name, value);
  return `${location.pathname}${fields.size > 0 ? `?${fields}` : ""}${hash}`;
};
export const addressIn = (other: Language, hash: string): string => addressWith("lang", other === "en" ? null : other, hash);
export const addressInFull = (hash: string): string => addressWith("embed", null, hash);
