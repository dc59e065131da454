// The words of the page's language: those of the steps that the explorer has, too.
import { language } from "../language";
import { en } from "./en";
import { it } from "./it";
import { zh } from "./zh";

export const say = { en, it, zh }[language];
