//! Turns rows into PTX kernels.

use crate::instructions::row::Row;
use std::fmt::Write;

/// Threads per block in x, y and z.
pub const BLOCK: [u32; 3] = [32, 2, 2];
/// Blocks in y.
pub const ROWS: u32 = 2;
/// The number of threads of a launch is a multiple of this.
pub const UNIT: usize = (BLOCK[0] * BLOCK[1] * BLOCK[2] * ROWS) as usize;
/// Bytes per thread in each memory.
pub const OWN: usize = 32;

/// Returns the name of a row's kernel.
pub fn name(index: usize) -> String {
    format!("row{index}")
}

/// Returns a module of these rows, each with its number.
///
/// A kernel takes three pointers: to two 64-bit words of results, four of sources, and [`OWN`] bytes per
/// thread.
pub fn module<'a>(rows: impl IntoIterator<Item = (usize, &'a Row)>) -> String {
    let mut text = String::from(
        ".version 8.6\n.target sm_90\n.address_size 64\n\
         .const .align 8 .b64 constants[2] = {0x0123456789abcdef, 0xfedcba9876543210};\n\
         .global .align 8 .b64 globals[2] = {0x0123456789abcdef, 0xfedcba9876543210};\n\
         .extern .shared .align 16 .b8 dynamic[];\n\
         .func (.param .align 16 .b8 back[16]) echo(.param .align 16 .b8 given[16]) {\n\
         .reg .b32 %t<4>;\n\
         ld.param.v4.b32 {%t0, %t1, %t2, %t3}, [given];\nst.param.v4.b32 [back], {%t0, %t1, %t2, %t3};\nret;\n}\n\
         .func (.param .b32 back) twice(.param .b32 given) {\n\
         .reg .b32 %t;\n\
         ld.param.b32 %t, [given];\nadd.u32 %t, %t, %t;\nst.param.b32 [back], %t;\nret;\n}\n\
         .func (.param .b32 back) negated(.param .b32 given) {\n\
         .reg .b32 %t;\n\
         ld.param.b32 %t, [given];\nneg.s32 %t, %t;\nst.param.b32 [back], %t;\nret;\n}\n",
    );
    for (index, row) in rows {
        kernel(&mut text, &name(index), row).expect("a string takes all text");
    }
    text
}

/// Writes a kernel that loads the sources, runs the row's text, and stores the results.
fn kernel(text: &mut String, name: &str, row: &Row) -> std::fmt::Result {
    writeln!(text, ".visible .entry {name}(.param .b64 results, .param .b64 sources, .param .b64 own) {{")?;
    writeln!(text, ".reg .b32 %i<4>;\n.reg .b64 %to, %from;\n.reg .pred %p<3>;\n.reg .b32 %word;")?;
    let operands = || row.sources.iter().zip(["%a", "%b", "%c", "%d"]);
    let results = || row.results.iter().zip(["%x", "%y"]);
    for (operand, register) in operands().chain(results()) {
        writeln!(text, ".reg .{} {register};", operand.register())?;
    }
    let [x, y, z] = BLOCK;
    // The thread's index in its block, %i1, and in the launch, %i0.
    writeln!(
        text,
        "mov.u32 %i0, %tid.z;\nmov.u32 %i1, %tid.y;\nmad.lo.u32 %i1, %i0, {y}, %i1;\n\
         mov.u32 %i0, %tid.x;\nmad.lo.u32 %i1, %i1, {x}, %i0;\n\
         mov.u32 %i0, %ctaid.y;\nmov.u32 %i2, %nctaid.x;\nmov.u32 %i3, %ctaid.x;\n\
         mad.lo.u32 %i0, %i0, %i2, %i3;\nmad.lo.u32 %i0, %i0, {}, %i1;\n\
         ld.param.b64 %to, [results];\nmad.wide.u32 %to, %i0, 16, %to;\n\
         ld.param.b64 %from, [sources];\nmad.wide.u32 %from, %i0, 32, %from;",
        x * y * z
    )?;
    if row.text.contains("%global") {
        writeln!(
            text,
            ".reg .b64 %global;\nld.param.b64 %global, [own];\nmad.wide.u32 %global, %i0, {OWN}, %global;"
        )?;
    }
    if row.text.contains("%shared") {
        let bytes = OWN * (x * y * z) as usize;
        writeln!(text, ".reg .b64 %shared;\n.shared .align 32 .b8 block[{bytes}];")?;
        writeln!(text, "mov.b64 %shared, block;\nmad.wide.u32 %shared, %i1, {OWN}, %shared;")?;
    }
    if row.text.contains("%local") {
        writeln!(text, ".reg .b64 %local;\n.local .align 32 .b8 thread[{OWN}];\nmov.b64 %local, thread;")?;
    }
    for (place, (operand, register)) in operands().enumerate() {
        let at = 8 * place;
        match operand.register() {
            "pred" => {
                writeln!(text, "ld.global.b32 %word, [%from+{at}];\nsetp.ne.b32 {register}, %word, 0;")?
            }
            ty => writeln!(text, "ld.global.{ty} {register}, [%from+{at}];")?,
        }
    }
    writeln!(text, "{}", row.text)?;
    for (place, (operand, register)) in results().enumerate() {
        let at = 8 * place;
        match operand.register() {
            "pred" => writeln!(text, "selp.b32 %word, 1, 0, {register};\nst.global.b32 [%to+{at}], %word;")?,
            ty => writeln!(text, "st.global.{ty} [%to+{at}], {register};")?,
        }
    }
    writeln!(text, "ret;\n}}")
}
