// What the lesson alone says: the explorer's page does without.
import { language } from "../language";
import { enLesson } from "./en";
import { itLesson } from "./it";
import { zhLesson } from "./zh";

export const sayLesson = { en: enLesson, it: itLesson, zh: zhLesson }[language];
