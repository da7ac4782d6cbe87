//! Decodes `vabsdiff4`. (PTX ISA, "SIMD Video Instructions".)

use crate::{
    alu::Words,
    exec::lanes::{Bank, ternary},
    ptx::ast::{self, Operand, Type},
};

use super::{LoadError, code::Operation, decode::Decoder, flow::Uses};

/// Decodes the absolute differences of four pairs of bytes, selected from both sources. They are merged into
/// the third source or added to it.
pub fn decode(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    decoder.expect(instruction, 4)?;
    let mut words = Words::new(instruction);
    let (adds, saturates) = (words.take("add"), words.take("sat"));
    let mut signed = [false; 3];
    for signed in &mut signed {
        *signed = words.ty() == Ok(Type::S32);
    }
    let [to_signed, a_signed, b_signed] = signed;
    let [d, a, b, c] = [0, 1, 2, 3].map(|place| split(&instruction.operands[place]));
    let select = |selector: Option<&str>, default: &str| digits(selector.unwrap_or(default));
    let (Some(mask), Some(of_a), Some(of_b)) =
        (select(d.1, "3210"), select(a.1, "3210"), select(b.1, "7654"))
    else {
        return decoder.error("a byte selector must have one to four digits from 0 to 7, such as `.b3210`");
    };
    let descends = mask.windows(2).all(|pair| pair[0] > pair[1]) && mask.iter().all(|&place| place < 4);
    if !descends || of_a.len() != 4 || of_b.len() != 4 || c.1.is_some() {
        return decoder.error(
            "a destination selects up to four bytes in descending order, a source four of the bytes 0 to 7",
        );
    }
    let operation = ternary(move |a: u32, b: u32, c: u32| {
        let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
        // The selector names the most significant byte first.
        let byte = |selector: &[usize], place: usize, signed: bool| {
            let byte = bytes[selector[3 - place]];
            if signed { i32::from(byte as i8) } else { i32::from(byte) }
        };
        let difference = |place| (byte(&of_a, place, a_signed) - byte(&of_b, place, b_signed)).unsigned_abs();
        if adds {
            return mask.iter().fold(c, |sum, &place| sum.wrapping_add(difference(place)));
        }
        let most = if to_signed { i8::MAX as u32 } else { u8::MAX.into() };
        mask.iter().fold(c, |merged, &place| {
            let difference = difference(place);
            let difference = if saturates { difference.min(most) } else { difference & 0xff };
            merged & !(0xff << (8 * place)) | difference << (8 * place)
        })
    });
    let target = decoder.target(&d.0, Bank::Word)?;
    let mut read = Vec::new();
    for (operand, _) in [&a, &b, &c] {
        read.push(decoder.source(operand, Bank::Word)?);
    }
    let operands = [target.index, read[0].index, read[1].index, read[2].index, 0, 0, 0, 0];
    decoder.emit(Operation::Lanes(operation, operands), Uses { read, written: vec![target] })
}

/// Splits `%r1.b7531` into the operand and its byte selector.
fn split(operand: &Operand) -> (Operand, Option<&str>) {
    match operand {
        Operand::Name(name) => match name.split_once(".b") {
            Some((register, selector)) => (Operand::Name(register.to_owned()), Some(selector)),
            None => (operand.clone(), None),
        },
        operand => (operand.clone(), None),
    }
}

/// The digits of a selector: one to four from 0 to 7.
fn digits(selector: &str) -> Option<Vec<usize>> {
    let digits: Option<Vec<usize>> =
        selector.chars().map(|digit| digit.to_digit(8).map(|digit| digit as usize)).collect();
    digits.filter(|digits| (1..=4).contains(&digits.len()))
}
