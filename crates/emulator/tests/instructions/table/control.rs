//! Branches and calls. (PTX ISA, "Control Flow Instructions", "Miscellaneous Instructions".)

use crate::row::{Row, script};

pub fn rows() -> Vec<Row> {
    let select = |a: u32, b: u32, c: bool| if c { a } else { b };
    vec![
        script("@%c bra TAKEN;\nmov.b32 %x, %b;\nbra.uni END;\nTAKEN: mov.b32 %x, %a;\nEND:", select),
        script("mov.b32 %x, %a;\n@!%c bra OTHER;\nbra END;\nOTHER: mov.b32 %x, %b;\nEND:", select),
        // A loop that lanes leave one by one: the sum of 0 to a mod 8.
        script(
            "and.b32 %a, %a, 7;\nmov.b32 %x, 0;\nLOOP: add.u32 %x, %x, %a;\nsub.u32 %a, %a, 1;\n\
             setp.ge.s32 %p0, %a, 0;\n@%p0 bra LOOP;",
            |a: u32| (0..=a % 8).sum::<u32>(),
        ),
        script(
            "and.b32 %word, %c, 3;\nTARGETS: .branchtargets FIRST, SECOND, SECOND, THIRD;\n\
             brx.idx %word, TARGETS;\nFIRST: mov.b32 %x, %a;\nbra END;\nSECOND: mov.b32 %x, %b;\nbra END;\n\
             THIRD: mov.b32 %x, %c;\nEND:",
            |a: u32, b: u32, c: u32| [a, b, b, c][c as usize % 4],
        ),
        script(
            "{\n.param .b32 given;\n.param .b32 back;\nst.param.b32 [given], %a;\n\
             call.uni (back), twice, (given);\nld.param.b32 %x, [back];\n}",
            |a: u32| a.wrapping_mul(2),
        ),
        script(
            "mov.b32 %x, %a;\n@!%c bra END;\n{\n.param .b32 given;\n.param .b32 back;\nst.param.b32 [given], %a;\n\
             call (back), twice, (given);\nld.param.b32 %x, [back];\n}\nEND:",
            |a: u32, _b: u32, c: bool| if c { a.wrapping_mul(2) } else { a },
        ),
        // The threads that leave have stored their result.
        script("@!%c bra ON;\nst.global.b32 [%to], %a;\nret;\nON: mov.b32 %x, %b;", select),
        script("@!%c bra ON;\nst.global.b32 [%to], %a;\nexit;\nON: mov.b32 %x, %b;", select),
        script("st.global.b32 [%to], %a;\n@%c exit;\nmov.b32 %x, %b;", select),
        // Ends of the launch, which no thread reaches.
        script("setp.lt.u32 %p0, %a, 0;\n@%p0 trap;\nmov.b32 %x, %a;", |a: u32| a),
        script("setp.lt.u32 %p0, %a, 0;\n@%p0 brkpt;\nmov.b32 %x, %a;", |a: u32| a),
    ]
}
