//! The source lines of instructions: an instruction's own, and the author's where the compiler inlined it
//! from a library.

use crate::ptx::ast::{Frame, Function, Statement};
use std::collections::HashMap;

/// The source lines of an instruction: the index of a `.file`, and the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its own.
    pub own: (u32, u32),
    /// The author's, if its own is a library's.
    pub author: Option<(u32, u32)>,
}

/// The `.loc`s of a kernel, read in order.
pub(super) struct Lines<'a> {
    files: &'a [(u32, String)],
    /// The folder of the kernel's own package, if the kernel has `.loc`s.
    folder: Option<&'a str>,
    /// Where the code of a frame was inlined.
    callers: HashMap<Frame, Frame>,
    pub position: Position,
}

/// What the `.loc`s read so far say of the next instruction.
#[derive(Clone, Copy, Default)]
pub(super) struct Position {
    /// Its lines.
    pub source: Option<Source>,
    /// The last line in the author's files.
    last: Option<(u32, u32)>,
}

impl<'a> Lines<'a> {
    pub fn new(files: &'a [(u32, String)]) -> Self {
        Lines { files, folder: None, callers: HashMap::new(), position: Position::default() }
    }

    /// Begins a kernel: the file of its first line that was not inlined is the author's, and so are those in
    /// the same folder.
    pub fn begin(&mut self, kernel: &Function) {
        let first = first_frame(kernel.body.as_deref().unwrap_or_default());
        self.folder = first.and_then(|file| self.path(file)).map(folder_of_package);
    }

    /// Reads a `.loc`.
    pub fn read(&mut self, frame: Frame, inlined_at: Option<Frame>) {
        if let Some(caller) = inlined_at {
            self.callers.insert(frame, caller);
        }
        let own = (frame.file, frame.line);
        if self.is_authors(frame.file) {
            self.position = Position { source: Some(Source { own, author: None }), last: Some(own) };
            return;
        }
        // Frames that inline each other in a circle end after as many steps as there are frames.
        let callers = std::iter::successors(inlined_at, |caller| self.callers.get(caller).copied());
        let author = callers.take(self.callers.len()).find(|caller| self.is_authors(caller.file));
        let author = author.map(|caller| (caller.file, caller.line)).or(self.position.last);
        self.position.source = Some(Source { own, author });
    }

    fn path(&self, file: u32) -> Option<&'a str> {
        self.files.iter().find(|(index, _)| *index == file).map(|(_, path)| &**path)
    }

    fn is_authors(&self, file: u32) -> bool {
        let (Some(folder), Some(path)) = (self.folder, self.path(file)) else { return false };
        path.starts_with(folder) && !(folder.is_empty() && path.starts_with(['/', '.']))
    }
}

/// The file of the first `.loc` that was not inlined.
fn first_frame(body: &[Statement]) -> Option<u32> {
    body.iter().find_map(|statement| match statement {
        Statement::Location { frame, inlined_at: None } => Some(frame.file),
        Statement::Block(inner) => first_frame(inner),
        _ => None,
    })
}

/// The folder above `src`, or the file's own. It ends in `/`, unless it is the one in which the compiler ran.
fn folder_of_package(path: &str) -> &str {
    let end = path.rfind("src/").filter(|&at| at == 0 || path[..at].ends_with('/'));
    &path[..end.unwrap_or_else(|| path.rfind('/').map_or(0, |at| at + 1))]
}
