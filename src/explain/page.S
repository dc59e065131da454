/* Files in the library's read-only data: the style sheet of a page's static steps, and the page that computes, where
   there is one (cmake/page.cmake). */
    .section .rodata
    .globl attend_style_begin
    .hidden attend_style_begin
attend_style_begin:
    .incbin ATTEND_STYLE_FILE
    .globl attend_style_end
    .hidden attend_style_end
attend_style_end:
    .globl attend_page_begin
    .hidden attend_page_begin
attend_page_begin:
#ifdef ATTEND_PAGE_FILE
    .incbin ATTEND_PAGE_FILE
#endif
    .globl attend_page_end
    .hidden attend_page_end
attend_page_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
