//! Tests every construct, every shipped kernel, error messages, and that no text crashes the parser.

use super::ast::{
    Frame, Function, Guard, Initial, Instruction, Module, Operand, Space, Statement, Type, Variable,
};
use super::parse;
use proptest::prelude::*;

const HEAD: &str = ".version 6.0 .target sm_70 .address_size 64\n";

fn module(items: &str) -> Module {
    parse(&format!("{HEAD}{items}")).unwrap_or_else(|error| panic!("{error}\n{items}"))
}

fn function(text: &str) -> Function {
    module(text).functions.pop().expect("a function")
}

fn body(statements: &str) -> Vec<Statement> {
    function(&format!(".entry k() {{ {statements} }}")).body.expect("a body")
}

fn instruction(text: &str) -> Instruction {
    match body(text).pop() {
        Some(Statement::Instruction(instruction)) => instruction,
        other => panic!("{other:?} is not an instruction"),
    }
}

fn operands(text: &str) -> Vec<Operand> {
    instruction(&format!("op {text};")).operands
}

fn variable(text: &str) -> Variable {
    module(text).variables.pop().expect("a variable")
}

fn bits(text: &str) -> Vec<u64> {
    let bits = |initial: &Initial| match initial {
        Initial::Bits(bits) => *bits,
        Initial::Address { .. } => panic!("an address"),
    };
    variable(text).initial.iter().map(bits).collect()
}

