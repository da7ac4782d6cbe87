//! Prints the PTX of an entry point in `ptx/`, or writes all entry points to a folder.
//!
//! ```text
//! cargo run --release -p ptx_tools --bin text -- sum_f32_256
//! cargo run --release -p ptx_tools --bin text -- --all FOLDER
//! ```

use gpu_reduce_ptx::Ptx;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

const TABLES: [&[&Ptx]; 2] = [kernels::ALL, ladder::ALL];

#[path = "../../../../ptx/kernels.rs"]
mod kernels;
#[path = "../../../../ptx/ladder.rs"]
mod ladder;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--all", folder] => {
            fs::create_dir_all(folder)?;
            for ptx in TABLES.into_iter().flatten() {
                for (entry, module) in ptx.modules().ok_or("ptx/ is damaged")? {
                    fs::write(Path::new(folder).join(format!("{entry}.ptx")), module)?;
                }
            }
        }
        [name] => {
            let mut entries = entries();
            let entry = entries.find(|(_, kernel, block)| format!("{kernel}_{block}") == name);
            let (ptx, kernel, block) = entry.ok_or_else(|| format!("there is no entry point {name}"))?;
            print!("{}", ptx.module(kernel, block).ok_or("ptx/ is damaged")?);
        }
        _ => return Err("what to show: the name of an entry point, as sum_f32_256, or --all FOLDER".into()),
    }
    Ok(())
}

/// All entry points.
fn entries() -> impl Iterator<Item = (&'static Ptx, &'static str, u32)> {
    TABLES.into_iter().flatten().flat_map(|&ptx| {
        ptx.kernels
            .iter()
            .flat_map(move |&(kernel, blocks)| blocks.iter().map(move |&(block, _)| (ptx, kernel, block)))
    })
}
