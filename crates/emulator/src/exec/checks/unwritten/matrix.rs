//! Follows undefined values through matrix instructions, element by element.

use crate::{
    exec::{
        lanes::{LANES, collect, lanes},
        matrix::Step,
        site::Site,
        warp::Warp,
    },
    fault::Fault,
    program::code::{Fragment, Multiply},
};

use super::{Unwritten, registers::Origin};

/// The elements that the current matrix load has read.
#[derive(Default)]
pub struct Elements {
    undefined: Vec<bool>,
    origin: Option<Origin>,
}

impl Fragment {
    /// Whether each element is undefined, from the lanes in which each register is.
    fn undefined(&self, masks: &[u32]) -> Vec<bool> {
        let mut undefined = vec![false; self.count];
        for (mask, places) in masks.iter().zip(self.places.chunks(self.per_register())) {
            for lane in lanes(*mask) {
                places.iter().for_each(|numbers| undefined[numbers[lane] as usize] = true);
            }
        }
        undefined
    }

    /// The lanes in which each register is undefined: all its elements are.
    fn undefined_lanes(&self, undefined: &[bool]) -> Vec<u32> {
        let of = |places: &[[u16; LANES]]| {
            collect(|lane| places.iter().all(|numbers| undefined[numbers[lane] as usize]))
        };
        self.places.chunks(self.per_register()).map(of).collect()
    }
}

impl<'g> Unwritten<'g> {
    #[cold]
    pub fn follow_matrix(
        &mut self,
        site: &mut Site<'g>,
        warp: &Warp,
        step: &Step,
        at: u32,
    ) -> Result<(), Box<Fault>> {
        match *step {
            Step::Multiplied(multiply) => self.multiply(site, warp, multiply, at),
            Step::Moved { target, source } => {
                let (masks, origin) = self.undefined_sources(site, warp, at);
                let undefined = source.undefined(&masks);
                self.set_undefined_targets(site, warp, &target.undefined_lanes(&undefined), origin, at);
            }
            Step::Read(lines, part) => {
                let (void, origin) = self.track(warp).take_void(at, lines.values().0 as u32);
                let elements = &mut self.elements;
                elements.origin = elements.origin.or(origin);
                elements.undefined.resize(lines.fragment.count, false);
                for lane in lanes(part.mask) {
                    for element in 0..lines.per_chunk() {
                        let is_undefined = void[lines.place(element).0] >> lane & 1 != 0;
                        elements.undefined[part.firsts[lane] + element] = is_undefined;
                    }
                }
            }
            Step::Loaded(lines) => {
                let Elements { mut undefined, origin } = std::mem::take(&mut self.elements);
                undefined.resize(lines.fragment.count, false);
                let masks = lines.fragment.undefined_lanes(&undefined);
                self.set_undefined_targets(site, warp, &masks, origin, at);
            }
            Step::Write { lines, part, is_global } => {
                let (masks, origin) = self.undefined_sources(site, warp, at);
                if is_global && origin.is_some() {
                    self.store_undefined(site, warp, at)?;
                }
                let undefined = lines.fragment.undefined(&masks);
                let mut void = [0; 8];
                for lane in lanes(part.mask) {
                    for element in 0..lines.per_chunk() {
                        let is_undefined = undefined[part.firsts[lane] + element];
                        void[lines.place(element).0] |= u32::from(is_undefined) << lane;
                    }
                }
                self.track(warp).set_void(void, origin);
            }
            Step::Stored => self.track(warp).void = Default::default(),
        }
        Ok(())
    }

    fn multiply(&mut self, site: &Site<'g>, warp: &Warp, multiply: &Multiply, at: u32) {
        let Multiply { k, columns, a, b, c, d, .. } = multiply;
        let (masks, origin) = self.undefined_sources(site, warp, at);
        if masks.is_empty() {
            return;
        }
        let (of_a, rest) = masks.split_at(a.registers.len());
        let (of_b, of_c) = rest.split_at(b.registers.len());
        let (a, b, c) = (a.undefined(of_a), b.undefined(of_b), c.undefined(of_c));
        let is_undefined = |(place, &of_c): (usize, &bool)| {
            let (row, column) = (place / columns * k, place % columns * k);
            of_c || a[row..row + k].contains(&true) || b[column..column + k].contains(&true)
        };
        let undefined: Vec<bool> = c.iter().enumerate().map(is_undefined).collect();
        let (masks, origin) = (d.undefined_lanes(&undefined), origin.map(Origin::computed));
        self.set_undefined_targets(site, warp, &masks, origin, at);
    }

    /// The lanes in which each register that an instruction reads is undefined, and an origin. Empty if none
    /// can be.
    fn undefined_sources(&self, site: &Site<'g>, warp: &Warp, at: u32) -> (Vec<u32>, Option<Origin>) {
        let Some(carry) = self.carry_of(site.grid, at) else { return (Vec::new(), None) };
        let track = &self.warps[warp.index as usize];
        let masks: Vec<u32> = carry.sources.iter().map(|&source| track.lanes_of(source)).collect();
        let first = carry.sources.iter().flatten().find(|&&source| track.lanes_of(Some(source)) != 0);
        (masks, first.map(|&source| track.origin(source, at)))
    }

    /// Records the lanes in which each result is undefined.
    fn set_undefined_targets(
        &mut self,
        site: &Site<'g>,
        warp: &Warp,
        masks: &[u32],
        origin: Option<Origin>,
        at: u32,
    ) {
        let Some(carry) = self.carry_of(site.grid, at) else { return };
        for (&target, &mask) in carry.targets.iter().zip(masks) {
            self.track(warp).set_undefined(target, mask, u32::MAX, origin);
        }
    }

    /// The instruction stores undefined values to global memory.
    fn store_undefined(&mut self, site: &mut Site<'g>, warp: &Warp, at: u32) -> Result<(), Box<Fault>> {
        let Some(carry) = self.carry_of(site.grid, at) else { return Ok(()) };
        for &source in &carry.sources {
            let mask = self.track(warp).lanes_of(source);
            if mask != 0 {
                self.track(warp).used(site, warp, (source, mask), (at, "what is stored"))?;
            }
        }
        Ok(())
    }
}
