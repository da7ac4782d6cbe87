//! Matrix instructions of a warp. (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".)

use crate::{
    fault::{Fault, FaultKind},
    program::code::{Fragment, Lines, Matrix, Multiply, SHARED_WINDOW, Space},
};

use super::{
    access::addresses,
    block::State,
    lanes::{ALL, LANES, Registers, collect, low},
    reports::shown,
    undefined::Origin,
    warp::Warp,
};

/// The most bytes that a lane reads or writes at once.
const CHUNK: usize = 16;

impl Fragment {
    fn per_register(&self) -> usize {
        self.places.len() / self.registers.len()
    }

    fn elements(&self, registers: &Registers) -> Vec<u64> {
        let mut elements = vec![0; self.count];
        for (register, places) in self.registers.iter().zip(self.places.chunks(self.per_register())) {
            let values = registers.wide(*register);
            for (place, numbers) in places.iter().enumerate() {
                for lane in 0..LANES {
                    let bits = values[lane] >> (place as u32 * self.bits) & low(self.bits);
                    elements[numbers[lane] as usize] = bits;
                }
            }
        }
        elements
    }

    fn set(&self, registers: &mut Registers, elements: &[u64]) {
        for (register, places) in self.registers.iter().zip(self.places.chunks(self.per_register())) {
            let mut values = [0; LANES];
            for (place, numbers) in places.iter().enumerate() {
                for lane in 0..LANES {
                    values[lane] |= elements[numbers[lane] as usize] << (place as u32 * self.bits);
                }
            }
            registers.set_wide(*register, &values, ALL);
        }
    }

    /// Whether each element is undefined, from the lanes in which each register is.
    fn undefined(&self, lanes: &[u32]) -> Vec<bool> {
        let mut undefined = vec![false; self.count];
        for (lanes, places) in lanes.iter().zip(self.places.chunks(self.per_register())) {
            for lane in super::lanes::lanes(*lanes) {
                places.iter().for_each(|numbers| undefined[numbers[lane] as usize] = true);
            }
        }
        undefined
    }

    /// The lanes in which each register is undefined: all its elements are.
    fn undefined_lanes(&self, undefined: &[bool]) -> Vec<u32> {
        let lanes = |places: &[[u16; LANES]]| {
            collect(|lane| places.iter().all(|numbers| undefined[numbers[lane] as usize]))
        };
        self.places.chunks(self.per_register()).map(lanes).collect()
    }
}

/// One step of an access: up to 16 bytes per lane.
struct Step {
    addresses: [u64; LANES],
    mask: u32,
    /// The number of each lane's first element.
    firsts: [usize; LANES],
}

impl Lines {
    fn element_bytes(&self) -> usize {
        self.fragment.bits as usize / 8
    }

    /// The bytes of a lane's part of a line.
    pub fn chunk(&self) -> usize {
        CHUNK.min(self.length * self.element_bytes())
    }

    /// The bytes of a lane's values, and their number. Bytes are accessed in pairs.
    fn values(&self) -> (usize, usize) {
        let size = self.element_bytes().max(2);
        (size, self.chunk() / size)
    }

    /// The parts of an element: its value's index, and its lowest bit there.
    fn place(&self, element: usize) -> (usize, u32) {
        let (byte, size) = (element * self.element_bytes(), self.values().0);
        (byte / size, 8 * (byte % size) as u32)
    }

    /// The elements of a chunk.
    fn per_chunk(&self) -> usize {
        self.chunk() / self.element_bytes()
    }

    /// The steps, in each of which a lane accesses a chunk.
    fn steps(&self, registers: &Registers) -> impl Iterator<Item = Step> + use<> {
        let bases = addresses(registers, &self.address);
        let strides = self.stride.map(|stride| registers.wide(stride));
        let (per_chunk, bytes, length) = (self.per_chunk(), self.element_bytes() as u64, self.length);
        let chunks = self.count * length / per_chunk;
        (0..chunks).step_by(LANES).map(move |first| {
            let mut step = Step { addresses: bases, mask: 0, firsts: [0; LANES] };
            for lane in 0..LANES.min(chunks - first) {
                let element = (first + lane) * per_chunk;
                step.mask |= 1 << lane;
                step.firsts[lane] = element;
                if let Some(strides) = &strides {
                    let (line, place) = ((element / length) as u64, (element % length) as u64);
                    let offset = (line * strides[lane] + place).wrapping_mul(bytes);
                    step.addresses[lane] = bases[lane].wrapping_add(offset);
                }
            }
            step
        })
    }
}

