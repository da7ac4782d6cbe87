//! Launches of small kernels.

mod asynchronous;
mod bulk;
mod calls;
mod checks;
mod compilers;
mod counters;
mod flow;
mod matrix;
mod mbarriers;
mod notes;
mod orders;
mod planted;
mod prints;
mod undefined;

use crate::{
    counters::Counters,
    exec::{self, Findings, Launch, Loaded, Settings},
    fault::Fault,
    memory::Memory,
    program::Program,
    ptx,
};

/// A loaded module and the memory that its kernels use.
pub struct Machine {
    program: Program,
    loaded: Loaded,
    pub memory: Memory,
    pub settings: Settings,
    pub dynamic_shared: u32,
    pub resident: u64,
}

impl Machine {
    /// Loads PTX. A body alone becomes kernel `k` with three pointers, `%rd0` to `%rd2`, and the thread index
    /// in `%r0`.
    pub fn new(text: &str) -> Machine {
        let text = if text.contains(".entry") { text.to_owned() } else { kernel(text) };
        let module = ptx::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let program = Program::decode(&module).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let memory = Memory::new(1 << 30);
        let loaded = Loaded::new(&program, &memory).expect("the memory suffices");
        Machine {
            program,
            loaded,
            memory,
            settings: Settings::default(),
            dynamic_shared: 256,
            resident: exec::MOST_RESIDENT,
        }
    }

    /// Allocates memory that holds these values.
    pub fn upload<T: Copy>(&self, values: &[T]) -> u64 {
        let address = self.memory.allocate(size_of_val(values) as u64).expect("the memory suffices");
        // SAFETY: the tests' values are integers and floats, which have no padding, so all bytes are
        // initialised.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) };
        self.memory.write(address, bytes).expect("in bounds");
        address
    }

    /// Reads words from an address.
    pub fn words(&self, address: u64, count: usize) -> Vec<u32> {
        let mut bytes = vec![0; 4 * count];
        self.memory.read(address, &mut bytes).expect("in bounds");
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
    }

    /// Launches the first kernel with these pointers.
    pub fn launch(&self, blocks: u32, threads: u32, pointers: &[u64]) -> Result<Counters, Box<Fault>> {
        self.launch_with_notes(blocks, threads, pointers).0
    }

    /// Launches as [`launch`](Self::launch), and returns the notes too.
    pub fn launch_with_notes(
        &self,
        blocks: u32,
        threads: u32,
        pointers: &[u64],
    ) -> (Result<Counters, Box<Fault>>, Vec<Fault>) {
        let kernel = &self.program.kernels()[0];
        let mut params: Vec<u8> = pointers.iter().flat_map(|pointer| pointer.to_le_bytes()).collect();
        params.resize(kernel.param_bytes, 0);
        let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
        let Machine { dynamic_shared, resident, .. } = *self;
        let launch = Launch { grid, block, dynamic_shared, resident, workspace: 0, params: &params };
        let (program, loaded, mut findings) = (&self.program, &self.loaded, Findings::default());
        let ended = exec::run(program, loaded, kernel, &launch, &self.memory, &self.settings, &mut findings);
        (ended, findings.notes)
    }
}

/// Wraps a body in the kernel `k`.
pub fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n\
         .extern .shared .align 16 .b8 dynamic[];\n\
         .visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c)\n{{\n\
         .reg .pred %p<20>;\n.reg .b16 %h<20>;\n.reg .b32 %r<40>;\n.reg .b64 %rd<40>;\n\
         .shared .align 16 .b8 shared[4096];\n\
         ld.param.u64 %rd0, [a];\nld.param.u64 %rd1, [b];\nld.param.u64 %rd2, [c];\n\
         mov.u32 %r0, %tid.x;\n\
         {body}\n\
         ret;\n}}\n"
    )
}

/// Runs a body with 64 threads, 64 words of results at `%rd0` and [`values`] at `%rd1`. Returns the results.
fn run_on_words(body: &str, seed: Option<u64>, checks: bool) -> Result<Vec<u32>, Box<Fault>> {
    let mut machine = Machine::new(body);
    (machine.settings.seed, machine.settings.checks) = (seed, checks);
    let (out, values) = (machine.upload(&[77u32; 64]), machine.upload(&values()));
    machine.launch(1, 64, &[out, values])?;
    Ok(machine.words(out, 64))
}

/// A word for each of 64 threads.
fn values() -> Vec<u32> {
    (0..64).map(|i| i * 1000 + 1).collect()
}
