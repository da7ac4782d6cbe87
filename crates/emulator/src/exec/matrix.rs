//! Matrix instructions of a warp. (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".)

use crate::{
    fault::{Fault, FaultKind},
    program::code::{Fragment, Lines, Matrix, Multiply, SHARED_WINDOW, Space},
};

use super::{
    access::{Count, Request, addresses, weak_read},
    block::State,
    hooks::Hooks,
    lanes::{ALL, LANES, Registers, low},
    reports::shown,
    warp::Warp,
};

/// The most bytes that a lane reads or writes at once.
const CHUNK: usize = 16;

impl Fragment {
    pub fn per_register(&self) -> usize {
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
}

/// A part of an access: up to 16 bytes per lane.
pub struct Part {
    addresses: [u64; LANES],
    pub mask: u32,
    /// The number of each lane's first element.
    pub firsts: [usize; LANES],
}

/// How far a matrix instruction has got.
pub enum Step<'a> {
    Multiplied(&'a Multiply),
    Moved {
        target: &'a Fragment,
        source: &'a Fragment,
    },
    /// A part has been read.
    Read(&'a Lines, &'a Part),
    /// All parts have been read, and the registers are set.
    Loaded(&'a Lines),
    /// A part is written next.
    Write {
        lines: &'a Lines,
        part: &'a Part,
        is_global: bool,
    },
    /// All parts have been written.
    Stored,
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
    pub fn values(&self) -> (usize, usize) {
        let size = self.element_bytes().max(2);
        (size, self.chunk() / size)
    }

    /// The parts of an element: its value's index, and its lowest bit there.
    pub fn place(&self, element: usize) -> (usize, u32) {
        let (byte, size) = (element * self.element_bytes(), self.values().0);
        (byte / size, 8 * (byte % size) as u32)
    }

    /// The elements of a chunk.
    pub fn per_chunk(&self) -> usize {
        self.chunk() / self.element_bytes()
    }

    /// The parts, in each of which a lane accesses a chunk.
    fn parts(&self, registers: &Registers) -> impl Iterator<Item = Part> + use<> {
        let bases = addresses(registers, &self.address);
        let strides = self.stride.map(|stride| registers.wide(stride));
        let (per_chunk, bytes, length) = (self.per_chunk(), self.element_bytes() as u64, self.length);
        let chunks = self.count * length / per_chunk;
        (0..chunks).step_by(LANES).map(move |first| {
            let mut part = Part { addresses: bases, mask: 0, firsts: [0; LANES] };
            for lane in 0..LANES.min(chunks - first) {
                let element = (first + lane) * per_chunk;
                part.mask |= 1 << lane;
                part.firsts[lane] = element;
                if let Some(strides) = &strides {
                    let (line, place) = ((element / length) as u64, (element % length) as u64);
                    let offset = (line * strides[lane] + place).wrapping_mul(bytes);
                    part.addresses[lane] = bases[lane].wrapping_add(offset);
                }
            }
            part
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
                target.set(&mut warp.registers, &elements);
                self.hooks.matrix(&mut self.site, warp, &Step::Moved { target, source }, at)
            }
            Matrix::Load(lines) => self.load_lines(warp, lines, at),
            Matrix::Store(lines) => self.store_lines(warp, lines, at),
        }
    }

    fn multiply(&mut self, warp: &mut Warp, multiply: &Multiply, at: u32) -> Result<(), Box<Fault>> {
        let Multiply { arithmetic, k, columns, a, b, c, d } = multiply;
        let [of_a, of_b, of_c] = [a, b, c].map(|fragment| fragment.elements(&warp.registers));
        let result = arithmetic.multiply(*k, *columns, [&of_a, &of_b, &of_c]);
        d.set(&mut warp.registers, &result);
        self.hooks.matrix(&mut self.site, warp, &Step::Multiplied(multiply), at)
    }

    fn load_lines(&mut self, warp: &mut Warp, lines: &Lines, at: u32) -> Result<(), Box<Fault>> {
        let (size, count) = lines.values();
        let mut elements = vec![0; lines.fragment.count];
        let mut counted = Count::Request;
        for part in lines.parts(&warp.registers) {
            let mut values = [[0; LANES]; 8];
            let place = (lines.address.space, &part.addresses, part.mask);
            let request = weak_read(warp, place, (size as u32, count as u32), at);
            let request = Request { count: counted, ..request };
            self.hooks.begin(&request);
            self.read(warp, &request, &mut values[..count])?;
            self.hooks.matrix(&mut self.site, warp, &Step::Read(lines, &part), at)?;
            for lane in super::lanes::lanes(part.mask) {
                for element in 0..lines.per_chunk() {
                    let (value, shift) = lines.place(element);
                    elements[part.firsts[lane] + element] =
                        values[value][lane] >> shift & low(lines.fragment.bits);
                }
            }
            // One instruction, however many parts.
            counted = Count::Rest;
        }
        lines.fragment.set(&mut warp.registers, &elements);
        self.hooks.matrix(&mut self.site, warp, &Step::Loaded(lines), at)
    }

    fn store_lines(&mut self, warp: &mut Warp, lines: &Lines, at: u32) -> Result<(), Box<Fault>> {
        let (size, count) = lines.values();
        let elements = lines.fragment.elements(&warp.registers);
        let mut counted = Count::Request;
        for part in lines.parts(&warp.registers) {
            let is_global = match lines.address.space {
                Space::Generic => part.addresses[0] < SHARED_WINDOW,
                space => space == Space::Global,
            };
            let step = Step::Write { lines, part: &part, is_global };
            self.hooks.matrix(&mut self.site, warp, &step, at)?;
            let mut values = [[0; LANES]; 8];
            for lane in super::lanes::lanes(part.mask) {
                for element in 0..lines.per_chunk() {
                    let (value, shift) = lines.place(element);
                    values[value][lane] |= elements[part.firsts[lane] + element] << shift;
                }
            }
            let place = (lines.address.space, &part.addresses, part.mask);
            let request = weak_read(warp, place, (size as u32, count as u32), at).stored();
            let request = Request { count: counted, ..request };
            self.hooks.begin(&request);
            self.write(warp, &request, &values[..count])?;
            counted = Count::Rest;
        }
        self.hooks.matrix(&mut self.site, warp, &Step::Stored, at)
    }
}
