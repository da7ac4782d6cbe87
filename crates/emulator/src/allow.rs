//! What an author has decided is no fault.

use std::{convert::Infallible, path::Path, str::FromStr};

use crate::fault::{Fault, FaultKind, Place, readable};

/// A source line or a kernel whose faults and notes are not reported, for
/// [`Settings::allow`](crate::Settings::allow).
///
/// Only findings after which a launch can go on are dropped: races, reads of memory that nothing wrote, uses
/// of undefined values, an index past the end of a shared array. An access to no memory, for example, stays a
/// fault.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Allow {
    /// A line of the source that the PTX was compiled from. A race is dropped if one of its two accesses is
    /// at the line.
    Line {
        /// The file, or the last parts of its path: `scan.cu` stands for `src/scan.cu` too.
        file: String,
        /// The line.
        line: u32,
    },
    /// A kernel, by its name in the PTX or by its name as its author wrote it (`void scale<float>(float*,
    /// int)`).
    Kernel(String),
}

impl Allow {
    /// Allows a line of a source file.
    pub fn line(file: impl Into<String>, line: u32) -> Allow {
        Allow::Line { file: file.into(), line }
    }

    /// Allows a kernel.
    pub fn kernel(name: impl Into<String>) -> Allow {
        Allow::Kernel(name.into())
    }

    /// Whether it says that this fault is not to be reported.
    pub(crate) fn covers(&self, fault: &Fault) -> bool {
        match self {
            Allow::Kernel(name) => fault.kernel == *name || readable(&fault.kernel).as_ref() == Some(name),
            Allow::Line { file, line } => {
                let is_line = |(named, at): &(String, u32)| at == line && Path::new(named).ends_with(file);
                let has_line =
                    |place: &&Place| [&place.source, &place.author].into_iter().flatten().any(is_line);
                places(fault).iter().any(has_line)
            }
        }
    }
}

/// Parses `FILE:LINE`, or the name of a kernel.
impl FromStr for Allow {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Allow, Infallible> {
        let line = text.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?)));
        Ok(line.map_or_else(|| Allow::kernel(text), |(file, line)| Allow::line(file, line)))
    }
}

/// The instructions that a fault names.
fn places(fault: &Fault) -> Vec<&Place> {
    let mut places: Vec<&Place> = fault.place.iter().collect();
    match &fault.kind {
        FaultKind::Race { first, second }
        | FaultKind::SameValue { first, second }
        | FaultKind::SwapRead { first, second }
        | FaultKind::Overwrite { first, second }
        | FaultKind::Clash { first, second }
        | FaultKind::Rounding { first, second }
        | FaultKind::ConstantFirst { first, second }
        | FaultKind::Unfinished { first, second }
        | FaultKind::MbarrierWord { first, second }
        | FaultKind::Proxy { first, second }
        | FaultKind::Constant { first, second } => places.extend([&first.place, &second.place]),
        FaultKind::DeviceRace { first, second } | FaultKind::StreamRace { first, second } => {
            places.extend(first.place.iter().chain(&second.place))
        }
        FaultKind::Register { used, .. } | FaultKind::Shuffle { used, .. } => places.push(used),
        FaultKind::UnwrittenBranch { access, used } => places.extend([&access.place, used]),
        FaultKind::Unwritten(access) | FaultKind::OutOfArray { access, .. } => places.push(&access.place),
        _ => {}
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(kernel: &str, source: &str, author: Option<&str>) -> Fault {
        let at = |file: &str| (file.to_owned(), 42);
        let place = Place { line: 7, source: Some(at(source)), author: author.map(at) };
        let kind = FaultKind::Register { what: "an address", used: place };
        Fault { kernel: kernel.to_owned(), place: None, block: [0; 3], threads: Vec::new(), seed: None, kind }
    }

    #[test]
    fn lines_and_kernels_are_parsed_and_found() {
        let parse = |text: &str| text.parse::<Allow>().unwrap();
        assert_eq!(parse("src/scan.cu:42"), Allow::line("src/scan.cu", 42));
        assert_eq!(parse("kernels::scan"), Allow::kernel("kernels::scan"));
        let fault = fault("_Z5scalePfi", "/opt/cub/agent.cuh", Some("/home/me/src/scan.cu"));
        for (text, covers) in [
            ("scan.cu:42", true),
            ("src/scan.cu:42", true),
            ("/home/me/src/scan.cu:42", true),
            ("agent.cuh:42", true),
            ("_Z5scalePfi", true),
            ("scale(float*, int)", true),
            ("scan.cu:41", false),
            ("an.cu:42", false),
            ("scale", false),
            ("", false),
        ] {
            assert_eq!(parse(text).covers(&fault), covers, "{text}");
        }
    }
}
