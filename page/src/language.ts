// The language of a page's words: ?lang=it in its address, English without. Numbers, formulas and names of tensors stay.
export const languages = { en: "English", it: "Italiano", zh: "中文" } as const;
export type Language = keyof typeof languages;

const asked = new URLSearchParams(location.search).get("lang");
export const language: Language = asked !== null && asked in languages ? (asked as Language) : "en";

// The same page in another language, at the same place.
export const addressIn = (other: Language, hash: string): string => {
  const fields = new URLSearchParams(location.search);
  if (other === "en") fields.delete("lang");
  else fields.set("lang", other);
  return `${location.pathname}${fields.size > 0 ? `?${fields}` : ""}${hash}`;
};

// Without the frame around: for an iframe on a page of a course.
export const embedded = new URLSearchParams(location.search).get("embed") === "1";
