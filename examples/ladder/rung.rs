//! The variants as values.

use std::num::NonZeroU32;
use std::time::Duration;

use gpu_reduce::{Block, Element, Error, LadderElement, Sum, Threads, Variant, View, for_each_rung, variant};

/// A variant for one type and BLOCK.
pub struct Rung<T: Element> {
    pub name: &'static str,
    pub reduce: fn(View<T>) -> Result<T::Wide, Error>,
    pub time: fn(View<T>, NonZeroU32) -> Timed<T>,
}

type Timed<T> = Result<(<T as Element>::Wide, Duration), Error>;

/// All variants: the ladder from the first kernel to the production kernel, then those beside the ladder.
pub fn rungs<T: LadderElement, const BLOCK: u32>() -> Vec<Rung<T>>
where
    Threads<BLOCK>: Block,
{
    macro_rules! rungs {
        ({} $($rung:ident: $name:ident;)*) => {
            vec![$(rung::<variant::$rung, T, BLOCK>()),*]
        };
    }
    let mut rungs = for_each_rung! { rungs! {} };
    let shuffle = rungs.iter().position(|rung| rung.name == variant::Shuffle::NAME);
    rungs.insert(shuffle.map_or(0, |shuffle| shuffle + 1), rung::<variant::Production, T, BLOCK>());
    rungs
}

fn rung<V: Variant, T: LadderElement, const BLOCK: u32>() -> Rung<T>
where
    Threads<BLOCK>: Block,
{
    Rung {
        name: V::NAME,
        reduce: |view| view.reduce_with::<V, Sum, BLOCK>(),
        time: |view, repeats| view.time_with::<V, Sum, BLOCK>(repeats),
    }
}

/// The names of all variants, in the order of [`rungs`].
pub fn names() -> Vec<&'static str> {
    rungs::<i32, 32>().iter().map(|rung| rung.name).collect()
}

/// Whether a variant is a rung of the ladder, not one beside it.
pub fn is_rung(variant: &str) -> bool {
    let names = names();
    let place = |name| names.iter().position(|&known| known == name);
    place(variant).is_some_and(|variant| Some(variant) <= place(variant::Production::NAME))
}
