/* A recording of a translation in the library's read-only data: what `make translate` learned (examples/translate/). */
    .section .rodata
    .globl attend_translation_begin
    .hidden attend_translation_begin
attend_translation_begin:
    .incbin ATTEND_TRANSLATION_FILE
    .globl attend_translation_end
    .hidden attend_translation_end
attend_translation_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
