//! Rows on the emulator, without its driver API.

use crate::instructions::kernel::{self, BLOCK, OWN, ROWS};
use crate::instructions::row::Row;
use emulator::exec::{self, Launch, Loaded, Settings};
use emulator::{memory::Memory, program::Program, ptx};

/// A module of rows.
pub struct Module {
    program: Program,
    loaded: Loaded,
    memory: Memory,
}

impl Module {
    pub fn new(rows: &[(usize, &Row)]) -> Module {
        let text = kernel::module(rows.iter().copied());
        let line = |line: u32| text.lines().nth(line as usize - 1).unwrap_or_default().to_owned();
        let module = ptx::parse(&text).unwrap_or_else(|error| panic!("{error}: {}", line(error.line)));
        let program =
            Program::decode(&module).unwrap_or_else(|error| panic!("{error}: {}", line(error.line)));
        let memory = Memory::new(1 << 30);
        let loaded = Loaded::new(&program, &memory).expect("the memory suffices");
        Module { program, loaded, memory }
    }

    /// Runs a row; returns the results for each thread's sources.
    pub fn run(&self, row: usize, sources: &[[u64; 4]], checks: bool) -> Vec<[u64; 2]> {
        let kernel = self.program.kernel(&kernel::name(row)).expect("the module has it");
        let threads = sources.len();
        let allocate = |bytes| self.memory.allocate(bytes as u64).expect("the memory suffices");
        let buffers = [16 * threads, 32 * threads, OWN * threads].map(allocate);
        let bytes: Vec<u8> = sources.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        self.memory.write(buffers[1], &bytes).expect("in bounds");
        let params: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.to_le_bytes()).collect();
        let columns = threads as u32 / ROWS / BLOCK.iter().product::<u32>();
        let launch = Launch {
            grid: [columns, ROWS, 1],
            block: BLOCK,
            dynamic_shared: 0,
            resident: exec::MOST_RESIDENT,
            workspace: 0,
            params: &params,
        };
        let settings = Settings { checks, ..Settings::default() };
        exec::launch(&self.program, &self.loaded, kernel, &launch, &self.memory, &settings)
            .unwrap_or_else(|fault| panic!("{fault}"));
        let mut bytes = vec![0; 16 * threads];
        self.memory.read(buffers[0], &mut bytes).expect("in bounds");
        for buffer in buffers {
            self.memory.free(buffer);
        }
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        bytes.chunks_exact(16).map(|pair| [word(&pair[..8]), word(&pair[8..])]).collect()
    }
}
