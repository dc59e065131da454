/* The font of the labels in PNG pictures, as a file in the library's read-only data. */
    .section .rodata
    .balign 16
    .globl attend_font_begin
    .hidden attend_font_begin
attend_font_begin:
    .incbin ATTEND_FONT_FILE
    .globl attend_font_end
    .hidden attend_font_end
attend_font_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
