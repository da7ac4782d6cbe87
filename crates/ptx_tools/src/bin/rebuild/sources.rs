//! Hashes of everything that decides what `ptx/` holds, apart from the device toolchain, which
//! `ptx/kernels.rs` names.
//!
//! Comments are not hashed. They cannot change the kernels: the PTX has no line numbers, because no panic
//! that is left in it has a message.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// The file of the hashes, in `ptx/`.
const FILE: &str = "sources.txt";

const HEADER: &str = "# Hashes of the sources that ptx/ was compiled from. Written by ptx_tools' `rebuild`, read by \
                      .ci/check-rebuild.\n";

/// The packages whose code is in the kernels, or which compile, split and pack them.
const FOLDERS: [&str; 6] = [
    "gpu",
    "crates/cuda_std",
    "crates/cuda_std_macros",
    "crates/cuda_builder",
    "crates/ptx",
    "crates/ptx_tools",
];

/// The packages of `Cargo.lock` with whose dependencies the kernels are compiled and packed.
const PACKAGES: [&str; 2] = ["gpu_reduce_kernels", "ptx_tools"];

type Failure = Box<dyn Error + Send + Sync>;

/// A hash for each source.
pub struct Sources(BTreeMap<String, u128>);

impl Sources {
    /// Those of the repository in `root` now.
    pub fn now(root: &Path) -> Result<Self, Failure> {
        let mut hashes = BTreeMap::new();
        for folder in FOLDERS {
            for path in files(&root.join(folder))? {
                let text = fs::read_to_string(&path)?;
                let name = path.strip_prefix(root)?.display().to_string();
                let content = match path.extension().and_then(|extension| extension.to_str()) {
                    Some("rs") => without_comments(&text).map_err(|error| format!("{name}: {error}"))?,
                    Some("toml") => manifest(&text, |_| true),
                    _ => continue,
                };
                hashes.insert(name, hash(&content));
            }
        }
        let read = |name: &str| fs::read_to_string(root.join(name));
        let decides =
            |section: &str| section == "workspace.package" || section.starts_with("profile.release");
        hashes.insert("Cargo.toml".to_owned(), hash(&manifest(&read("Cargo.toml")?, decides)));
        hashes.insert("Cargo.lock".to_owned(), hash(&locked(&read("Cargo.lock")?, &PACKAGES)));
        hashes.insert(
            "rust-toolchain.toml".to_owned(),
            hash(&manifest(&read("rust-toolchain.toml")?, |_| true)),
        );
        Ok(Self(hashes))
    }

    /// Those that `ptx/` was compiled from, as far as it says.
    fn of_ptx(root: &Path) -> Self {
        let text = fs::read_to_string(root.join("ptx").join(FILE)).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        Self(
            lines
                .filter_map(|(hash, name)| Some((name.to_owned(), u128::from_str_radix(hash, 16).ok()?)))
                .collect(),
        )
    }

    /// The names of the sources that were added, removed or changed since `ptx/` was compiled.
    pub fn changed(root: &Path) -> Result<Vec<String>, Failure> {
        let (Self(old), Self(new)) = (Self::of_ptx(root), Self::now(root)?);
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        Ok(names.into_iter().filter(|&name| old.get(name) != new.get(name)).cloned().collect())
    }

    /// The file that says so, and its content.
    pub fn file(&self, root: &Path) -> (PathBuf, Vec<u8>) {
        let lines: String = self.0.iter().map(|(name, hash)| format!("{hash:032x} {name}\n")).collect();
        (root.join("ptx").join(FILE), format!("{HEADER}{lines}").into_bytes())
    }
}

/// All files below a folder, but for those of its tests and of builds, and behind links.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.is_dir() {
            found.push(path);
        } else if !path.ends_with("tests") && !path.ends_with("target") && !path.is_symlink() {
            found.extend(files(&path)?);
        }
    }
    Ok(found)
}

/// FNV-1a of 128 bits.
fn hash(text: &str) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    text.bytes().fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