impl State<'_> {
    /// Runs a matrix instruction, which needs all lanes.
    #[cold]
    pub fn matrix(
        &mut self,
        warp: &mut Warp,
        matrix: &Matrix,
        active: u32,
        at: u32,
    ) -> Result<(), Box<Fault>> {
        if active != ALL {
            let text =
                format!("lanes {} of the warp are here, lanes {} are not", shown(active), shown(!active));
            return Err(self.site.fault(warp.index, at, active, FaultKind::Aligned(text)));
        }
        match matrix {
            Matrix::Multiply(multiply) => self.multiply(warp, multiply, at),
            Matrix::Move { target, source } => {
                let elements = source.elements(&warp.registers);
                let (lanes, origin) = self.undefined_sources(warp, at);
                let undefined = source.undefined(&lanes);
                target.set(&mut warp.registers, &elements);
                self.set_undefined_targets(warp, &target.undefined_lanes(&undefined), origin, at);
            }
            Matrix::Load(lines) => self.load_lines(warp, lines, at)?,
            Matrix::Store(lines) => self.store_lines(warp, lines, at)?,
        }
        Ok(())
    }

    fn multiply(&self, warp: &mut Warp, multiply: &Multiply, at: u32) {
        let Multiply { arithmetic, k, columns, a, b, c, d } = multiply;
        let [of_a, of_b, of_c] = [a, b, c].map(|fragment| fragment.elements(&warp.registers));
        let result = arithmetic.multiply(*k, *columns, [&of_a, &of_b, &of_c]);
        let (lanes, origin) = self.undefined_sources(warp, at);
        d.set(&mut warp.registers, &result);
        if lanes.is_empty() {
            return;
        }
        let (of_a, rest) = lanes.split_at(a.registers.len());
        let (of_b, of_c) = rest.split_at(b.registers.len());
        let (a, b, c) = (a.undefined(of_a), b.undefined(of_b), c.undefined(of_c));
        let is_undefined = |(place, &of_c): (usize, &bool)| {
            let (row, column) = (place / columns * k, place % columns * k);
            of_c || a[row..row + k].contains(&true) || b[column..column + k].contains(&true)
        };
        let undefined: Vec<bool> = c.iter().enumerate().map(is_undefined).collect();
        self.set_undefined_targets(warp, &d.undefined_lanes(&undefined), origin.map(Origin::computed), at);
    }

    fn load_lines(&mut self, warp: &mut Warp, lines: &Lines, at: u32) -> Result<(), Box<Fault>> {
        let (size, count) = lines.values();
        let mut elements = vec![0; lines.fragment.count];
        let mut undefined = vec![false; lines.fragment.count];
        let mut origin = None;
        let counters = self.counters;
        for step in lines.steps(&warp.registers) {
            let mut values = [[0; LANES]; 8];
            let request = self.weak_read(warp, (&step.addresses, step.mask), (size as u32, count as u32), at);
            self.begin(&request);
            self.read(warp, &request, lines.address.space, &mut values[..count])?;
            let (void, from) = warp.take_void(at, size as u32);
            origin = origin.or(from);
            for lane in super::lanes::lanes(step.mask) {
                for element in 0..lines.per_chunk() {
                    let (value, shift) = lines.place(element);
                    let number = step.firsts[lane] + element;
                    elements[number] = values[value][lane] >> shift & low(lines.fragment.bits);
                    undefined[number] = void[value] >> lane & 1 != 0;
                }
            }
        }
        // One instruction, however many steps.
        let requests = |now: &mut u64, before: u64| *now = (*now).min(before + 1);
        requests(&mut self.counters.shared_load_requests, counters.shared_load_requests);
        requests(&mut self.counters.global_load_requests, counters.global_load_requests);
        lines.fragment.set(&mut warp.registers, &elements);
        self.set_undefined_targets(warp, &lines.fragment.undefined_lanes(&undefined), origin, at);
        Ok(())
    }

    fn store_lines(&mut self, warp: &mut Warp, lines: &Lines, at: u32) -> Result<(), Box<Fault>> {
        let (size, count) = lines.values();
        let elements = lines.fragment.elements(&warp.registers);
        let (lanes, origin) = self.undefined_sources(warp, at);
        let undefined = lines.fragment.undefined(&lanes);
        let counters = self.counters;
        for step in lines.steps(&warp.registers) {
            let is_global = match lines.address.space {
                Space::Generic => step.addresses[0] < SHARED_WINDOW,
                space => space == Space::Global,
            };
            if is_global && origin.is_some() {
                self.store_undefined(warp, at)?;
            }
            let mut values = [[0; LANES]; 8];
            let mut void = [0; 8];
            for lane in super::lanes::lanes(step.mask) {
                for element in 0..lines.per_chunk() {
                    let (value, shift) = lines.place(element);
                    let number = step.firsts[lane] + element;
                    values[value][lane] |= elements[number] << shift;
                    void[value] |= u32::from(undefined[number]) << lane;
                }
            }
            warp.set_void(void, origin);
            let place = (&step.addresses, step.mask);
            let request = self.weak_read(warp, place, (size as u32, count as u32), at).stored();
            self.begin(&request);
            self.write(warp, &request, lines.address.space, &values[..count])?;
        }
        warp.void = Default::default();
        let requests = |now: &mut u64, before: u64| *now = (*now).min(before + 1);
        requests(&mut self.counters.shared_store_requests, counters.shared_store_requests);
        requests(&mut self.counters.global_store_requests, counters.global_store_requests);
        Ok(())
    }
}