fn error(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

fn module_error(items: &str) -> String {
    error(&format!("{HEAD}{items}"))
}

fn body_error(statements: &str) -> String {
    module_error(&format!(".entry k() {{\n{statements}\n}}"))
}

fn name(name: &str) -> Operand {
    Operand::Name(name.into())
}

fn address(base: Option<&str>, offset: i64) -> Operand {
    Operand::Address { base: base.map(str::to_owned), offset }
}

#[test]
fn head_of_a_module() {
    let text = "// comment\n.version 8.10 /* a\ncomment */\n.target sm_90a, debug\n.address_size 64\n";
    let module = parse(text).unwrap();
    assert_eq!(module.version, (8, 10));
    assert_eq!(module.target, ["sm_90a", "debug"]);
    assert!(parse(".version 6.0 .target sm_70").unwrap().functions.is_empty());
}

#[test]
fn debug_information() {
    let module = module(
        ".file 1 \"src/a \\\"b\\\".rs\"\n.file 2 \"b.cu\", 1700000000000, 0x10\n\
         .entry k() { .loc 1 12 5 \n .loc 2 3 4, function_name $L__info_string0, inlined_at 1 9 1\n\
         .loc 2 6 7, function_name $L__info_string0+23, inlined_at 1 9 1\n ret; $L__tmp0: }\n\
         .section .debug_abbrev { .b8 1, 2\n .b32 .debug_info+3 $L_x: .b64 $L__end-$L__begin }\n\
         $L__sec_end0: .section .debug_loc { }",
    );
    assert_eq!(module.files, [(1, "src/a \\\"b\\\".rs".to_owned()), (2, "b.cu".to_owned())]);
    let body = module.functions[0].body.as_ref().unwrap();
    let frame = |file, line, column| Frame { file, line, column };
    assert_eq!(body[0], Statement::Location { frame: frame(1, 12, 5), inlined_at: None });
    assert_eq!(body[1], Statement::Location { frame: frame(2, 3, 4), inlined_at: Some(frame(1, 9, 1)) });
    assert_eq!(body[2], Statement::Location { frame: frame(2, 6, 7), inlined_at: Some(frame(1, 9, 1)) });
    assert_eq!(body[4], Statement::Label("$L__tmp0".into()));
}

#[test]
fn entries() {
    let kernel = function(
        ".visible .entry k(\n.param .u64 .ptr .align 1 a,\n.param .u64 .ptr .global .align 4 b,\n\
         .param .align 8 .b8 c[16],\n.param .f32 d)\n\
         .maxntid 16, 8 .minnctapersm 2 .maxnreg 32 .pragma \"nounroll\"; { ret; }",
    );
    assert!(kernel.entry && kernel.returns.is_empty());
    assert_eq!(kernel.line, 2);
    assert_eq!(kernel.max_threads, Some([16, 8, 1]));
    let params: Vec<_> =
        kernel.params.iter().map(|p| (p.name.as_str(), p.ty, p.align, p.len, p.space, p.line)).collect();
    assert_eq!(
        params,
        [
            ("a", Type::U64, 8, None, Space::Param, 3),
            ("b", Type::U64, 8, None, Space::Param, 4),
            ("c", Type::B8, 8, Some(16), Space::Param, 5),
            ("d", Type::F32, 4, None, Space::Param, 6),
        ]
    );
    let bare = function(".entry k .reqntid 32 .explicitcluster .reqnctapercluster 2, 1, 1 { }");
    assert_eq!((bare.params.len(), bare.max_threads, bare.body), (0, Some([32, 1, 1]), Some(Vec::new())));
}

#[test]
fn functions() {
    let print = function(
        ".extern .func (.param .b32 func_retval0) vprintf(.param .b64 vprintf_param_0, .param .b64 p1);",
    );
    assert!(!print.entry && print.body.is_none());
    assert_eq!((print.returns[0].name.as_str(), print.returns[0].ty), ("func_retval0", Type::B32));
    assert_eq!(print.params.len(), 2);
    let panic = function(".weak .func panic () .noreturn { trap; }");
    assert_eq!(panic.body.unwrap().len(), 1);
    let registers = function(".func (.reg .u32 %r) f (.reg .u32 %a) { ret; }");
    assert_eq!((registers.returns[0].space, registers.params[0].space), (Space::Reg, Space::Reg));
    let variadic = function(".func f(.param .b8 rest[]) .abi_preserve 3;");
    assert_eq!(variadic.params[0].len, Some(0));
}

#[test]
fn variables() {
    let shared = variable(".extern .shared .align 16 .b8 tile[];");
    assert_eq!((shared.space, shared.align, shared.len), (Space::Shared, 16, Some(0)));
    assert!(shared.external && shared.initial.is_empty());
    let table = variable(".visible .const .v4 .f32 table[2][3];");
    assert_eq!((table.space, table.vector, table.align, table.len), (Space::Const, 4, 16, Some(6)));
    assert!(!table.external);
    assert_eq!(variable(".common .global .b128 x;").align, 16);
    assert_eq!(variable(".global .attribute(.managed) .align 4 .u32 x;").align, 4);
    let sampler = variable(".global .samplerref s = { addr_mode_0 = wrap, force_unnormalized_coords = 1 };");
    assert_eq!((sampler.ty, sampler.initial.len()), (Type::B64, 0));
    let wrong = module_error(".global .texref t = { width = };");
    assert!(wrong.contains("expected a word or a number, found `}`"), "{wrong}");
    let both = module(".global .u32 a, b[2];").variables;
    assert_eq!(
        both.iter().map(|v| (v.name.as_str(), v.len)).collect::<Vec<_>>(),
        [("a", None), ("b", Some(2))]
    );
    let types = [
        "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16",
        "f16x2", "bf16", "bf16x2", "f32", "f64", "pred",
    ];
    for ty in types {
        assert_eq!(format!("{:?}", variable(&format!(".global .{ty} x;")).ty).to_lowercase(), ty);
    }
}

#[test]
fn initialisers() {
    assert_eq!(bits(".global .u32 x = 7;"), [7]);
    assert_eq!(bits(".global .b8 x[5] = {1, 0x1F, 017, 0b101, 9U};"), [1, 31, 15, 5, 9]);
    assert_eq!(bits(".global .s64 x = -9223372036854775808;"), [1 << 63]);
    assert_eq!(bits(".global .u64 x = 18446744073709551615;"), [u64::MAX]);
    assert_eq!(
        bits(".const .f32 x[5] = {0f3F800000, -1.5, .05, 1e-3, 0d3FF0000000000000};"),
        [1.0_f32, -1.5, 0.05, 1e-3, 1.0].map(|x| u64::from(x.to_bits()))
    );
    assert_eq!(
        bits(".const .f64 x[4] = {0D3FF0000000000000, -2.5E+2, 1., -.5e0};"),
        [1.0_f64, -250.0, 1.0, -0.5].map(f64::to_bits)
    );
    assert_eq!(bits(".global .b32 x[2] = {0f7FC00000, 0d4004000000000123};"), [0x7FC0_0000, 0x4020_0000]);
    assert_eq!(
        bits(".global .b64 x[2] = {0f3F800000, 0d4004000000000123};"),
        [0x3F80_0000, 0x4004_0000_0000_0123]
    );
    assert_eq!(bits(".global .s32 x[2][2] = {{1, -1}, {2}};"), [1, u64::MAX, 2]);
    assert_eq!(bits(".global .v2 .u32 x[2] = {{1, 2}, {3, 4}};"), [1, 2, 3, 4]);
    let open = variable(".global .u32 x[][2] = {{1, 2}, {3, 4}, {5}};");
    assert_eq!((open.len, open.initial.len()), (Some(6), 5));
    let address = |name: &str, offset, generic| Initial::Address { name: name.into(), offset, generic };
    assert_eq!(
        variable(".global .u64 x[4] = {generic(a)+8, b-4, generic(c+2), 5};").initial,
        [address("a", 8, true), address("b", -4, false), address("c", 2, true), Initial::Bits(5)]
    );
}

#[test]
fn declarations() {
    let body =
        body(".reg .b32 %r<117>; .reg .pred p, %q<3>, _x; .local .align 16 .b8 depot[64]; .param .b32 p0;");
    let found: Vec<_> = body
        .iter()
        .map(|statement| match statement {
            Statement::Declare(v) => (v.space, v.name.as_str(), v.registers, v.len),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        found,
        [
            (Space::Reg, "%r", Some(117), None),
            (Space::Reg, "p", None, None),
            (Space::Reg, "%q", Some(3), None),
            (Space::Reg, "_x", None, None),
            (Space::Local, "depot", None, Some(64)),
            (Space::Param, "p0", None, None),
        ]
    );
}

#[test]
fn instructions() {
    let load = instruction("\n@!%p1 ld.global.v4.b32 {%r1, _, %r3, 4}, [%rd1+16];");
    assert_eq!(load.line, 3);
    assert_eq!(load.guard, Some(Guard { register: "%p1".into(), negated: true }));
    assert_eq!(
        (load.name.as_str(), load.modifiers),
        ("ld", ["global", "v4", "b32"].map(String::from).to_vec())
    );
    let lanes = Operand::Vector(vec![name("%r1"), name("_"), name("%r3"), Operand::Integer(4)]);
    assert_eq!(load.operands, [lanes, address(Some("%rd1"), 16)]);
    assert_eq!(instruction("@p bra $L__BB0_1;").guard, Some(Guard { register: "p".into(), negated: false }));
    assert_eq!(instruction("ret;").operands, []);
    assert_eq!(instruction("cp.async.shared::cta.L2::128B [%r1], [%r2], 4;").modifiers[1], "shared::cta");
    assert_eq!(instruction("tex.2d.v4 %r1;").modifiers, ["2d", "v4"]);
}

#[test]
fn operand_forms() {
    assert_eq!(operands("%tid.x, %laneid, WARP_SZ, _"), ["%tid.x", "%laneid", "WARP_SZ", "_"].map(name));
    assert_eq!(operands("-5, 0x10U, 0b11, 010, 0"), [-5_i64 as u64, 16, 3, 8, 0].map(Operand::Integer));
    assert_eq!(
        operands("0f3F800000, 0d3FF0000000000000"),
        [Operand::F32(0x3F80_0000), Operand::F64(0x3FF0_0000_0000_0000)]
    );
    assert_eq!(operands("1.5"), [Operand::F64(1.5_f64.to_bits())]);
    assert_eq!(
        operands("!%p1, %p1|%p2, _|q"),
        [
            Operand::Not("%p1".into()),
            Operand::Pair("%p1".into(), "%p2".into()),
            Operand::Pair("_".into(), "q".into()),
        ]
    );
    assert_eq!(
        operands("[%rd1+-16], [p_0], [p_0+4], [16], [-16], [a-0x8]"),
        [
            address(Some("%rd1"), -16),
            address(Some("p_0"), 0),
            address(Some("p_0"), 4),
            address(None, 16),
            address(None, -16),
            address(Some("a"), -8),
        ]
    );
    assert_eq!(
        operands("table+4, table-4"),
        [Operand::Sum("table".into(), 4), Operand::Sum("table".into(), -4)]
    );
}

#[test]
fn calls() {
    let call = instruction("call.uni (retval0), f, (param0, 3);");
    assert_eq!(
        call.operands,
        [
            Operand::Arguments(vec![name("retval0")]),
            name("f"),
            Operand::Arguments(vec![name("param0"), Operand::Integer(3)]),
        ]
    );
    let text = "{ // callseq 0, 0\n.param .b64 param0;\nst.param.b64 [param0+0], %rd1;\n\
        call.uni (retval0),\nf,\n(\nparam0\n);\n}";
    let spread = body(text);
    let Statement::Block(spread) = &spread[0] else { panic!("{spread:?}") };
    let Statement::Instruction(call) = &spread[2] else { panic!("{spread:?}") };
    assert_eq!((call.line, call.operands.len()), (5, 3));
    assert_eq!(instruction("call.uni f;").operands, [name("f")]);
    let index = || Operand::Vector(vec![name("%r1"), name("%r2")]);
    assert_eq!(
        operands("[t, {%r1, %r2}], [%rd1, s, {%r1, %r2}]"),
        [
            Operand::Element(vec![name("t"), index()]),
            Operand::Element(vec![name("%rd1"), name("s"), index()])
        ]
    );
    assert_eq!(instruction("call.uni f, ();").operands[1], Operand::Arguments(Vec::new()));
    let prototype = instruction("proto: .callprototype (.param .b32 _) _ (.param .b8 _[8]) .noreturn;");
    let sizes = [4, 8].map(|bytes| Operand::Arguments(vec![Operand::Integer(bytes)]));
    assert_eq!((prototype.name.as_str(), &prototype.operands[..]), (".callprototype", &sizes[..]));
    let targets = body("ts: .branchtargets a, b;\n brx.idx %r1, ts; cs: .calltargets f;");
    assert_eq!(targets[0], Statement::Label("ts".into()));
    let Statement::Instruction(branch) = &targets[1] else { panic!("{targets:?}") };
    assert_eq!((branch.name.as_str(), &branch.operands[..]), (".branchtargets", &["a", "b"].map(name)[..]));
}

#[test]
fn scopes() {
    let body = body("a: { .reg .b32 t; { b: mov.u32 t, 1; } } .pragma \"nounroll\"; c:");
    let Statement::Block(outer) = &body[1] else { panic!("{body:?}") };
    let Statement::Block(inner) = &outer[1] else { panic!("{outer:?}") };
    assert_eq!((inner.len(), body.len()), (2, 3));
}

#[test]
fn errors_in_modules() {
    assert_eq!(error(""), "line 1: expected `.version`, found the end of the text");
    assert_eq!(error(".target sm_70"), "line 1: expected `.version`, found `.target`");
    assert_eq!(error(".version six"), "line 1: expected a version such as `6.0`, found `six`");
    assert_eq!(error(".version 6.0\n"), "line 1: expected `.target`, found the end of the text");
    assert_eq!(error(".version 6.0\n.target 70"), "line 2: expected a target, found `70`");
    assert_eq!(
        error(".version 6.0 .target sm_70\n.address_size 32"),
        "line 2: 32-bit addresses; only 64-bit addresses are supported"
    );
    assert_eq!(
        module_error("ret;"),
        "line 2: expected a function, a variable or another directive of a module, found `ret`"
    );
    assert_eq!(
        module_error(".visible .alias a, b;"),
        "line 2: expected a function, a variable or another directive of a module, found `.alias`"
    );
    assert_eq!(module_error(".file 1 a"), "line 2: expected a path in quotes, found `a`");
    assert_eq!(module_error(".section .a {\n1, 2"), "line 3: expected `}`, found the end of the text");
    assert_eq!(module_error(".entry ()"), "line 2: expected the name of a function, found `(`");
    assert_eq!(module_error(".entry k()\n."), "line 3: expected a word, a number or a sign, found '.'");
    assert_eq!(module_error(".entry k() ret;"), "line 2: expected `{` or `;`, found `ret`");
    assert_eq!(module_error(".entry k(.param .u31 x)"), "line 2: expected a type, found `.u31`");
    assert_eq!(module_error(".entry k(.param .u32 x;"), "line 2: expected `,` or `)`, found `;`");
    assert_eq!(
        module_error(".entry k(x)"),
        "line 2: expected `.reg`, `.global`, `.shared`, `.local`, `.const` or `.param`, found `x`"
    );
    assert_eq!(module_error("/* a\n"), "line 2: a comment that does not end");
    assert_eq!(module_error(".file 1 \"a\\\""), "line 2: a string that does not end");
    assert_eq!(module_error("\u{e9}"), "line 2: expected a word, a number or a sign, found 'é'");
    assert_eq!(module_error("% 1"), "line 2: expected a word, a number or a sign, found '%'");
}

#[test]
fn errors_in_variables() {
    assert_eq!(module_error(".global .u32 x"), "line 2: expected `,` or `;`, found the end of the text");
    assert_eq!(module_error(".global .u32 ;"), "line 2: expected a name, found `;`");
    assert_eq!(
        module_error(".global .align 3 .b8 x;"),
        "line 2: an alignment of 3, which is not a power of two"
    );
    assert_eq!(module_error(".global .b8 x[a];"), "line 2: expected an integer, found `a`");
    assert_eq!(module_error(".global .b8 x[-1];"), "line 2: expected an integer, found `-`");
    assert_eq!(module_error(".global .b8 x[1.5];"), "line 2: expected an integer, found `1.5`");
    assert_eq!(
        module_error(".global .b8 x[4294967296][4294967296];"),
        "line 2: an array of more than 2⁶⁴ bytes or 64 dimensions"
    );
    assert_eq!(
        module_error(&format!(".global .b8 x{};", "[1]".repeat(65))),
        "line 2: an array of more than 2⁶⁴ bytes or 64 dimensions"
    );
    assert_eq!(module_error(".global .u32 x = {1};"), "line 2: more braces than `x` has dimensions");
    assert_eq!(module_error(".global .u32 x[2] = {1, 2, 3};"), "line 2: more than 2 values in a row of `x`");
    assert_eq!(
        module_error(".global .u32 x[2][2] = {{1}, {2}};"),
        "line 2: a row of `x` starts before the previous row is full"
    );
    assert_eq!(module_error(".global .u32 x[2] = {1 2};"), "line 2: expected `,` or `}`, found `2`");
    assert_eq!(module_error(".global .u32 x = 1.5;"), "line 2: a float as the initial value of an integer");
    assert_eq!(module_error(".global .f64 x = 1;"), "line 2: an integer as the initial value of a float");
    assert_eq!(
        module_error(".global .f16 x = 1;"),
        "line 2: `x` has a space or a type that cannot have initial values"
    );
    assert_eq!(module_error(".global .u32 x = ;"), "line 2: expected a value, found `;`");
    assert_eq!(
        module_error(".global .u64 x = 18446744073709551616;"),
        "line 2: `18446744073709551616` does not fit 64 bits"
    );
}

#[test]
fn errors_in_bodies() {
    assert_eq!(
        module_error(".entry k() {\nret;"),
        "line 3: expected an instruction, a label, a declaration or `}`, found the end of the text"
    );
    assert_eq!(
        body_error("ret;\n5"),
        "line 4: expected an instruction, a label, a declaration or `}`, found `5`"
    );
    assert_eq!(body_error("ret"), "line 4: expected an operand or `;`, found `}`");
    assert_eq!(body_error("add a, b c;"), "line 3: expected `,` or `;`, found `c`");
    assert_eq!(body_error("add a, ;"), "line 3: expected an operand or `;`, found `;`");
    assert_eq!(body_error("add {a, }, b;"), "line 3: expected a name or a number, found `}`");
    assert_eq!(body_error("add {a b}, b;"), "line 3: expected `,` or `}`, found `b`");
    assert_eq!(body_error("call f, (a b);"), "line 3: expected `,` or `)`, found `b`");
    assert_eq!(body_error("ld a, [b+c];"), "line 3: expected an integer, found `c`");
    assert_eq!(body_error("ld a, [b, c];"), "line 3: expected `,`, found `]`");
    assert_eq!(body_error("tex a, [b, c, d];"), "line 3: expected an index such as `{%r1, %r2}`, found `d`");
    assert_eq!(body_error("ld a, [];"), "line 3: expected a name or an integer, found `]`");
    assert_eq!(body_error("add a, -b;"), "line 3: expected a number, found `b`");
    assert_eq!(body_error("add a, !5;"), "line 3: expected a name, found `5`");
    assert_eq!(body_error("add a|5, b;"), "line 3: expected a name, found `5`");
    assert_eq!(body_error("@5 bra x;"), "line 3: expected a name, found `5`");
    assert_eq!(body_error("add a, 08;"), "line 3: `08` is not an integer");
    assert_eq!(body_error("add a, 0x;"), "line 3: `0x` is not an integer");
    assert_eq!(body_error("add a, 12ab;"), "line 3: `12ab` is not an integer");
    assert_eq!(body_error("add a, 0f3F80;"), "line 3: `0f3F80` is not a float of 8 hexadecimal digits");
    assert_eq!(
        body_error("add a, -9223372036854775809;"),
        "line 3: `-9223372036854775809` does not fit 64 bits"
    );
    assert_eq!(
        body_error(".reg .b32 %r<4000000000>;"),
        "line 3: 4000000000 registers in one range; the most is 1048576"
    );
    assert_eq!(body_error(".reg .b32 %r<5000000000>;"), "line 3: 5000000000 does not fit 32 bits");
    assert_eq!(body_error(".loc 1 2 ret;"), "line 3: expected an integer, found `ret`");
    assert_eq!(body_error(&"{".repeat(65)), "line 3: scopes nested more than 64 deep");
    let long = body_error(&format!("add a b{};", "x".repeat(1000)));
    assert!(long.len() < 100, "{long}");
}

/// Counts instructions and declarations together, and labels.
fn count(body: &[Statement]) -> (usize, usize) {
    body.iter().fold((0, 0), |(statements, labels), statement| match statement {
        Statement::Label(_) => (statements, labels + 1),
        Statement::Block(inner) => {
            let inner = count(inner);
            (statements + inner.0, labels + inner.1)
        }
        Statement::Declare(_) | Statement::Instruction(_) => (statements + 1, labels),
        Statement::Location { .. } => (statements, labels),
    })
}

#[test]
fn every_shipped_kernel() {
    let kernels = crate::shipped::kernels();
    assert!(kernels.len() >= 200, "{} kernels", kernels.len());
    for (path, text) in kernels {
        let module = parse(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let bodies: Vec<_> =
            module.functions.iter().filter_map(|function| function.body.as_deref()).collect();
        let found = bodies.iter().map(|body| count(body)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let code = text.split_once("\n{").expect("a body").1;
        // A line holds one statement, except for `{ … }` on one line.
        let lines = code.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code).trim());
        let (mut statements, mut labels) = (0, 0);
        for line in lines.filter(|line| !line.starts_with(".pragma")) {
            // Each name in a register list is a declaration.
            let declared = line.split(';').filter(|statement| statement.contains(".reg "));
            statements +=
                line.matches(';').count() + declared.map(|names| names.matches(',').count()).sum::<usize>();
            labels += usize::from(line.ends_with(':') || line.ends_with(": .branchtargets"));
        }
        assert_eq!(found, (statements, labels), "{path}");
    }
}

/// Words of PTX, and some that are not.
const WORDS: &[&str] = &[
    ".version",
    "6.0",
    ".target",
    "sm_70",
    ".entry",
    ".func",
    ".visible",
    ".extern",
    ".param",
    ".reg",
    ".shared",
    ".global",
    ".local",
    ".const",
    ".align",
    ".v4",
    ".b32",
    ".f32",
    ".u64",
    ".pred",
    ".ptr",
    ".file",
    ".loc",
    ".section",
    ".debug",
    ".pragma",
    ".maxntid",
    ".noreturn",
    ".branchtargets",
    ".callprototype",
    ".attribute",
    "function_name",
    "inlined_at",
    "generic",
    "mov",
    "%r1",
    "%tid",
    ".x",
    "$L",
    "_",
    "0",
    "4",
    "0x",
    "1.5",
    "1e9",
    "0f3F800000",
    "99999999999999999999",
    "4000000000",
    "-",
    "+",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ",",
    ";",
    ":",
    "!",
    "|",
    "@",
    "=",
    "\"text\"",
    "\"",
    "//",
    "/*",
    "*/",
    "\n",
    "é",
    "\0",
    ".",
    "%",
];

#[derive(Clone, Debug)]
enum Edit {
    Delete,
    Duplicate,
    Swap,
    Flip(u8),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![Just(Edit::Delete), Just(Edit::Duplicate), Just(Edit::Swap), (0..8_u8).prop_map(Edit::Flip)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), headed: bool) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = parse(&if headed { format!("{HEAD}{text}") } else { text.into_owned() });
    }

    #[test]
    fn any_words_are_read_or_refused(
        words in prop::collection::vec(prop::sample::select(WORDS), 0..200),
        start in prop::sample::select(&["", HEAD, ".version 6.0 .target sm_70 .entry k() {"][..]),
    ) {
        let _ = parse(&format!("{start}{}", words.join(" ")));
    }

    #[test]
    fn any_change_of_a_kernel_is_read_or_refused(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 1..40_usize, edit()), 1..8),
    ) {
        let mut bytes = crate::shipped::kernel("sum_f32_256").into_bytes();
        for (place, length, edit) in edits {
            let start = place.index(bytes.len() - 1);
            let end = (start + length).min(bytes.len());
            match edit {
                Edit::Delete => drop(bytes.drain(start..end)),
                Edit::Duplicate => {
                    let piece = bytes[start..end].to_vec();
                    bytes.splice(start..start, piece);
                }
                Edit::Swap => bytes[start..end].reverse(),
                Edit::Flip(bit) => bytes[start] ^= 1 << bit,
            }
        }
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }
}

/// Parses long texts of one repeated piece. A parser that backtracks would not end; one that recurses would
/// overflow the stack.
#[test]
fn long_texts_end_soon() {
    let pieces = [
        "{", "(", "[", "a:", "a|", "a+", "!", "-", ".reg", "/*", "//\n", "\"", ".x", "5", "1e", "@a ",
        "{{1},",
    ];
    let starts = [
        "",
        HEAD,
        ".version 6.0 .target sm_70 .entry k() { mov ",
        ".version 6.0 .target sm_70 .global .u8 x[] = ",
    ];
    let begin = std::time::Instant::now();
    for start in starts {
        for piece in pieces {
            let _ = parse(&format!("{start}{}", piece.repeat(200_000)));
        }
    }
    assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
}
