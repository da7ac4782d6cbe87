//! An instruction's modifiers, taken one by one so that none is overlooked.

use crate::{
    exec::lanes::Bank,
    ptx::ast::{Instruction, Type},
};

/// The modifiers of an instruction that have not been taken yet.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    name: &'a str,
    left: Vec<&'a str>,
}

impl<'a> Words<'a> {
    pub fn new(instruction: &'a Instruction) -> Self {
        Words { name: &instruction.name, left: instruction.modifiers.iter().map(String::as_str).collect() }
    }

    /// The instruction's name, before the first dot.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Takes this word. Returns `false` if it is not there.
    pub fn take(&mut self, word: &str) -> bool {
        let place = self.left.iter().position(|&left| left == word);
        place.map(|place| self.left.remove(place)).is_some()
    }

    /// Takes the first of these words that is present.
    pub fn take_any(&mut self, words: &[&'static str]) -> Option<&'static str> {
        words.iter().copied().find(|word| self.take(word))
    }

    /// Whether one of the first words comes before all that there are of the others.
    pub fn precedes(&self, first: [&str; 2], others: [&str; 2]) -> bool {
        let place = |words: [&str; 2]| self.left.iter().position(|word| words.contains(word));
        place(first) < place(others)
    }

    /// Drops all words with this prefix.
    pub fn drop_all(&mut self, prefix: &str) {
        self.left.retain(|word| !word.starts_with(prefix));
    }

    /// Takes the first word that is a type.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn ty(&mut self) -> Result<Type, String> {
        let place = self.left.iter().position(|word| parse_type(word).is_some());
        let place = place.ok_or_else(|| format!("`{}` has no type", self.name))?;
        parse_type(self.left.remove(place)).ok_or_else(|| self.unknown())
    }

    /// Whether the last type is a floating-point type.
    pub fn is_float(&self) -> bool {
        use Type::*;
        let ty = self.left.iter().rev().find_map(|word| parse_type(word));
        matches!(ty, Some(F16 | F16x2 | Bf16 | Bf16x2 | F32 | F64))
    }

    /// The error for the first word left, or for an invalid combination.
    pub fn unknown(&self) -> String {
        match self.left.as_slice() {
            [] => format!("`{}` does not exist with these modifiers and types", self.name),
            [word, ..] => format!("`.{word}` is not known for `{}`", self.name),
        }
    }

    /// Checks that every word was taken.
    ///
    /// # Errors
    ///
    /// If a word is left; the error names it.
    pub fn finish(&self) -> Result<(), String> {
        if self.left.is_empty() { Ok(()) } else { Err(self.unknown()) }
    }
}

/// Parses the name of a type.
pub fn parse_type(word: &str) -> Option<Type> {
    use Type::*;
    Some(match word {
        "b8" => B8,
        "b16" => B16,
        "b32" => B32,
        "b64" => B64,
        "b128" => B128,
        "u8" => U8,
        "u16" => U16,
        "u32" => U32,
        "u64" => U64,
        "s8" => S8,
        "s16" => S16,
        "s32" => S32,
        "s64" => S64,
        "u16x2" => U16x2,
        "s16x2" => S16x2,
        "f16" => F16,
        "f16x2" => F16x2,
        "bf16" => Bf16,
        "bf16x2" => Bf16x2,
        "f32" => F32,
        "f64" => F64,
        "pred" => Pred,
        _ => return None,
    })
}

/// The bits of a value of this type.
pub fn bits_of(ty: Type) -> u32 {
    use Type::*;
    match ty {
        Pred => 1,
        B8 | U8 | S8 => 8,
        B16 | U16 | S16 | F16 | Bf16 => 16,
        B32 | U32 | S32 | F32 | U16x2 | S16x2 | F16x2 | Bf16x2 => 32,
        B64 | U64 | S64 | F64 => 64,
        B128 => 128,
    }
}

/// The bank of registers that hold this type. `None` for 128 bits.
pub fn bank_of(ty: Type) -> Option<Bank> {
    match bits_of(ty) {
        1 => Some(Bank::Predicate),
        8 | 16 => Some(Bank::Half),
        32 => Some(Bank::Word),
        64 => Some(Bank::Double),
        _ => None,
    }
}