/// Rust's tokens, without comments, docs and spaces between them.
fn without_comments(text: &str) -> Result<String, proc_macro2::LexError> {
    fn write(tokens: TokenStream, text: &mut String) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            if let TokenTree::Punct(punct) = &token
                && punct.as_char() == '#'
            {
                // A doc comment is the token `#`, for the crate's or module's own docs also `!`, and `[doc =
                // "…"]`.
                let mut rest = tokens.clone();
                let inner = matches!(rest.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == '!');
                if inner {
                    rest.next();
                }
                if rest.next().is_some_and(|token| is_doc(&token)) {
                    tokens = rest;
                    continue;
                }
            }
            match token {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::None => ("", ""),
                    };
                    text.push_str(open);
                    write(group.stream(), text);
                    text.push_str(close);
                }
                TokenTree::Punct(punct) => {
                    text.push(punct.as_char());
                    // `a & &b` is not `a && b`.
                    if punct.spacing() == proc_macro2::Spacing::Alone {
                        text.push(' ');
                    }
                }
                other => {
                    text.push_str(&other.to_string());
                    text.push(' ');
                }
            }
        }
    }
    let mut tokens = String::new();
    write(text.parse()?, &mut tokens);
    Ok(tokens)
}

fn is_doc(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    let first = group.stream().into_iter().next();
    group.delimiter() == Delimiter::Bracket && matches!(first, Some(TokenTree::Ident(name)) if name == "doc")
}

/// The sections of a TOML file whose names are wanted, without lines that are comments.
fn manifest(text: &str, wanted: impl Fn(&str) -> bool) -> String {
    let mut is_wanted = wanted("");
    let mut lines = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(section) = line.strip_prefix('[') {
            is_wanted = wanted(section.trim_end_matches(']').trim_start_matches('['));
        }
        if is_wanted {
            lines.extend([line, "\n"]);
        }
    }
    lines
}

/// What a lock file says of packages and of all that these depend on.
fn locked(lock: &str, packages: &[&str]) -> String {
    let name = |entry: &str| {
        entry.lines().find_map(|line| Some(line.strip_prefix("name = \"")?.trim_matches('"').to_owned()))
    };
    let entries: Vec<(String, &str)> =
        lock.split("[[package]]\n").filter_map(|entry| Some((name(entry)?, entry.trim_end()))).collect();
    let mut left: Vec<String> = packages.iter().map(|&name| name.to_owned()).collect();
    let mut taken = BTreeSet::new();
    while let Some(package) = left.pop() {
        // Of several versions of a package all are taken.
        for (_, entry) in entries.iter().filter(|(name, _)| *name == package) {
            if taken.insert(*entry) {
                let dependencies =
                    entry.lines().filter_map(|line| line.strip_prefix(" \"")?.split(['"', ' ']).next());
                left.extend(dependencies.map(str::to_owned));
            }
        }
    }
    taken.into_iter().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_spaces_do_not_count() {
        let of = |text: &str| without_comments(text).unwrap();
        let plain = of("#[inline] fn f<'a>(x: &'a u8) -> u8 { *x + 1 } mod m { }");
        let documented = "/// Docs.\n#[inline] // why\nfn f<'a>(x: &'a u8) -> u8 {\n    /* one */ *x + 1\n}\nmod m { //! More.\n}";
        assert_eq!(of(documented), plain);
        assert_ne!(of("fn f() { a & &b }"), of("fn f() { a && b }"));
        assert_ne!(of("fn f() { 1 }"), of("fn f() { 2 }"));
        assert_ne!(of("fn f() { \"// 1\" }"), of("fn f() { \"// 2\" }"));
        assert_ne!(of("#[inline] fn f() {}"), of("#[cold] fn f() {}"));
        assert_ne!(hash("1"), hash("2"));
    }

    #[test]
    fn only_the_packages_and_their_dependencies_count() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1\"\ndependencies = [\n \"b 2\",\n]\n\n\
                    [[package]]\nname = \"b\"\nversion = \"2\"\n\n[[package]]\nname = \"c\"\nversion = \"3\"\n";
        let of_a = locked(lock, &["a"]);
        assert_eq!(of_a, locked(&lock.replace("\"3\"", "\"4\""), &["a"]));
        assert_ne!(of_a, locked(&lock.replace("\"2\"", "\"4\""), &["a"]));
    }

    #[test]
    fn a_manifests_comments_do_not_count() {
        let text = "# why\n[profile.release]\nlto = true\n\n[profile.test]\nopt-level = 2\n";
        assert_eq!(manifest(text, |section| section == "profile.release"), "[profile.release]\nlto = true\n");
    }
}
