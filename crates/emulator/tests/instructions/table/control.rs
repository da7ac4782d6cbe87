//! Branches and calls (PTX ISA, "Control Flow Instructions", "Miscellaneous Instructions").

use crate::instructions::kernel::ROWS;
use crate::instructions::row::{Row, of_thread, script};

pub fn rows() -> Vec<Row> {
    let select = |a: u32, b: u32, c: bool| if c { a } else { b };
    vec![
        script("@%c bra TAKEN;\nmov.b32 %x, %b;\nbra.uni END;\nTAKEN: mov.b32 %x, %a;\nEND:", select),
        script("mov.b32 %x, %a;\n@!%c bra OTHER;\nbra END;\nOTHER: mov.b32 %x, %b;\nEND:", select),
        // A loop with a different count per lane: the sum of 0 to a mod 8.
        script(
            "and.b32 %a, %a, 7;\nmov.b32 %x, 0;\nLOOP: add.u32 %x, %x, %a;\nsub.u32 %a, %a, 1;\n\
             setp.ge.s32 %p0, %a, 0;\n@%p0 bra LOOP;",
            |a: u32| (0..=a % 8).sum::<u32>(),
        ),
        switch("brx.idx"),
        switch("brx.idx.uni"),
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
        through_register(".callprototype (.param .b32 _) _ (.param .b32 _)"),
        through_register(".calltargets twice, negated"),
        // Threads that exit early store their result first.
        script("@!%c bra ON;\nst.global.b32 [%to], %a;\nret;\nON: mov.b32 %x, %b;", select),
        script("st.global.b32 [%to], %a;\nret.uni;\nmov.b32 %x, %b;", |a: u32, _b: u32| a),
        script("@!%c bra ON;\nst.global.b32 [%to], %a;\nexit;\nON: mov.b32 %x, %b;", select),
        script("st.global.b32 [%to], %a;\n@%c exit;\nmov.b32 %x, %b;", select),
        // No effect: no dependent launch starts early or waits.
        script("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;\nmov.b32 %x, %a;", |a: u32| a),
        // Instructions that stop the launch, which no thread reaches.
        script("setp.lt.u32 %p0, %a, 0;\n@%p0 trap;\nmov.b32 %x, %a;", |a: u32| a),
        script("setp.lt.u32 %p0, %a, 0;\n@%p0 brkpt;\nmov.b32 %x, %a;", |a: u32| a),
    ]
}

/// A branch by a table; with `.uni`, the whole warp takes the same entry.
fn switch(branch: &str) -> Row {
    let entry = if branch.ends_with(".uni") {
        "mov.u32 %word, %ctaid.x;\nand.b32 %word, %word, 3;"
    } else {
        "and.b32 %word, %c, 3;"
    };
    let text = format!(
        "{entry}\nTARGETS: .branchtargets FIRST, SECOND, SECOND, THIRD;\n{branch} %word, TARGETS;\n\
         FIRST: mov.b32 %x, %a;\nbra END;\nSECOND: mov.b32 %x, %b;\nbra END;\nTHIRD: mov.b32 %x, %c;\nEND:"
    );
    let uniform = branch.ends_with(".uni");
    of_thread(
        text,
        |a: u32, _b: u32, _c: u32| a,
        move |thread| {
            let [a, b, c, _] = *thread.sources();
            let block = thread.index / thread.block.len();
            let columns = thread.threads / thread.block.len() / ROWS as usize;
            vec![[a, b, b, c][if uniform { block % columns } else { c as usize } % 4]]
        },
    )
}

/// A call of one of two functions, which differs from lane to lane. `list` is what the call may call.
fn through_register(list: &str) -> Row {
    script(
        format!(
            "{{\n.param .b32 given;\n.param .b32 back;\n.reg .b64 %one, %other;\nst.param.b32 [given], %a;\n\
             mov.b64 %one, twice;\nmov.b64 %other, negated;\nselp.b64 %one, %one, %other, %c;\nLIST: {list};\n\
             call (back), %one, (given), LIST;\nld.param.b32 %x, [back];\n}}"
        ),
        |a: u32, _b: u32, c: bool| if c { a.wrapping_mul(2) } else { a.wrapping_neg() },
    )
}
