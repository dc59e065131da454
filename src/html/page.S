/* Files in the library's read-only data: the style sheet of a page's static part, and the pages that compute, where they
   are there (cmake/page.cmake). */
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
    .globl attend_explorer_begin
    .hidden attend_explorer_begin
attend_explorer_begin:
#ifdef ATTEND_EXPLORER_FILE
    .incbin ATTEND_EXPLORER_FILE
#endif
    .globl attend_explorer_end
    .hidden attend_explorer_end
attend_explorer_end:
    .globl attend_class_begin
    .hidden attend_class_begin
attend_class_begin:
#ifdef ATTEND_CLASS_FILE
    .incbin ATTEND_CLASS_FILE
#endif
    .globl attend_class_end
    .hidden attend_class_end
attend_class_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
